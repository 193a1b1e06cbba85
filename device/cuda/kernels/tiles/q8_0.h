#include "tiles/thirtytwo.h"

#if ELEMENT != 0

// 32 bytes behind a scale.
struct Code_q8_0 : Half {
    static const int id = 4, bytes = 34;
    __device__ __forceinline__ static uint2 words(const u8 *space, int base, int t, int j) {
        return {wordAt(space, base + 4 * t, 34 * j + 2), wordAt(space, base + 4 * t, 34 * j + 18)};
    }
};
struct Tile_q8_0 : ThirtyTwo<Code_q8_0> {
    static const int bytes = 272, bank = 16;
    static const bool integer = true, sums = false, table = false;
};

#endif
