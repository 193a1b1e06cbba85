#include "mask.h"
#include "documents.h"

#define COSTS 256 // that are told apart
#define SHORT 64  // documents of so many rows share tiles: those that begin in the same SHORT rows

// Marks are the rows of a sample that begin a document, 32 a word; summary says which words have
// any, so that far ones are found at once.
struct Marks {
    const u32 *marks, *summary;
    int words, T;

    // after is the first marked row from i on, or T.
    __device__ int after(int i) const {
        int w = i >> 5;
        if (w >= words) return T;
        u32 m = marks[w] & ~0u << (i & 31);
        if (!m) {
            int group = ++w >> 5, groups = (words + 31) >> 5;
            if (group >= groups) return T;
#pragma unroll 1
            for (m = summary[group] & ~0u << (w & 31); !m; m = summary[group])
                if (++group == groups) return T;
            w = 32 * group + __ffs(m) - 1;
            m = marks[w];
        }
        return 32 * w + __ffs(m) - 1;
    }
    // before is the last marked row up to i: the first row is marked.
    __device__ int before(int i) const {
        int w = i >> 5;
        u32 m = marks[w] & (2u << (i & 31)) - 1;
        if (!m) {
            int group = --w >> 5;
#pragma unroll 1
            for (m = summary[group] & (2u << (w & 31)) - 1; !m; m = summary[group]) group--;
            w = 32 * group + 31 - __clz(m);
            m = marks[w];
        }
        return 32 * w + 31 - __clz(m);
    }
};

// documentTiles: one block of 1024 threads. Lists are size ints apart: the first by the keys that
// rows see, the second, if there are two, by the queries that see them. most is how many tiles
// a sample may have.
extern "C" __global__ void __launch_bounds__(1024) documentTiles(const int *segments, int *lists, i64 size, int count, int samples, int T, int most, int causal, int window) {
    extern __shared__ u32 memory[];
    int words = (T + 31) >> 5, pitch = words + 5, groups = (words + 31) >> 5, warp = threadIdx.x >> 5, lane = threadIdx.x & 31, room = samples * most;
    u32 *marks = memory, *summary = marks + samples * pitch; // [samples pitch], behind a sample's zeros; [samples groups]
    int *mixed = (int *)(summary + samples * groups);
    int *owner = mixed + samples, *firsts = owner + room, *starts = firsts + room, *stops = starts + room; // of tiles
    u32 *ranks = (u32 *)(stops + room); // [count room]: cost, and which of those that cost the same
    __shared__ int places[2][COSTS], sums[16], tiles;
#pragma unroll 1
    for (int i = threadIdx.x; i < samples * (groups + 1); i += 1024) summary[i] = 0; // and mixed
    if (threadIdx.x < 2 * COSTS) places[0][threadIdx.x] = 0;
    if (threadIdx.x == 0) tiles = 0;
    __syncthreads();
    u32 reciprocal = ~0u / (u32)pitch + 1; // of 2^32
    const int batch = 8;                   // of words on their way together
#pragma unroll 1
    for (int x = warp; x < samples * pitch; x += 32 * batch) {
        u32 ids[batch], befores[batch];
#pragma unroll
        for (int n = 0; n < batch; n++) {
            int b = __umulhi(x + 32 * n, reciprocal), i = (x + 32 * n - b * pitch) * 32 + lane;
            bool there = b < samples && i < T;
            const int *p = segments + (there ? (i64)b * T + i : 0);
            ids[n] = there ? p[0] : 0;
            befores[n] = there && i > 0 ? p[-1] : 0;
            if (there && i == 0) befores[n] = ~ids[n];
        }
#pragma unroll
        for (int n = 0; n < batch; n++) {
            int b = __umulhi(x + 32 * n, reciprocal), w = x + 32 * n - b * pitch;
            u32 bits = __ballot_sync(0xffffffffu, ids[n] != befores[n]);
            if (b >= samples) break;
            if (ids[n] < befores[n] && w * 32 + lane > 0) mixed[b] = 1;
            if (lane == 0) marks[x + 32 * n] = bits;
            if (lane == 0 && bits) atomicOr(&summary[b * groups + (w >> 5)], 1u << (w & 31));
        }
    }
    __syncthreads();
    int shift = 0;
    while (T / 64 >> shift >= COSTS) shift++;
#pragma unroll 1
    for (int x = threadIdx.x; x < samples * words; x += 1024) { // a thread for the tiles that begin in a word
        int b = x / words, w = x - b * words, row = 32 * w, limit = min(row + 32, T);
        bool one = mixed[b];
        Marks m = {marks + b * pitch, summary + b * groups, words, T};
        while (row < limit) { // of which document
            int start = one ? 0 : m.before(row), stop = one ? T : m.after(row + 1), first = start + (row - start + ROWS - 1) / ROWS * ROWS, end = min(first + ROWS, stop);
            row = stop;
            if (first >= min(stop, limit)) continue;
            if (stop - start <= SHORT && !one) {
                u64 block = (u64)m.marks[start / SHORT * 2 + 1] << 32 | m.marks[start / SHORT * 2];
                if (block & ((u64)1 << start % SHORT) - 1) continue; // not the first of those that share a tile
                int last = start / SHORT * SHORT + 63 - __clzll(block);
                end = m.after(last + 1);
                stop = end = end - last <= SHORT ? end : last;
            }
            int tile = atomicAdd(&tiles, 1);
            owner[tile] = b;
            firsts[tile] = first;
            starts[tile] = start;
            stops[tile] = stop;
#pragma unroll 1
            for (int list = 0; list < count; list++) {
                int far = list ? window > 0 ? min(stop, end + window) : stop : causal ? end : stop;
                int near = list ? causal ? first : start : window > 0 ? max(start, first - window) : start;
                int cost = COSTS - 1 - min(COSTS - 1, (far - near) / 64 >> shift); // most first
                ranks[list * room + tile] = cost << 22 | atomicAdd(&places[list][cost], 1);
            }
        }
    }
    __syncthreads();
    int mine = 0, sum = 0; // places become those of the first of each cost
    if (threadIdx.x < 2 * COSTS) {
        mine = sum = places[0][threadIdx.x];
        for (int d = 1; d < 32; d <<= 1) {
            int x = __shfl_up_sync(0xffffffffu, sum, d);
            if (lane >= d) sum += x;
        }
        if (lane == 31) sums[warp] = sum;
    }
    __syncthreads();
    if (threadIdx.x < 2 * COSTS) {
#pragma unroll 1
        for (int w = warp & ~7; w < warp; w++) sum += sums[w];
        places[0][threadIdx.x] = sum - mine;
    }
    if (threadIdx.x < count) lists[threadIdx.x * size] = tiles;
    __syncthreads();
#pragma unroll 1
    for (int x = threadIdx.x; x < tiles; x += 1024) {
        Tile t = {owner[x], firsts[x], min(firsts[x] + ROWS, stops[x]), mixed[owner[x]], starts[x], stops[x]};
#pragma unroll
        for (int w = 0; w < 4; w++) {
            int at = t.first + 32 * w, left = t.end - at;
            if (t.mixed || left <= 0) continue;
            const u32 *from = marks + t.sample * pitch + (at >> 5);
            u32 m = __funnelshift_r(from[0], from[1], at & 31);
            t.marks[w] = left >= 32 ? m : m & (1u << left) - 1;
        }
        t.marks[0] &= ~1u;
        const int4 *from = (const int4 *)&t;
#pragma unroll 1
        for (int list = 0; list < count; list++) {
            u32 rank = ranks[list * room + x];
            int4 *to = (int4 *)(lists + list * size + LIST) + 3 * (places[list][rank >> 22] + (rank & (1 << 22) - 1));
            to[0] = from[0];
            to[1] = from[1];
            to[2] = from[2];
        }
    }
}
