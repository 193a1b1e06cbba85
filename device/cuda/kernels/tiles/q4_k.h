#include "tiles/scalesk.h"

#if ELEMENT != 0

struct Tile_q4_k : Together {
    static const int id = 1, bytes = 144, bank = 32;
    static const bool integer = true, sums = true, table = false;

    __device__ __forceinline__ void multiply(const u8 *space, int low, int high, const Columns &x, float (&acc)[ROWS][2]) {
        const u32 m = 0x0f0f0f0fu;
        float f[2][2], least[2][2];
        scalesK(space + low, t, f[0], least[0]);
        scalesK(space + high, t, f[1], least[1]);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint2 b[ROWS];
            int sum[ROWS][2];
#pragma unroll
            for (int r = 0; r < ROWS; r++) b[r] = *(const uint2 *)x.digitsAt(r, 128 * half + 32 * (x.lane >> 3) + 8 * t);
#pragma unroll
            for (int p = 0; p < 2; p++) {
                const int at = 16 + 64 * half + 32 * p + 8 * t;
                const uint2 v = *(const uint2 *)(space + low + at), w = *(const uint2 *)(space + high + at);
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    int c[4];
                    whole32(c, v.x & m, w.x & m, v.y & m, w.y & m, b[r]);
                    keepPart(2 * p, c, t, sum[r]);
                    whole32(c, v.x >> 4 & m, w.x >> 4 & m, v.y >> 4 & m, w.y >> 4 & m, b[r]);
                    keepPart(2 * p + 1, c, t, sum[r]);
                }
            }
            addK(x, half, t, sum, f, least, acc);
        }
    }
};

#endif
