#include "tiles/lookup.h"

#if ELEMENT != 0

// 16 bytes behind a power of two, whose halves are floats.
struct Code_mxfp4 : Half {
    static const int id = 14, bytes = 17;
    __device__ __forceinline__ static uint2 words(const u8 *space, int base, int t, int j) { return e2m1(oddAt(space, base + 4 * t, 17 * j + 1)); }
    __device__ __forceinline__ static float scale(const u8 *space, int at) {
        const u32 e = space[at];
        return __uint_as_float(e > 1 ? e - 1 << 23 : 0x200000u << e); // those below are subnormal
    }
};
struct Tile_mxfp4 : ThirtyTwo<Code_mxfp4> {
    static const int bytes = 136, bank = 16;
    static const bool integer = true, sums = false, table = false;
};

#endif
