#include "tiles/thirtytwo.h"

#if ELEMENT != 0

// lookup is the numbers of 16 that the lower and the upper halves of four bytes name: a, b, c and d have four
// of them each, the first in the lowest byte.
__device__ __forceinline__ uint2 lookup(u32 codes, u32 a, u32 b, u32 c, u32 d) {
    const u32 which = codes & 0x77777777u, half = (codes >> 1 & 0x44444444u) | 0x32103210u; // of eight; and of which eight
    const u32 front = __byte_perm(__byte_perm(a, b, which), __byte_perm(c, d, which), half);
    const u32 back = __byte_perm(__byte_perm(a, b, which >> 16), __byte_perm(c, d, which >> 16), half >> 16);
    return {__byte_perm(front, back, 0x6420), __byte_perm(front, back, 0x7531)};
}

// uneven are the numbers of the iq4 formats: -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113.
__device__ __forceinline__ uint2 uneven(u32 codes) { return lookup(codes, 0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u); }

// e2m1 are the floats of four bits, doubled: 0 1 2 3 4 6 8 12, and less than nothing.
__device__ __forceinline__ uint2 e2m1(u32 codes) { return lookup(codes, 0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu); }

#endif
