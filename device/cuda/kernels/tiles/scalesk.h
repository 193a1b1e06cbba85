#include "tiles/tile.h"

#if ELEMENT != 0

// scalesK reads the 16 bytes that blocks of 256 of two kinds begin with: the scales of columns 2t
// and 2t+1, and what is subtracted from their elements.
__device__ __forceinline__ void scalesK(const u8 *block, int t, float (&f)[2], float (&least)[2]) {
    uint4 h = *(const uint4 *)block;
    u32 scales = t < 2 ? h.y & 0x3f3f3f3fu : (h.w & 0x0f0f0f0fu) | (h.y >> 2 & 0x30303030u);
    u32 minima = t < 2 ? h.z & 0x3f3f3f3fu : (h.w >> 4 & 0x0f0f0f0fu) | (h.z >> 2 & 0x30303030u);
    float d = halfBits(h.x), dmin = halfBits(h.x >> 16);
    u32 which = 0x7540u + 2 * (t & 1);
#pragma unroll
    for (int e = 0; e < 2; e++) {
        f[e] = d * byteAt(scales, which + e);
        least[e] = dmin * byteAt(minima, which + e);
    }
}

// lessK subtracts that, and the offset of the integers, by the sums of x.
__device__ __forceinline__ void lessK(const Columns &x, int t, const float (&f)[2][2], const float (&least)[2][2], float (&acc)[ROWS][2]) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float2 sum = x.pair(r, t);
#pragma unroll
        for (int y = 0; y < 2; y++) {
            acc[r][y] -= __fmaf_rn(OFFSET, f[y][0], least[y][0]) * sum.x;
            acc[r][y] -= __fmaf_rn(OFFSET, f[y][1], least[y][1]) * sum.y;
        }
    }
}

#endif
