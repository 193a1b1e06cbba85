#include "tiles/sixteen.h"

#if ELEMENT != 0

// Code_q2_k: 16 scales, of four bits each with what is taken, two bits of each element, and what these are in units of.
struct Code_q2_k {
    static const int id = 16;
    using Words = u32;
    const u8 *row, *mine;
    float d, least;
    __device__ __forceinline__ Code_q2_k(const u8 *space, int at, int t) : row(space + at), mine(space + at + 16 + 4 * t) {
        const u32 both = *(const u32 *)(row + 80);
        d = halfBits(both), least = halfBits(both >> 16);
    }
    __device__ __forceinline__ u32 words(int half, int c) const { return *(const u32 *)(mine + 32 * half + 16 * c); }
    __device__ __forceinline__ static u32 part(u32 v, int, int s) { return v >> 2 * s & 0x03030303u; }
    __device__ __forceinline__ float2 scales(int half, int q, int t) const {
        const u32 s = row[8 * half + 4 * q + t];
        return {d * (float)(s & 15), least * (float)(s >> 4)};
    }
};
struct Tile_q2_k : Sixteen<Code_q2_k> {
    static const int bytes = 84, bank = 16;
    static const bool integer = true, sums = true, table = false;
};

#endif
