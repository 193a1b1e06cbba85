#include "tiles/tile.h"

#if ELEMENT != 0

struct Tile_q8_0 : Together {
    static const int id = 4, bytes = 272, bank = 16;
    static const bool sums = false, table = false;

    __device__ __forceinline__ void multiply(const u8 *space, int low, int high, const Columns &x, float (&acc)[ROWS][2]) {
        const int g = x.lane >> 2;
        float f[2][2];
#pragma unroll
        for (int e = 0; e < 2; e++) {
            f[0][e] = halfAt(space, low + 34 * (2 * t + e));
            f[1][e] = halfAt(space, high + 34 * (2 * t + e));
        }
        u32 b[ROWS][4];
#pragma unroll
        for (int r = 0; r < ROWS; r++) x.fours(r, 32 * g + 4 * t, 32 * g + 16 + 4 * t, b[r]);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            u32 v[2], w[2];
#pragma unroll
            for (int s = 0; s < 2; s++) {
                v[s] = wordAt(space, low + 4 * t, 34 * j + 2 + 16 * s);
                w[s] = wordAt(space, high + 4 * t, 34 * j + 2 + 16 * s);
            }
            u32 a[2][4] = {{whole(v[0]), whole(w[0]), whole(v[0] >> 8), whole(w[0] >> 8)}, {whole(v[1]), whole(w[1]), whole(v[1] >> 8), whole(w[1] >> 8)}};
            column<2>(j, a, b, f, t, acc);
        }
    }
};

#endif
