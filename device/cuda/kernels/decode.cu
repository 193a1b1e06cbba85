#include "decode.h"
#include "weights.h"

// Matmuls of a few rows x [R K] with matrices of weights stored row by row: y = x·Wᵀ.
//
// A tile is 16 rows of W. A block takes every gridDim.x-th tile, its warps take pieces of
// SPAN elements of its rows in turn, and their sums are added in order. Tensor cores multiply,
// W on the left, up to eight rows of x on the right, elements of a row in the order they have: the
// sums of a row of x have the same order however many rows there are, in hopperRows.cu too.
//
// Each warp has a ring in shared memory, through which it fetches exactly what it will use:
// no warp waits for another until the sums of a tile are added, and the ring runs
// on into the next tile.

#if ELEMENT != 0

#define WARPS 8
#define SPAN 64
#define STAGES 4 // of a ring

__device__ __forceinline__ void times(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
#if ELEMENT == 2
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#endif
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// matrices loads four 8 × 8 matrices, the rows of the first eight lanes first.
__device__ __forceinline__ uint4 matrices(const void *row) {
    uint4 r;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "r"(sharedAt(row)) : "memory");
    return r;
}

// Rows are the few rows: x, and for those that are normalized first the weights of the norm.
struct Rows {
    const Element *x;
    const Element *norm; // null: as they are
    float eps;
    int count, width; // R and K, a multiple of 8
    int constant;     // nothing writes W during a step
    int stages;       // of the ring of multiplyBulk
};

__device__ __forceinline__ int pitchOf(int width) { return (width + SPAN - 1) / SPAN * SPAN + 16; } // 32 bytes more: rows in different banks

// together is a barrier of the threads that multiply.
__device__ __forceinline__ void together() { asm volatile("bar.sync 1, %0;" ::"n"(WARPS * 32) : "memory"); }

// Packs of the weights of a norm that a thread holds: those of columns up to a batch.
#define PACKS 4
#define STRIDE (WARPS * 32 * LANES)
struct Norms { Lane x[PACKS]; };

// fetchNorms reads them; nothing writes them, so it may be done before awaitPrevious.
__device__ __forceinline__ void fetchNorms(const Rows &r, Norms &g) {
    if (r.norm)
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            int i = threadIdx.x * LANES + k * STRIDE;
            if (i < r.width) g.x[k] = *(const Lane *)(r.norm + i);
        }
}

// rowsTo copies ROWS rows from the first-th on to shared memory, and adds up the squares of each where they are
// wanted: COUNT packs of each row at a time, all of them in flight together. Rows from count on are left out.
template <int ROWS, int COUNT> __device__ __forceinline__ void rowsTo(const Rows &r, Element *xs, float *sums, int first) {
    const int pitch = pitchOf(r.width), lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float squares[ROWS] = {};
    for (int from = threadIdx.x * LANES; from < pitch; from += COUNT * STRIDE) {
        Lane v[ROWS][COUNT];
#pragma unroll
        for (int n = 0; n < ROWS; n++)
#pragma unroll
            for (int k = 0; k < COUNT; k++) {
                v[n][k] = {};
                if (first + n < r.count && from + k * STRIDE < r.width) v[n][k] = *(const Lane *)(r.x + (i64)(first + n) * r.width + from + k * STRIDE);
            }
#pragma unroll
        for (int n = 0; n < ROWS; n++)
#pragma unroll
            for (int k = 0; k < COUNT; k++) {
                if (r.norm)
#pragma unroll
                    for (int e = 0; e < LANES; e++) squares[n] += wide(v[n][k].x[e]) * wide(v[n][k].x[e]);
                if (first + n < r.count && from + k * STRIDE < pitch) *(Lane *)(xs + (first + n) * pitch + from + k * STRIDE) = v[n][k];
            }
    }
    if (r.norm)
#pragma unroll
        for (int n = 0; n < ROWS; n++) {
            const float sum = warpSum(squares[n]);
            if (lane == 0 && first + n < r.count) sums[(first + n) * WARPS + warp] = sum;
        }
}

// share puts the rows into shared memory, normalized where they are to be, with zeros behind.
// FEW: there are registers for few packs, because two blocks share a multiprocessor.
template <bool FEW> __device__ __forceinline__ void share(const Rows &r, const Norms &g, Element *xs, float *sums) {
    const int pitch = pitchOf(r.width), some = FEW && r.norm ? 2 : 4;
    if (r.count == 1) rowsTo<1, PACKS>(r, xs, sums, 0);
    else if (r.width <= 2 * STRIDE)
        for (int n = 0; n < r.count; n += some)
            if (some == 2) rowsTo<2, 2>(r, xs, sums, n);
            else rowsTo<4, 2>(r, xs, sums, n);
    else
        for (int n = 0; n < r.count; n += some / 2)
            if (some == 2) rowsTo<1, PACKS>(r, xs, sums, n);
            else rowsTo<2, PACKS>(r, xs, sums, n);
    together();
    if (!r.norm) return;
    for (int n = 0; n < r.count; n++) {
        float inverse = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) inverse += sums[n * WARPS + w];
        inverse = 1.0f / sqrtf(inverse / r.width + r.eps);
        for (int from = 0; from < r.width; from += PACKS * STRIDE)
#pragma unroll
            for (int k = 0; k < PACKS; k++) {
                int i = from + threadIdx.x * LANES + k * STRIDE;
                if (i >= r.width) continue;
                Lane v = *(const Lane *)(xs + n * pitch + i), w = from == 0 ? g.x[k] : *(const Lane *)(r.norm + i); // what the thread itself has put there
#pragma unroll
                for (int e = 0; e < LANES; e++) narrow(wide(v.x[e]) * inverse * wide(w.x[e]), &v.x[e]);
                *(Lane *)(xs + n * pitch + i) = v;
            }
    }
    together();
}

// multiply runs the tiles of a block. Form says where rows of W are and what is done with the
// sums: tiles() is how many there are, row(tile, i) row i of 16, null where there is none, and
// put(tile, g, n, low, high) takes what row n of x times rows g and g+8 is.
//
// T is how many times eight rows of x there may be. RING: x goes through the rings as well,
// because it is too large for shared memory.
template <int T, bool RING, class Form> __device__ __forceinline__ void multiply(const Form &form, const Rows &r) {
    const int parts = 4 + (RING ? 2 * T : 0);
    extern __shared__ uint4 space[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    uint4 *ring = space + warp * STAGES * parts * 32;
    // eight rows of four times 16 bytes, exchanged so that rows are in different banks
    auto slot = [&](int stage, int part, int row, int chunk) { return ring + (stage * parts + part) * 32 + row * 4 + (chunk ^ row >> 1); };
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
            fetch16((Element *)slot(stage, 2 * h, g, t), there ? a + i : a, there && upper);
            fetch16((Element *)slot(stage, 2 * h + 1, g, t), there ? b + i : b, there && lower);
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
                    fetch16((Element *)slot(stage, 4 + 2 * n + h, g, t), there ? r.x + (i64)(n * 8 + g) * r.width + i : r.x, there);
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
    else {
        Norms norms;
        fetchNorms(r, norms);
        share<T == 1>(r, norms, xs, sums);
    }

    int stage = 0, turn = 0;
    for (int at = blockIdx.x; at < tiles; at += gridDim.x, turn ^= 1) {
        float sum[T][4] = {};
        for (int c = warp; c < spans; c += WARPS) {
            await<STAGES - 2>();
            __syncwarp(); // what all lanes fetched is here, and none reads what was before
            int free = stage == 0 ? STAGES - 1 : stage - 1; // used up in the last round
            fetchWeights(free);
            fetchRows(free, span);
            commit();
            advance();
#pragma unroll
            for (int h = 0; h < 2; h++) {
                uint4 w[2], x[T];
#pragma unroll
                for (int i = 0; i < 2; i++) w[i] = matrices(slot(stage, 2 * h + (lane >> 3 & 1), lane & 7, 2 * i + (lane >> 4)));
#pragma unroll
                for (int n = 0; n < T; n++)
                    x[n] = RING ? matrices(slot(stage, 4 + 2 * n + h, lane & 7, lane >> 3))
                                : matrices(xs + min(n * 8 + (lane & 7), r.count - 1) * pitch + c * SPAN + h * 32 + (lane >> 3) * 8);
#pragma unroll
                for (int n = 0; n < T; n++) times(sum[n], w[0].x, w[0].y, w[0].z, w[0].w, x[n].x, x[n].y);
#pragma unroll
                for (int n = 0; n < T; n++) times(sum[n], w[1].x, w[1].y, w[1].z, w[1].w, x[n].z, x[n].w);
            }
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }
        float *mine = sums + (turn * WARPS + warp) * 16 * 8 * T;
#pragma unroll
        for (int n = 0; n < T; n++)
#pragma unroll
            for (int y = 0; y < 2; y++)
                *(float2 *)(mine + (g + 8 * y) * 8 * T + n * 8 + 2 * t) = {sum[n][2 * y], sum[n][2 * y + 1]};
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

// The same on GPUs whose copy engine brings whole pieces of rows to shared memory: FETCHERS warps
// fetch, WARPS warps multiply and STORERS warps add and store. None waits for another but
// for what it needs. Sums are those of multiply, bit for bit.
#if __CUDA_ARCH__ >= 900

#define PIECE (WARPS * SPAN)                            // elements of a row fetched at once
#define PIECE_PITCH (PIECE * (int)sizeof(Element))
#define FETCHERS 4
#define STORERS 2
#define BULK_THREADS ((WARPS + FETCHERS + STORERS) * 32)
#define MAX_STAGES 8

__device__ __forceinline__ void barrierInit(u64 *b, int count) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(sharedAt(b)), "r"(count) : "memory"); }
__device__ __forceinline__ void arrive(u64 *b) { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(sharedAt(b)) : "memory"); }
__device__ __forceinline__ void expect(u64 *b, u32 bytes) { asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(sharedAt(b)), "r"(bytes) : "memory"); }
// awaitTurn returns when the barrier has completed the turn with this parity.
__device__ __forceinline__ void awaitTurn(u64 *b, u32 parity) {
    asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n@p bra done;\nbra again;\ndone:\n}" ::"r"(sharedAt(b)), "r"(parity) : "memory");
}
__device__ __forceinline__ void fetchPiece(void *to, const Element *from, u32 bytes, u64 *b) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(sharedAt(to)), "l"(from), "r"(bytes), "r"(sharedAt(b)) : "memory");
}

template <int T, class Form> __device__ __forceinline__ void multiplyBulk(const Form &form, const Rows &r) {
    extern __shared__ __align__(128) uint4 space[];
    __shared__ u64 full[MAX_STAGES], empty[MAX_STAGES], ready[2], drained[2];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const int stageBytes = 16 * PIECE_PITCH;
    char *ring = (char *)space;
    float *sums = (float *)(ring + r.stages * stageBytes); // [2][WARPS][16][8·T]
    Element *xs = (Element *)(sums + 2 * WARPS * 16 * 8 * T);
    const int pieces = (r.width + PIECE - 1) / PIECE, tiles = form.tiles(), pitch = pitchOf(r.width);
    if (threadIdx.x == 0) {
        for (int s = 0; s < r.stages; s++) {
            barrierInit(full + s, 1);
            barrierInit(empty + s, WARPS);
        }
        for (int s = 0; s < 2; s++) {
            barrierInit(ready + s, WARPS);
            barrierInit(drained + s, STORERS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (warp >= WARPS && warp < WARPS + FETCHERS) { // fetches some of the 16 rows of each tile
        const int mine = (warp - WARPS) * (16 / FETCHERS) + lane;
        const bool one = lane < 16 / FETCHERS;
        int stage = 0;
        u32 turn = 1; // of empty
        if (!r.constant) awaitPrevious();
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            const Element *p = one ? form.row(tile, mine) : 0;
            u32 rows = __popc(__ballot_sync(0xffffffffu, lane < 16 && form.row(tile, lane)));
            for (int c = 0; c < pieces; c++) {
                u32 bytes = (u32)min(PIECE, r.width - c * PIECE) * (u32)sizeof(Element);
                awaitTurn(empty + stage, turn);
                if (threadIdx.x == WARPS * 32) expect(full + stage, rows * bytes);
                if (p) fetchPiece(ring + stage * stageBytes + mine * PIECE_PITCH, p + c * PIECE, bytes, full + stage);
                __syncwarp();
                if (++stage == r.stages) stage = 0, turn ^= 1;
            }
        }
        releaseNext(); // all that is left is on its way
        return;
    }
    if (warp >= WARPS + FETCHERS) { // adds and stores
        awaitPrevious();
        u32 n = 0;
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, n++) {
            int half = n & 1;
            awaitTurn(ready + half, n >> 1 & 1);
            for (int e = threadIdx.x - (WARPS + FETCHERS) * 32; e < 64 * T; e += STORERS * 32) {
                int row = e & 7, x = e >> 3;
                if (x >= r.count) break;
                float low = 0, high = 0;
#pragma unroll
                for (int w = 0; w < WARPS; w++) {
                    const float *part = sums + (half * WARPS + w) * 16 * 8 * T;
                    low += part[row * 8 * T + x];
                    high += part[(row + 8) * 8 * T + x];
                }
                form.put(tile, row, x, low, high);
            }
            __syncwarp();
            if (lane == 0) arrive(drained + half);
        }
        return;
    }
    Norms norms;
    fetchNorms(r, norms);
    awaitPrevious();
    share<T == 1>(r, norms, xs, sums);
    int stage = 0;
    u32 turn = 0, n = 0; // of full; tiles so far
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, n++) {
        float sum[T][4] = {};
        for (int c = 0; c < pieces; c++) {
            awaitTurn(full + stage, turn);
            if (c * PIECE + warp * SPAN < r.width) {
                // a lane has four neighbouring elements of each 16: in two steps of eight. Rows begin with different 16, so that they are in
                // different banks
                const char *from = ring + stage * stageBytes + g * PIECE_PITCH + (warp * SPAN + t * 4) * (int)sizeof(Element);
                uint2 low[4], high[4], x[T][4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    low[i] = *(const uint2 *)(from + (i ^ g & 3) * 32);
                    high[i] = *(const uint2 *)(from + 8 * PIECE_PITCH + (i ^ g & 3) * 32);
                }
#pragma unroll
                for (int m = 0; m < T; m++)
#pragma unroll
                    for (int i = 0; i < 4; i++) x[m][i] = *(const uint2 *)(xs + min(m * 8 + g, r.count - 1) * pitch + c * PIECE + warp * SPAN + i * 16 + t * 4);
#pragma unroll
                for (int d = 1; d <= 2; d <<= 1)
                    if (g & d)
#pragma unroll
                        for (int i = 0; i < 4; i++)
                            if (!(i & d)) {
                                uint2 a = low[i], b = high[i];
                                low[i] = low[i | d], high[i] = high[i | d];
                                low[i | d] = a, high[i | d] = b;
                            }
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int m = 0; m < T; m++) times(sum[m], low[i].x, high[i].x, low[i].y, high[i].y, x[m][i].x, x[m][i].y);
            }
            __syncwarp();
            if (lane == 0) arrive(empty + stage);
            if (++stage == r.stages) stage = 0, turn ^= 1;
        }
        int half = n & 1;
        if (n >= 2) awaitTurn(drained + half, (n >> 1 & 1) ^ 1);
        float *mine = sums + (half * WARPS + warp) * 16 * 8 * T;
#pragma unroll
        for (int m = 0; m < T; m++)
#pragma unroll
            for (int y = 0; y < 2; y++)
                *(float2 *)(mine + (g + 8 * y) * 8 * T + m * 8 + 2 * t) = {sum[m][2 * y], sum[m][2 * y + 1]};
        __syncwarp();
        if (lane == 0) arrive(ready + half);
    }
}
#endif

// The kernels, with x in shared memory or in the rings; those called Bulk use the copy engine, those called Two
// are for nine to sixteen rows, with one block on a multiprocessor.
#define PRODUCT(NAME, THREADS, BLOCKS_, MULTIPLY)                                                                                                                        \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_) matmulRows##NAME(const Element *x, const Element *w, const Element *bias, const Element *plus,     \
                                                                             Element *y, int rows, int n, int k, int constant, int stages) {                  \
        MULTIPLY(Weights<Plain>{{bias, plus, y, n}, {w}, k}, Rows{x, 0, 0, rows, k, constant, stages});                                                                 \
    }
#define FUSED(NAME, THREADS, BLOCKS_, MULTIPLY)                                                                                                                          \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_) normGated##NAME(const Element *x, const Element *norm, const Element *gate, const Element *up,     \
                                                                            Element *y, int rows, int n, int k, int function, float eps, int stages) {        \
        MULTIPLY(Weights<GatedRows>{{y, n, function}, {gate, up}, k}, Rows{x, norm, eps, rows, k, 1, stages});                                                        \
    }                                                                                                                                                        \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_) normHeads##NAME(                                                                                  \
        const Element *x, const Element *norm, const Element *q, const Element *k, const Element *v, const Element *biasQ, const Element *biasK,              \
        const Element *biasV, const float *freq, const int *positions, const int *sequences, const int *pages, Element *cacheK, Element *cacheV, Element *y,  \
        int rows, int width, float eps, int heads, int keyHeads, int size, int half, float scale, int page, int streams, int table, int count, int stages) { \
        MULTIPLY(Weights<Heads>{{biasQ, biasK, biasV, freq, positions, sequences, pages, cacheK, cacheV, y, heads, keyHeads, size, half, scale, page, streams,   \
                                 table, count}, {q, k, v}, width},                                                                                               \
                 Rows{x, norm, eps, rows, width, 1, stages});                                                                                                    \
    }
PRODUCT(, WARPS * 32, 2, (multiply<1, false>))
PRODUCT(Ring, WARPS * 32, 2, (multiply<1, true>))
PRODUCT(RingTwo, WARPS * 32, 1, (multiply<2, true>))
FUSED(, WARPS * 32, 2, (multiply<1, false>))
#if __CUDA_ARCH__ >= 900
PRODUCT(Bulk, BULK_THREADS, 2, (multiplyBulk<1>))
FUSED(Bulk, BULK_THREADS, 2, (multiplyBulk<1>))
PRODUCT(BulkTwo, BULK_THREADS, 1, (multiplyBulk<2>))
FUSED(BulkTwo, BULK_THREADS, 1, (multiplyBulk<2>))
#endif

#endif
