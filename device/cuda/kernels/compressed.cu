// Decoding of weights in 12 bits, quant.CompressedBF16, to bf16. Every bit comes back.
//
// Of 32 rows that lie together four elements of K are a group: the lower bytes of the first pair of K, those of the
// second, and a byte with the codes of both, 64 bytes each. A code below 15 stands for an upper byte of the table; the
// others are escapes, in the order of the codes, and for each tile of 32 rows by 32 elements of K there is a number of
// how many come before it.
//
// Half a warp decodes a tile. A lane has eight rows of two groups, which it stores 16 bytes of a row at a time, next to
// those of its neighbours.

#if ELEMENT == 1

#define TILE 1024 // elements
#define TILE_BYTES 1536
#define GROUP_BYTES 192
#define TABLE_BYTES 64
#define ROOM 128 // elements for each escape that there is room for

// upperBytes looks up the four codes in the lower half of a word.
__device__ __forceinline__ u32 upperBytes(const u32 (&table)[4], u32 codes) {
    const u32 low = codes & 0x7777, large = __byte_perm(0xff00, 0, codes >> 3 & 0x1111); // 255 where a code is 8 or more
    return __byte_perm(table[0], table[1], low) & ~large | __byte_perm(table[2], table[3], low) & large;
}

// escapesIn marks the codes that are 15 by their lowest bit.
__device__ __forceinline__ u32 escapesIn(u32 codes) {
    codes &= codes >> 2;
    return codes & codes >> 1 & 0x11111111;
}

__device__ __forceinline__ u32 word(const uint4 &x, int n) { return n == 0 ? x.x : n == 1 ? x.y : n == 2 ? x.z : x.w; }

// Every fourth lane of a word of codes has two rows: rowOf is which of the 32 a byte of 16 belongs to.
__device__ __forceinline__ int rowOf(int quarter, int place) { return (place >> 3) * 16 + quarter * 4 + (place >> 1 & 3); }

extern "C" __global__ void __launch_bounds__(256) decompress(const u8 *in, bf16 *out, i64 n, int cols) {
    const u32 all = 0xffffffffu, tiles = (u32)(n / TILE), tile = (blockIdx.x * 8 + threadIdx.x / 32) * 2 + (threadIdx.x >> 4 & 1);
    const int quarter = threadIdx.x & 3, eight = threadIdx.x >> 2 & 3; // of the rows, and of the tile's K
    const u8 *offsets = in + n / 2 * 3, *lookup = offsets + 4 * (i64)tiles, *escapes = lookup + TABLE_BYTES;
    uint4 low[2][2] = {}, codes[2] = {}; // of two groups
    u32 table[4];
#pragma unroll
    for (int i = 0; i < 4; i++) table[i] = ((const u32 *)lookup)[i];
    u8 *to = 0;
    if (tile < tiles) {
        const u8 *from = in + (i64)tile * TILE_BYTES + eight * 2 * GROUP_BYTES + quarter * 16;
#pragma unroll
        for (int g = 0; g < 2; g++, from += GROUP_BYTES) {
            low[g][0] = __ldcs((const uint4 *)from);
            low[g][1] = __ldcs((const uint4 *)(from + 64));
            codes[g] = __ldcs((const uint4 *)(from + 128));
        }
        const u32 across = cols / 32;
        to = (u8 *)(out + (i64)(tile / across) * 32 * cols + tile % across * 32 + eight * 8);
#pragma unroll
        for (int r = 0; r < 8; r++) { // a row is two bytes of each load
            const int w = r / 2, odd = r % 2;
            u32 x[4];
#pragma unroll
            for (int g = 0; g < 2; g++) {
                const u32 upper = upperBytes(table, word(codes[g], w) >> 16 * odd); // of elements 1, 3, 0 and 2
                x[2 * g] = __byte_perm(upper, word(low[g][0], w), odd ? 0x0627 : 0x0425);
                x[2 * g + 1] = __byte_perm(upper, word(low[g][1], w), odd ? 0x1637 : 0x1435);
            }
            *(uint4 *)(to + 2 * (i64)rowOf(quarter, 2 * r) * cols) = make_uint4(x[0], x[1], x[2], x[3]);
        }
    }

    // Escapes are few, and many warps have none. They come group by group, the first pair of K before the second, and of each
    // pair those of one quarter before those of the next.
    u32 marks[2][4], some = 0;
#pragma unroll
    for (int g = 0; g < 2; g++)
#pragma unroll
        for (int w = 0; w < 4; w++) some |= marks[g][w] = escapesIn(word(codes[g], w));
    if (!__any_sync(all, some != 0)) return;
    u32 mine = 0; // how many there are of both pairs of both groups, a byte each
#pragma unroll
    for (int p = 0; p < 4; p++)
#pragma unroll
        for (int w = 0; w < 4; w++) mine += __popc(marks[p / 2][w] & 0x01010101u << p % 2 * 4) << 8 * p;
    u32 upTo = mine, other = __shfl_up_sync(all, upTo, 1, 4);
    if (quarter >= 1) upTo += other;
    other = __shfl_up_sync(all, upTo, 2, 4);
    if (quarter >= 2) upTo += other;
    const u32 four = __shfl_sync(all, upTo, 3, 4), ahead = four * 0x01010100u, sum = (ahead >> 24) + (four >> 24);
    u32 before = sum;
    other = __shfl_up_sync(all, before, 4, 16);
    if (eight >= 1) before += other;
    other = __shfl_up_sync(all, before, 8, 16);
    if (eight >= 2) before += other;
    if (some == 0) return;
    const u32 room = (u32)(n / ROOM), first = min(((const u32 *)offsets)[tile], room) + before - sum; // whatever the storage holds
#pragma unroll
    for (int p = 0; p < 4; p++) {
        u32 next = first + (ahead >> 8 * p & 255) + (upTo - mine >> 8 * p & 255);
#pragma unroll
        for (int w = 0; w < 4; w++)
            for (u32 left = marks[p / 2][w] & 0x01010101u << p % 2 * 4; left != 0; left &= left - 1, next++) {
                const int place = 4 * w + (__ffs(left) - 1) / 8;
                to[2 * ((i64)rowOf(quarter, place) * cols + 2 * p + 1 - place % 2) + 1] = escapes[min(next, room)];
            }
    }
}

#endif
