#include "mask.h"
#include "documents.h"

#define COSTS 256

// documentTiles: one block of 1024 threads. Lists are size ints apart: the first by the keys that
// rows see, the second, if there are two, by the queries that see them.
extern "C" __global__ void __launch_bounds__(1024) documentTiles(const int *segments, int *lists, i64 size, int count, int samples, int T, int causal, int window) {
    extern __shared__ u32 memory[];
    int words = (T + 31) / 32 + 5, most = 2 * ((T + ROWS - 1) / ROWS) + 1, warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    u32 *marks = memory;                            // [samples words], of which the last five are zero
    int *firsts = (int *)(marks + samples * words); // [samples most], as the next two
    int *starts = firsts + samples * most, *stops = starts + samples * most;
    int *mixed = stops + samples * most, *counts = mixed + samples;
    __shared__ int places[COSTS], sums[8];
    for (int b = threadIdx.x; b < samples; b += 1024) mixed[b] = 0;
    __syncthreads();
#pragma unroll 4
    for (int w = warp; w < samples * words; w += 32) {
        int b = w / words, i = w % words * 32 + lane;
        bool there = i > 0 && i < T;
        u32 id = there ? segments[(i64)b * T + i] : 0, before = there ? segments[(i64)b * T + i - 1] : 0;
        u32 bits = __ballot_sync(0xffffffffu, id != before);
        if (lane == 0) marks[w] = bits;
        if (id < before) mixed[b] = 1;
    }
    __syncthreads();
    for (int b = warp; b < samples; b += 32) { // a warp walks over a sample
        const u32 *own = marks + b * words;
        int n = 0, pending = 0, start = 0, at = b * most;
        bool apart = !mixed[b];
        for (int r = 0; r < T; n++) {
            // the first and the last place in r+1..r+ROWS where a document ends; all lanes look
            int end = min(r + ROWS, T), early = T, late = -1;
            const u32 *w = own + (r + 1 >> 5);
            u64 low = 0, high = 0;
            if (apart) {
                low = __funnelshift_r(w[0], w[1], r + 1 & 31) | (u64)__funnelshift_r(w[1], w[2], r + 1 & 31) << 32;
                high = __funnelshift_r(w[2], w[3], r + 1 & 31) | (u64)__funnelshift_r(w[3], w[4], r + 1 & 31) << 32;
            }
            if (low | high) {
                early = r + (low ? __ffsll(low) : 64 + __ffsll(high));
                late = r + (high ? 128 - __clzll(high) : 64 - __clzll(low));
            }
            if (end == T) late = T;
            if (lane == 0) {
                firsts[at + n] = r;
                starts[at + n] = start;
                if (late >= 0) stops[at + n] = late;
            }
            if (late < 0 && apart) { // a long document: all tiles but its last at once
                int stop = T;
                for (int w = end + 1 >> 5; w < words && stop == T; w += 32) {
                    u32 m = w + lane < words ? own[w + lane] : 0;
                    if (lane == 0 && w == end + 1 >> 5) m &= ~0u << (end + 1 & 31);
                    u32 some = __ballot_sync(0xffffffffu, m != 0);
                    if (some) stop = 32 * (w + __ffs(some) - 1) + __ffs(__shfl_sync(0xffffffffu, m, __ffs(some) - 1)) - 1;
                }
                int more = (stop - r - 1) / ROWS; // tiles from r on that do not reach the stop
                for (int x = lane; x < more; x += 32) {
                    firsts[at + n + x] = r + x * ROWS;
                    starts[at + n + x] = start;
                    stops[at + n + x] = stop;
                }
                r += more * ROWS;
                n += more - 1;
                pending = n + 1;
                continue;
            }
            r = late < 0 ? end : late;
            if (late < 0) continue;
            for (int x = pending + lane; x < n; x += 32) stops[at + x] = early;
            pending = n + 1;
            start = late;
        }
        if (lane == 0) counts[b] = n;
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
        // tileOf fills t and returns its place by cost, most first; -1 if there is none
        auto tileOf = [&](int x) {
            int b = x / most, n = x % most;
            if (n >= counts[b]) return -1;
            t.sample = b;
            t.first = firsts[x];
            t.end = n + 1 < counts[b] ? firsts[x + 1] : T;
            t.mixed = mixed[b];
            t.start = starts[x];
            t.stop = stops[x];
#pragma unroll
            for (int w = 0; w < 4; w++) {
                int at = t.first + 32 * w;
                const u32 *from = marks + b * words + (at >> 5);
                u32 m = __funnelshift_r(from[0], from[1], at & 31);
                int left = t.end - at;
                t.marks[w] = t.mixed || left <= 0 ? 0 : left >= 32 ? m : m & (1u << left) - 1;
            }
            t.marks[0] &= ~1u;
            Range r = list ? rangeOf<true>(c, t, t.first, t.end - 1) : rangeOf<false>(c, t, t.first, t.end - 1);
            return COSTS - 1 - min(COSTS - 1, (r.to - r.from) / 64 >> shift);
        };
        for (int x = threadIdx.x; x < samples * most; x += 1024)
            if (int at = tileOf(x); at >= 0) atomicAdd(&places[at], 1);
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
            if (threadIdx.x == COSTS - 1) lists[0] = sum;
        }
        __syncthreads();
        for (int x = threadIdx.x; x < samples * most; x += 1024)
            if (int at = tileOf(x); at >= 0) {
                int4 *to = (int4 *)(lists + LIST) + 3 * atomicAdd(&places[at], 1);
                const int4 *from = (const int4 *)&t;
                to[0] = from[0];
                to[1] = from[1];
                to[2] = from[2];
            }
    }
}
