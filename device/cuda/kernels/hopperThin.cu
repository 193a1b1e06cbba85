#include "spans.h"

// Matmuls of some tens of rows on GPUs of the Hopper generation, which the memory bounds: W is the left factor, 64 rows of it are a tile, and
// up to WIDTH rows of x are the right one. One warpgroup has the copy engine fetch two spans of both at a time into a ring, one
// for each of the other two warpgroups, which make half of the sums each, all at once. SPLIT: so many blocks of a cluster share a tile,
// make some of the sums each, and add up all of them for some rows of x.

#define ROWS_OF_W 64
#define COMPUTING 256 // threads
#define PART_PITCH (ROWS_OF_W + 4)

template <int WIDTH, int STAGES, int SPLIT> __device__ __forceinline__ void multiplyThin(const Map *xs, const Map *ws, const Result &result, int k, int constant) {
    const int OWN = CHAINS / SPLIT / 2; // sums of a warpgroup
    const u32 left = ROWS_OF_W * SPAN * 2, slot = left + WIDTH * SPAN * 2, stageBytes = 2 * slot;
    extern __shared__ char memory[];
    __shared__ Barrier full[STAGES], empty[STAGES];
    const u32 base = sharedAt(memory) + 1023 & ~1023u;
    float *parts = (float *)(memory + (base - sharedAt(memory)) + STAGES * stageBytes); // [2 OWN][WIDTH][PART_PITCH]
    const int lane = threadIdx.x & 31, rank = blockIdx.x % SPLIT, step = gridDim.x / SPLIT, begin0 = blockIdx.x / SPLIT;
    const int pieces = (k + CHAINS * SPAN - 1) / (CHAINS * SPAN), tiles = (result.n + ROWS_OF_W - 1) / ROWS_OF_W;
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
            Place w = {begin0, 0, 0}, x = w;
            int ahead = 0;
            if (constant) // weights may be fetched before the kernel in front has ended
                for (; ahead < STAGES && w.tile < tiles; ahead++, next(w)) {
                    expect(full[ahead], stageBytes);
                    fetch(ahead, w, ws, 0, w.tile * ROWS_OF_W);
                }
            awaitPrevious();
            for (int n = 0; n < ahead; n++, next(x)) fetch(n, x, xs, left, 0);
            Ring<STAGES> ring = {ahead == STAGES ? 0 : ahead, ahead == STAGES ? 0 : 1};
            for (; w.tile < tiles; next(w), ring.next()) {
                waitFor(empty[ring.at], ring.phase);
                expect(full[ring.at], stageBytes);
                fetch(ring.at, w, ws, 0, w.tile * ROWS_OF_W);
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
        for (int e = threadIdx.x - 128; e < WIDTH / SPLIT * (ROWS_OF_W / 4); e += COMPUTING) {
            const int x = rank * (WIDTH / SPLIT) + e / (ROWS_OF_W / 4), c = e % (ROWS_OF_W / 4) * 4, column = tile * ROWS_OF_W + c;
            if (x >= result.m || column >= result.n) continue;
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
            result.four(all, x, column);
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
        multiplyThin<WIDTH, STAGES, SPLIT>(&x, &w, Result{bias, plus, y, m, n, step}, k, constant);                                                              \
    }
THIN(16, 16, 8, 1)
THIN(32, 32, 6, 1)
THIN(16Split2, 16, 8, 2)
THIN(32Split2, 32, 6, 2)
