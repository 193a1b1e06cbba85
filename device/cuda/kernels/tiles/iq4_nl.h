#include "tiles/lookup.h"

#if ELEMENT != 0

// 16 bytes behind a scale, whose halves name 16 uneven numbers.
struct Code_iq4_nl : Half {
    static const int id = 13, bytes = 18;
    __device__ __forceinline__ static uint2 words(const u8 *space, int base, int t, int j) { return uneven(wordAt(space, base + 4 * t, 18 * j + 2)); }
};
struct Tile_iq4_nl : ThirtyTwo<Code_iq4_nl> {
    static const int bytes = 144, bank = 16;
    static const bool integer = true, sums = false, table = false;
};

#endif
