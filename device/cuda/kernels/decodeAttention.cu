#include "decode.h"
#include "cache.h"
#if HEAD && ELEMENT
#include "fragments.h"
#endif

// Attention over a cache of 16-bit elements, on tensor cores.

#if HEAD && ELEMENT

#define WARPS 4
#define STEP 32         // positions a warp takes at once
#define MAX_ROWS 256    // of a step that attend works on
#define LEAST_PART 128  // positions
#define SLABS (HEAD / 16)

// Blocks that finished a row and head so far, by queue. The last one sets its number back.
#define QUEUES 32
__device__ u32 finished[QUEUES][1 << 14];

// Tiles of attend: chunks of 16 bytes of a row are in another order in each of eight rows, so that
// loads touch different banks; where that does not fit the width, rows are padded.
#if HEAD % 64 == 0
#define TILE_PITCH HEAD
__device__ __forceinline__ Element *place(const Element *tile, int row, int chunk) { return (Element *)tile + row * HEAD + (chunk ^ row & 7) * LANES; }
#else
#define TILE_PITCH PITCH
__device__ __forceinline__ Element *place(const Element *tile, int row, int chunk) { return (Element *)tile + row * PITCH + chunk * LANES; }
#endif
// leftOf, rightOf and downOf are left, right and down of fragments.h in such tiles.
__device__ __forceinline__ void leftOf(Left &a, const Element *tile, int c) {
    int lane = threadIdx.x & 31;
    matrices(a.x, sharedAt(place(tile, lane & 15, c / 8 + (lane >> 4))));
}
__device__ __forceinline__ void rightOf(Right &b, const Element *tile, int n, int c) {
    int lane = threadIdx.x & 31;
    matrices(b.x, sharedAt(place(tile, n + (lane >> 4) * 8 + (lane & 7), c / 8 + ((lane >> 3) & 1))));
}
__device__ __forceinline__ void downOf(Right &b, const Element *tile, int k, int c) {
    int lane = threadIdx.x & 31;
    matricesTurned(b.x, sharedAt(place(tile, k + (lane & 15), c / 8 + (lane >> 4))));
}

// fetchRows starts copying rows of the cache to a tile: lane i has the row of position i, and
// whether it is wanted.
__device__ __forceinline__ void fetchRows(Element *tile, const Element *x, i64 row, bool wanted) {
    int lane = threadIdx.x & 31;
    u32 some = __ballot_sync(0xffffffffu, wanted);
#pragma unroll
    for (int n = 0; n < STEP * CHUNKS; n += 32) {
        int r = (n + lane) / CHUNKS, c = (n + lane) % CHUNKS;
        i64 from = __shfl_sync(0xffffffffu, row, r);
        if (some >> r & 1) fetch16(place(tile, r, c), x + from * HEAD + c * LANES, true);
    }
}
// clearRows writes zeros where there is nothing.
__device__ __forceinline__ void clearRows(Element *tile, bool there) {
    int lane = threadIdx.x & 31;
    u32 some = __ballot_sync(0xffffffffu, !there);
    if (some == 0) return;
    for (int n = lane; n < STEP * CHUNKS; n += 32)
        if (some >> (n / CHUNKS) & 1) *(uint4 *)place(tile, n / CHUNKS, n % CHUNKS) = {};
}

// Item is a part of a row, for a key head and up to 16 of the heads that share it.
struct Item {
    int row, sequence, line, head, here; // here: heads of it
    int n, count;                        // which part of how many the row has
    int base, begin, end;                // positions: where the part begins, those that the row sees
    i64 at;                              // the first head, counted over all rows
};

// partOf is how many positions of a row at p are summed before parts are combined, counted from position
// 0: what it sees is cut into as many parts as wanted, none of them short. It depends on nothing but the row's own
// position.
__device__ __forceinline__ int partOf(const Cache &c, int p, int wanted) {
    const int seen = p - c.first(p) + 1, part = (seen + wanted - 1) / wanted;
    return (part + LEAST_PART - 1) / LEAST_PART * LEAST_PART;
}

// attend is attention of few rows, each over its own sequence. Positions are summed in parts (partOf), at
// most `most` of a row; the heads of an item are the 16 rows of the tiles. Warps take STEP
// positions in turn; their results are added in order. Where a row has several parts, the block that
// finishes last adds them in order: parts [rows heads most] of HEAD numbers and stats of them, the greatest
// exponent and the sum of weights.
//
// Blocks take items in turn, so that the grid does not depend on how long sequences are. The first keys and
// values of the next item are fetched before the results of the last are added.
extern "C" __global__ void __launch_bounds__(WARPS * 32, 2) attend(const Element *q, const Element *k, const Element *v, Element *o, float *parts, float2 *stats,
                                                                   int wanted, int most, int queue, CACHE_PARAMS) {
    Cache c = CACHE;
    extern __shared__ Element tiles[]; // per warp: keys, values; then queries, then the warps' results
    __shared__ int starts[MAX_ROWS + 1];
    __shared__ float tops[WARPS][16], weights[WARPS][16];
    __shared__ int shared[WARPS];
    __shared__ bool lastOne;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, group = heads / keyHeads, packs = (group + 15) / 16, lines = keyHeads * packs, most16 = min(group, 16);
    Element *kt = tiles + warp * 2 * STEP * TILE_PITCH, *vt = kt + STEP * TILE_PITCH, *qt = tiles + WARPS * 2 * STEP * TILE_PITCH;
    float *merge = (float *)(qt + 16 * TILE_PITCH); // [WARPS][most16][HEAD]

    // items of each row, and where they begin
    if (warp == 0) {
        int before = 0;
        for (int base = 0; base < rows; base += 32) {
            int n = 0;
            if (base + lane < rows) {
                int p = c.position(base + lane);
                int part = p < 0 ? 1 : partOf(c, p, wanted);
                n = p < 0 ? lines : min(p / part - c.first(p) / part + 1, most) * lines;
            }
            int sum = n;
#pragma unroll
            for (int d = 1; d < 32; d <<= 1) {
                int other = __shfl_up_sync(0xffffffffu, sum, d);
                if (lane >= d) sum += other;
            }
            if (base + lane < rows) starts[base + lane] = before + sum - n;
            before += __shfl_sync(0xffffffffu, sum, 31);
        }
        if (lane == 0) starts[rows] = before;
    }
    __syncthreads();
    const int total = starts[rows];
    auto find = [&](int number) {
        int low = 0, high = rows - 1;
        while (low < high) { // the last row that begins at or before the item
            int mid = (low + high + 1) / 2;
            if (starts[mid] <= number) low = mid;
            else high = mid - 1;
        }
        Item i;
        i.row = low;
        i.line = (number - starts[low]) % lines;
        i.n = (number - starts[low]) / lines;
        i.count = (starts[low + 1] - starts[low]) / lines;
        i.head = i.line / packs;
        int pack = i.line % packs * 16, last = c.position(low), first = last < 0 ? 0 : c.first(last), part = last < 0 ? 1 : partOf(c, last, wanted);
        i.here = min(16, group - pack);
        i.sequence = sequences[low];
        i.base = (first / part + i.n) * part;
        i.begin = max(first, i.base);
        i.end = min(last + 1, i.base + part); // idle: 0
        i.at = (i64)low * heads + i.head * group + pack;
        return i;
    };
    auto rowOf = [&](const Item &i, int from) { return from + lane >= i.begin && from + lane < i.end ? c.row(i.sequence, from + lane, i.head) : (i64)-1; };
    auto fetchFirst = [&](const Item &i) {
        i64 mine = rowOf(i, i.base + warp * STEP);
        fetchRows(kt, k, mine, mine >= 0);
        clearRows(kt, mine >= 0);
        commit();
        fetchRows(vt, v, mine, mine >= 0);
        clearRows(vt, mine >= 0);
        commit();
    };
    auto fetchQueries = [&](const Item &i) {
        for (int n = threadIdx.x; n < 16 * CHUNKS; n += WARPS * 32) {
            int r = n / CHUNKS, e = n % CHUNKS;
            uint4 x = {};
            if (r < i.here) x = *(const uint4 *)(q + (i.at + r) * HEAD + e * LANES);
            *(uint4 *)place(qt, r, e) = x;
        }
    };
    if (blockIdx.x >= total) {
        awaitPrevious();
        releaseNext();
        return;
    }
    Item next = find(blockIdx.x);
    { // of the sequence, positions from fresh on may be written by the kernel before
        i64 mine = rowOf(next, next.base + warp * STEP);
        int fresh = 1 << 30;
        for (int i = threadIdx.x; i < rows; i += WARPS * 32)
            if (sequences[i] == next.sequence && positions[i] >= 0) fresh = min(fresh, positions[i]);
        fresh = __reduce_min_sync(0xffffffffu, fresh);
        if (lane == 0) shared[warp] = fresh;
        __syncthreads();
        fresh = min(min(shared[0], shared[1]), min(shared[2], shared[3]));
        bool old = mine >= 0 && next.base + warp * STEP + lane < fresh;
        fetchRows(kt, k, mine, old);
        fetchRows(vt, v, mine, old);
        commit();
        clearRows(kt, mine >= 0);
        clearRows(vt, mine >= 0);
        awaitPrevious();
        releaseNext();
        fetchRows(kt, k, mine, mine >= 0 && !old);
        fetchRows(vt, v, mine, mine >= 0 && !old);
        commit();
        commit();
        fetchQueries(next);
        __syncthreads();
    }
    for (int item = blockIdx.x; item < total; item += gridDim.x) {
        const Item now = next;
        Left a[SLABS];
#pragma unroll
        for (int d = 0; d < SLABS; d++) leftOf(a[d], qt, d * 16);
        float out[HEAD / 8][4], top[2] = {-INFINITE, -INFINITE}, sum[2] = {}, unit = scale * LOG2E;
        zero(out);
        for (int from = now.base + warp * STEP; from < now.end; from += WARPS * STEP) {
            const int then = from + WARPS * STEP;
            i64 mine = then < now.end ? rowOf(now, then) : -1;
            await<1>();
            __syncwarp();
            float s[STEP / 8][4];
            zero(s);
#pragma unroll
            for (int d = 0; d < SLABS; d++)
#pragma unroll
                for (int j = 0; j < STEP / 16; j++) {
                    Right f;
                    rightOf(f, kt, j * 16, d * 16);
                    mma(s[2 * j], a[d], f, 0);
                    mma(s[2 * j + 1], a[d], f, 1);
                }
            __syncwarp(); // keys are used up
            if (then < now.end) {
                fetchRows(kt, k, mine, mine >= 0);
                clearRows(kt, mine >= 0);
            }
            commit();
            if (from < now.begin || from + STEP > now.end)
#pragma unroll
                for (int j = 0; j < STEP / 8; j++)
#pragma unroll
                    for (int x = 0; x < 4; x++) {
                        int p = from + j * 8 + (lane & 3) * 2 + (x & 1);
                        if (p < now.begin || p >= now.end) s[j][x] = -INFINITE;
                    }
#pragma unroll
            for (int y = 0; y < 2; y++) {
                float greatest = top[y], w = 0;
#pragma unroll
                for (int j = 0; j < STEP / 8; j++) greatest = fmaxf(greatest, fmaxf(s[j][2 * y], s[j][2 * y + 1]));
                greatest = lineMax(greatest);
                float base = greatest == -INFINITE ? 0 : greatest * unit, shrink = power2(top[y] * unit - base);
                top[y] = greatest;
#pragma unroll
                for (int j = 0; j < STEP / 8; j++)
#pragma unroll
                    for (int x = 0; x < 2; x++) {
                        s[j][2 * y + x] = power2(s[j][2 * y + x] * unit - base);
                        w += s[j][2 * y + x];
                    }
                sum[y] = sum[y] * shrink + w;
#pragma unroll
                for (int d = 0; d < HEAD / 8; d++) {
                    out[d][2 * y] *= shrink;
                    out[d][2 * y + 1] *= shrink;
                }
            }
            await<1>();
            __syncwarp();
#pragma unroll
            for (int j = 0; j < STEP / 16; j++) {
                Left p;
                asLeft(p, s[2 * j], s[2 * j + 1]);
#pragma unroll
                for (int d = 0; d < SLABS; d++) {
                    Right f;
                    downOf(f, vt, j * 16, d * 16);
                    mma(out[2 * d], p, f, 0);
                    mma(out[2 * d + 1], p, f, 1);
                }
            }
            __syncwarp(); // values are used up
            if (then < now.end) {
                fetchRows(vt, v, mine, mine >= 0);
                clearRows(vt, mine >= 0);
            }
            commit();
        }
        await<0>();
        __syncwarp();
        bool more = item + gridDim.x < total;
        if (more) {
            next = find(item + gridDim.x);
            fetchFirst(next);
        }
        // the warps' results, by row of the tile
#pragma unroll
        for (int y = 0; y < 2; y++) {
            int r = (lane >> 2) + 8 * y;
            float w = lineSum(sum[y]);
            if ((lane & 3) == 0) {
                tops[warp][r] = top[y] * unit;
                weights[warp][r] = w;
            }
            if (r < now.here)
#pragma unroll
                for (int d = 0; d < HEAD / 8; d++) *(float2 *)(merge + (warp * most16 + r) * HEAD + d * 8 + (lane & 3) * 2) = {out[d][2 * y], out[d][2 * y + 1]};
        }
        __syncthreads();
        if (more) fetchQueries(next);
        for (int r = warp; r < now.here; r += WARPS) {
            float greatest = fmaxf(fmaxf(tops[0][r], tops[1][r]), fmaxf(tops[2][r], tops[3][r])), w = 0, share[WARPS];
#pragma unroll
            for (int i = 0; i < WARPS; i++) {
                share[i] = tops[i][r] == -INFINITE ? 0.0f : power2(tops[i][r] - greatest);
                w += weights[i][r] * share[i];
            }
            for (int d = lane; d < HEAD; d += 32) {
                float x = 0;
#pragma unroll
                for (int i = 0; i < WARPS; i++)
                    if (share[i] > 0) x += merge[(i * most16 + r) * HEAD + d] * share[i];
                if (now.count > 1) parts[((now.at + r) * most + now.n) * HEAD + d] = x;
                else narrow(w > 0 ? x / w : 0.0f, o + (now.at + r) * HEAD + d);
            }
            if (now.count > 1 && lane == 0) stats[(now.at + r) * most + now.n] = {greatest, w};
        }
        if (now.count > 1) {
            __threadfence();
            __syncthreads();
            if (threadIdx.x == 0) {
                u32 *number = finished[queue] + now.row * lines + now.line;
                lastOne = atomicAdd(number, 1) == now.count - 1;
                if (lastOne) *number = 0;
            }
            __syncthreads();
            if (lastOne) {
                __threadfence();
                for (int r = warp; r < now.here; r += WARPS) {
                    const float2 *from = stats + (now.at + r) * most;
                    const float *x = parts + (now.at + r) * most * HEAD;
                    float greatest = -INFINITE, w = 0;
                    for (int i = lane; i < now.count; i += 32) greatest = fmaxf(greatest, __ldcg(from + i).x);
                    greatest = warpMax(greatest);
                    float sums[HEAD / 32] = {};
                    for (int base = 0; base < now.count; base += 32) {
                        float2 s = base + lane < now.count ? __ldcg(from + base + lane) : float2{-INFINITE, 0};
                        float by = s.x == -INFINITE ? 0.0f : power2(s.x - greatest);
                        w += warpSum(s.y * by);
                        int some = min(32, now.count - base);
#pragma unroll 8
                        for (int i = 0; i < some; i++) {
                            float factor = __shfl_sync(0xffffffffu, by, i);
#pragma unroll
                            for (int d = 0; d < HEAD / 32; d++) sums[d] += __ldcg(x + (i64)(base + i) * HEAD + d * 32 + lane) * factor;
                        }
                    }
#pragma unroll
                    for (int d = 0; d < HEAD / 32; d++) narrow(sums[d] / w, o + (now.at + r) * HEAD + d * 32 + lane);
                }
            }
        }
        __syncthreads(); // queries are here, and the warps' results may be written again
    }
}

// prefill is attention of many rows. A block has QUERIES rows of tiles for a key head: tokens of the step
// times the heads that share it. Tokens may be of several sequences, which are taken one after the other;
// KEYS positions at a time, from multiples of it on.
#define QUERIES 128
#define KEYS_AT_ONCE 64

extern "C" __global__ void __launch_bounds__(WARPS * 32) prefill(const Element *q, const Element *k, const Element *v, Element *o, CACHE_PARAMS) {
    Cache c = CACHE;
    extern __shared__ Element tiles[];
    __shared__ int places[QUERIES], owners[QUERIES];
    Element *qs = tiles, *ks = qs + QUERIES * PITCH, *vs = ks + 2 * KEYS_AT_ONCE * PITCH;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, group = heads / keyHeads, tokens = QUERIES / group;
    const int start = (gridDim.x - 1 - blockIdx.x) * tokens, head = blockIdx.y;
    awaitPrevious();
    releaseNext();
    for (int i = threadIdx.x; i < QUERIES; i += WARPS * 32) {
        bool there = i < tokens && start + i < rows;
        int p = there ? c.position(start + i) : -1;
        places[i] = p;
        owners[i] = p < 0 ? 1 << 30 : sequences[start + i];
    }
    for (int n = threadIdx.x; n < QUERIES * CHUNKS; n += WARPS * 32) {
        int r = n / CHUNKS, e = n % CHUNKS * LANES, token = r / group;
        bool there = token < tokens && start + token < rows;
        fetch16(qs + r * PITCH + e, q + (there ? ((i64)(start + token) * heads + head * group + r % group) * HEAD + e : 0), there);
    }
    commit();
    __syncthreads();
    float out[2][HEAD / 8][4], top[4], sum[4], unit = scale * LOG2E;
    int place[4], owner[4];
    zero(out[0]);
    zero(out[1]);
#pragma unroll
    for (int y = 0; y < 4; y++) {
        int token = (warp * 32 + (lane >> 2) + y * 8) / group;
        top[y] = -INFINITE;
        sum[y] = 0;
        place[y] = token < tokens ? places[token] : -1;
        owner[y] = token < tokens ? owners[token] : 1 << 30;
    }
    for (int sequence = -1;;) {
        int next = 1 << 30;
        for (int i = lane; i < tokens; i += 32)
            if (owners[i] > sequence) next = min(next, owners[i]);
        sequence = __reduce_min_sync(0xffffffffu, next);
        if (sequence == 1 << 30) break;
        int from = 1 << 30, end = 0, earliest = 1 << 30;
        for (int i = lane; i < tokens; i += 32)
            if (owners[i] == sequence) {
                from = min(from, c.first(places[i]));
                earliest = min(earliest, places[i]);
                end = max(end, places[i] + 1);
            }
        from = __reduce_min_sync(0xffffffffu, from) / KEYS_AT_ONCE * KEYS_AT_ONCE;
        earliest = __reduce_min_sync(0xffffffffu, earliest);
        end = __reduce_max_sync(0xffffffffu, end);
        bool alone = true; // all rows are of this sequence
        for (int i = lane; i < tokens; i += 32) alone = alone && owners[i] == sequence;
        alone = __all_sync(0xffffffffu, alone) && tokens * group == QUERIES;
        // each warp fetches 16 positions; lane i has the row of position i
        auto rowOf = [&](int j) {
            int p = j + warp * 16 + (lane & 15);
            return p < end ? c.row(sequence, p, head) : (i64)-1;
        };
        auto fetchTile = [&](Element *tile, const Element *x, i64 row) {
#pragma unroll
            for (int n = 0; n < 16 * CHUNKS; n += 32) {
                int r = (n + lane) / CHUNKS, e = (n + lane) % CHUNKS * LANES;
                i64 at = __shfl_sync(0xffffffffu, row, r);
                fetch16(tile + (warp * 16 + r) * PITCH + e, x + (at < 0 ? 0 : at * HEAD + e), at >= 0);
            }
        };
        i64 row = rowOf(from);
        __syncthreads(); // tiles of the last sequence are used up
        fetchTile(ks, k, row);
        commit();
        fetchTile(vs, v, row);
        commit();
        for (int j = from, stage = 0; j < end; j += KEYS_AT_ONCE, stage ^= 1) {
            Element *kt = ks + stage * KEYS_AT_ONCE * PITCH, *vt = vs + stage * KEYS_AT_ONCE * PITCH;
            bool more = j + KEYS_AT_ONCE < end;
            if (more) row = rowOf(j + KEYS_AT_ONCE);
            await<1>();
            __syncthreads(); // these keys are here, and the other stage is no longer read
            if (more) fetchTile(ks + (stage ^ 1) * KEYS_AT_ONCE * PITCH, k, row);
            commit();
            float s[2][KEYS_AT_ONCE / 8][4];
            zero(s[0]);
            zero(s[1]);
#pragma unroll
            for (int d = 0; d < SLABS; d++) {
                Left a[2];
                left(a[0], qs, warp * 32, d * 16);
                left(a[1], qs, warp * 32 + 16, d * 16);
#pragma unroll
                for (int n = 0; n < KEYS_AT_ONCE / 16; n++) {
                    Right f;
                    right(f, kt, n * 16, d * 16);
#pragma unroll
                    for (int m = 0; m < 2; m++) {
                        mma(s[m][2 * n], a[m], f, 0);
                        mma(s[m][2 * n + 1], a[m], f, 1);
                    }
                }
            }
            if (!alone || j + KEYS_AT_ONCE > earliest + 1 || c.window > 0)
#pragma unroll
                for (int m = 0; m < 2; m++)
#pragma unroll
                    for (int n = 0; n < KEYS_AT_ONCE / 8; n++)
#pragma unroll
                        for (int x = 0; x < 4; x++) {
                            int y = 2 * m + (x >> 1), p = j + n * 8 + (lane & 3) * 2 + (x & 1);
                            if (owner[y] != sequence || p > place[y] || p < c.first(place[y])) s[m][n][x] = -INFINITE;
                        }
#pragma unroll
            for (int y = 0; y < 4; y++) {
                float greatest = top[y], w = 0;
#pragma unroll
                for (int n = 0; n < KEYS_AT_ONCE / 8; n++) greatest = fmaxf(greatest, fmaxf(s[y >> 1][n][(y & 1) * 2], s[y >> 1][n][(y & 1) * 2 + 1]));
                greatest = lineMax(greatest);
                float base = greatest == -INFINITE ? 0 : greatest * unit, shrink = power2(top[y] * unit - base);
                top[y] = greatest;
#pragma unroll
                for (int n = 0; n < KEYS_AT_ONCE / 8; n++)
#pragma unroll
                    for (int x = 0; x < 2; x++) {
                        float p = power2(s[y >> 1][n][(y & 1) * 2 + x] * unit - base);
                        w += p;
                        s[y >> 1][n][(y & 1) * 2 + x] = p;
                    }
                sum[y] = sum[y] * shrink + w;
#pragma unroll
                for (int n = 0; n < HEAD / 8; n++) {
                    out[y >> 1][n][(y & 1) * 2] *= shrink;
                    out[y >> 1][n][(y & 1) * 2 + 1] *= shrink;
                }
            }
            await<1>();
            __syncthreads(); // these values are here
            if (more) fetchTile(vs + (stage ^ 1) * KEYS_AT_ONCE * PITCH, v, row);
            commit();
#pragma unroll
            for (int n = 0; n < KEYS_AT_ONCE / 16; n++) {
                Left p[2];
                asLeft(p[0], s[0][2 * n], s[0][2 * n + 1]);
                asLeft(p[1], s[1][2 * n], s[1][2 * n + 1]);
#pragma unroll
                for (int d = 0; d < SLABS; d++) {
                    Right f;
                    down(f, vt, n * 16, d * 16);
#pragma unroll
                    for (int m = 0; m < 2; m++) {
                        mma(out[m][2 * d], p[m], f, 0);
                        mma(out[m][2 * d + 1], p[m], f, 1);
                    }
                }
            }
        }
        await<0>();
    }
    await<0>();
    // rows of a token are not next to each other, so lanes exchange through the queries' tile
    __syncthreads();
#pragma unroll
    for (int y = 0; y < 4; y++) {
        float by = lineSum(sum[y]);
        by = by > 0 ? 1.0f / by : 0.0f;
#pragma unroll
        for (int n = 0; n < HEAD / 8; n++) *(u32 *)(qs + (warp * 32 + (lane >> 2) + y * 8) * PITCH + n * 8 + (lane & 3) * 2) = two(out[y >> 1][n][(y & 1) * 2] * by, out[y >> 1][n][(y & 1) * 2 + 1] * by);
    }
    __syncthreads();
    for (int n = threadIdx.x; n < QUERIES * CHUNKS; n += WARPS * 32) {
        int r = n / CHUNKS, e = n % CHUNKS * LANES, token = r / group;
        if (token < tokens && start + token < rows) *(uint4 *)(o + ((i64)(start + token) * heads + head * group + r % group) * HEAD + e) = *(uint4 *)(qs + r * PITCH + e);
    }
}

#endif
