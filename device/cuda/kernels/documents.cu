#include "mask.h"
#include "documents.h"

#define COSTS 256 // that are told apart
#define SHORT 64  // documents of so many rows share tiles: those that begin in the same SHORT rows

// nextMark is the first marked row from i on, or T. All lanes of a warp look for it.
__device__ __forceinline__ int nextMark(const u32 *marks, int i, int T) {
    int lane = threadIdx.x & 31;
    for (int w = i >> 5; 32 * w < T; w += 32) {
        u32 m = 32 * (w + lane) < T ? marks[w + lane] : 0;
        if (w + lane == i >> 5) m &= ~0u << (i & 31);
        u32 some = __ballot_sync(0xffffffffu, m != 0);
        if (some) return 32 * (w + __ffs(some) - 1) + __ffs(__shfl_sync(0xffffffffu, m, __ffs(some) - 1)) - 1;
    }
    return T;
}

// documentTiles: one block of 1024 threads. Lists are size ints apart: the first by the keys that
// rows see, the second, if there are two, by the queries that see them. most is how many tiles
// a sample may have.
extern "C" __global__ void __launch_bounds__(1024) documentTiles(const int *segments, int *lists, i64 size, int count, int samples, int T, int most, int causal, int window) {
    extern __shared__ u32 memory[];
    int words = (T + 31) / 32, pitch = words + 5, warp = threadIdx.x >> 5, lane = threadIdx.x & 31, room = samples * most;
    u32 *marks = memory; // [samples pitch]: rows that begin a document; behind them zeros
    int *mixed = (int *)(marks + samples * pitch);
    int *owner = mixed + samples, *firsts = owner + room, *ends = firsts + room, *starts = ends + room, *stops = starts + room; // of tiles
    __shared__ int places[COSTS], sums[8], tiles;
    for (int b = threadIdx.x; b < samples; b += 1024) mixed[b] = 0;
    if (threadIdx.x == 0) tiles = 0;
    __syncthreads();
#pragma unroll 4
    for (int w = warp; w < samples * pitch; w += 32) {
        int b = w / pitch, i = w % pitch * 32 + lane;
        bool there = i > 0 && i < T;
        u32 id = there ? segments[(i64)b * T + i] : 0, before = there ? segments[(i64)b * T + i - 1] : 0;
        u32 bits = __ballot_sync(0xffffffffu, id != before || i == 0);
        if (lane == 0) marks[w] = bits;
        if (id < before) mixed[b] = 1;
    }
    __syncthreads();
    for (int x = warp; x < samples * words; x += 32) { // a warp for the documents that begin in a word
        int b = x / words, w = x % words;
        const u32 *own = marks + b * pitch;
        for (u32 m = mixed[b] ? w == 0 : own[w]; m; m &= m - 1) {
            int start = 32 * w + __ffs(m) - 1, stop = mixed[b] ? T : nextMark(own, start + 1, T);
            if (stop - start <= SHORT && !mixed[b]) {
                u64 block = (u64)own[start / SHORT * 2 + 1] << 32 | own[start / SHORT * 2];
                if (block & ((u64)1 << start % SHORT) - 1) continue; // not the first of those that share a tile
                int last = start / SHORT * SHORT + 63 - __clzll(block), end = nextMark(own, last + 1, T);
                stop = end - last <= SHORT ? end : last;
            }
            int n = (stop - start + ROWS - 1) / ROWS, at = 0;
            if (lane == 0) at = atomicAdd(&tiles, n);
            at = __shfl_sync(0xffffffffu, at, 0);
            for (int k = lane; k < n; k += 32) {
                owner[at + k] = b;
                firsts[at + k] = start + k * ROWS;
                ends[at + k] = min(start + (k + 1) * ROWS, stop);
                starts[at + k] = start;
                stops[at + k] = stop;
            }
        }
    }
    int shift = 0;
    while (T / 64 >> shift >= COSTS) shift++;
    Mask c = {};
    c.causal = causal;
    c.window = window;
    for (int list = 0; list < count; list++, lists += size) {
        __syncthreads();
        if (threadIdx.x < COSTS) places[threadIdx.x] = 0;
        __syncthreads();
        Tile t;
        // tileOf fills t and returns its place by cost, most first
        auto tileOf = [&](int x) {
            t = {owner[x], firsts[x], ends[x], mixed[owner[x]], starts[x], stops[x]};
#pragma unroll
            for (int w = 0; w < 4; w++) {
                int at = t.first + 32 * w, left = t.end - at;
                if (t.mixed || left <= 0) continue;
                const u32 *from = marks + t.sample * pitch + (at >> 5);
                u32 m = __funnelshift_r(from[0], from[1], at & 31);
                t.marks[w] = left >= 32 ? m : m & (1u << left) - 1;
            }
            t.marks[0] &= ~1u;
            Range r = list ? rangeOf<true>(c, t, t.first, t.end - 1) : rangeOf<false>(c, t, t.first, t.end - 1);
            return COSTS - 1 - min(COSTS - 1, (r.to - r.from) / 64 >> shift);
        };
        for (int x = threadIdx.x; x < tiles; x += 1024) atomicAdd(&places[tileOf(x)], 1);
        __syncthreads();
        int mine = 0, sum = 0;
        if (threadIdx.x < COSTS) {
            mine = sum = places[threadIdx.x];
#pragma unroll
            for (int d = 1; d < 32; d <<= 1) {
                int x = __shfl_up_sync(0xffffffffu, sum, d);
                if (lane >= d) sum += x;
            }
            if (lane == 31) sums[warp] = sum;
        }
        __syncthreads();
        if (threadIdx.x < COSTS) {
            for (int w = 0; w < warp; w++) sum += sums[w];
            places[threadIdx.x] = sum - mine;
        }
        if (threadIdx.x == 0) lists[0] = tiles;
        __syncthreads();
        for (int x = threadIdx.x; x < tiles; x += 1024) {
            int4 *to = (int4 *)(lists + LIST) + 3 * atomicAdd(&places[tileOf(x)], 1);
            const int4 *from = (const int4 *)&t;
            to[0] = from[0];
            to[1] = from[1];
            to[2] = from[2];
        }
    }
}
