#include "update.h"

// Updates that are given as a formula (op.Formula), of which the rule is generated: a struct with
//
//	step(w, g, s, flushed, norms)     changes a weight and its states
//	squares(w, g, s, flushed, out)    gives what norms are of, before they are known
//
// States are of any type. A warp works on a block of 256 elements at a time, as in update.h.

struct Kept {
    void *memory;
    int type;
};

// FormulaBlock is what a lane has of a block: weights, gradients times the clip factor, and states.
template <int STATES, class W> struct FormulaBlock {
    Span s;
    W w;
    float x[MINE], grad[MINE], kept[STATES + 1][MINE];
    bool flushed[STATES + 1], coded;

    __device__ __forceinline__ void fetch(i64 block, i64 n, const Element *g, const Kept (&states)[STATES + 1], const Dynamic &codes, float by) {
        s = spanOf(block, n);
        w.fetch(s);
        Pack<Element, 4> gradient[2];
        ::fetch(g, s, gradient);
        coded = false;
        for (int i = 0; i < STATES; i++) {
            Any a{states[i].memory, states[i].type};
            a.fetch(s);
            a.open(codes, kept[i]);
            flushed[i] = a.flushed();
            coded = coded || a.coded();
        }
#pragma unroll
        for (int k = 0; k < MINE; k++) {
            x[k] = w.open(k);
            grad[k] = __fmul_rn(wide(gradient[k / 4].x[k % 4]), by);
        }
    }
    // counts says whether an element is there, and its gradient spoils no block of codes.
    __device__ __forceinline__ bool counts(int k) const { return s.at(k) < s.n && !(coded && !finite(grad[k])); }
    __device__ __forceinline__ void take(int k, float (&list)[STATES + 1]) const {
        for (int i = 0; i < STATES; i++) list[i] = kept[i][k];
    }
};

template <int STATES> __device__ __forceinline__ bool takeCodes(const Kept (&states)[STATES + 1], Dynamic &codes) {
    bool coded = false;
    for (int i = 0; i < STATES; i++) coded = coded || states[i].type >= Dyn8;
    if (coded) codes.take();
    return coded;
}

// formulaUpdate applies a rule to all weights; where the clip factor is not positive, they stay.
template <int STATES, class Rule, class W>
__device__ __forceinline__ void formulaUpdate(const Rule &rule, W w, const Element *g, const Kept (&states)[STATES + 1], const float *clip, i64 n, u64 key, u64 first,
                                              const float *norms) {
    __shared__ Dynamic codes;
    takeCodes<STATES>(states, codes);
    float by = clip[0];
    i64 blocks = (n + BLOCK - 1) / BLOCK, warps = (i64)gridDim.x * blockDim.x / 32;
    for (i64 block = position() / 32; block < blocks; block += warps) {
        FormulaBlock<STATES, W> b = {{}, w};
        b.fetch(block, n, g, states, codes, by);
        if (!(by > 0)) {
            b.w.leave(b.s, b.x);
            continue;
        }
#pragma unroll
        for (int k = 0; k < MINE; k++) {
            float list[STATES + 1];
            b.take(k, list);
            bool counts = b.counts(k);
            if (counts) rule.step(b.x[k], b.grad[k], list, b.flushed, norms);
            for (int i = 0; i < STATES; i++) b.kept[i][k] = counts ? list[i] : 0;
        }
        b.w.close(b.s, b.x);
        for (int i = 0; i < STATES; i++) {
            Any a{states[i].memory, states[i].type};
            a.close(codes, b.s, b.kept[i], true, Stream{streamBase(key, i + 1), first});
        }
    }
}

// formulaSums adds the squares of what norms are of: a sum for each block of threads.
template <int STATES, int NORMS, class Rule, class W>
__device__ __forceinline__ void formulaSums(const Rule &rule, W w, const Element *g, const Kept (&states)[STATES + 1], const float *clip, i64 n, double *partial) {
    __shared__ Dynamic codes;
    __shared__ double shared[256];
    takeCodes<STATES>(states, codes);
    float by = clip[0];
    double sums[NORMS] = {};
    i64 blocks = (n + BLOCK - 1) / BLOCK, warps = (i64)gridDim.x * blockDim.x / 32;
    for (i64 block = position() / 32; block < blocks && by > 0; block += warps) {
        FormulaBlock<STATES, W> b = {{}, w};
        b.fetch(block, n, g, states, codes, by);
#pragma unroll
        for (int k = 0; k < MINE; k++) {
            float list[STATES + 1], out[NORMS];
            b.take(k, list);
            if (!b.counts(k)) continue;
            rule.squares(b.x[k], b.grad[k], list, b.flushed, out);
            for (int i = 0; i < NORMS; i++) sums[i] += (double)out[i] * out[i];
        }
    }
    for (int i = 0; i < NORMS; i++) {
        __syncthreads();
        shared[threadIdx.x] = sums[i];
        __syncthreads();
        for (int half = blockDim.x / 2; half > 0; half /= 2) {
            if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
            __syncthreads();
        }
        if (threadIdx.x == 0) partial[blockIdx.x * NORMS + i] = shared[0];
    }
}

// formulaNorms are the roots of the sums, each by a thread.
template <int NORMS> __device__ __forceinline__ void formulaTotals(const double *partial, float *norms, i64 blocks) {
    double sum = 0;
    if (threadIdx.x >= NORMS) return;
    for (i64 i = 0; i < blocks; i++) sum += partial[i * NORMS + threadIdx.x];
    norms[threadIdx.x] = (float)sqrt(sum);
}
