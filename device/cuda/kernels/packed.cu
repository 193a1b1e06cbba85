#include "packed.h"

// A kernel for each matmul of few rows with packed weights: see packed.h.

#if ELEMENT != 0

template <class Form> __device__ __forceinline__ void multiply(const Weights<Form> &w, const Input &in) {
    BLOCK(block, in.stages)
    const int warp = threadIdx.x >> 5;
    if (warp >= WARPS && warp < WARPS + FETCHERS) {
        if (RESIDENT > 1) releaseNext(); // there is room
        Ring ring = block.ring(1); // of empty
        fetchTiles<FIRST, SECOND>(w, in.width / UNIT, ring);
        releaseNext(); // all that is left is on its way
#if !ENGINE
        await<0>();
#endif
        return;
    }
    if (warp >= WARPS + FETCHERS) { // adds and stores
        awaitPrevious();
        w.form.warm();
        u32 n = 0;
        storeTiles<FIRST, SECOND>(w, block, n);
        return;
    }
    Lane norms[PACKS];
    normsOf(in, norms);
    if (FIRST::table) FIRST::fill(lookup);
    else if (two && SECOND::table) SECOND::fill(lookup);
    Multiplier m = newMultiplier(block);
    FIRST scales;
    Work work = firstWork(w, in, m, scales);
    awaitPrevious();
    block.share<PACKS>(in, norms);
    multiplyTiles<FIRST, SECOND>(w, in, block, m, scales, work);
}

// The kernels. Rows of gate and up, and of q and k, are of one format.
extern "C" __global__ void __launch_bounds__(PACKED_THREADS, RESIDENT)
    packedRows(const Element *x, const u8 *w, const Element *bias, const Element *plus, Element *y, int n, int k, int stages) {
    multiply(Weights<Plain>{{bias, plus, y, n}, {{w, (i64)n * k}}}, Input{x, 0, 0, k, stages});
}

extern "C" __global__ void __launch_bounds__(PACKED_THREADS, RESIDENT)
    packedGated(const Element *x, const Element *norm, const u8 *gate, const u8 *up, Element *y, int n, int k, int function, float eps, int stages) {
    multiply(Weights<GatedRows>{{y, n, function}, {{gate, (i64)n * k}, {up, (i64)n * k}}}, Input{x, norm, eps, k, stages});
}

extern "C" __global__ void __launch_bounds__(PACKED_THREADS, RESIDENT)
    packedHeads(const Element *x, const Element *norm, const u8 *q, const u8 *k, const u8 *v, const Element *biasQ, const Element *biasK, const Element *biasV,
                const float *freq, const int *positions, const int *sequences, const int *pages, Element *cacheK, Element *cacheV, Element *y, int width, float eps,
                int heads, int keyHeads, int size, int half, float scale, int page, int streams, int table, int count, int stages) {
    i64 n = (i64)heads * size * width, kv = (i64)keyHeads * size * width;
    multiply(Weights<Heads>{{biasQ, biasK, biasV, freq, positions, sequences, pages, cacheK, cacheV, y, heads, keyHeads, size, half, scale, page, streams, table, count},
                            {{q, n}, {k, kv}, {v, kv}}},
             Input{x, norm, eps, width, stages});
}

#endif
