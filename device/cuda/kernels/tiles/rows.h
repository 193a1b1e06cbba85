#include "tiles/tile.h"

#if ELEMENT != 0

// RowTile is for formats of a byte each with a scale for each row, behind all codes. Pair makes numbers
// of bytes 0 and 2 of a word.
template <class Pair> struct RowTile : Together {
    static const int id = Pair::id, bytes = 256, bank = 32;
    static const bool integer = false, sums = false, table = false;
    static const bool scaled = true;
    __device__ __forceinline__ static float rowScale(const Matrix &m, int row) { return Pair::factor * ((const float *)(m.in + m.n))[row]; }

    __device__ __forceinline__ void multiply(const u8 *space, int low, int high, const Columns &x, float (&acc)[ROWS][2]) {
        const int g = x.lane >> 2;
        const float f[2][2] = {{1, 1}, {1, 1}};
        u32 b[ROWS][4];
#pragma unroll
        for (int r = 0; r < ROWS; r++) x.eight(r, 32 * g + 8 * t, b[r]);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            uint2 v = *(const uint2 *)(space + low + 32 * j + 8 * t), w = *(const uint2 *)(space + high + 32 * j + 8 * t);
            u32 a[2][4] = {{Pair::of(v.x), Pair::of(w.x), Pair::of(v.x >> 8), Pair::of(w.x >> 8)}, {Pair::of(v.y), Pair::of(w.y), Pair::of(v.y >> 8), Pair::of(w.y >> 8)}};
            column<2>(j, a, b, f, t, acc);
        }
    }
};

#endif
