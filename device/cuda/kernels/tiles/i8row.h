#include "tiles/tile.h"

#if ELEMENT != 0

// Tile_i8row is a byte for each element, and a scale of each row behind all.
struct Tile_i8row : Together {
    static const int id = 6, bytes = 256, bank = 32;
    static const bool integer = true, sums = false, table = false;
    static const bool scaled = true;
    __device__ __forceinline__ static float rowScale(const Matrix &m, int row) { return 7.874015718698502e-3f * ((const float *)(m.in + m.n))[row]; } // a 127th

    __device__ __forceinline__ void multiply(const u8 *space, int low, int high, const Columns &x, float (&acc)[ROWS][2]) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint2 b[ROWS];
            int sum[ROWS][2];
#pragma unroll
            for (int r = 0; r < ROWS; r++) b[r] = *(const uint2 *)x.digitsAt(r, 128 * half + 32 * (x.lane >> 3) + 8 * t);
#pragma unroll
            for (int s = 0; s < 4; s++) {
                const int at = 128 * half + 32 * s + 8 * t;
                const uint2 v = *(const uint2 *)(space + low + at), w = *(const uint2 *)(space + high + at);
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    int c[4];
                    whole32(c, v.x, w.x, v.y, w.y, b[r]);
                    keepPart(s, c, t, sum[r]);
                }
            }
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                float unit = x.unit(r, 4 * half + t);
#pragma unroll
                for (int y = 0; y < 2; y++) acc[r][y] = __fmaf_rn(unit, (float)sum[r][y], acc[r][y]);
            }
        }
    }
};

#endif
