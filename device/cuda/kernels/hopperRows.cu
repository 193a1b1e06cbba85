#include "spans.h"

// Matmuls of many rows on GPUs of the Hopper generation: a row has the same bits however many rows are computed with it.
//
// A tile is TILE rows of x by WIDTH rows of W. One warpgroup has the copy engine fetch spans of both into a ring; each of the
// other two computes 64 rows, one sum after the other. SPLIT: so many blocks of a cluster share a tile; each makes
// two of the sums, and adds up all of them for its share of the rows.

#define TILE 128
#define COMPUTING 256 // threads

// Walk is a place in the order of work: a tile, which of its sums, and a span of that; top and left are where the tile is.
struct Walk {
    int tile, chain, span, top, left;
    template <class Where> __device__ __forceinline__ void next(int spans, int first, int end, int step, const Where &where) {
        span += CHAINS;
        if (span < spans) return;
        if (++chain == end) {
            chain = first, tile += step;
            where(*this);
        }
        span = chain;
    }
};

template <int WIDTH, int STAGES, int SPLIT> __device__ __forceinline__ void multiplyTiles(const Map *xs, const Map *ws, const Result &result, int k, int constant) {
    const u32 stageBytes = (TILE + WIDTH) * SPAN * 2;
    extern __shared__ char memory[];
    __shared__ Barrier full[STAGES], empty[STAGES];
    const u32 base = sharedAt(memory) + 1023 & ~1023u;
    const int lane = threadIdx.x & 31;
    const int spans = (k + SPAN - 1) / SPAN, across = (result.m + TILE - 1) / TILE, tiles = across * ((result.n + WIDTH - 1) / WIDTH);
    const int rank = blockIdx.x % SPLIT, step = gridDim.x / SPLIT, begin0 = blockIdx.x / SPLIT;
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
            auto where = [&](Walk &w) { w.top = w.tile % across * TILE, w.left = w.tile / across * WIDTH; };
            Walk w = {begin0, first, first};
            where(w);
            Walk x = w;
            auto fetchWeights = [&](int stage) { fetchTile(base + stage * stageBytes + TILE * SPAN * 2, ws, w.span * SPAN, w.left, full[stage]); };
            auto fetchX = [&](int stage) { fetchTile(base + stage * stageBytes, xs, x.span * SPAN, x.top, full[stage]); };
            int ahead = 0;
            if (constant) // weights may be fetched before the kernel in front has ended
                for (; ahead < STAGES && w.tile < tiles; ahead++, w.next(spans, first, end, step, where)) {
                    expect(full[ahead], stageBytes);
                    fetchWeights(ahead);
                }
            awaitPrevious();
            for (int n = 0; n < ahead; n++, x.next(spans, first, end, step, where)) fetchX(n);
            Ring<STAGES> ring = {ahead == STAGES ? 0 : ahead, ahead == STAGES ? 0 : 1};
            for (; w.tile < tiles; w.next(spans, first, end, step, where), x.next(spans, first, end, step, where), ring.next()) {
                waitFor(empty[ring.at], ring.phase);
                expect(full[ring.at], stageBytes);
                fetchWeights(ring.at);
                fetchX(ring.at);
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
    const int half = (threadIdx.x >> 7) - 1, row = half * 64 + (threadIdx.x >> 5 & 3) * 16 + (lane >> 2); // of the tile
    Ring<STAGES> ring = {0, 0};
    auto release = [&](int stage) {
        if (lane == 0) arrive(empty[stage]);
    };
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
                if (before >= 0) release(before);
                before = ring.at;
            }
            finish<0>();
            held(sum);
            release(before);
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
            result.four(all, top + r, left + c);
        }
        clusterSync(); // nobody reads here any more
        return;
    }
}

#define TILES(NAME, WIDTH, STAGES, SPLIT)                                                                                                                        \
    extern "C" __global__ void __launch_bounds__(384, 1) matmulTiles##NAME(const __grid_constant__ Map x, const __grid_constant__ Map w, const Element *bias,   \
                                                                           const Element *plus, Element *y, int m, int n, int k, int step, int constant) {      \
        multiplyTiles<WIDTH, STAGES, SPLIT>(&x, &w, Result{bias, plus, y, m, n, step}, k, constant);                                                             \
    }
TILES(128, 128, 6, 1)
TILES(192, 192, 5, 1)
TILES(144Split4, 144, 6, 4)
TILES(192Split4, 192, 5, 4)
