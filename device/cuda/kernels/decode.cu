#include "decode.h"
#include "functions.h"

// Products of a few rows x [R K] with matrices of weights stored row by row: y = x·Wᵀ.
//
// A tile is 16 rows of W. A block takes every gridDim.x-th tile, its warps take pieces of
// SPAN elements of its rows in turn, and their sums are added in order. Products are by tensor cores,
// W on the left, up to eight rows of x on the right: the sums of a row of x have the same
// order however many rows there are. A lane reads 16 bytes of two rows of W where mma wants
// four elements of each for two steps; the elements of a row are so taken in another order,
// for x too.
//
// Each lane has a ring in shared memory, through which it fetches exactly what it will use:
// no thread waits for another until the sums of a tile are added, and the ring runs
// on into the next tile.

#if ELEMENT != 0

#define WARPS 8
#define SPAN 64
#if KEYS
#define STAGES KEYS
#else
#define STAGES 5 // of a ring
#endif

__device__ __forceinline__ void times(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
#if ELEMENT == 2
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#endif
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ float rounded(float x) {
    Element e;
    narrow(x, &e);
    return wide(e);
}

// Rows are the few rows: x, and for those that are normalized first the weights of the norm.
struct Rows {
    const Element *x;
    const Element *norm; // null: as they are
    float eps;
    int count, width; // R and K, a multiple of 8
    int ahead;        // bytes of each row of W of a block that are brought to the L2 cache early
    int constant;     // nothing writes W during a step
};

__device__ __forceinline__ int pitchOf(int width) { return (width + SPAN - 1) / SPAN * SPAN + 32; } // 64 bytes more: rows in different banks

// share puts the rows into shared memory, normalized where they are to be, with zeros behind.
__device__ __forceinline__ void share(const Rows &r, Element *xs, float *sums) {
    int pitch = pitchOf(r.width), lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (r.norm) { // sums[row][warp] of squares
        for (int n = 0; n < r.count; n++) {
            float f[LANES], squares = 0;
            for (int i = threadIdx.x * LANES; i < r.width; i += WARPS * 32 * LANES) {
                load(r.x + (i64)n * r.width + i, f);
                for (int k = 0; k < LANES; k++) squares += f[k] * f[k];
            }
            squares = warpSum(squares);
            if (lane == 0) sums[n * WARPS + warp] = squares;
        }
        __syncthreads();
    }
    for (int n = 0; n < r.count; n++) {
        float inverse = 0;
        if (r.norm) {
            for (int w = 0; w < WARPS; w++) inverse += sums[n * WARPS + w];
            inverse = 1.0f / sqrtf(inverse / r.width + r.eps);
        }
        for (int i = threadIdx.x * LANES; i < pitch; i += WARPS * 32 * LANES) {
            Lane v = {};
            if (i < r.width) v = *(const Lane *)(r.x + (i64)n * r.width + i);
            if (i < r.width && r.norm) {
                float g[LANES];
                load(r.norm + i, g);
                for (int k = 0; k < LANES; k++) narrow(wide(v.x[k]) * inverse * g[k], &v.x[k]);
            }
            *(Lane *)(xs + n * pitch + i) = v;
        }
    }
    __syncthreads();
}

// multiply runs the tiles of a block. Form says where rows of W are and what is done with the
// sums: tiles() is how many there are, row(tile, i) row i of 16, null where there is none, and
// put(tile, g, n, low, high) takes the products of row n of x with rows g and g+8.
//
// T is how many times eight rows of x there may be. RING: x goes through the rings as well,
// because it is too large for shared memory.
template <int T, bool RING, class Form> __device__ __forceinline__ void multiply(const Form &form, const Rows &r) {
    const int parts = 4 + (RING ? 2 * T : 0);
    extern __shared__ uint4 space[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    uint4 *ring = space + warp * STAGES * parts * 32 + lane;
    float *sums = (float *)(space + WARPS * STAGES * parts * 32); // [2][WARPS][16][8·T]
    Element *xs = (Element *)(sums + 2 * WARPS * 16 * 8 * T);
    const int spans = (r.width + SPAN - 1) / SPAN, tiles = form.tiles(), pitch = pitchOf(r.width);

    // what is fetched next
    int tile = blockIdx.x, span = warp;
    const Element *upper = 0, *lower = 0;
    auto find = [&]() {
        upper = lower = 0;
        if (tile < tiles && span < spans) {
            upper = form.row(tile, g);
            lower = form.row(tile, g + 8);
        }
    };
    auto fetchWeights = [&](int stage) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int i = span * SPAN + h * 32 + t * 8;
            bool there = i < r.width;
            const Element *a = upper ? upper : r.x, *b = lower ? lower : r.x;
            fetch16((Element *)(ring + (stage * parts + 2 * h) * 32), there ? a + i : a, there && upper);
            fetch16((Element *)(ring + (stage * parts + 2 * h + 1) * 32), there ? b + i : b, there && lower);
        }
    };
    auto fetchRows = [&](int stage, int from) {
        if (RING)
#pragma unroll
            for (int n = 0; n < T; n++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    int i = from * SPAN + h * 32 + t * 8;
                    bool there = i < r.width && n * 8 + g < r.count;
                    fetch16((Element *)(ring + (stage * parts + 4 + 2 * n + h) * 32), there ? r.x + (i64)(n * 8 + g) * r.width + i : r.x, there);
                }
    };
    auto advance = [&]() {
        span += WARPS;
        if (span >= spans) {
            span = warp;
            tile += gridDim.x;
            find();
        }
    };
    find();
    if (threadIdx.x < 16)
        for (int n = blockIdx.x, left = r.ahead; n < tiles && left > 0; n += gridDim.x, left -= r.width * (int)sizeof(Element))
            if (const Element *p = form.row(n, threadIdx.x)) bring(p, min(left, r.width * (int)sizeof(Element)) & ~15);
    if (!r.constant) awaitPrevious();
    int first[STAGES - 1];
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        fetchWeights(s);
        first[s] = span;
        if (!RING) commit();
        advance();
    }
    if (r.constant) awaitPrevious();
    releaseNext();
    if (RING)
#pragma unroll
        for (int s = 0; s < STAGES - 1; s++) {
            fetchRows(s, first[s]);
            commit();
        }
    else
        share(r, xs, sums);

    int stage = 0, turn = 0;
    for (int at = blockIdx.x; at < tiles; at += gridDim.x, turn ^= 1) {
        float sum[T][2][4] = {};
        for (int c = warp; c < spans; c += WARPS) {
            await<STAGES - 2>();
            int free = stage == 0 ? STAGES - 1 : stage - 1; // used up in the last round
            fetchWeights(free);
            fetchRows(free, span);
            commit();
            advance();
            uint4 w[4];
#pragma unroll
            for (int i = 0; i < 4; i++) w[i] = ring[(stage * parts + i) * 32];
#pragma unroll
            for (int n = 0; n < T; n++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    uint4 x = {};
                    if (RING)
                        x = ring[(stage * parts + 4 + 2 * n + h) * 32];
                    else if (n * 8 + g < r.count)
                        x = *(const uint4 *)(xs + (n * 8 + g) * pitch + c * SPAN + h * 32 + t * 8);
                    const uint4 a = w[2 * h], b = w[2 * h + 1];
                    times(sum[n][0], a.x, b.x, a.y, b.y, x.x, x.y);
                    times(sum[n][1], a.z, b.z, a.w, b.w, x.z, x.w);
                }
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }
        float *mine = sums + (turn * WARPS + warp) * 16 * 8 * T;
#pragma unroll
        for (int n = 0; n < T; n++)
#pragma unroll
            for (int y = 0; y < 2; y++)
                *(float2 *)(mine + (g + 8 * y) * 8 * T + n * 8 + 2 * t) = {sum[n][0][2 * y] + sum[n][1][2 * y], sum[n][0][2 * y + 1] + sum[n][1][2 * y + 1]};
        __syncthreads();
        for (int e = threadIdx.x; e < 64 * T; e += WARPS * 32) {
            int row = e & 7, n = e >> 3;
            if (n >= r.count) continue;
            float low = 0, high = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++) {
                const float *part = sums + (turn * WARPS + w) * 16 * 8 * T;
                low += part[row * 8 * T + n];
                high += part[(row + 8) * 8 * T + n];
            }
            form.put(at, row, n, low, high);
        }
    }
    await<0>();
}

// Plain is y = x·Wᵀ (+ bias) (+ plus), W [N K].
struct Plain {
    const Element *w, *bias, *plus;
    Element *y;
    int n, k;
    __device__ int tiles() const { return (n + 15) / 16; }
    __device__ const Element *row(int tile, int i) const { return tile * 16 + i < n ? w + (i64)(tile * 16 + i) * k : 0; }
    __device__ void put(int tile, int g, int x, float low, float high) const {
        one(tile * 16 + g, x, low);
        one(tile * 16 + g + 8, x, high);
    }
    __device__ void one(int row, int x, float sum) const {
        if (row >= n) return;
        if (bias) sum += wide(bias[row]);
        if (plus) sum += wide(plus[(i64)x * n + row]);
        narrow(sum, y + (i64)x * n + row);
    }
};

// GatedRows is f(x·gateᵀ)·(x·upᵀ), both [N K]: a tile is eight rows of each. Products are rounded
// as the ops by themselves would.
struct GatedRows {
    const Element *gate, *up;
    Element *y;
    int n, k, function;
    __device__ int tiles() const { return (n + 7) / 8; }
    __device__ const Element *row(int tile, int i) const {
        int at = tile * 8 + (i & 7);
        return at < n ? (i < 8 ? gate : up) + (i64)at * k : 0;
    }
    __device__ void put(int tile, int g, int x, float low, float high) const {
        int at = tile * 8 + g;
        if (at >= n) return;
        float value = 0, slope;
        low = rounded(low);
        if (function == SiLU) both<SiLU>(low, value, slope);
        if (function == GELUTanh) both<GELUTanh>(low, value, slope);
        if (function == GELU) both<GELU>(low, value, slope);
        if (function == ReLU) both<ReLU>(low, value, slope);
        narrow(rounded(high) * value, y + (i64)x * n + at);
    }
};

// Heads are the products with q, k and v of attention. Those with q and k are rotated: a tile
// has eight elements of a head and the eight they are paired with. Those with k and v go to
// the cache. Products are rounded as the ops by themselves would.
struct Heads {
    const Element *q, *k, *v, *biasQ, *biasK, *biasV;
    const float *freq;
    const int *positions, *sequences, *pages;
    Element *cacheK, *cacheV, *y;
    int width, heads, keyHeads, size, half;
    float scale;
    int page, streams, table, count;
    __device__ int tiles() const { return (heads + 2 * keyHeads) * (size / 16); }
    // element is the place of row i of a tile in its head.
    __device__ int element(int tile, int i) const {
        int j = tile % (size / 16), head = tile / (size / 16);
        if (head >= heads + keyHeads) return j * 16 + i; // of v
        if (j * 8 < half) return (i < 8 ? 0 : half) + j * 8 + (i & 7);
        return 2 * half + (j - half / 8) * 16 + i;
    }
    __device__ const Element *row(int tile, int i) const {
        int head = tile / (size / 16), at = element(tile, i);
        const Element *w = q;
        if (head >= heads) head -= heads, w = k;
        if (w == k && head >= keyHeads) head -= keyHeads, w = v;
        return w + ((i64)head * size + at) * width;
    }
    __device__ void put(int tile, int g, int x, float low, float high) const {
        int head = tile / (size / 16), a = element(tile, g), b = element(tile, g + 8), position = positions[x];
        const Element *bias = biasQ;
        Element *to = y + ((i64)x * heads + head) * size;
        if (head >= heads) {
            head -= heads;
            bool value = head >= keyHeads;
            if (value) head -= keyHeads;
            bias = value ? biasV : biasK;
            int sequence = sequences[x];
            if (position < 0 || sequence < 0 || sequence >= streams) return;
            int n = pages[(i64)sequence * table + position / page % table];
            n = min(max(n, 0), count - 1);
            to = (value ? cacheV : cacheK) + (((i64)n * keyHeads + head) * page + position % page) * size;
        }
        if (bias) {
            low += wide(bias[head * size + a]);
            high += wide(bias[head * size + b]);
        }
        if (tile < (heads + keyHeads) * (size / 16) && a < half) {
            float s, c;
            sincosf((float)position * freq[a], &s, &c);
            s *= scale;
            c *= scale;
            low = rounded(low);
            high = rounded(high);
            float turned = low * c - high * s;
            high = high * c + low * s;
            low = turned;
        }
        narrow(low, to + a);
        narrow(high, to + b);
    }
};

#define MATMUL_ROWS(T, RING, NAME)                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(WARPS * 32, 2) NAME(const Element *x, const Element *w, const Element *bias, const Element *plus, Element *y, \
                                                                    int rows, int n, int k, int ahead, int constant) {                                       \
        multiply<T, RING>(Plain{w, bias, plus, y, n, k}, Rows{x, 0, 0, rows, k, ahead, constant});                                                    \
    }
#define FUSED_ROWS(T)                                                                                                                                \
    extern "C" __global__ void __launch_bounds__(WARPS * 32, 2) normGated##T(const Element *x, const Element *norm, const Element *gate, const Element *up,     \
                                                                            Element *y, int rows, int n, int k, int function, float eps, int ahead) {        \
        multiply<T, false>(GatedRows{gate, up, y, n, k, function}, Rows{x, norm, eps, rows, k, ahead, 1});                                             \
    }                                                                                                                                                        \
    extern "C" __global__ void __launch_bounds__(WARPS * 32, 2) normHeads##T(                                                                                  \
        const Element *x, const Element *norm, const Element *q, const Element *k, const Element *v, const Element *biasQ, const Element *biasK,              \
        const Element *biasV, const float *freq, const int *positions, const int *sequences, const int *pages, Element *cacheK, Element *cacheV, Element *y,  \
        int rows, int width, float eps, int ahead, int heads, int keyHeads, int size, int half, float scale, int page, int streams, int table, int count) {   \
        multiply<T, false>(Heads{q, k, v, biasQ, biasK, biasV, freq, positions, sequences, pages, cacheK, cacheV, y, width, heads, keyHeads, size,     \
                                         half, scale, page, streams, table, count},                                                                          \
                                   Rows{x, norm, eps, rows, width, ahead, 1});                                                                                \
    }
MATMUL_ROWS(1, false, matmulRows1)
MATMUL_ROWS(2, false, matmulRows2)
MATMUL_ROWS(1, true, matmulRowsRing1)
MATMUL_ROWS(2, true, matmulRowsRing2)
MATMUL_ROWS(4, true, matmulRowsRing4)
FUSED_ROWS(1)
FUSED_ROWS(2)

#endif
