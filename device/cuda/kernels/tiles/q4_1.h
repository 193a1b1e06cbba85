#include "tiles/thirtytwo.h"

#if ELEMENT != 0

// 16 bytes behind a scale and what is added.
struct Code_q4_1 : Half {
    static const int id = 10, bytes = 20;
    static const bool sums = true, plus = true;
    __device__ __forceinline__ static uint2 words(const u8 *space, int base, int t, int j) { return lowAndHigh(wordAt(space, base + 4 * t, 20 * j + 4)); }
};
struct Tile_q4_1 : ThirtyTwo<Code_q4_1> {
    static const int bytes = 160, bank = 16;
    static const bool integer = true, sums = true, table = false;
};

#endif
