#include "tiles/tile.h"

#if ELEMENT != 0

// ThirtyTwo is for blocks of 32 that begin with an f16 scale: Code gives the lane's bytes of the first 16
// and of the other 16 elements of block j, and what is less than its integers.
template <class Code> struct ThirtyTwo : Together {
    static const int id = Code::id;

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
                const uint2 v = Code::words(space, low + 4 * t, 4 * half + s), w = Code::words(space, high + 4 * t, 4 * half + s);
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    int c[4];
                    whole32(c, v.x, w.x, v.y, w.y, b[r]);
                    keepPart(s, c, t, sum[r]);
                }
            }
            const float f[2] = {halfAt(space, low + Code::bytes * (4 * half + t)), halfAt(space, high + Code::bytes * (4 * half + t))};
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                float unit = x.unit(r, 4 * half + t), all = Code::sums ? Code::less * x.sum(r, 4 * half + t) : 0;
#pragma unroll
                for (int y = 0; y < 2; y++) acc[r][y] += f[y] * __fmaf_rn(unit, (float)sum[r][y], -all);
            }
        }
    }
};

#endif
