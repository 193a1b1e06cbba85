#include "decode.h"
#include "weights.h"
#include "fragments.h"
#include "wgmma.h"

// Matmuls of tens to hundreds of rows x [R K] with weights, y = x·Wᵀ, on tensor cores of the
// Hopper generation. Time is that of reading W, so a block takes BLOCK_ROWS rows of W, which are the left
// factor, and KEYS rows of x, the right one; K is a multiple of PIECE elements.
//
// A cluster of blocks shares a tile: each sums over a share of K, and the sums are added in the order of
// the shares, read from each other's shared memory. How many blocks share follows from the sizes of W
// and the GPU alone, and so does the order of all sums of an element: a row of y has the same bits
// whatever rows are computed with it.
//
// Of a block 128 threads fetch W, which nothing writes during a step, 128 fetch x, and two warpgroups
// multiply, TILES times 64 rows of W each.

#define BLOCK_ROWS (TILES * 128)
#define PIECE 64
#define W_BYTES (BLOCK_ROWS * 128)
#define STAGE_BYTES (W_BYTES + KEYS * 128)
#define LINE 20 // floats between lines of 16 sums: those that threads touch together are in different banks
#define TILE_LINES (KEYS * LINE + 4) // of a tile

__device__ __forceinline__ u32 clusterRank() {
    u32 r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}
__device__ __forceinline__ u32 clusterBlocks() {
    u32 r;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(r));
    return r;
}
// meet is a barrier of all threads of a cluster.
__device__ __forceinline__ void meet() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// fetchChunk starts copying 16 bytes; zeros are written where from is null.
__device__ __forceinline__ void fetchChunk(u32 to, const Element *from, const Element *any) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from ? from : any), "r"(from ? 16 : 0));
}

// putLine does what put of a form does for all 16 rows of a tile: a line has the sums of row x of x with
// each. Where rows of y allow, elements are stored eight at a time.
__device__ __forceinline__ void store8(Element *to, const float *from) {
    Lane v;
#pragma unroll
    for (int e = 0; e < 8; e++) narrow(from[e], &v.x[e]);
    *(Lane *)to = v;
}
__device__ __forceinline__ void add8(float *to, const Element *from) {
    Lane v = *(const Lane *)from;
#pragma unroll
    for (int e = 0; e < 8; e++) to[e] += wide(v.x[e]);
}
__device__ __forceinline__ void putLine(const Plain &f, int tile, int x, float (&line)[16]) {
    if (f.n % 8 || tile * 16 + 16 > f.n) {
#pragma unroll
        for (int g = 0; g < 8; g++) f.put(tile, g, x, line[g], line[g + 8]);
        return;
    }
#pragma unroll
    for (int h = 0; h < 16; h += 8) {
        if (f.bias) add8(line + h, f.bias + tile * 16 + h);
        if (f.plus) add8(line + h, f.plus + (i64)x * f.n + tile * 16 + h);
        store8(f.y + (i64)x * f.n + tile * 16 + h, line + h);
    }
}
template <int F> __device__ __forceinline__ void gate8(float (&line)[16]) {
#pragma unroll
    for (int g = 0; g < 8; g++) {
        float value, slope;
        both<F>(rounded(line[g]), value, slope);
        line[g] = rounded(line[g + 8]) * value;
    }
}
__device__ __forceinline__ void putLine(const GatedRows &f, int tile, int x, float (&line)[16]) {
    if (f.function == SiLU) gate8<SiLU>(line);
    if (f.function == GELUTanh) gate8<GELUTanh>(line);
    if (f.function == GELU) gate8<GELU>(line);
    if (f.function == ReLU) gate8<ReLU>(line);
    Element *to = f.y + (i64)x * f.n + tile * 8;
    if (f.n % 8 == 0) {
        store8(to, line);
        return;
    }
#pragma unroll
    for (int g = 0; g < 8; g++)
        if (tile * 8 + g < f.n) narrow(line[g], to + g);
}
// TurnedHeads are Heads with the cosines and sines of each row [R half] at hand.
struct TurnedHeads : Heads {
    const float2 *turns;
};
__device__ __forceinline__ void putLine(const TurnedHeads &f, int tile, int x, float (&line)[16]) {
    int head = tile / (f.size / 16), a = f.element(tile, 0), b = f.element(tile, 8);
    const bool turns = head < f.heads + f.keyHeads && a < f.half;
    const Element *bias = f.biasQ;
    Element *to = f.y + ((i64)x * f.heads + head) * f.size;
    if (head >= f.heads) {
        head -= f.heads;
        const bool value = head >= f.keyHeads;
        if (value) head -= f.keyHeads;
        bias = value ? f.biasV : f.biasK;
        const int sequence = f.sequences[x], position = f.positions[x];
        if (position < 0 || sequence < 0 || sequence >= f.streams) return;
        int n = f.pages[(i64)sequence * f.table + position / f.page % f.table];
        n = min(max(n, 0), f.count - 1);
        to = (value ? f.cacheV : f.cacheK) + (((i64)n * f.keyHeads + head) * f.page + position % f.page) * f.size;
    }
    if (bias) {
        add8(line, bias + head * f.size + a);
        add8(line + 8, bias + head * f.size + b);
    }
    if (turns)
#pragma unroll
        for (int g = 0; g < 8; g++) {
            const float2 by = f.turns[(i64)x * f.half + a + g];
            const float low = rounded(line[g]), high = rounded(line[g + 8]);
            line[g] = low * by.x - high * by.y;
            line[g + 8] = high * by.x + low * by.y;
        }
    store8(to + a, line);
    store8(to + b, line + 8);
}

template <class Form> __device__ __forceinline__ void multiplyTiles(const Form &form, const Element *x, int count, int width) {
    extern __shared__ char memory[];
    __shared__ Barrier here[STAGES], used[STAGES];
    const u32 base = sharedAt(memory) + 1023 & ~1023u;
    if (threadIdx.x == 0)
        for (int s = 0; s < STAGES; s++) {
            reset(here[s], 256);
            reset(used[s], 8);
        }
    __syncthreads();
    const int rank = clusterRank(), share = clusterBlocks(), clusters = gridDim.x / share;
    const int pieces = width / PIECE, from = pieces * rank / share, end = pieces * (rank + 1) / share;
    const int packs = (count + KEYS - 1) / KEYS, all = form.tiles(), items = (all + TILES * 8 - 1) / (TILES * 8) * packs;
    // pieceOf is the i-th piece of a tile: each begins with another one, since blocks that all read the same
    // columns of rows that are a power of two apart would wait for a few parts of the memory.
    auto pieceOf = [&](int tile, int i) {
        int p = tile % (end - from) + i;
        return from + (p < end - from ? p : p - (end - from));
    };
    if (threadIdx.x < 256) {
        FETCHING_REGISTERS(56);
        const bool weights = threadIdx.x < 128;
        const int r = (threadIdx.x & 127) >> 3, c = threadIdx.x & 7;
        const u32 place = base + r * 128 + (c ^ r & 7) * 16 + (weights ? 0 : W_BYTES);
        Ring<STAGES> ring = {0, 1};
        if (!weights) awaitPrevious();
        for (int item = blockIdx.x / share; item < items; item += clusters) {
            const int tile = item / packs * (TILES * 8), first = item % packs * KEYS + r;
            if (weights) {
                const Element *line[TILES * 8];
#pragma unroll
                for (int j = 0; j < TILES * 8; j++) {
                    line[j] = tile + j < all ? form.row(tile + j, r) : 0;
                    if (line[j]) line[j] += c * 8;
                }
                for (int i = 0; i < end - from; i++, ring.next()) {
                    const int at = pieceOf(item / packs, i) * PIECE;
                    waitFor(used[ring.at], ring.phase);
#pragma unroll
                    for (int j = 0; j < TILES * 8; j++) fetchChunk(place + ring.at * STAGE_BYTES + j * 2048, line[j] ? line[j] + at : 0, x);
                    arriveFetched(here[ring.at]);
                }
            } else {
                for (int i = 0; i < end - from; i++, ring.next()) {
                    const Element *line = x + (i64)first * width + pieceOf(item / packs, i) * PIECE + c * 8;
                    waitFor(used[ring.at], ring.phase);
#pragma unroll 4
                    for (int j = 0; j < KEYS / 16; j++) // what is behind the last row is multiplied, and the sums are dropped
                        if (first + j * 16 < count) fetchChunk(place + ring.at * STAGE_BYTES + j * 2048, line + (i64)j * 16 * width, x);
                    arriveFetched(here[ring.at]);
                }
            }
            meet();
            meet();
        }
        if (weights) releaseNext(); // all that is left is on its way
        asm volatile("cp.async.wait_all;");
        return;
    }
    COMPUTING_REGISTERS(200);
    awaitPrevious();
    const int lane = threadIdx.x & 31, mine = threadIdx.x - 256, half = mine >> 7, warp = mine >> 5 & 3, g = lane >> 2, t = lane & 3;
    Ring<STAGES> ring = {0, 0};
    for (int item = blockIdx.x / share; item < items; item += clusters) {
        float sum[TILES][KEYS / 8][4];
        int last = -1; // stage that matmuls under way read
        for (int i = 0; i < end - from; i++, ring.next()) {
            waitFor(here[ring.at], ring.phase);
            seeFetched();
            const u64 b = describe(base + ring.at * STAGE_BYTES + W_BYTES, 0);
#pragma unroll
            for (int m = 0; m < TILES; m++) held(sum[m]);
            begin();
#pragma unroll
            for (int m = 0; m < TILES; m++) {
                const u64 a = describe(base + ring.at * STAGE_BYTES + (half * TILES + m) * 64 * 128, 0);
#pragma unroll
                for (int d = 0; d < PIECE / 16; d++) both(sum[m], a + (d * 32 >> 4), b + (d * 32 >> 4), i > 0 || d > 0);
            }
            submit();
            if (last >= 0) {
                finish<1>();
                if (lane == 0) arrive(used[last]);
            }
            last = ring.at;
        }
        finish<0>();
#pragma unroll
        for (int m = 0; m < TILES; m++) held(sum[m]);
        if (last >= 0 && lane == 0) arrive(used[last]);
        asm volatile("bar.sync 1, 256;" ::: "memory"); // what was fetched is used up
        float *parts = (float *)(memory + (base - sharedAt(memory))); // [tile][row of x] of 16 rows of W
#pragma unroll
        for (int m = 0; m < TILES; m++)
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int y = 0; y < 4; y++) parts[((half * TILES + m) * 4 + warp) * TILE_LINES + (n * 8 + 2 * t + (y & 1)) * LINE + g + (y >> 1) * 8] = sum[m][n][y];
        meet();
        const int tile = item / packs * (TILES * 8), first = item % packs * KEYS, here = min(KEYS, count - first);
        for (int u = rank * 256 + mine; u < TILES * 8 * here; u += 256 * share) {
            const int m = u % (TILES * 8), n = u / (TILES * 8); // neighbours store to the same row
            if (tile + m >= all) continue;
            float line[16] = {};
#pragma unroll 2
            for (int q = 0; q < share; q++) {
                u32 at;
                asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(base + (m * TILE_LINES + n * LINE) * 4), "r"(q));
#pragma unroll
                for (int e = 0; e < 16; e += 4) {
                    float4 v;
                    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(at + e * 4) : "memory");
                    line[e] += v.x;
                    line[e + 1] += v.y;
                    line[e + 2] += v.z;
                    line[e + 3] += v.w;
                }
            }
            putLine(form.form, tile + m, first + n, line);
        }
        meet(); // others have read what is here
    }
}

extern "C" __global__ void __launch_bounds__(512, 1) matmulTiles(const Element *x, const Element *w, const Element *bias, const Element *plus, Element *y, int rows, int n, int k) {
    multiplyTiles(Weights<Plain>{{bias, plus, y, n}, {w}, k}, x, rows, k);
}
extern "C" __global__ void __launch_bounds__(512, 1) gatedTiles(const Element *x, const Element *gate, const Element *up, Element *y, int rows, int n, int k, int function) {
    multiplyTiles(Weights<GatedRows>{{y, n, function}, {gate, up}, k}, x, rows, k);
}
extern "C" __global__ void __launch_bounds__(512, 1)
    headTiles(const Element *x, const Element *q, const Element *k, const Element *v, const Element *biasQ, const Element *biasK, const Element *biasV, const float *freq, const int *positions,
              const int *sequences, const int *pages, Element *cacheK, Element *cacheV, Element *y, int rows, int width, int heads, int keyHeads, int size, int half, float scale, int page,
              int streams, int table, int count, const float2 *turns) {
    Heads all = {biasQ, biasK, biasV, freq, positions, sequences, pages, cacheK, cacheV, y, heads, keyHeads, size, half, scale, page, streams, table, count};
    multiplyTiles(Weights<TurnedHeads>{{all, turns}, {q, k, v}, width}, x, rows, width);
}

// normRows is y = x / rms(x) · norm of rows, a block each; sums have the order of those of decode.cu. Where
// heads are turned it writes cosines and sines of the rows.
extern "C" __global__ void __launch_bounds__(256)
    normRows(const Element *x, const Element *norm, Element *y, int width, float eps, const int *positions, const float *freq, int half, float scale, float2 *turns) {
    __shared__ float sums[8];
    const int lane = threadIdx.x & 31;
    awaitPrevious();
    releaseNext();
    for (int i = threadIdx.x; i < half; i += 256) {
        float s, c;
        sincosf((float)positions[blockIdx.x] * freq[i], &s, &c);
        turns[(i64)blockIdx.x * half + i] = {c * scale, s * scale};
    }
    x += (i64)blockIdx.x * width;
    y += (i64)blockIdx.x * width;
    float squares = 0;
    for (int i = threadIdx.x * LANES; i < width; i += 256 * LANES) {
        Lane v = *(const Lane *)(x + i);
#pragma unroll
        for (int e = 0; e < LANES; e++) squares += wide(v.x[e]) * wide(v.x[e]);
    }
    squares = warpSum(squares);
    if (lane == 0) sums[threadIdx.x >> 5] = squares;
    __syncthreads();
    float inverse = 0;
#pragma unroll
    for (int w = 0; w < 8; w++) inverse += sums[w];
    inverse = 1.0f / sqrtf(inverse / width + eps);
    for (int i = threadIdx.x * LANES; i < width; i += 256 * LANES) {
        Lane v = *(const Lane *)(x + i), w = *(const Lane *)(norm + i);
#pragma unroll
        for (int e = 0; e < LANES; e++) narrow(wide(v.x[e]) * inverse * wide(w.x[e]), &v.x[e]);
        *(Lane *)(y + i) = v;
    }
}
