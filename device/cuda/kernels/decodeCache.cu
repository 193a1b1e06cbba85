#include "decode.h"
#include "stored.h"

// The cache of keys and values in any type it can have: how a step's rows get there, and
// plain attention over it.

// storeCache stores keys and values of the rows of a step; grid (rows, keyHeads, 2). n is
// how many numbers each cache has.
extern "C" __global__ void storeCache(const Element *k, const Element *v, void *cacheK, void *cacheV, int typeK, int typeV, int d, i64 n, CACHE_PARAMS) {
    Cache c = CACHE;
    releaseNext();
    awaitPrevious();
    int p = c.position(blockIdx.x), type = blockIdx.z ? typeV : typeK;
    if (p < 0) return;
    i64 row = c.row(sequences[blockIdx.x], p, blockIdx.y);
    const Element *x = (blockIdx.z ? v : k) + ((i64)blockIdx.x * keyHeads + blockIdx.y) * d;
    void *to = blockIdx.z ? cacheV : cacheK;
    storeRow(to, type, x, row, d, n);
}

// attendPlain takes every call: a block per row and head, TILE positions at a time from multiples of
// it on, a thread each, then an element each.
#define TILE 128
#define MOST 8 // times TILE elements of a head

extern "C" __global__ void __launch_bounds__(TILE) attendPlain(const Element *q, const void *k, const void *v, Element *o, int typeK, int typeV, int d, i64 n, CACHE_PARAMS) {
    Cache c = CACHE;
    extern __shared__ float query[];
    __shared__ float weight[TILE];
    __shared__ i64 rowOf[TILE];
    releaseNext();
    awaitPrevious();
    int p = c.position(blockIdx.x), head = blockIdx.y * keyHeads / heads, sequence = sequences[blockIdx.x];
    i64 at = ((i64)blockIdx.x * heads + blockIdx.y) * d;
    for (int i = threadIdx.x; i < d; i += TILE) query[i] = wide(q[at + i]);
    float out[MOST] = {}, top = -INFINITE, sum = 0;
    int first = p < 0 ? 0 : c.first(p);
    for (int j = first / TILE * TILE; j <= p; j += TILE) {
        int mine = j + threadIdx.x;
        float s = -INFINITE;
        __syncthreads(); // weights are used up
        if (mine >= first && mine <= p) {
            i64 row = c.row(sequence, mine, head);
            rowOf[threadIdx.x] = row;
            s = 0;
            for (int i = 0; i < d; i++) s += query[i] * get(k, typeK, row * d + i, n, d, row);
            s *= scale;
        }
        float greatest = fmaxf(top, rowMax(s)), shrink = top == -INFINITE ? 0.0f : expf(top - greatest);
        float w = s == -INFINITE ? 0.0f : expf(s - greatest);
        top = greatest;
        weight[threadIdx.x] = w;
        sum = sum * shrink + rowSum(w); // it synchronizes
        int from = max(first - j, 0), end = min(p - j + 1, TILE);
#pragma unroll
        for (int m = 0; m < MOST; m++) {
            int i = m * TILE + threadIdx.x;
            if (i >= d) break;
            out[m] *= shrink;
            for (int x = from; x < end; x++) out[m] += weight[x] * get(v, typeV, rowOf[x] * d + i, n, d, rowOf[x]);
        }
    }
#pragma unroll
    for (int m = 0; m < MOST; m++) {
        int i = m * TILE + threadIdx.x;
        if (i < d) narrow(sum > 0 ? out[m] / sum : 0.0f, o + at + i);
    }
}
