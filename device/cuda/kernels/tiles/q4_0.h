#include "tiles/tile.h"

#if ELEMENT != 0

struct Tile_q4_0 : Together {
    static const int id = 5, bytes = 144, bank = 16;
    static const bool sums = true, table = false;

    __device__ __forceinline__ void multiply(const u8 *space, int low, int high, const Columns &x, float (&acc)[ROWS][2]) {
        const int g = x.lane >> 2;
        float f[2][2];
#pragma unroll
        for (int e = 0; e < 2; e++) {
            f[0][e] = halfAt(space, low + 18 * (2 * t + e));
            f[1][e] = halfAt(space, high + 18 * (2 * t + e));
        }
        u32 b[ROWS][4];
#pragma unroll
        for (int r = 0; r < ROWS; r++) x.fours(r, 32 * g + 4 * t, 32 * g + 16 + 4 * t, b[r]);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const u32 v = wordAt(space, low + 4 * t, 18 * j + 2), w = wordAt(space, high + 4 * t, 18 * j + 2), m = 0x000f000fu;
            u32 a[2][4] = {{integers(v, m), integers(w, m), integers(v >> 8, m), integers(w >> 8, m)}, {integers(v >> 4, m), integers(w >> 4, m), integers(v >> 12, m), integers(w >> 12, m)}};
            column<2>(j, a, b, f, t, acc);
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float2 sum = x.pair(r, t);
#pragma unroll
            for (int y = 0; y < 2; y++) {
                acc[r][y] -= (OFFSET + 8) * f[y][0] * sum.x;
                acc[r][y] -= (OFFSET + 8) * f[y][1] * sum.y;
            }
        }
    }
};

#endif
