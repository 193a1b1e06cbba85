#include "tiles/scalesk.h"

#if ELEMENT != 0

struct Tile_q4_k : Together {
    static const int id = 1, bytes = 144, bank = 32;
    static const bool sums = true, table = false;

    __device__ __forceinline__ void multiply(const u8 *space, int low, int high, const Columns &x, float (&acc)[ROWS][2]) {
        const int g = x.lane >> 2;
        float f[2][2], least[2][2];
        scalesK(space + low, t, f[0], least[0]);
        scalesK(space + high, t, f[1], least[1]);
        u32 b[ROWS][4];
#pragma unroll
        for (int r = 0; r < ROWS; r++) x.eight(r, 32 * g + 8 * t, b[r]);
#pragma unroll
        for (int p = 0; p < 4; p++) {
            uint2 v = *(const uint2 *)(space + low + 16 + 32 * p + 8 * t), w = *(const uint2 *)(space + high + 16 + 32 * p + 8 * t);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const u32 m = 0x000f000fu;
                u32 a[2][4] = {{integers(v.x >> 4 * e, m), integers(w.x >> 4 * e, m), integers(v.x >> (4 * e + 8), m), integers(w.x >> (4 * e + 8), m)},
                               {integers(v.y >> 4 * e, m), integers(w.y >> 4 * e, m), integers(v.y >> (4 * e + 8), m), integers(w.y >> (4 * e + 8), m)}};
                column<2>(2 * p + e, a, b, f, t, acc);
            }
        }
        lessK(x, t, f, least, acc);
    }
};

#endif
