#include "tiles/thirtytwo.h"

#if ELEMENT != 0

// A scale, what is added, the fifth bits of all elements, and 16 bytes.
struct Code_q5_1 : Half {
    static const int id = 12, bytes = 24;
    static const bool sums = true, plus = true;
    __device__ __forceinline__ static uint2 words(const u8 *space, int base, int t, int j) {
        return fifth(lowAndHigh(wordAt(space, base + 4 * t, 24 * j + 8)), wordAt(space, base, 24 * j + 4), t);
    }
};
struct Tile_q5_1 : ThirtyTwo<Code_q5_1> {
    static const int bytes = 192, bank = 16;
    static const bool integer = true, sums = true, table = false;
};

#endif
