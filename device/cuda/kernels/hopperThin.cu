#include "spans.h"
#include "functions.h"
#include "cache.h"

// Matmuls of some tens of rows on GPUs of the Hopper generation, which the memory bounds: W is the left factor, 64 rows of it are a tile, and
// up to WIDTH rows of x are the right one. One warpgroup has the copy engine fetch two spans of both at a time into a ring, one
// for each of the other two warpgroups, which make half of the sums each, all at once. SPLIT: so many blocks of a cluster share a tile,
// make some of the sums each, and add up all of them for some rows of x. Gated: half of a tile is rows of one matrix and half the same
// rows of another, and what is written is a function of one sum times the other. Turned: it is rows of a head of q, k or v, and those half a head
// behind, of which positions turn q and k.

#define ROWS_OF_W 64
#define COMPUTING 256 // threads
#define PART_PITCH (ROWS_OF_W + 4)

// gated is f(gate)·up, as gateRows of decodeRows.cu has it of rounded numbers.
__device__ __forceinline__ float gated(float gate, float up, int function) {
    Element g, u;
    narrow(gate, &g);
    narrow(up, &u);
    float value = 0, slope;
    if (function == SiLU) both<SiLU>(wide(g), value, slope);
    if (function == GELUTanh) both<GELUTanh>(wide(g), value, slope);
    if (function == GELU) both<GELU>(wide(g), value, slope);
    if (function == ReLU) both<ReLU>(wide(g), value, slope);
    return wide(u) * value;
}

// Plain, Gated and Turned are what a kernel does: which rows of which matrices are a tile, and what is done with sums.
// EACH is how many columns of the result a tile has, twice for Turned.
struct Plain {
    enum { EACH = ROWS_OF_W, PAIRS = false };
    const Map *w;
    Result result;

    __device__ __forceinline__ int tiles() const { return (result.n + EACH - 1) / EACH; }
    template <class Fetch> __device__ __forceinline__ void fetch(int tile, Fetch fetch) const { fetch(w, 0, tile * EACH); }
    __device__ __forceinline__ bool has(int tile, int x, int c) const { return x < result.m && tile * EACH + c < result.n; }
    __device__ __forceinline__ void prepare(int tile, int x, int c) {}
    __device__ __forceinline__ void put(int tile, int x, int c, float4 sum, float4) const { result.four(sum, x, tile * EACH + c); }
};

struct Gated {
    enum { EACH = ROWS_OF_W / 2, PAIRS = true };
    const Map *gate, *up;
    Result result;
    int function;

    __device__ __forceinline__ int tiles() const { return (result.n + EACH - 1) / EACH; }
    template <class Fetch> __device__ __forceinline__ void fetch(int tile, Fetch fetch) const {
        fetch(gate, 0, tile * EACH);
        fetch(up, EACH, tile * EACH);
    }
    __device__ __forceinline__ bool has(int tile, int x, int c) const { return x < result.m && tile * EACH + c < result.n; }
    __device__ __forceinline__ void prepare(int tile, int x, int c) {}
    __device__ __forceinline__ void put(int tile, int x, int c, float4 a, float4 b) const {
        result.four({gated(a.x, b.x, function), gated(a.y, b.y, function), gated(a.z, b.z, function), gated(a.w, b.w, function)}, x, tile * EACH + c);
    }
};

// Turned does what turnRows of decodeRows.cu does, where a cache has Elements and positions turn whole heads of d.
struct Turned {
    enum { EACH = ROWS_OF_W / 2, PAIRS = true };
    const Map *q, *k, *v;
    const float *freq;
    Element *y, *cacheK, *cacheV;
    int d;
    float turnScale;
    Cache cache;
    i64 row; // of the cache
    int place;
    float sines[4], cosines[4];

    __device__ __forceinline__ int perHead() const { return d / ROWS_OF_W; }
    __device__ __forceinline__ int tiles() const { return (cache.heads + 2 * cache.keyHeads) * perHead(); }
    template <class Fetch> __device__ __forceinline__ void fetch(int tile, Fetch fetch) const {
        const int head = tile / perHead(), key = head - cache.heads, value = key - cache.keyHeads;
        const Map *map = key < 0 ? q : value < 0 ? k : v;
        const int from = (key < 0 ? head : value < 0 ? key : value) * d + tile % perHead() * EACH;
        fetch(map, 0, from);
        fetch(map, EACH, from + d / 2);
    }
    __device__ __forceinline__ bool has(int tile, int x, int c) const { return x < cache.rows; }
    // prepare has ready what a row of x and columns from c on need, while weights are on their way. A thread has one row.
    __device__ __forceinline__ void prepare(int tile, int x, int c) {
        if (x >= cache.rows) return;
        const int head = tile / perHead(), at = cache.positions[x];
        place = cache.position(x);
        if (place >= 0 && head >= cache.heads) row = cache.row(cache.sequences[x], place, (head - cache.heads) % cache.keyHeads);
        if (head >= cache.heads + cache.keyHeads) return;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            sincosf((float)at * freq[tile % perHead() * EACH + c + i], sines + i, cosines + i);
            sines[i] *= turnScale;
            cosines[i] *= turnScale;
        }
    }
    __device__ __forceinline__ void put(int tile, int x, int c, float4 a, float4 b) const {
        const int head = tile / perHead(), at = tile % perHead() * EACH + c;
        const bool query = head < cache.heads, turns = head < cache.heads + cache.keyHeads;
        if (!query && place < 0) return;
        const float lows[4] = {a.x, a.y, a.z, a.w}, highs[4] = {b.x, b.y, b.z, b.w};
        Pack<Element, 4> first, second;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            narrow(lows[i], first.x + i);
            narrow(highs[i], second.x + i);
            if (!turns) continue;
            const float low = wide(first.x[i]), high = wide(second.x[i]), s = sines[i], c = cosines[i];
            narrow(low * c - high * s, first.x + i);
            narrow(high * c + low * s, second.x + i);
        }
        Element *to = query ? y + ((i64)x * cache.heads + head) * d : (turns ? cacheK : cacheV) + (i64)row * d;
        *(Pack<Element, 4> *)(to + at) = first;
        *(Pack<Element, 4> *)(to + d / 2 + at) = second;
    }
};

template <int WIDTH, int STAGES, int SPLIT, class Work> __device__ __forceinline__ void multiplyThin(const Map *xs, Work work, int k, int constant) {
    const int EACH = Work::EACH;
    const int OWN = CHAINS / SPLIT / 2; // sums of a warpgroup
    const u32 left = ROWS_OF_W * SPAN * 2, slot = left + WIDTH * SPAN * 2, stageBytes = 2 * slot;
    extern __shared__ char memory[];
    __shared__ Barrier full[STAGES], empty[STAGES];
    const u32 base = sharedAt(memory) + 1023 & ~1023u;
    float *parts = (float *)(memory + (base - sharedAt(memory)) + STAGES * stageBytes); // [2 OWN][WIDTH][PART_PITCH]
    const int lane = threadIdx.x & 31, rank = blockIdx.x % SPLIT, step = gridDim.x / SPLIT, begin0 = blockIdx.x / SPLIT;
    const int pieces = (k + CHAINS * SPAN - 1) / (CHAINS * SPAN), tiles = work.tiles();
    if (threadIdx.x == 0) {
        for (int n = 0; n < STAGES; n++) {
            reset(full[n], 1);
            reset(empty[n], COMPUTING / 32);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        FETCHING_REGISTERS(40);
        if (threadIdx.x == 0) {
            struct Place { int tile, piece, turn; }; // which of OWN sums
            auto next = [&](Place &p) {
                if (++p.turn < OWN) return;
                p.turn = 0;
                if (++p.piece < pieces) return;
                p.piece = 0;
                p.tile += step;
            };
            auto fetch = [&](int stage, const Place &p, const Map *map, u32 at, int row) {
#pragma unroll
                for (int g = 0; g < 2; g++) fetchTile(base + stage * stageBytes + g * slot + at, map, (p.piece * CHAINS + (rank * 2 + g) * OWN + p.turn) * SPAN, row, full[stage]);
            };
            auto fetchWeights = [&](int stage, const Place &p) {
                work.fetch(p.tile, [&](const Map *map, int behind, int row) { fetch(stage, p, map, behind * SPAN * 2, row); });
            };
            Place w = {begin0, 0, 0}, x = w;
            int ahead = 0;
            if (constant) // weights may be fetched before the kernel in front has ended
                for (; ahead < STAGES && w.tile < tiles; ahead++, next(w)) {
                    expect(full[ahead], stageBytes);
                    fetchWeights(ahead, w);
                }
            awaitPrevious();
            for (int n = 0; n < ahead; n++, next(x)) fetch(n, x, xs, left, 0);
            Ring<STAGES> ring = {ahead == STAGES ? 0 : ahead, ahead == STAGES ? 0 : 1};
            for (; w.tile < tiles; next(w), ring.next()) {
                waitFor(empty[ring.at], ring.phase);
                expect(full[ring.at], stageBytes);
                fetchWeights(ring.at, w);
                fetch(ring.at, w, xs, left, 0);
            }
            releaseNext();
        }
        if (SPLIT > 1) {
            clusterSync();
            clusterSync();
        }
        return;
    }
    COMPUTING_REGISTERS(232);
    awaitPrevious();
    const int group = (threadIdx.x >> 7) - 1, row = (threadIdx.x >> 5 & 3) * 16 + (lane >> 2); // of W, in the tile
    Ring<STAGES> ring = {0, 0};
    for (int tile = begin0; tile < tiles; tile += step) {
        float sum[OWN][WIDTH / 8][4];
        int before = -1; // the stage that is being multiplied
        work.prepare(tile, (threadIdx.x - 128) / (EACH / 4), (threadIdx.x - 128) % (EACH / 4) * 4);
        for (int piece = 0; piece < pieces; piece++)
#pragma unroll
            for (int n = 0; n < OWN; n++) {
                waitFor(full[ring.at], ring.phase);
                const u64 a = describe(base + ring.at * stageBytes + group * slot, 0), b = describe(base + ring.at * stageBytes + group * slot + left, 0);
                begin();
#pragma unroll
                for (int i = 0; i < SPAN / 16; i++) both(sum[n], a + i * 2, b + i * 2, i > 0 || piece > 0);
                submit();
                finish<1>();
                if (before >= 0 && lane == 0) arrive(empty[before]);
                before = ring.at;
                ring.next();
            }
        finish<0>();
#pragma unroll
        for (int n = 0; n < OWN; n++) held(sum[n]);
        if (lane == 0) arrive(empty[before]);
        asm volatile("bar.sync 1, %0;" ::"n"(COMPUTING) : "memory"); // nobody reads the sums of the tile before
#pragma unroll
        for (int n = 0; n < OWN; n++)
#pragma unroll
            for (int i = 0; i < WIDTH / 8; i++)
#pragma unroll
                for (int e = 0; e < 4; e++) parts[((group * OWN + n) * WIDTH + i * 8 + 2 * (lane & 3) + (e & 1)) * PART_PITCH + row + (e >> 1) * 8] = sum[n][i][e];
        if (SPLIT > 1) clusterSync();
        else asm volatile("bar.sync 1, %0;" ::"n"(COMPUTING) : "memory");
        for (int e = threadIdx.x - 128; e < WIDTH / SPLIT * (EACH / 4); e += COMPUTING) {
            const int x = rank * (WIDTH / SPLIT) + e / (EACH / 4), c = e % (EACH / 4) * 4;
            if (!work.has(tile, x, c)) continue;
            auto sumOf = [&](int c) {
                float4 part[CHAINS];
#pragma unroll
                for (int n = 0; n < CHAINS; n++) {
                    const float *at = parts + (n % (2 * OWN) * WIDTH + x) * PART_PITCH + c;
                    part[n] = SPLIT > 1 ? partOf(sharedAt(at), n / (2 * OWN)) : *(const float4 *)at;
                }
                float4 all = {};
#pragma unroll
                for (int n = 0; n < CHAINS; n++) {
                    all.x += part[n].x;
                    all.y += part[n].y;
                    all.z += part[n].z;
                    all.w += part[n].w;
                }
                return all;
            };
            const float4 all = sumOf(c);
            work.put(tile, x, c, all, Work::PAIRS ? sumOf(EACH + c) : all);
        }
        if (SPLIT > 1) {
            clusterSync(); // nobody reads here any more
            return;
        }
    }
}

#define THIN(NAME, WIDTH, STAGES, SPLIT)                                                                                                                         \
    extern "C" __global__ void __launch_bounds__(384, 1) matmulThin##NAME(const __grid_constant__ Map x, const __grid_constant__ Map w, const Element *bias,    \
                                                                          const Element *plus, Element *y, int m, int n, int k, int step, int constant) {       \
        multiplyThin<WIDTH, STAGES, SPLIT>(&x, Plain{&w, {bias, plus, y, m, n, step}}, k, constant);                                              \
    }
THIN(16, 16, 8, 1)
THIN(32, 32, 6, 1)
THIN(16Split2, 16, 8, 2)
THIN(32Split2, 32, 6, 2)

// gatedThin is y [m n] = f(x·gateᵀ)·(x·upᵀ).
#define GATED_THIN(NAME, WIDTH, STAGES)                                                                                                                            \
    extern "C" __global__ void __launch_bounds__(384, 1) gatedThin##NAME(const __grid_constant__ Map x, const __grid_constant__ Map gate, const __grid_constant__ Map up, \
                                                                         Element *y, int m, int n, int k, int function) {                                         \
        multiplyThin<WIDTH, STAGES, 1>(&x, Gated{&gate, &up, {nullptr, nullptr, y, m, n, n}, function}, k, 1);                                                \
    }
GATED_THIN(16, 16, 8)
GATED_THIN(32, 32, 6)

// headsThin is what NormHeads does with rows that are normalized.
#define HEADS_THIN(NAME, WIDTH, STAGES)                                                                                                                            \
    extern "C" __global__ void __launch_bounds__(384, 1)                                                                                                          \
        headsThin##NAME(const __grid_constant__ Map x, const __grid_constant__ Map q, const __grid_constant__ Map k, const __grid_constant__ Map v, const float *freq, \
                        Element *y, Element *cacheK, Element *cacheV, int d, int width, float turnScale, CACHE_PARAMS) {                                           \
        multiplyThin<WIDTH, STAGES, 1>(&x, Turned{&q, &k, &v, freq, y, cacheK, cacheV, d, turnScale, CACHE}, width, 1);                                            \
    }
HEADS_THIN(16, 16, 8)
