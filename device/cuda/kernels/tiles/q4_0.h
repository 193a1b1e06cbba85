#include "tiles/thirtytwo.h"

#if ELEMENT != 0

// CodeQ4_0 is 16 bytes behind a scale, each with elements i and i+16.
struct CodeQ4_0 {
    static const int id = 5, bytes = 18;
    static const bool sums = true;
    static constexpr float less = 8;
    __device__ __forceinline__ static uint2 words(const u8 *space, int base, int j) {
        u32 v = wordAt(space, base, 18 * j + 2);
        return {v & 0x0f0f0f0fu, v >> 4 & 0x0f0f0f0fu};
    }
};
struct Tile_q4_0 : ThirtyTwo<CodeQ4_0> {
    static const int bytes = 144, bank = 16;
    static const bool integer = true, sums = true, table = false;
};

#endif
