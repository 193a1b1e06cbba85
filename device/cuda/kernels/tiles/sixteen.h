#include "tiles/tile.h"

#if ELEMENT != 0

// Sixteen is for formats whose scales are of 16 elements, two of them in each 32 of a half: Code gives four codes of
// part s of a half, elements 16c on, and for the j-th 16 of all its scale and what is taken from its elements, in units of the
// sum of x.
template <class Code> struct Sixteen : Together {
    static const int id = Code::id;

    // Parts are 16 of the eight in a half of the unit, four of them at a time.
    __device__ __forceinline__ void multiply(const u8 *space, int low, int high, const Columns &x, float (&acc)[ROWS][2]) {
        const Code codes[2] = {Code(space, low, t), Code(space, high, t)};
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 b[2][ROWS];
            int sum[2][ROWS][2];
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int q = 0; q < 2; q++) b[q][r] = *(const u32 *)x.digitsAt(r, 128 * half + 64 * q + 16 * (x.lane >> 3) + 4 * t);
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const typename Code::Words v = codes[0].words(half, c), w = codes[1].words(half, c);
#pragma unroll
                for (int s = 0; s < 4; s++) {
                    u32 a0 = Code::part(v, half, s), a1 = Code::part(w, half, s);
#pragma unroll
                    for (int r = 0; r < ROWS; r++) {
                        int made[4];
                        whole16(made, a0, a1, b[s >> 1][r]);
                        keepPart(2 * s + c & 3, made, t, sum[s >> 1][r]);
                    }
                }
            }
#pragma unroll
            for (int q = 0; q < 2; q++)
#pragma unroll
                for (int y = 0; y < 2; y++) {
                    const float2 f = codes[y].scales(half, q, t);
#pragma unroll
                    for (int r = 0; r < ROWS; r++)
                        acc[r][y] += __fmaf_rn(f.x * x.unit(r, 4 * half + 2 * q + (t >> 1)), (float)sum[q][r][y], -f.y * x.sums[r * x.width / 16 + 8 * half + 4 * q + t]);
                }
        }
    }
};

#endif
