#include "tiles/tile.h"

#if ELEMENT != 0

// scalesK reads the 16 bytes that blocks of 256 of two kinds begin with: the scales of parts t and t+4 of
// eight, and what is subtracted from their elements.
__device__ __forceinline__ void scalesK(const u8 *block, int t, float (&f)[2], float (&least)[2]) {
    uint4 h = *(const uint4 *)block;
    float d = halfBits(h.x), dmin = halfBits(h.x >> 16);
    u32 which = 0x7540u + t;
    f[0] = d * byteAt(h.y & 0x3f3f3f3fu, which);
    f[1] = d * byteAt((h.w & 0x0f0f0f0fu) | (h.y >> 2 & 0x30303030u), which);
    least[0] = dmin * byteAt(h.z & 0x3f3f3f3fu, which);
    least[1] = dmin * byteAt((h.w >> 4 & 0x0f0f0f0fu) | (h.z >> 2 & 0x30303030u), which);
}

// addK adds the sums of part t of a half of the unit.
__device__ __forceinline__ void addK(const Columns &x, int half, int t, const int (&sum)[ROWS][2], const float (&f)[2][2], const float (&least)[2][2], float (&acc)[ROWS][2]) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float unit = x.unit(r, 4 * half + t), all = x.sum(r, 4 * half + t);
#pragma unroll
        for (int y = 0; y < 2; y++) acc[r][y] += __fmaf_rn(f[y][half] * unit, (float)sum[r][y], -least[y][half] * all);
    }
}

#endif
