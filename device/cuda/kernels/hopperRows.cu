#include "decode.h"
#include "fragments.h"
#include "wgmma.h"

// Matmuls of many rows x [M K] with the transpose of a matrix of weights W [N K]: y = x·Wᵀ (+ bias) (+ plus), on GPUs of
// the Hopper generation. A number of y has the additions that decode.cu makes, in their order, so that a row has the
// same bits however many rows are computed with it: a row is cut into spans of SPAN elements, spans w, w + CHAINS, ... are
// added up one after the other, and then these CHAINS sums in order.
//
// A tile is TILE rows of x by WIDTH rows of W. One warpgroup has the copy engine fetch spans of both into a ring; each of the
// other two computes 64 rows, one sum after the other. SPLIT: so many blocks of a cluster share a tile; each makes two of
// the sums, and adds up all of them for its share of the rows.

#define SPAN 64
#define CHAINS 8
#define TILE 128
#define COMPUTING 256 // threads

// Map is what the copy engine knows of a matrix: CUtensorMap.
struct alignas(64) Map { u64 words[16]; };

__device__ __forceinline__ void expect(Barrier &b, u32 bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(sharedAt(&b)), "r"(bytes) : "memory"); }
__device__ __forceinline__ void fetchTile(u32 to, const Map *map, int column, int row, Barrier &b) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(map), "r"(column), "r"(row), "r"(sharedAt(&b)) : "memory");
}
__device__ __forceinline__ void clusterSync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// partOf reads four numbers of the shared memory of a block of the cluster.
__device__ __forceinline__ float4 partOf(u32 at, int block) {
    float4 v;
    asm volatile("{\n.reg .b32 a;\nmapa.shared::cluster.u32 a, %4, %5;\nld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [a];\n}" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(at), "r"(block) : "memory");
    return v;
}

// Walk is a place in the order of work: a tile, which of its sums, and a span of that.
struct Walk {
    int tile, chain, span;
    __device__ __forceinline__ void next(int spans, int first, int end, int step) {
        span += CHAINS;
        if (span < spans) return;
        if (++chain == end) chain = first, tile += step;
        span = chain;
    }
};

// Result is what is done with sums.
struct Result {
    const Element *bias, *plus;
    Element *y;
    int m, n, step; // step: elements from a row of y to the next

    __device__ __forceinline__ float added(float sum, int row, int column) const {
        if (row >= m || column >= n) return sum;
        if (bias) sum += wide(bias[column]);
        if (plus) sum += wide(plus[(i64)row * n + column]);
        return sum;
    }
    __device__ __forceinline__ void one(float sum, int row, int column) const {
        if (row < m && column < n) narrow(added(sum, row, column), y + (i64)row * step + column);
    }
    // addTwo adds to numbers of neighbouring columns; n is even.
    __device__ __forceinline__ void addTwo(float &a, float &b, int row, int column) const {
        if (row >= m || column >= n) return;
        float x[2];
        if (bias) {
            load(bias + column, x);
            a += x[0], b += x[1];
        }
        if (plus) {
            load(plus + (i64)row * n + column, x);
            a += x[0], b += x[1];
        }
    }
    // put writes sums of rows row and row + 8 and of columns from the first on. The four lanes that hold a row exchange what they have, so
    // that each writes 16 bytes.
    template <int C> __device__ __forceinline__ void put(float (&sum)[C][4], int row, int first) const {
        const int t = threadIdx.x & 3;
        if ((n | step) % 8 != 0) {
#pragma unroll
            for (int i = 0; i < C; i++)
#pragma unroll
                for (int e = 0; e < 4; e++) one(sum[i][e], row + (e >> 1) * 8, first + i * 8 + 2 * t + (e & 1));
            return;
        }
#pragma unroll
        for (int i = 0; i < C; i += 4)
#pragma unroll
            for (int y2 = 0; y2 < 2; y2++) {
                u32 w[4];
                const int r = row + y2 * 8;
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    float a = sum[i + c][2 * y2], b = sum[i + c][2 * y2 + 1];
                    addTwo(a, b, r, first + (i + c) * 8 + 2 * t);
                    w[c] = two(a, b);
                }
#pragma unroll
                for (int c = 0; c < 4; c += 2) {
                    u32 other = __shfl_xor_sync(0xffffffffu, t & 1 ? w[c] : w[c + 1], 1);
                    if (t & 1) w[c] = other;
                    else w[c + 1] = other;
                }
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    u32 other = __shfl_xor_sync(0xffffffffu, t & 2 ? w[c] : w[c + 2], 2);
                    if (t & 2) w[c] = other;
                    else w[c + 2] = other;
                }
                const int column = first + (i + t) * 8;
                if (r < m && column < n) *(uint4 *)(y + (i64)r * step + column) = {w[0], w[1], w[2], w[3]};
            }
    }
};

template <int WIDTH, int STAGES, int SPLIT> __device__ __forceinline__ void multiplyTiles(const Map *xs, const Map *ws, const Result &result, int k, int constant) {
    const u32 stageBytes = (TILE + WIDTH) * SPAN * 2;
    extern __shared__ char memory[];
    __shared__ Barrier full[STAGES], empty[STAGES];
    const u32 base = sharedAt(memory) + 1023 & ~1023u;
    const int lane = threadIdx.x & 31;
    const int spans = (k + SPAN - 1) / SPAN, across = (result.m + TILE - 1) / TILE, tiles = across * ((result.n + WIDTH - 1) / WIDTH);
    const int rank = SPLIT > 1 ? blockIdx.x % SPLIT : 0, step = gridDim.x / SPLIT, begin0 = blockIdx.x / SPLIT;
    const int first = SPLIT > 1 ? rank * (CHAINS / SPLIT) : 0, end = SPLIT > 1 ? first + CHAINS / SPLIT : min(CHAINS, spans);
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
            Walk w = {begin0, first, first}, x = w;
            auto fetchWeights = [&](int stage) { fetchTile(base + stage * stageBytes + TILE * SPAN * 2, ws, w.span * SPAN, w.tile / across * WIDTH, full[stage]); };
            auto fetchX = [&](int stage) { fetchTile(base + stage * stageBytes, xs, x.span * SPAN, x.tile % across * TILE, full[stage]); };
            int ahead = 0;
            if (constant) // weights may be fetched before the kernel in front has ended
                for (; ahead < STAGES && w.tile < tiles; ahead++, w.next(spans, first, end, step)) {
                    expect(full[ahead], stageBytes);
                    fetchWeights(ahead);
                }
            awaitPrevious();
            for (int n = 0; n < ahead; n++, x.next(spans, first, end, step)) fetchX(n);
            Ring<STAGES> ring = {ahead == STAGES ? 0 : ahead, ahead == STAGES ? 0 : 1};
            for (; w.tile < tiles; w.next(spans, first, end, step), x.next(spans, first, end, step), ring.next()) {
                waitFor(empty[ring.at], ring.phase);
                expect(full[ring.at], stageBytes);
                fetchWeights(ring.at);
                fetchX(ring.at);
            }
            releaseNext();
        }
        if (SPLIT > 1) {
            __syncwarp();
            clusterSync();
            clusterSync();
        }
        return;
    }
    COMPUTING_REGISTERS(232);
    awaitPrevious();
    const int half = (threadIdx.x >> 7) - 1, row = half * 64 + (threadIdx.x >> 5 & 3) * 16 + (lane >> 2); // of the tile
    Ring<STAGES> ring = {0, 0};
    for (int tile = begin0; tile < tiles; tile += step) {
        const int top = tile % across * TILE, left = tile / across * WIDTH;
        const bool wanted = top + half * 64 < result.m; // otherwise there are no rows here
        float total[WIDTH / 8][4], sum[WIDTH / 8][4];
        zero(total);
        for (int chain = first; chain < end; chain++) {
            int before = -1; // the stage that is being multiplied
            for (int span = chain; span < spans; span += CHAINS, ring.next()) {
                waitFor(full[ring.at], ring.phase);
                if (wanted) {
                    const u64 a = describe(base + ring.at * stageBytes + half * 64 * SPAN * 2, 0), b = describe(base + ring.at * stageBytes + TILE * SPAN * 2, 0);
                    begin();
#pragma unroll
                    for (int i = 0; i < SPAN / 16; i++) both(sum, a + i * 2, b + i * 2, i > 0 || before >= 0);
                    submit();
                    finish<1>();
                }
                if (before >= 0 && lane == 0) arrive(empty[before]);
                before = ring.at;
            }
            finish<0>();
            held(sum);
            if (lane == 0) arrive(empty[before]);
            if (SPLIT == 1 || chain == first)
#pragma unroll
                for (int i = 0; i < WIDTH / 8; i++)
#pragma unroll
                    for (int e = 0; e < 4; e++) total[i][e] += sum[i][e];
        }
        if (SPLIT == 1) {
            if (wanted) result.put(total, top + row, left);
            continue;
        }
        // both sums to shared memory, then all sums of some rows from the blocks of the cluster
        const int pitch = WIDTH + 8; // rows in different banks
        asm volatile("bar.sync 1, %0;" ::"n"(COMPUTING) : "memory");
#pragma unroll
        for (int i = 0; i < WIDTH / 8; i++)
#pragma unroll
            for (int y = 0; y < 2; y++) {
                const u32 at = base + ((row + y * 8) * pitch + i * 8 + 2 * (lane & 3)) * 4;
                asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(total[i][2 * y]), "f"(total[i][2 * y + 1]) : "memory");
                asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at + TILE * pitch * 4), "f"(sum[i][2 * y]), "f"(sum[i][2 * y + 1]) : "memory");
            }
        clusterSync();
        for (int e = threadIdx.x - 128; e < TILE / SPLIT * (WIDTH / 4); e += COMPUTING) {
            const int r = rank * (TILE / SPLIT) + e / (WIDTH / 4), c = e % (WIDTH / 4) * 4;
            if (top + r >= result.m || left + c >= result.n) continue;
            float4 part[CHAINS];
#pragma unroll
            for (int n = 0; n < CHAINS; n++) part[n] = partOf(base + ((n % 2 * TILE + r) * pitch + c) * 4, n / 2);
            float4 all = {};
#pragma unroll
            for (int n = 0; n < CHAINS; n++) {
                all.x += part[n].x;
                all.y += part[n].y;
                all.z += part[n].z;
                all.w += part[n].w;
            }
            if (result.n % 4 == 0 && result.step % 4 == 0) {
                result.addTwo(all.x, all.y, top + r, left + c);
                result.addTwo(all.z, all.w, top + r, left + c + 2);
                *(uint2 *)(result.y + (i64)(top + r) * result.step + left + c) = {two(all.x, all.y), two(all.z, all.w)};
            } else {
                result.one(all.x, top + r, left + c);
                result.one(all.y, top + r, left + c + 1);
                result.one(all.z, top + r, left + c + 2);
                result.one(all.w, top + r, left + c + 3);
            }
        }
        clusterSync(); // nobody reads here any more
        return;
    }
}

#define TILES(NAME, WIDTH, STAGES, SPLIT)                                                                                                                        \
    extern "C" __global__ void __launch_bounds__(384, 1) matmulTiles##NAME(const __grid_constant__ Map x, const __grid_constant__ Map w, const Element *bias,   \
                                                                           const Element *plus, Element *y, int m, int n, int k, int step, int constant) {                \
        multiplyTiles<WIDTH, STAGES, SPLIT>(&x, &w, Result{bias, plus, y, m, n, step}, k, constant);                                                                   \
    }
TILES(128, 128, 6, 1)
TILES(192, 192, 5, 1)
TILES(128Split, 128, 6, 4)
TILES(192Split, 192, 5, 4)
