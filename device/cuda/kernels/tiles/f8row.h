#include "tiles/rows.h"

#if ELEMENT != 0

// Four bits of exponent and three of fraction become those of an element, whose exponents begin
// elsewhere: a power of two mends that. The two codes of NaN, which nothing finite becomes, count as 480.
struct PairF8 {
    static const int id = 7;
    static constexpr float factor = 1;
    __device__ __forceinline__ static u32 of(u32 word) {
        u32 y;
#if ELEMENT == 1
        u32 bits = (word << 4 & 0x07f007f0u) | (word << 8 & 0x80008000u);
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(bits), "r"(0x7b807b80u), "r"(0x80008000u)); // 2^120
#else
        u32 bits = (word << 7 & 0x3f803f80u) | (word << 8 & 0x80008000u);
        asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(y) : "r"(bits), "r"(0x5c005c00u)); // 2^8
#endif
        return y;
    }
};
using Tile_f8row = RowTile<PairF8>;

#endif
