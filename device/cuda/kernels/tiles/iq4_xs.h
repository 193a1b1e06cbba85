#include "tiles/lookup.h"

#if ELEMENT != 0

// Tile_iq4_xs is blocks of 32 whose scales, of six bits, lie before the codes of all.
struct Tile_iq4_xs : Together {
    static const int id = 15, bytes = 136, bank = 16;
    static const bool integer = true, sums = false, table = false;

    // scale of part k: its lower four bits and its upper two lie apart.
    __device__ __forceinline__ static float scale(const u8 *space, int row, int k) {
        const u32 head = *(const u32 *)(space + row), lower = *(const u32 *)(space + row + 4);
        return halfBits(head) * (float)((int)((lower >> 4 * k & 15) | (head >> 16 + 2 * k & 3) << 4) - 32);
    }

    __device__ __forceinline__ void multiply(const u8 *space, int low, int high, const Columns &x, float (&acc)[ROWS][2]) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint2 b[ROWS];
            int sum[ROWS][2];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const u8 *p = x.digitsAt(r, 128 * half + 32 * (x.lane >> 3) + 4 * t);
                b[r] = {*(const u32 *)p, *(const u32 *)(p + 16)};
            }
#pragma unroll
            for (int s = 0; s < 4; s++) {
                const int at = 8 + 16 * (4 * half + s) + 4 * t;
                const uint2 v = uneven(*(const u32 *)(space + low + at)), w = uneven(*(const u32 *)(space + high + at));
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    int c[4];
                    whole32(c, v.x, w.x, v.y, w.y, b[r]);
                    keepPart(s, c, t, sum[r]);
                }
            }
            const float f[2] = {scale(space, low, 4 * half + t), scale(space, high, 4 * half + t)};
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                float unit = x.unit(r, 4 * half + t);
#pragma unroll
                for (int y = 0; y < 2; y++) acc[r][y] = __fmaf_rn(f[y] * unit, (float)sum[r][y], acc[r][y]);
            }
        }
    }
};

#endif
