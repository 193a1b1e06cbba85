#include "functions.h"

// Elementwise ops. A thread computes one pack of LANES elements; the last pack may be
// shorter.

// PACK_OF declares i, the first element of the thread's pack, and count, how many it has.
#define PACK_OF(n)                                                                     \
    i64 i = position() * LANES;                                                        \
    if (i >= (n)) return;                                                              \
    int count = (n) - i < LANES ? (int)((n) - i) : LANES;

// fetch loads a whole or a partial pack.
__device__ __forceinline__ void fetch(const Element *p, int count, float (&f)[LANES]) {
    if (count == LANES) {
        load(p, f);
        return;
    }
    for (int k = 0; k < LANES; k++) f[k] = k < count ? wide(p[k]) : 0.0f;
}

// put stores a pack; with add it is added to what is stored there.
__device__ __forceinline__ void put(Element *p, int count, float (&f)[LANES], int add) {
    if (add) {
        float old[LANES];
        fetch(p, count, old);
        for (int k = 0; k < LANES; k++) f[k] += old[k];
    }
    if (count == LANES) {
        store(p, f);
        return;
    }
    for (int k = 0; k < count; k++) narrow(f[k], &p[k]);
}

// y = by * x
extern "C" __global__ void scale(const Element *x, Element *y, i64 n, float by, int add) {
    PACK_OF(n)
    float f[LANES];
    fetch(x + i, count, f);
    for (int k = 0; k < LANES; k++) f[k] *= by;
    put(y + i, count, f, add);
}

struct Plus { __device__ static float of(float a, float b) { return a + b; } };
struct Times { __device__ static float of(float a, float b) { return a * b; } };

// z = x combined with y (sum or product), both of n elements.
template <class Op> __device__ __forceinline__ void combine(const Element *x, const Element *y, Element *z, i64 n, int add) {
    PACK_OF(n)
    float f[LANES], g[LANES];
    fetch(x + i, count, f);
    fetch(y + i, count, g);
    for (int k = 0; k < LANES; k++) f[k] = Op::of(f[k], g[k]);
    put(z + i, count, f, add);
}
extern "C" __global__ void add(const Element *x, const Element *y, Element *z, i64 n, int add) { combine<Plus>(x, y, z, n, add); }
extern "C" __global__ void mul(const Element *x, const Element *y, Element *z, i64 n, int add) { combine<Times>(x, y, z, n, add); }

// The same with a y of period elements, which is repeated over x.
template <class Op> __device__ __forceinline__ void combineRepeated(const Element *x, const Element *y, Element *z, i64 n, i64 period, int add) {
    PACK_OF(n)
    float f[LANES];
    fetch(x + i, count, f);
    i64 j = i % period;
    for (int k = 0; k < LANES; k++) {
        f[k] = Op::of(f[k], wide(y[j]));
        if (++j == period) j = 0;
    }
    put(z + i, count, f, add);
}
extern "C" __global__ void addRepeated(const Element *x, const Element *y, Element *z, i64 n, i64 period, int add) { combineRepeated<Plus>(x, y, z, n, period, add); }
extern "C" __global__ void mulRepeated(const Element *x, const Element *y, Element *z, i64 n, i64 period, int add) { combineRepeated<Times>(x, y, z, n, period, add); }

template <int F> __device__ __forceinline__ void unaryOf(const Element *x, Element *y, i64 n) {
    PACK_OF(n)
    float f[LANES], slope;
    fetch(x + i, count, f);
    for (int k = 0; k < LANES; k++) both<F>(f[k], f[k], slope);
    put(y + i, count, f, 0);
}

template <int F> __device__ __forceinline__ void unaryGradOf(const Element *x, const Element *dy, Element *dx, i64 n) {
    PACK_OF(n)
    float f[LANES], g[LANES], value, slope;
    fetch(x + i, count, f);
    fetch(dy + i, count, g);
    for (int k = 0; k < LANES; k++) {
        both<F>(f[k], value, slope);
        g[k] *= slope;
    }
    put(dx + i, count, g, 0);
}

// The same with sums of the columns of dx, in parts: block (x, y) sums 32·LANES columns over its share of the rows.
// Threads are 32 × 8.
template <int F> __device__ __forceinline__ void unaryGradSumsOf(const Element *x, const Element *dy, Element *dx, float *partial, i64 rows, i64 width, i64 share) {
    i64 column = ((i64)blockIdx.x * 32 + threadIdx.x) * LANES;
    i64 from = blockIdx.y * share, to = from + share < rows ? from + share : rows;
    float sum[LANES] = {};
    if (column < width)
#pragma unroll 2
        for (i64 r = from + threadIdx.y; r < to; r += 8) {
            float f[LANES], g[LANES], value, slope;
            load(x + r * width + column, f);
            load(dy + r * width + column, g);
#pragma unroll
            for (int k = 0; k < LANES; k++) {
                both<F>(f[k], value, slope);
                g[k] *= slope;
                sum[k] += g[k];
            }
            store(dx + r * width + column, g);
        }
    __shared__ float part[8][LANES][32];
    for (int k = 0; k < LANES; k++) part[threadIdx.y][k][threadIdx.x] = sum[k];
    __syncthreads();
    if (column >= width) return;
    for (int k = threadIdx.y; k < LANES; k += 8) {
        float all = 0;
        for (int i = 0; i < 8; i++) all += part[i][k][threadIdx.x];
        partial[(i64)blockIdx.y * width + column + k] = all;
    }
}

template <int F> __device__ __forceinline__ void gatedOf(const Element *gate, const Element *up, Element *y, i64 n) {
    PACK_OF(n)
    float f[LANES], g[LANES], value, slope;
    fetch(gate + i, count, f);
    fetch(up + i, count, g);
    for (int k = 0; k < LANES; k++) {
        both<F>(f[k], value, slope);
        g[k] *= value;
    }
    put(y + i, count, g, 0);
}

template <int F> __device__ __forceinline__ void gatedGradOf(const Element *gate, const Element *up, const Element *dy, Element *dgate, Element *dup, i64 n) {
    PACK_OF(n)
    float f[LANES], g[LANES], d[LANES], value, slope;
    fetch(gate + i, count, f);
    fetch(up + i, count, g);
    fetch(dy + i, count, d);
    for (int k = 0; k < LANES; k++) {
        both<F>(f[k], value, slope);
        g[k] *= d[k] * slope;
        f[k] = d[k] * value;
    }
    put(dgate + i, count, g, 0);
    put(dup + i, count, f, 0);
}

// A kernel per function and op: unary1 is Unary with ReLU.
#define FUNCTION(F)                                                                                                                                                     \
    extern "C" __global__ void unary##F(const Element *x, Element *y, i64 n) { unaryOf<F>(x, y, n); }                                                                     \
    extern "C" __global__ void unaryGrad##F(const Element *x, const Element *dy, Element *dx, i64 n) { unaryGradOf<F>(x, dy, dx, n); }                                    \
    extern "C" __global__ void unaryGradSums##F(const Element *x, const Element *dy, Element *dx, float *partial, i64 rows, i64 width, i64 share) {                       \
        unaryGradSumsOf<F>(x, dy, dx, partial, rows, width, share);                                                                                                     \
    }                                                                                                                                                                   \
    extern "C" __global__ void gated##F(const Element *gate, const Element *up, Element *y, i64 n) { gatedOf<F>(gate, up, y, n); }                                        \
    extern "C" __global__ void gatedGrad##F(const Element *gate, const Element *up, const Element *dy, Element *dgate, Element *dup, i64 n) {                             \
        gatedGradOf<F>(gate, up, dy, dgate, dup, n);                                                                                                                    \
    }
FUNCTION(1)
FUNCTION(2)
FUNCTION(3)
FUNCTION(4)
FUNCTION(5)
FUNCTION(6)

// Dropout. perSample is the number of elements of a sample, row the global index of the first
// sample, so that an element meets the same random number however the batch is split.
extern "C" __global__ void dropout(const Element *x, Element *y, i64 n, i64 perSample, float prob, float keep, u32 stream, u64 key, u64 row) {
    PACK_OF(n)
    float f[LANES];
    fetch(x + i, count, f);
    u64 base = streamBase(key, stream), first = row * (u64)perSample + (u64)i;
    for (int k = 0; k < LANES; k++) f[k] = uniform(base, first + k) < prob ? 0.0f : f[k] * keep;
    put(y + i, count, f, 0);
}

template <class To> __device__ __forceinline__ void cast(const Element *x, To *y, i64 n) {
    PACK_OF(n)
    float f[LANES];
    fetch(x + i, count, f);
    if (count == LANES) {
        store(y + i, f);
        return;
    }
    for (int k = 0; k < count; k++) narrow(f[k], &y[i + k]);
}
extern "C" __global__ void castToF32(const Element *x, float *y, i64 n) { cast(x, y, n); }
extern "C" __global__ void castToBF16(const Element *x, bf16 *y, i64 n) { cast(x, y, n); }
extern "C" __global__ void castToF16(const Element *x, f16 *y, i64 n) { cast(x, y, n); }
