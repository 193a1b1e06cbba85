#include "tiles/thirtytwo.h"

#if ELEMENT != 0

// CodeQ8_0 is 32 bytes behind a scale.
struct CodeQ8_0 {
    static const int id = 4, bytes = 34;
    static const bool sums = false;
    static constexpr float less = 0;
    __device__ __forceinline__ static uint2 words(const u8 *space, int base, int j) { return {wordAt(space, base, 34 * j + 2), wordAt(space, base, 34 * j + 18)}; }
};
struct Tile_q8_0 : ThirtyTwo<CodeQ8_0> {
    static const int bytes = 272, bank = 16;
    static const bool integer = true, sums = false, table = false;
};

#endif
