#include "decode.h"
#include "cache.h"
#if HEAD && ELEMENT
#include "fragments.h"
#endif
#include "coded.h"

// Attention over a cache on tensor cores: of 16-bit elements, or of keys and values that both are coded.

#if HEAD && ELEMENT

#define WARPS 4         // of prefill
#ifndef TEAM
#define TEAM 4          // warps of attend: where blocks take parts of rows in turn, eight are slower, however many blocks there are
#endif
#ifndef CLUSTER
#define CLUSTER 0       // blocks of a cluster of attendCluster, 1 for no cluster; 0: attend and prefill
#endif
#define STEP 32         // positions of a tile
#define WIDE (TILES * STEP) // positions a warp takes at once
#define MAX_ROWS 256    // of a step that attend works on
#define LEAST_PART 128  // positions
#ifndef KEY_CODE
#define KEY_CODE 0
#endif
#ifndef TILES
#define TILES 1
#endif
#define CODED KEY_CODE
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
// leftOf is left of fragments.h in such tiles. turnedOf has the elements c..c+15 of rows k..k+15 as rows, and
// queryOf eight rows as right factors of elements c..c+31, of which those from the last-th on are all that one.
__device__ __forceinline__ void leftOf(Left &a, const Element *tile, int r, int c) {
    int lane = threadIdx.x & 31;
    matrices(a.x, sharedAt(place(tile, r + (lane & 15), c / 8 + (lane >> 4))));
}
__device__ __forceinline__ void turnedOf(Left &a, const Element *tile, int k, int c) {
    int lane = threadIdx.x & 31;
    matricesTurned(a.x, sharedAt(place(tile, k + (lane & 7) + (lane >> 4) * 8, c / 8 + ((lane >> 3) & 1))));
}
__device__ __forceinline__ void queryOf(u32 (&b)[4], const Element *tile, int last, int c) {
    int lane = threadIdx.x & 31;
    matrices(b, sharedAt(place(tile, min(lane & 7, last), c / 8 + (lane >> 3))));
}
__device__ __forceinline__ void mmaOf(float (&c)[4], const Left &a, u32 b0, u32 b1) {
    Right b;
    b.x[0] = b0;
    b.x[1] = b1;
    mma(c, a, b, 0);
}
// turned is the transpose of an 8 × 8 matrix of 16-bit elements.
__device__ __forceinline__ u32 turned(u32 x) {
    u32 r;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(x));
    return r;
}
// Reductions over the eight lanes that hold a column.
__device__ __forceinline__ float columnMax(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 4));
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 8));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 16));
}
__device__ __forceinline__ float columnSum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 4);
    x += __shfl_xor_sync(0xffffffffu, x, 8);
    return x + __shfl_xor_sync(0xffffffffu, x, 16);
}

// fetchRows starts copying rows of the cache to a tile: lane i has the row of position i, and
// whether it is wanted. behind: rows that are all wanted lie one behind the other.
__device__ __forceinline__ void fetchRows(Element *tile, const Element *x, int row, bool wanted, bool behind) {
    int lane = threadIdx.x & 31;
    u32 some = __ballot_sync(0xffffffffu, wanted);
    if (some == 0) return;
#if HEAD % 64 == 0
    if (behind && some == 0xffffffffu) {
        const Element *from = x + (i64)__shfl_sync(0xffffffffu, row, 0) * HEAD + lane * LANES;
        const int each = 32 / CHUNKS, r = lane / CHUNKS, c = lane % CHUNKS; // rows at once
        Element *to[8 / each];
#pragma unroll
        for (int n = 0; n < 8 / each; n++) to[n] = place(tile, r, c ^ n * each); // as rows n * each on have it
#pragma unroll
        for (int n = 0; n < CHUNKS; n++) fetch16(to[n % (8 / each)] + n * each * HEAD, from + n * 32 * LANES, true);
        return;
    }
#endif
#pragma unroll
    for (int n = 0; n < STEP * CHUNKS; n += 32) {
        int r = (n + lane) / CHUNKS, c = (n + lane) % CHUNKS;
        int from = __shfl_sync(0xffffffffu, row, r);
        if (some >> r & 1) fetch16(place(tile, r, c), x + (i64)from * HEAD + c * LANES, true);
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

// Tiles in shared memory: STAGES times those that a warp takes at once are fetched ahead.
#define AHEAD STAGES
#if CODED
typedef Coded<KEY_CODE> Keys;
typedef Coded<VALUE_CODE> Values;
// Scales lie behind the codes of the keys, or each lane has those of its rows in registers.
#define KEY_TILE (STEP * (Keys::bytes + FETCH_SCALES * (Keys::scaleBytes + Values::scaleBytes)))
#define VALUE_TILE (STEP * Values::bytes)
#define QUERY_PITCH (HEAD + 8)
#else
#define KEY_TILE (STEP * TILE_PITCH * (int)sizeof(Element))
#define VALUE_TILE KEY_TILE
#define QUERY_PITCH TILE_PITCH
#endif
#define PENDING (2 * AHEAD - 1) // groups of copies that are under way while one is waited for

// TOGETHER parts of a row are read at once to be added; fetched reads numbers that another block wrote.
#define TOGETHER (BLOCKS > 2 ? 16 : 32)
template <int N> struct alignas(N == 3 ? 4 : 4 * N) Some { float x[N]; }; // of a part: what a lane has
template <int N> __device__ __forceinline__ Some<N> fetched(const Some<N> *p) {
    Some<N> r;
    if (N == 4) *(float4 *)&r = __ldcg((const float4 *)p);
    else if (N == 2) *(float2 *)&r = __ldcg((const float2 *)p);
    else
#pragma unroll
        for (int i = 0; i < N; i++) r.x[i] = __ldcg(p->x + i);
    return r;
}

// HEADS_AT_ONCE heads that share a key head are computed together: columns of the matmuls.
#define HEADS_AT_ONCE 8

// Item is a part of a row, for a key head and up to HEADS_AT_ONCE of the heads that share it.
struct Item {
    int row, sequence, line, head, here; // here: heads of it
    int n, count;                        // which part of how many the row has
    int base, begin, end;                // positions: where the part begins, those that the row sees
    i64 at;                              // the first head, counted over all rows
};

// partOf is how many positions of a row at p are summed before parts are combined, counted from position
// 0: what it sees is cut into as many parts as wanted, none of them short. It depends on nothing but the row's own
// position.
__device__ __forceinline__ int partOf(const Cache &c, int p, int wanted, int grain) {
    const int seen = p - c.first(p) + 1, part = (seen + wanted - 1) / wanted;
    return max(LEAST_PART, (part + grain - 1) / grain * grain);
}

#if CLUSTER > 1
// What blocks of a cluster do together: each arrives, and waits for the others before it first writes to one; pass is both, for what was written.
// give writes two numbers to the shared memory of another block, to where `at` is in one's own.
__device__ __forceinline__ void clusterArrive() { asm volatile("barrier.cluster.arrive.relaxed;"); }
__device__ __forceinline__ void clusterWait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
__device__ __forceinline__ void clusterPass() { asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory"); }
__device__ __forceinline__ void give(u32 at, int block, float2 x) {
    asm volatile("{\n.reg .b32 a;\nmapa.shared::cluster.u32 a, %0, %1;\nst.shared::cluster.v2.f32 [a], {%2, %3};\n}" ::"r"(at), "r"(block), "f"(x.x), "f"(x.y) : "memory");
}
#endif

// attend is attention of few rows, each over its own sequence. Positions are summed in parts (partOf), at
// most `most` of a row. Keys are left factors, with rows for positions, and queries right ones, with a column for each
// head; then values are left factors, with rows for numbers, and weights right ones. Warps take STEP positions in turn; their results
// are added in order. Where a row has several parts, the block that finishes last adds them in order: parts [rows heads most] of
// HEAD numbers and stats of them, the greatest exponent and the sum of weights.
//
// alone: no other launch has rows of the step. Blocks take items in turn, so that the grid does not depend on how long sequences are. The first keys and
// values of the next item are fetched before the results of the last are added.
//
// attendCluster is the same for all rows of a step, where a row and up to HEADS_AT_ONCE heads that share a key head are one cluster of CLUSTER blocks, or one
// block: blocks [CLUSTER keyHeads rows·packs]. What the row sees is cut into as many whole tiles for one block as for another. Each adds the results of all
// for some of the numbers, which the others write to its shared memory: nothing goes through memory, and no block waits that has nothing to do.
#if CLUSTER
extern "C" __global__ void __launch_bounds__(TEAM * 32, BLOCKS) attendCluster(const Element *q, const void *k, const void *v, Element *o, int group, i64 numbers, CACHE_PARAMS) {
    const bool alone = true;
#else
extern "C" __global__ void __launch_bounds__(TEAM * 32, BLOCKS) attend(const Element *q, const void *k, const void *v, Element *o, float *parts, float2 *stats,
                                                                   int wanted, int grain, int most, int queue, int alone, i64 numbers, CACHE_PARAMS) {
    const int group = heads / keyHeads;
#endif
    if (alone) releaseNext(); // others read rows of the cache that are new to the step, so that they wait with us
    Cache c = CACHE;
    extern __shared__ uint4 space[]; // per warp: keys, values; then queries, then the warps' results, or those of other blocks
    __shared__ float tops[TEAM][HEADS_AT_ONCE], weights[TEAM][HEADS_AT_ONCE];
#if CLUSTER
    __shared__ float2 outer[CLUSTER][HEADS_AT_ONCE]; // of blocks of the cluster: the greatest exponent and the sum of weights
#else
    __shared__ int starts[MAX_ROWS + 1], places[MAX_ROWS], owners[MAX_ROWS]; // of the rows of the step: the first item, position, sequence
    __shared__ int shared[TEAM];
    __shared__ bool lastOne;
#endif
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, packs = (group + HEADS_AT_ONCE - 1) / HEADS_AT_ONCE, mostHeads = min(group, HEADS_AT_ONCE);
#if CLUSTER > 1
    clusterArrive();
#endif
    const bool whole = page == 64 || page % STEP == 0; // positions of a step are in one page
    const int lastHead = min(mostHeads, HEADS_AT_ONCE - 1); // behind the heads of an item there is one row of zeros
    u8 *tiles = (u8 *)space + warp * AHEAD * TILES * (KEY_TILE + VALUE_TILE);
    Element *qt = (Element *)((u8 *)space + TEAM * AHEAD * TILES * (KEY_TILE + VALUE_TILE));
    float *merge = (float *)(qt + (lastHead + 1) * QUERY_PITCH); // [TEAM][mostHeads][HEAD]; of a cluster [CLUSTER][mostHeads][HEAD / CLUSTER]
#if CLUSTER // a warp's results lie where its tiles were
    auto mergeOf = [&](int warp) { return (float *)((u8 *)space + warp * AHEAD * TILES * (KEY_TILE + VALUE_TILE)); };
#else
    auto mergeOf = [&](int warp) { return merge + warp * mostHeads * HEAD; };
#endif
    auto keysOf = [&](int stage, int tile) { return tiles + (stage * TILES + tile) * (KEY_TILE + VALUE_TILE); };
    auto valuesOf = [&](int stage, int tile) { return tiles + (stage * TILES + tile) * (KEY_TILE + VALUE_TILE) + KEY_TILE; };
#if CODED
    __shared__ float sizes[HEADS_AT_ONCE]; // of queries
    uint2 keyScales[AHEAD][TILES], valueScales[AHEAD][TILES]; // of the rows of the lane, by stage from the next on
    auto fetchKeys = [&](int stage, int tile, int row, bool wanted) { Keys::fetch(keysOf(stage, tile), (const u8 *)k, row, wanted, whole); };
    auto keyScalesOf = [&](int stage, int tile) { return keysOf(stage, tile) + STEP * Keys::bytes; };
    auto valueScalesOf = [&](int stage, int tile) { return keysOf(stage, tile) + STEP * (Keys::bytes + Keys::scaleBytes); };
    auto fetchScales = [&](int stage, int tile, int row) {
        Keys::fetchScales(keyScalesOf(stage, tile), (const u8 *)k, numbers, row, whole);
        Values::fetchScales(valueScalesOf(stage, tile), (const u8 *)v, numbers, row, whole);
    };
    auto fetchValues = [&](int stage, int tile, int row, bool wanted) { Values::fetch(valuesOf(stage, tile), (const u8 *)v, row, wanted, whole); };
#else
    auto fetchKeys = [&](int stage, int tile, int row, bool wanted) { fetchRows((Element *)keysOf(stage, tile), (const Element *)k, row, wanted, whole); };
    auto fetchValues = [&](int stage, int tile, int row, bool wanted) { fetchRows((Element *)valuesOf(stage, tile), (const Element *)v, row, wanted, whole); };
#endif

#if CLUSTER
    Item next;
    next.row = packs == 1 ? blockIdx.z : blockIdx.z / packs;
    next.head = blockIdx.y;
    next.n = blockIdx.x;
    {
        const int pack = (blockIdx.z - next.row * packs) * HEADS_AT_ONCE, last = c.position(next.row), first = last < 0 ? 0 : c.first(last);
        const int from = first / WIDE, steps = last < 0 ? 0 : last / WIDE + 1 - from;
        next.here = min(HEADS_AT_ONCE, group - pack);
        next.sequence = sequences[next.row];
        next.base = (from + steps * next.n / CLUSTER) * WIDE;
        next.begin = max(first, next.base);
        next.end = min(last + 1, (from + steps * (next.n + 1) / CLUSTER) * WIDE);
        next.at = (i64)next.row * heads + next.head * group + pack;
    }
#else
    const int lines = keyHeads * packs;
    // items of each row, and where they begin
    for (int i = threadIdx.x; i < rows; i += TEAM * 32) {
        places[i] = c.position(i);
        owners[i] = sequences[i];
    }
    __syncthreads();
    if (warp == 0) {
        int before = 0;
        for (int base = 0; base < rows; base += 32) {
            int n = 0;
            if (base + lane < rows) {
                int p = places[base + lane];
                int part = p < 0 ? 1 : partOf(c, p, wanted, grain);
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
        int pack = i.line % packs * HEADS_AT_ONCE, last = places[low], first = last < 0 ? 0 : c.first(last), part = last < 0 ? 1 : partOf(c, last, wanted, grain);
        i.here = min(HEADS_AT_ONCE, group - pack);
        i.sequence = owners[low];
        i.base = (first / part + i.n) * part;
        i.begin = max(first, i.base);
        i.end = min(last + 1, i.base + part); // idle: 0
        i.at = (i64)low * heads + i.head * group + pack;
        return i;
    };
    if (blockIdx.x >= total) {
        awaitPrevious();
        return;
    }
    Item next = find(blockIdx.x);
#endif
    auto rowOf = [&](const Item &i, int from) { return from + lane >= i.begin && from + lane < i.end ? (int)c.row(i.sequence, from + lane, i.head) : -1; };
    // What is behind the end is zeros; of codes anything, since all are finite numbers and have no weight.
    auto prepareKeys = [&](int stage, const int (&row)[TILES]) {
#pragma unroll
        for (int u = 0; u < TILES; u++) {
            fetchKeys(stage, u, row[u], row[u] >= 0);
#if CODED && FETCH_SCALES
            fetchScales(stage, u, row[u]);
#elif CODED
            keyScales[AHEAD - 1][u] = Keys::scales((const u8 *)k, numbers, row[u]);
#else
            clearRows((Element *)keysOf(stage, u), row[u] >= 0);
#endif
        }
        commit();
    };
    auto prepareValues = [&](int stage, const int (&row)[TILES]) {
#pragma unroll
        for (int u = 0; u < TILES; u++) {
            fetchValues(stage, u, row[u], row[u] >= 0);
#if CODED && !FETCH_SCALES
            valueScales[AHEAD - 1][u] = Values::scales((const u8 *)v, numbers, row[u]);
#elif !CODED
            clearRows((Element *)valuesOf(stage, u), row[u] >= 0);
#endif
        }
        commit();
    };
    auto shift = [&]() { // scales of the next step come first
#if CODED && !FETCH_SCALES
#pragma unroll
        for (int i = 0; i + 1 < AHEAD; i++)
#pragma unroll
            for (int u = 0; u < TILES; u++) {
                keyScales[i][u] = keyScales[i + 1][u];
                valueScales[i][u] = valueScales[i + 1][u];
            }
#endif
    };
    auto rowsOf = [&](const Item &i, int from, int (&row)[TILES]) {
#pragma unroll
        for (int u = 0; u < TILES; u++) row[u] = rowOf(i, from + u * STEP);
    };
    auto fetchFirst = [&](const Item &i) {
#pragma unroll
        for (int s = 0; s < AHEAD; s++) {
            int mine[TILES];
            rowsOf(i, i.base + (s * TEAM + warp) * WIDE, mine);
            shift();
            prepareKeys(s, mine);
            prepareValues(s, mine);
        }
    };
    auto fetchQueries = [&](const Item &i) {
#if CODED // divided by what makes them fit
        for (int n = threadIdx.x; n < (HEADS_AT_ONCE * CHUNKS + 31) / 32 * 32; n += TEAM * 32) {
            int r = n / CHUNKS, e = n % CHUNKS;
            float x[LANES] = {}, greatest = 0;
            if (r < i.here) load(q + (i.at + r) * HEAD + e * LANES, x);
#pragma unroll
            for (int m = 0; m < LANES; m++) greatest = largerOf(greatest, fabsf(x[m]));
#pragma unroll
            for (int m = 1; m < CHUNKS; m <<= 1) greatest = largerOf(greatest, __shfl_xor_sync(0xffffffffu, greatest, m));
            const float size = Keys::sizeOf(greatest);
            if (r <= lastHead) {
                Keys::putQuery((u8 *)(qt + r * QUERY_PITCH), e, x, 1.0f / size);
                if (e == 0) sizes[r] = size;
            }
        }
#else
        for (int n = threadIdx.x; n < (lastHead + 1) * CHUNKS; n += TEAM * 32) {
            int r = n / CHUNKS, e = n % CHUNKS;
            uint4 x = {};
            if (r < i.here) x = *(const uint4 *)(q + (i.at + r) * HEAD + e * LANES);
            *(uint4 *)place(qt, r, e) = x;
        }
#endif
    };
    { // of the sequence, positions from fresh on may be written by the kernel before
        int fresh = 1 << 30;
#if CLUSTER // each warp by itself
#pragma unroll 1
        for (int i = lane; i < rows; i += 32)
            if (sequences[i] == next.sequence && positions[i] >= 0) fresh = min(fresh, positions[i]);
        fresh = __reduce_min_sync(0xffffffffu, fresh);
#else
        for (int i = threadIdx.x; i < rows; i += TEAM * 32)
            if (owners[i] == next.sequence && places[i] >= 0) fresh = min(fresh, places[i]);
        fresh = __reduce_min_sync(0xffffffffu, fresh);
        if (lane == 0) shared[warp] = fresh;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TEAM; i++) fresh = min(fresh, shared[i]);
#endif
        int mine[AHEAD][TILES];
        bool old[AHEAD][TILES];
#pragma unroll
        for (int s = 0; s < AHEAD; s++) {
            const int from = next.base + (s * TEAM + warp) * WIDE;
            rowsOf(next, from, mine[s]);
#pragma unroll
            for (int u = 0; u < TILES; u++) {
                old[s][u] = mine[s][u] >= 0 && from + u * STEP + lane < fresh;
#if CODED && FETCH_SCALES // of a tile at once, so that nothing is fetched before it is there
                if (whole) old[s][u] = !__any_sync(0xffffffffu, mine[s][u] >= 0 && !old[s][u]) && mine[s][u] >= 0;
                if (!__any_sync(0xffffffffu, mine[s][u] >= 0 && !old[s][u])) fetchScales(s, u, mine[s][u]);
#elif CODED // before all that would be in front of them
                keyScales[s][u] = Keys::scales((const u8 *)k, numbers, old[s][u] ? mine[s][u] : -1);
                valueScales[s][u] = Values::scales((const u8 *)v, numbers, old[s][u] ? mine[s][u] : -1);
#endif
            }
        }
#pragma unroll
        for (int s = 0; s < AHEAD; s++) {
#pragma unroll
            for (int u = 0; u < TILES; u++) {
                fetchKeys(s, u, mine[s][u], old[s][u]);
                fetchValues(s, u, mine[s][u], old[s][u]);
#if !CODED
                clearRows((Element *)keysOf(s, u), mine[s][u] >= 0);
                clearRows((Element *)valuesOf(s, u), mine[s][u] >= 0);
#endif
            }
        }
        commit();
        awaitPrevious();
        if (!alone) releaseNext();
#pragma unroll
        for (int s = 0; s < AHEAD; s++)
#pragma unroll
            for (int u = 0; u < TILES; u++) {
                fetchKeys(s, u, mine[s][u], mine[s][u] >= 0 && !old[s][u]);
                fetchValues(s, u, mine[s][u], mine[s][u] >= 0 && !old[s][u]);
#if CODED && FETCH_SCALES
                if (__any_sync(0xffffffffu, mine[s][u] >= 0 && !old[s][u])) fetchScales(s, u, mine[s][u]);
#elif CODED
                if (mine[s][u] >= 0 && !old[s][u]) {
                    keyScales[s][u] = Keys::scales((const u8 *)k, numbers, mine[s][u]);
                    valueScales[s][u] = Values::scales((const u8 *)v, numbers, mine[s][u]);
                }
#endif
            }
        commit();
#pragma unroll
        for (int s = 0; s < PENDING; s++) commit();
        fetchQueries(next);
        __syncthreads();
    }
#if CLUSTER
    {
#else
    for (int item = blockIdx.x; item < total; item += gridDim.x) {
#endif
        const Item now = next;
        u32 b[SLABS][2];
        float out[HEAD / 16][4], top[2] = {-INFINITE, -INFINITE}, sum[2] = {}, unit = scale * LOG2E;
        const int g = lane >> 2, t = lane & 3;
#if CODED
        Keys::query(b, (const u16 *)(qt + min(g, lastHead) * QUERY_PITCH));
        const float size[2] = {sizes[min(2 * t, lastHead)] * Keys::factor(), sizes[min(2 * t + 1, lastHead)] * Keys::factor()};
        float largest = 0;   // scale of values so far: sums are in units of it
        float ones[4] = {};  // what codes of values are too large by, for each head
#else
#pragma unroll
        for (int d = 0; d < SLABS; d += 2) {
            u32 two[4];
            queryOf(two, qt, lastHead, d * 16);
            b[d][0] = two[0];
            b[d][1] = two[1];
            b[d + 1][0] = two[2];
            b[d + 1][1] = two[3];
        }
#endif
        zero(out);
        int stage = 0;
        for (int from = now.base + warp * WIDE; from < now.end; from += TEAM * WIDE, stage = stage + 1 == AHEAD ? 0 : stage + 1) {
            const int then = from + AHEAD * TEAM * WIDE;
            int mine[TILES];
            rowsOf(now, then, mine);
            await<PENDING>();
            __syncwarp();
            float s[TILES][2][4]; // by position and head
#if CODED
            uint2 keyScale[TILES], valueScale[TILES];
#pragma unroll
            for (int u = 0; u < TILES; u++) {
#if FETCH_SCALES
                keyScale[u] = Keys::scaleAt(keyScalesOf(stage, u));
                valueScale[u] = Values::scaleAt(valueScalesOf(stage, u));
                const int p = from + u * STEP + lane; // behind the end anything may be
                if (p < now.begin || p >= now.end) valueScale[u] = {};
#else
                keyScale[u] = keyScales[0][u];
                valueScale[u] = valueScales[0][u];
#endif
            }
            shift();
#endif
#pragma unroll
            for (int u = 0; u < TILES; u++) {
                float rest[2][4];
                zero(s[u]);
                zero(rest);
#if CODED
                Keys::addScores(s[u], rest, b, keysOf(stage, u), keyScale[u]);
#else
                const Element *kt = (const Element *)keysOf(stage, u);
#pragma unroll
                for (int d = 0; d < SLABS; d++)
#pragma unroll
                    for (int m = 0; m < 2; m++) {
                        Left a;
                        leftOf(a, kt, m * 16, d * 16);
                        mmaOf(d & 1 ? rest[m] : s[u][m], a, b[d][0], b[d][1]);
                    }
#endif
                if (KEY_CODE != I8ROW)
#pragma unroll
                    for (int m = 0; m < 2; m++)
#pragma unroll
                        for (int x = 0; x < 4; x++) s[u][m][x] += rest[m][x];
            }
            __syncwarp(); // keys are used up
            if (then < now.end) prepareKeys(stage, mine);
            else commit();
#if CODED
#pragma unroll
            for (int u = 0; u < TILES; u++)
#pragma unroll
                for (int m = 0; m < 2; m++)
#pragma unroll
                    for (int y = 0; y < 2; y++) {
                        float by = 1;
                        if (KEY_CODE != I4ROW) by = __uint_as_float(__shfl_sync(0xffffffffu, keyScale[u].x, m * 16 + y * 8 + g));
#pragma unroll
                        for (int x = 2 * y; x < 2 * y + 2; x++) s[u][m][x] *= KEY_CODE != I4ROW ? size[x & 1] * by : size[x & 1];
                    }
#endif
            if (from < now.begin || from + WIDE > now.end)
#pragma unroll
                for (int u = 0; u < TILES; u++)
#pragma unroll
                    for (int m = 0; m < 2; m++)
#pragma unroll
                        for (int x = 0; x < 4; x++) {
                            int p = from + u * STEP + m * 16 + (x >> 1) * 8 + g;
                            if (p < now.begin || p >= now.end) s[u][m][x] = -INFINITE;
                        }
            float turn = 1, shrinks[2];
#if CODED
            if (VALUE_CODE != I4ROW) {
                u32 most = __float_as_uint(largest);
#pragma unroll
                for (int u = 0; u < TILES; u++) most = max(most, valueScale[u].x);
                most = __reduce_max_sync(0xffffffffu, most);
                turn = __fdividef(largest, fmaxf(__uint_as_float(most), 1e-30f));
                largest = __uint_as_float(most);
            }
            const float over = __fdividef(1.0f, fmaxf(largest, 1e-30f));
#endif
#pragma unroll
            for (int x = 0; x < 2; x++) {
                float greatest = -INFINITE;
#pragma unroll
                for (int u = 0; u < TILES; u++) greatest = fmaxf(greatest, fmaxf(fmaxf(s[u][0][x], s[u][0][2 + x]), fmaxf(s[u][1][x], s[u][1][2 + x])));
                greatest = fmaxf(columnMax(greatest), top[x]);
                const float base = greatest == -INFINITE ? 0 : greatest * unit;
                float shrink = power2(top[x] * unit - base), w = 0;
                top[x] = greatest;
#pragma unroll
                for (int u = 0; u < TILES; u++)
#pragma unroll
                    for (int m = 0; m < 2; m++)
#pragma unroll
                        for (int y = 0; y < 2; y++) {
                            s[u][m][2 * y + x] = power2(s[u][m][2 * y + x] * unit - base);
                            w += s[u][m][2 * y + x];
                        }
                sum[x] = sum[x] * shrink + w;
                if (CODED) shrink *= turn;
                shrinks[x] = shrink;
            }
            if (__any_sync(0xffffffffu, shrinks[0] != 1 || shrinks[1] != 1)) {
#pragma unroll
                for (int d = 0; d < HEAD / 16; d++)
#pragma unroll
                    for (int x = 0; x < 4; x++) out[d][x] *= shrinks[x & 1];
#if CODED
                if (Values::more > 0)
#pragma unroll
                    for (int x = 0; x < 4; x++) ones[x] *= shrinks[x & 1];
#endif
            }
            u32 p[TILES][2][2];
#pragma unroll
            for (int u = 0; u < TILES; u++)
#pragma unroll
                for (int m = 0; m < 2; m++)
#pragma unroll
                    for (int y = 0; y < 2; y++) {
#if CODED
                        float by = 1;
                        if (VALUE_CODE != I4ROW) by = __uint_as_float(__shfl_sync(0xffffffffu, valueScale[u].x, m * 16 + y * 8 + g)) * over;
                        p[u][m][y] = turned(twoHalves(s[u][m][2 * y] * by, s[u][m][2 * y + 1] * by));
#else
                        p[u][m][y] = turned(two(s[u][m][2 * y], s[u][m][2 * y + 1]));
#endif
                    }
            await<PENDING>();
            __syncwarp();
#pragma unroll
            for (int u = 0; u < TILES; u++) {
#if CODED
                if (Values::more > 0)
#pragma unroll
                    for (int m = 0; m < 2; m++) mmaHalves(ones, Left{{HALVES(Values::more), HALVES(Values::more), HALVES(Values::more), HALVES(Values::more)}}, p[u][m][0], p[u][m][1]);
                Values::addValues(out, p[u], valuesOf(stage, u), valueScale[u]);
#else
                const Element *vt = (const Element *)valuesOf(stage, u);
#pragma unroll
                for (int m = 0; m < 2; m++)
#pragma unroll
                    for (int d = 0; d < HEAD / 16; d++) {
                        Left a;
                        turnedOf(a, vt, m * 16, d * 16);
                        mmaOf(out[d], a, p[u][m][0], p[u][m][1]);
                    }
#endif
            }
            __syncwarp(); // values are used up
            if (then < now.end) prepareValues(stage, mine);
            else commit();
        }
        await<0>();
        __syncwarp();
#if !CLUSTER
        bool more = item + gridDim.x < total;
        if (more) {
            next = find(item + gridDim.x);
            fetchFirst(next);
        }
#endif
        // the warps' results, by head
#pragma unroll
        for (int x = 0; x < 2; x++) {
            const int r = 2 * t + x;
            const float w = columnSum(sum[x]);
            if (g == 0) {
                tops[warp][r] = top[x] * unit;
                weights[warp][r] = w;
            }
            if (r < now.here) {
                float *to = mergeOf(warp) + r * HEAD;
#if CODED
                Values::put(to, out, x, ones[x], VALUE_CODE == I4ROW ? 1.0f : largest * Values::factor());
#else
#pragma unroll
                for (int d = 0; d < HEAD / 16; d++) {
                    to[d * 16 + g] = out[d][x];
                    to[d * 16 + 8 + g] = out[d][2 + x];
                }
#endif
            }
        }
        __syncthreads();
#if CLUSTER
        // pairs of numbers, each to the block that adds it: as many of each head have one as another
#if CLUSTER > 1
        const int own = HEAD / CLUSTER;
        clusterWait(); // all of them are there
#endif
#pragma unroll 1
        for (int i = threadIdx.x; i < now.here * (HEAD / 2); i += TEAM * 32) {
            const int r = i / (HEAD / 2), d = i % (HEAD / 2) * 2;
            float greatest = -INFINITE, w = 0;
            float2 x = {};
#pragma unroll
            for (int n = 0; n < TEAM; n++) greatest = fmaxf(greatest, tops[n][r]);
#pragma unroll
            for (int n = 0; n < TEAM; n++) {
                const float share = tops[n][r] == -INFINITE ? 0.0f : power2(tops[n][r] - greatest);
                w += weights[n][r] * share;
                if (share > 0) {
                    const float2 y = *(const float2 *)(mergeOf(n) + r * HEAD + d);
                    x.x += y.x * share;
                    x.y += y.y * share;
                }
            }
#if CLUSTER > 1
            const int to = d / own;
            give(sharedAt(merge + (now.n * mostHeads + r) * own + d - to * own), to, x);
            if (d / 2 < CLUSTER) give(sharedAt(&outer[now.n][r]), d / 2, {greatest, w});
#else
            narrow(w > 0 ? x.x / w : 0.0f, o + (now.at + r) * HEAD + d);
            narrow(w > 0 ? x.y / w : 0.0f, o + (now.at + r) * HEAD + d + 1);
#endif
        }
#if CLUSTER > 1
        clusterPass();
#pragma unroll 1
        for (int i = threadIdx.x; i < now.here * own; i += TEAM * 32) {
            const int r = i / own, d = i - r * own;
            float greatest = -INFINITE, w = 0, x = 0;
#pragma unroll
            for (int n = 0; n < CLUSTER; n++) greatest = fmaxf(greatest, outer[n][r].x);
#pragma unroll
            for (int n = 0; n < CLUSTER; n++) {
                const float share = outer[n][r].x == -INFINITE ? 0.0f : power2(outer[n][r].x - greatest);
                w += outer[n][r].y * share;
                if (share > 0) x += merge[(n * mostHeads + r) * own + d] * share;
            }
            narrow(w > 0 ? x / w : 0.0f, o + (now.at + r) * HEAD + blockIdx.x * own + d);
        }
#endif
#else
        if (more) fetchQueries(next);
        for (int r = warp; r < now.here; r += TEAM) {
            float greatest = -INFINITE, w = 0, share[TEAM];
#pragma unroll
            for (int i = 0; i < TEAM; i++) greatest = fmaxf(greatest, tops[i][r]);
#pragma unroll
            for (int i = 0; i < TEAM; i++) {
                share[i] = tops[i][r] == -INFINITE ? 0.0f : power2(tops[i][r] - greatest);
                w += weights[i][r] * share[i];
            }
            for (int d = lane; d < HEAD; d += 32) {
                float x = 0;
#pragma unroll
                for (int i = 0; i < TEAM; i++)
                    if (share[i] > 0) x += mergeOf(i)[r * HEAD + d] * share[i];
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
                for (int r = warp; r < now.here; r += TEAM) {
                    const float2 *from = stats + (now.at + r) * most;
                    const float *x = parts + (now.at + r) * most * HEAD;
                    // a part is HEAD numbers, of which each lane has some; as many parts as there are registers for are on their way together with the stats
                    Some<HEAD / 32> part[TOGETHER];
                    auto fetchParts = [&](int base) {
#pragma unroll
                        for (int i = 0; i < TOGETHER; i++) {
                            part[i] = {};
                            if (base + i < now.count) part[i] = fetched((const Some<HEAD / 32> *)(x + (i64)(base + i) * HEAD) + lane);
                        }
                    };
                    auto stat = [&](int i) { return i < now.count ? __ldcg(from + i) : float2{-INFINITE, 0}; };
                    fetchParts(0);
                    const float2 first = stat(lane);
                    float greatest = first.x, w = 0;
                    for (int i = lane + 32; i < now.count; i += 32) greatest = fmaxf(greatest, stat(i).x);
                    greatest = warpMax(greatest);
                    float sums[HEAD / 32] = {};
                    for (int base = 0; base < now.count; base += 32) {
                        const float2 s = base == 0 ? first : stat(base + lane);
                        const float by = s.x == -INFINITE ? 0.0f : power2(s.x - greatest);
                        w += warpSum(s.y * by);
                        for (int some = 0; some < 32 && base + some < now.count; some += TOGETHER) {
                            if (base + some > 0) fetchParts(base + some);
#pragma unroll
                            for (int i = 0; i < TOGETHER; i++) {
                                const float factor = __shfl_sync(0xffffffffu, by, some + i);
#pragma unroll
                                for (int d = 0; d < HEAD / 32; d++) sums[d] += part[i].x[d] * factor;
                            }
                        }
                    }
#pragma unroll
                    for (int d = 0; d < HEAD / 32; d++) narrow(sums[d] / w, o + (now.at + r) * HEAD + lane * (HEAD / 32) + d);
                }
            }
        }
        __syncthreads(); // queries are here, and the warps' results may be written again
#endif
    }
}

#if !CLUSTER
// prefill is attention of many rows. A block has QUERIES rows of tiles for a key head: tokens of the step
// times the heads that share it. Tokens may be of several sequences, which are taken one after the other;
// KEYS positions at a time, from multiples of it on.
#define QUERIES 128
#define KEYS_AT_ONCE 64

#if CODED
// Raw is some codes of a tile on their way: each thread fetches and widens the same ones.
template <class Rows> struct Raw {
    enum { parts = KEYS_AT_ONCE * Rows::chunks / (WARPS * 32) };
    float scale[parts];

    template <class Find> __device__ __forceinline__ void fetch(u8 *space, const u8 *codes, i64 numbers, Find rowAt) {
#pragma unroll
        for (int i = 0; i < parts; i++) {
            const int n = threadIdx.x + i * WARPS * 32;
            const i64 row = rowAt(n / Rows::chunks);
            fetch16((Element *)(space + n * 16), (const Element *)(codes + (row < 0 ? 0 : row * Rows::bytes + n % Rows::chunks * 16)), row >= 0);
            scale[i] = Rows::scaleOf(codes, numbers, row, n % Rows::chunks);
        }
    }
    __device__ __forceinline__ void widen(Element *tile, const u8 *space) {
#pragma unroll
        for (int i = 0; i < parts; i++) {
            const int n = threadIdx.x + i * WARPS * 32;
            Rows::widen(tile + n / Rows::chunks * PITCH + n % Rows::chunks * (HEAD / Rows::chunks), *(const uint4 *)(space + n * 16), scale[i]);
        }
    }
};
#endif

extern "C" __global__ void __launch_bounds__(WARPS * 32) prefill(const Element *q, const void *k, const void *v, Element *o, i64 numbers, CACHE_PARAMS) {
    Cache c = CACHE;
    extern __shared__ Element tiles[];
    __shared__ int places[QUERIES], owners[QUERIES];
#if CODED
    Element *qs = tiles, *ks = qs + QUERIES * PITCH, *vs = ks + KEYS_AT_ONCE * PITCH;
    u8 *rawKeys = (u8 *)(vs + KEYS_AT_ONCE * PITCH), *rawValues = rawKeys + KEYS_AT_ONCE * Keys::bytes;
    Raw<Keys> keys;
    Raw<Values> values;
#else
    Element *qs = tiles, *ks = qs + QUERIES * PITCH, *vs = ks + 2 * KEYS_AT_ONCE * PITCH;
#endif
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
#if CODED
        auto fetchKeys = [&](int j) { keys.fetch(rawKeys, (const u8 *)k, numbers, [&](int r) { return j + r < end ? c.row(sequence, j + r, head) : (i64)-1; }); };
        auto fetchValues = [&](int j) { values.fetch(rawValues, (const u8 *)v, numbers, [&](int r) { return j + r < end ? c.row(sequence, j + r, head) : (i64)-1; }); };
        fetchKeys(from);
        commit();
        fetchValues(from);
        commit();
        __syncthreads(); // tiles of the last sequence are used up
        for (int j = from; j < end; j += KEYS_AT_ONCE) {
            Element *kt = ks, *vt = vs;
            bool more = j + KEYS_AT_ONCE < end;
            await<1>();
            keys.widen(kt, rawKeys);
            if (more) fetchKeys(j + KEYS_AT_ONCE);
            commit();
            __syncthreads(); // these keys are here, and values are no longer read
#else
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
        fetchTile(ks, (const Element *)k, row);
        commit();
        fetchTile(vs, (const Element *)v, row);
        commit();
        for (int j = from, stage = 0; j < end; j += KEYS_AT_ONCE, stage ^= 1) {
            Element *kt = ks + stage * KEYS_AT_ONCE * PITCH, *vt = vs + stage * KEYS_AT_ONCE * PITCH;
            bool more = j + KEYS_AT_ONCE < end;
            if (more) row = rowOf(j + KEYS_AT_ONCE);
            await<1>();
            __syncthreads(); // these keys are here, and the other stage is no longer read
            if (more) fetchTile(ks + (stage ^ 1) * KEYS_AT_ONCE * PITCH, (const Element *)k, row);
            commit();
#endif
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
#if CODED
            values.widen(vt, rawValues);
            if (more) fetchValues(j + KEYS_AT_ONCE);
            commit();
            __syncthreads(); // these values are here, and keys are no longer read
#else
            __syncthreads(); // these values are here
            if (more) fetchTile(vs + (stage ^ 1) * KEYS_AT_ONCE * PITCH, (const Element *)v, row);
            commit();
#endif
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
#endif
