// Ops on each element by itself. A thread works on one pack of LANES elements; the
// last one may hold fewer.

// spread calls body(i, count) for the thread's pack: i is its first element.
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

// put stores it, added to what is there if add.
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

// repeated fetches elements i.. of a tensor of period elements that is repeated.
__device__ __forceinline__ void repeated(const Element *y, i64 period, i64 n, i64 i, int count, float (&f)[LANES]) {
    if (period == n) {
        fetch(y + i, count, f);
        return;
    }
    i64 j = n < (1ll << 31) ? (i64)((u32)i % (u32)period) : i % period;
    if (period % LANES == 0) { // a pack never crosses the end: i is a multiple of LANES
        load(y + j, f);
        return;
    }
    for (int k = 0; k < LANES; k++) {
        f[k] = wide(y[j]);
        if (++j == period) j = 0;
    }
}

extern "C" __global__ void add(const Element *x, const Element *y, Element *z, i64 n, i64 period, int add) {
    PACK_OF(n)
    float f[LANES], g[LANES];
    fetch(x + i, count, f);
    repeated(y, period, n, i, count, g);
    for (int k = 0; k < LANES; k++) f[k] += g[k];
    put(z + i, count, f, add);
}

extern "C" __global__ void mul(const Element *x, const Element *y, Element *z, i64 n, i64 period, int add) {
    PACK_OF(n)
    float f[LANES], g[LANES];
    fetch(x + i, count, f);
    repeated(y, period, n, i, count, g);
    for (int k = 0; k < LANES; k++) f[k] *= g[k];
    put(z + i, count, f, add);
}

// The functions of one number, as package op numbers them.
enum { ReLU = 1, GELU, GELUTanh, SiLU, Tanh, Sigmoid };

#define ROOT_2_OVER_PI 0.7978845608028654f
#define CUBIC 0.044715f

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ __forceinline__ float normalCDF(float x) { return 0.5f * erfcf(-x * 0.7071067811865476f); }

__device__ __forceinline__ float value(int f, float x) {
    switch (f) {
    case ReLU: return fmaxf(x, 0.0f);
    case GELU: return x * normalCDF(x);
    case GELUTanh: return 0.5f * x * (1.0f + tanhf(ROOT_2_OVER_PI * (x + CUBIC * x * x * x)));
    case SiLU: return x * sigmoid(x);
    case Tanh: return tanhf(x);
    }
    return sigmoid(x);
}

__device__ __forceinline__ float slope(int f, float x) {
    switch (f) {
    case ReLU: return x > 0.0f ? 1.0f : 0.0f;
    case GELU: return normalCDF(x) + x * expf(-0.5f * x * x) * 0.3989422804014327f;
    case GELUTanh: {
        float t = tanhf(ROOT_2_OVER_PI * (x + CUBIC * x * x * x));
        return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * ROOT_2_OVER_PI * (1.0f + 3.0f * CUBIC * x * x);
    }
    case SiLU: {
        float s = sigmoid(x);
        return s * (1.0f + x * (1.0f - s));
    }
    case Tanh: {
        float t = tanhf(x);
        return 1.0f - t * t;
    }
    }
    float s = sigmoid(x);
    return s * (1.0f - s);
}

extern "C" __global__ void unary(const Element *x, Element *y, i64 n, int func) {
    PACK_OF(n)
    float f[LANES];
    fetch(x + i, count, f);
    for (int k = 0; k < LANES; k++) f[k] = value(func, f[k]);
    put(y + i, count, f, 0);
}

extern "C" __global__ void unaryGrad(const Element *x, const Element *dy, Element *dx, i64 n, int func) {
    PACK_OF(n)
    float f[LANES], g[LANES];
    fetch(x + i, count, f);
    fetch(dy + i, count, g);
    for (int k = 0; k < LANES; k++) f[k] = g[k] * slope(func, f[k]);
    put(dx + i, count, f, 0);
}

extern "C" __global__ void gated(const Element *gate, const Element *up, Element *y, i64 n, int func) {
    PACK_OF(n)
    float f[LANES], g[LANES];
    fetch(gate + i, count, f);
    fetch(up + i, count, g);
    for (int k = 0; k < LANES; k++) f[k] = value(func, f[k]) * g[k];
    put(y + i, count, f, 0);
}

extern "C" __global__ void gatedGrad(const Element *gate, const Element *up, const Element *dy, Element *dgate, Element *dup, i64 n, int func) {
    PACK_OF(n)
    float f[LANES], g[LANES], d[LANES];
    fetch(gate + i, count, f);
    fetch(up + i, count, g);
    fetch(dy + i, count, d);
    for (int k = 0; k < LANES; k++) {
        g[k] *= d[k] * slope(func, f[k]);
        f[k] = d[k] * value(func, f[k]);
    }
    put(dgate + i, count, g, 0);
    put(dup + i, count, f, 0);
}

// Dropout; perSample is how many elements a sample has, row the first one's index.
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
