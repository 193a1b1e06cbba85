#include "tiles/thirtytwo.h"

#if ELEMENT != 0

// 16 bytes behind a scale, each with elements i and i+16.
struct Code_q4_0 : Half {
    static const int id = 5, bytes = 18;
    static const bool sums = true;
    static constexpr float less = 8;
    __device__ __forceinline__ static uint2 words(const u8 *space, int base, int t, int j) { return lowAndHigh(wordAt(space, base + 4 * t, 18 * j + 2)); }
};
struct Tile_q4_0 : ThirtyTwo<Code_q4_0> {
    static const int bytes = 144, bank = 16;
    static const bool integer = true, sums = true, table = false;
};

#endif
