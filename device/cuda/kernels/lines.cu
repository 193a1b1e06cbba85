// Ops along lines: a tensor is outer × along × inner, line l begins at l/inner·along·inner + l%inner,
// and its elements lie inner apart.

enum { Sum = 1, Mean, Max, Min, Prod, LogSumExp };

#define FIRST(line) ((line) / inner * along * inner + (line) % inner)

__device__ __forceinline__ float start(int r) { return r == Max || r == LogSumExp ? -INFINITE : r == Min ? INFINITE : r == Prod ? 1.0f : 0.0f; }
__device__ __forceinline__ float join(int r, float a, float b) {
    if (r == Max) return fmaxf(a, b);
    if (r == Min) return fminf(a, b);
    if (r == Prod) return a * b;
    return a + b;
}
// blockJoin joins the numbers of all threads of a block, by one fixed tree, for all of them.
__device__ __forceinline__ float blockJoin(int r, float x) {
    for (int d = 16; d > 0; d >>= 1) x = join(r, x, __shfl_xor_sync(0xffffffffu, x, d));
    __shared__ float part[32];
    __syncthreads();
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = x;
    __syncthreads();
    float all = part[0];
    for (int i = 1; i < blockDim.x >> 5; i++) all = join(r, all, part[i]);
    return all;
}

// A block per line, for all reductions.
extern "C" __global__ void reduceLine(const Element *x, Element *y, i64 along, i64 inner, int r, int add) {
    const Element *p = x + FIRST((i64)blockIdx.x);
    if (r == Prod) { // in double: a long one loses digits
        double all = 1.0;
        for (i64 k = threadIdx.x; k < along; k += blockDim.x) all *= wide(p[k * inner]);
        for (int d = 16; d > 0; d >>= 1) all *= __shfl_xor_sync(0xffffffffu, all, d);
        __shared__ double parts[32];
        if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = all;
        __syncthreads();
        if (threadIdx.x > 0) return;
        for (int i = 1; i < blockDim.x >> 5; i++) all *= parts[i];
        narrow((float)all + (add ? wide(y[blockIdx.x]) : 0.0f), &y[blockIdx.x]);
        return;
    }
    int by = r == LogSumExp ? Max : r;
    float a = start(by);
    for (i64 k = threadIdx.x; k < along; k += blockDim.x) a = join(by, a, wide(p[k * inner]));
    a = blockJoin(by, a);
    if (r == LogSumExp) {
        float sum = 0.0f;
        for (i64 k = threadIdx.x; k < along; k += blockDim.x) sum += expf(wide(p[k * inner]) - a);
        a += logf(blockJoin(Sum, sum));
    }
    if (r == Mean) a /= (float)along;
    if (threadIdx.x == 0) narrow(add ? wide(y[blockIdx.x]) + a : a, &y[blockIdx.x]);
}

// Strips of 32 neighbouring lines, by shares of their length, to partial results [outer shares inner].
extern "C" __global__ void reduceStrips(const Element *x, float *partial, i64 along, i64 inner, i64 share, i64 shares, int r) {
    i64 tiles = (inner + 31) / 32, o = blockIdx.x / tiles, c = blockIdx.x % tiles * 32 + threadIdx.x;
    i64 end = min((i64)(blockIdx.y + 1) * share, along);
    float a = start(r);
    if (c < inner)
        for (i64 k = blockIdx.y * share + threadIdx.y; k < end; k += blockDim.y) a = join(r, a, wide(x[(o * along + k) * inner + c]));
    __shared__ float part[8][33];
    part[threadIdx.y][threadIdx.x] = a;
    __syncthreads();
    if (threadIdx.y == 0 && c < inner) {
        for (int i = 1; i < 8; i++) a = join(r, a, part[i][threadIdx.x]);
        partial[(o * shares + blockIdx.y) * inner + c] = a;
    }
}
extern "C" __global__ void reduceFold(const float *partial, Element *y, i64 lines, i64 along, i64 inner, i64 shares, int r, int add) {
    i64 line = position();
    if (line >= lines) return;
    const float *p = partial + line / inner * shares * inner + line % inner;
    float a = p[0];
    for (i64 k = 1; k < shares; k++) a = join(r, a, p[k * inner]);
    if (r == Mean) a /= (float)along;
    narrow(add ? wide(y[line]) + a : a, &y[line]);
}

extern "C" __global__ void reduceGrad(const Element *x, const Element *y, const Element *dy, Element *dx, i64 along, i64 inner, int r) {
    i64 first = FIRST((i64)blockIdx.x);
    float top = wide(y[blockIdx.x]), d = wide(dy[blockIdx.x]);
    if (r == Prod) {
        if (threadIdx.x > 0) return;
        for (i64 k = 0; k < along; k++) {
            float g = d;
            for (i64 j = 0; j < along; j++)
                if (j != k) g *= wide(x[first + j * inner]);
            narrow(g, &dx[first + k * inner]);
        }
        return;
    }
    float equal = 0.0f;
    if (r == Max || r == Min) {
        for (i64 k = threadIdx.x; k < along; k += blockDim.x) equal += wide(x[first + k * inner]) == top ? 1.0f : 0.0f;
        d /= fmaxf(blockJoin(Sum, equal), 1.0f);
    }
    if (r == Mean) d /= (float)along;
    for (i64 k = threadIdx.x; k < along; k += blockDim.x) {
        float v = wide(x[first + k * inner]), g = d;
        if (r == LogSumExp) g = d * expf(v - top);
        if ((r == Max || r == Min) && v != top) g = 0.0f;
        narrow(g, &dx[first + k * inner]);
    }
}

extern "C" __global__ void softmax(const Element *x, Element *y, i64 along, i64 inner, int logs) {
    i64 first = FIRST((i64)blockIdx.x);
    float top = -INFINITE, sum = 0.0f;
    for (i64 k = threadIdx.x; k < along; k += blockDim.x) top = fmaxf(top, wide(x[first + k * inner]));
    top = blockJoin(Max, top);
    for (i64 k = threadIdx.x; k < along; k += blockDim.x) sum += expf(wide(x[first + k * inner]) - top);
    sum = blockJoin(Sum, sum);
    float shift = logf(sum);
    for (i64 k = threadIdx.x; k < along; k += blockDim.x) {
        float v = wide(x[first + k * inner]) - top;
        narrow(logs ? v - shift : expf(v) / sum, &y[first + k * inner]);
    }
}

extern "C" __global__ void softmaxGrad(const Element *y, const Element *dy, Element *dx, i64 along, i64 inner, int logs) {
    i64 first = FIRST((i64)blockIdx.x);
    float sum = 0.0f;
    for (i64 k = threadIdx.x; k < along; k += blockDim.x) {
        float d = wide(dy[first + k * inner]);
        sum += logs ? d : d * wide(y[first + k * inner]);
    }
    sum = blockJoin(Sum, sum);
    for (i64 k = threadIdx.x; k < along; k += blockDim.x) {
        float v = wide(y[first + k * inner]), d = wide(dy[first + k * inner]);
        narrow(logs ? d - expf(v) * sum : v * (d - sum), &dx[first + k * inner]);
    }
}

// A thread per line.
extern "C" __global__ void cumSum(const Element *x, Element *y, i64 lines, i64 along, i64 inner, int back) {
    i64 line = position();
    if (line >= lines) return;
    i64 at = FIRST(line), step = back ? -inner : inner;
    if (back) at += (along - 1) * inner;
    float sum = 0.0f;
    for (i64 k = 0; k < along; k++, at += step) {
        sum += wide(x[at]);
        narrow(sum, &y[at]);
    }
}

// Where the largest, or with least the smallest, of a line is; of equal ones the first.
extern "C" __global__ void argMax(const Element *x, int *y, i64 along, i64 inner, int least) {
    const Element *p = x + FIRST((i64)blockIdx.x);
    float best = -INFINITE;
    int at = 0x7fffffff;
    for (i64 k = threadIdx.x; k < along; k += blockDim.x) {
        float v = least ? -wide(p[k * inner]) : wide(p[k * inner]);
        if (at == 0x7fffffff || v > best) best = v, at = (int)k;
    }
    __shared__ float tops[32];
    __shared__ int places[32];
    for (int d = 16; d > 0; d >>= 1) {
        float v = __shfl_xor_sync(0xffffffffu, best, d);
        int k = __shfl_xor_sync(0xffffffffu, at, d);
        if (v > best || v == best && k < at) best = v, at = k;
    }
    if ((threadIdx.x & 31) == 0) tops[threadIdx.x >> 5] = best, places[threadIdx.x >> 5] = at;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int i = 1; i < blockDim.x >> 5; i++)
        if (tops[i] > best || tops[i] == best && places[i] < at) best = tops[i], at = places[i];
    y[blockIdx.x] = at;
}
