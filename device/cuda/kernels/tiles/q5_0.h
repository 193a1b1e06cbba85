#include "tiles/thirtytwo.h"

#if ELEMENT != 0

// A scale, the fifth bits of all elements, and 16 bytes.
struct Code_q5_0 : Half {
    static const int id = 11, bytes = 22;
    static const bool sums = true;
    static constexpr float less = 16;
    __device__ __forceinline__ static uint2 words(const u8 *space, int base, int t, int j) {
        return fifth(lowAndHigh(wordAt(space, base + 4 * t, 22 * j + 6)), wordAt(space, base, 22 * j + 2), t);
    }
};
struct Tile_q5_0 : ThirtyTwo<Code_q5_0> {
    static const int bytes = 176, bank = 16;
    static const bool integer = true, sums = true, table = false;
};

#endif
