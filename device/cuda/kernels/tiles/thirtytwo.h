#include "tiles/tile.h"

#if ELEMENT != 0

// ThirtyTwo is for blocks of 32: Code gives the lane's bytes of the first 16 and of the other 16 elements of
// block j, which begins at offset bytes·j of its unit, the scale of a block, and what is added to each of its elements
// (plus), or taken from each of its integers (less).
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
                const uint2 v = Code::words(space, low, t, 4 * half + s), w = Code::words(space, high, t, 4 * half + s);
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    int c[4];
                    whole32(c, v.x, w.x, v.y, w.y, b[r]);
                    keepPart(s, c, t, sum[r]);
                }
            }
            const int at[2] = {low + Code::bytes * (4 * half + t), high + Code::bytes * (4 * half + t)};
            const float f[2] = {Code::scale(space, at[0]), Code::scale(space, at[1])};
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                float unit = x.unit(r, 4 * half + t), all = Code::sums ? x.sum(r, 4 * half + t) : 0;
#pragma unroll
                for (int y = 0; y < 2; y++) {
                    acc[r][y] += f[y] * __fmaf_rn(unit, (float)sum[r][y], -(Code::less * all));
                    if (Code::plus) acc[r][y] = __fmaf_rn(halfAt(space, at[y] + 2), all, acc[r][y]);
                }
            }
        }
    }
};

// Half is for blocks that begin with an f16 scale.
struct Half {
    static const bool sums = false, plus = false; // plus: the next f16
    static constexpr float less = 0;
    __device__ __forceinline__ static float scale(const u8 *space, int at) { return halfAt(space, at); }
};

// lowAndHigh are the lower and the upper halves of bytes.
__device__ __forceinline__ uint2 lowAndHigh(u32 v) { return {v & 0x0f0f0f0fu, v >> 4 & 0x0f0f0f0fu}; }

// fifth puts bits 4t to 4t+3 of a word, and those 16 above, over the codes of the lane.
__device__ __forceinline__ uint2 fifth(uint2 v, u32 bits, int t) {
    const u32 h = bits >> 4 * t;
    return {v.x | ((h & 15) * 0x00204081u & 0x01010101u) << 4, v.y | ((h >> 16 & 15) * 0x00204081u & 0x01010101u) << 4};
}

#endif
