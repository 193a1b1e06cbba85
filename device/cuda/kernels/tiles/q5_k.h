#include "tiles/scalesk.h"

#if ELEMENT != 0

struct Tile_q5_k : Together {
    static const int id = 2, bytes = 176, bank = 32;
    static const bool sums = true, table = false;

    // part is four codes of part j, whose fifth bits are bits j of bytes of h.
    __device__ __forceinline__ static u32 part(u32 v, u32 h, int j) {
        v >>= 4 * (j & 1);
        h = j < 4 ? h << (4 - j) : h >> (j - 4);
        return nibbles(v, h);
    }

    __device__ __forceinline__ void multiply(const u8 *space, int low, int high, const Columns &x, float (&acc)[ROWS][2]) {
        const int g = x.lane >> 2;
        float f[2][2], least[2][2];
        scalesK(space + low, t, f[0], least[0]);
        scalesK(space + high, t, f[1], least[1]);
        u32 b[ROWS][4];
#pragma unroll
        for (int r = 0; r < ROWS; r++) x.eight(r, 32 * g + 8 * t, b[r]);
        uint2 hv = *(const uint2 *)(space + low + 16 + 8 * t), hw = *(const uint2 *)(space + high + 16 + 8 * t);
#pragma unroll
        for (int p = 0; p < 4; p++) {
            uint2 v = *(const uint2 *)(space + low + 48 + 32 * p + 8 * t), w = *(const uint2 *)(space + high + 48 + 32 * p + 8 * t);
#pragma unroll
            for (int j = 2 * p; j < 2 * p + 2; j++) {
                const u32 m = 0x001f001fu;
                u32 vx = part(v.x, hv.x, j), vy = part(v.y, hv.y, j), wx = part(w.x, hw.x, j), wy = part(w.y, hw.y, j);
                u32 a[2][4] = {{integers(vx, m), integers(wx, m), integers(vx >> 8, m), integers(wx >> 8, m)}, {integers(vy, m), integers(wy, m), integers(vy >> 8, m), integers(wy >> 8, m)}};
                column<2>(j, a, b, f, t, acc);
            }
        }
        lessK(x, t, f, least, acc);
    }
};

#endif
