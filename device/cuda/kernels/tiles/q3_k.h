#include "tiles/sixteen.h"

#if ELEMENT != 0

// Code_q3_k: the third bits of all elements, their other two, 16 scales of six bits in two parts, and what these are
// in units of. Codes are less four.
struct Code_q3_k {
    static const int id = 17;
    struct Words { u32 codes, above; };
    const u8 *row;
    Even mine;
    float d;
    __device__ __forceinline__ Code_q3_k(const u8 *space, int at, int t) : row(space + at), mine(space, at + 4 * t), d(halfAt(space, at + 108)) {}
    __device__ __forceinline__ Words words(int half, int c) const { return {mine.word(32 + 32 * half + 16 * c), mine.word(16 * c)}; }
    __device__ __forceinline__ static u32 part(const Words &v, int half, int s) {
        const int bit = 4 * half + s;
        return (v.codes >> 2 * s & 0x03030303u) | ((bit < 2 ? v.above << 2 - bit : v.above >> bit - 2) & 0x04040404u);
    }
    __device__ __forceinline__ float2 scales(int half, int q, int t) const {
        const int lower = row[96 + 4 * q + t] >> 4 * half & 15, upper = row[104 + t] >> 2 * (2 * half + q) & 3;
        const float f = d * (float)((lower | upper << 4) - 32);
        return {f, 4 * f};
    }
};
struct Tile_q3_k : Sixteen<Code_q3_k> {
    static const int bytes = 110, bank = 16;
    static const bool integer = true, sums = true, table = false;
};

#endif
