// Update rules of optimizers. Weights are f32, gradients of Element, moments of the
// types below; buffers begin at any element. copy, where there is one, gets the weight
// in a type of its own.
//
// A warp updates a block of 256 elements at a time, which is the block of 8-bit codes: a
// lane has four of its first half and four of its second. Numbers are fetched as they
// lie, all of them before the first is used, and changed in registers.

#define BLOCK 256
#define HALF (BLOCK / 2)
#define MINE 8 // elements of a lane

struct Span {
    i64 block; // its number
    i64 first; // this lane's first element
    i64 n;     // elements in all
    bool whole;
    __device__ __forceinline__ i64 at(int k) const { return first + k / 4 * HALF + k % 4; }
};

// fetch loads the elements of a lane; what lies beyond the end is zero.
template <class E> __device__ __forceinline__ void fetch(const E *p, const Span &s, Pack<E, 4> (&x)[2]) {
    if (s.whole && (u64)p % sizeof(x[0]) == 0) {
#pragma unroll
        for (int h = 0; h < 2; h++) x[h] = *(const Pack<E, 4> *)(p + s.first + h * HALF);
        return;
    }
#pragma unroll
    for (int k = 0; k < MINE; k++) x[k / 4].x[k % 4] = s.at(k) < s.n ? p[s.at(k)] : E{};
}

template <class E> __device__ __forceinline__ void put(E *p, const Span &s, const Pack<E, 4> (&x)[2]) {
    if (s.whole && (u64)p % sizeof(x[0]) == 0) {
#pragma unroll
        for (int h = 0; h < 2; h++) *(Pack<E, 4> *)(p + s.first + h * HALF) = x[h];
        return;
    }
#pragma unroll
    for (int k = 0; k < MINE; k++)
        if (s.at(k) < s.n) p[s.at(k)] = x[k / 4].x[k % 4];
}

template <class E> __device__ __forceinline__ void put(E *p, const Span &s, const float (&f)[MINE]) {
    Pack<E, 4> x[2];
#pragma unroll
    for (int k = 0; k < MINE; k++) narrow(f[k], &x[k / 4].x[k % 4]);
    put(p, s, x);
}

// What a rule keeps of a weight: nothing, plain numbers, or 8-bit dynamic codes behind
// the absmax of their blocks. fetch comes first, then open; close writes.
struct Nothing {
    static const bool coded = false;
    void *memory;
    __device__ void fetch(const Span &) {}
    __device__ void open(const Dynamic &, float (&f)[MINE]) const {
        for (int k = 0; k < MINE; k++) f[k] = 0;
    }
    __device__ void close(const Dynamic &, const Span &, const float (&)[MINE]) {}
};

template <class E> struct Plain {
    static const bool coded = false;
    void *memory;
    Pack<E, 4> x[2];
    __device__ __forceinline__ void fetch(const Span &s) { ::fetch((const E *)memory, s, x); }
    __device__ __forceinline__ void open(const Dynamic &, float (&f)[MINE]) const {
#pragma unroll
        for (int k = 0; k < MINE; k++) f[k] = wide(x[k / 4].x[k % 4]);
    }
    __device__ __forceinline__ void close(const Dynamic &, const Span &s, const float (&f)[MINE]) { put((E *)memory, s, f); }
};

// KIND 0 has a sign, 1 has none.
template <int KIND> struct Coded {
    static const bool coded = true;
    void *memory;
    float absmax;
    Pack<u8, 4> x[2];
    __device__ __forceinline__ u8 *codes(const Span &s) const { return (u8 *)memory + 4 * ((s.n + BLOCK - 1) / BLOCK); }
    __device__ __forceinline__ void fetch(const Span &s) {
        absmax = ((const float *)memory)[s.block];
        ::fetch(codes(s), s, x);
    }
    __device__ __forceinline__ void open(const Dynamic &d, float (&f)[MINE]) const {
#pragma unroll
        for (int k = 0; k < MINE; k++) f[k] = __fmul_rn(d.values[KIND][x[k / 4].x[k % 4]], absmax);
    }
    __device__ __forceinline__ void close(const Dynamic &d, const Span &s, const float (&f)[MINE]) {
        u32 most = 0; // magnitudes of floats are in the order of their bits
#pragma unroll
        for (int k = 0; k < MINE; k++)
            if (s.at(k) < s.n) most = max(most, __float_as_uint(f[k]) & 0x7fffffff);
        most = __reduce_max_sync(0xffffffffu, most);
        float r = reciprocal(__uint_as_float(most));
#pragma unroll
        for (int k = 0; k < MINE; k++) x[k / 4].x[k % 4] = (u8)d.stateCode(KIND, f[k], r);
        if (threadIdx.x % 32 == 0) ((float *)memory)[s.block] = __uint_as_float(most);
        put(codes(s), s, x);
    }
};

enum { NoCopy, CopyF32, CopyBF16, CopyF16 };

__device__ __forceinline__ void copyTo(void *copy, int type, const Span &s, const float (&w)[MINE]) {
    if (type == CopyBF16) put((bf16 *)copy, s, w);
    if (type == CopyF16) put((f16 *)copy, s, w);
    if (type == CopyF32) put((float *)copy, s, w);
}

__device__ __forceinline__ bool finite(float x) { return (__float_as_uint(x) & 0x7f800000) != 0x7f800000; }

// update applies a rule to all weights. Beside codes, an element without a finite
// gradient leaves its weight as it is and its moments become zero: it would spoil its
// whole block.
template <class Rule, class M, class V>
__device__ __forceinline__ void update(const Rule &rule, float *w, const Element *g, M m, V v, const float *clip, void *copy, int type, i64 n) {
    __shared__ Dynamic codes;
    const bool coded = M::coded || V::coded;
    if (coded) codes.take();
    float by = clip[0];
    i64 blocks = (n + BLOCK - 1) / BLOCK, warps = (i64)gridDim.x * blockDim.x / 32;
    for (i64 block = position() / 32; block < blocks; block += warps) {
        Span s = {block, block * BLOCK + threadIdx.x % 32 * 4, n, (block + 1) * BLOCK <= n};
        Pack<float, 4> weight[2];
        Pack<Element, 4> gradient[2];
        fetch(w, s, weight);
        fetch(g, s, gradient);
        m.fetch(s);
        v.fetch(s);
        float x[MINE], mean[MINE], square[MINE];
        m.open(codes, mean);
        v.open(codes, square);
#pragma unroll
        for (int k = 0; k < MINE; k++) {
            float grad = wide(gradient[k / 4].x[k % 4]) * by;
            x[k] = weight[k / 4].x[k % 4];
            if (!coded || finite(grad))
                rule.step(x[k], grad, mean[k], square[k]);
            else
                mean[k] = square[k] = 0;
        }
        put(w, s, x);
        m.close(codes, s, mean);
        v.close(codes, s, square);
        copyTo(copy, type, s, x);
    }
}

struct Adam {
    bool decoupled;
    float rate, decay, beta1, beta2, eps, bias1, bias2;
    __device__ __forceinline__ void step(float &x, float grad, float &mean, float &square) const {
        if (decoupled)
            x *= 1.0f - rate * decay;
        else
            grad += decay * x;
        mean += (grad - mean) * (1.0f - beta1);
        square = beta2 * square + (1.0f - beta2) * grad * grad;
        x -= rate / bias1 * mean / (sqrtf(square) / bias2 + eps);
    }
};

#define ADAM(name, M, V)                                                                                                         \
    extern "C" __global__ void __launch_bounds__(256, 4) name(float *w, const Element *g, void *m, void *v, const float *clip,   \
                                                              void *copy, int type, i64 n, int decoupled, float rate,            \
                                                              float decay, float beta1, float beta2, float eps, float bias1,     \
                                                              float bias2) {                                                     \
        update(Adam{decoupled != 0, rate, decay, beta1, beta2, eps, bias1, bias2}, w, g, M{m}, V{v}, clip, copy, type, n);       \
    }
ADAM(adam, Plain<float>, Plain<float>)
ADAM(adamBF16, Plain<bf16>, Plain<bf16>)
ADAM(adamF16, Plain<f16>, Plain<f16>)
ADAM(adam8, Coded<0>, Coded<1>)

// Momentum of SGD. first: the first iteration, which starts the momentum at the gradient.
struct SGD {
    bool keeps, nesterov;
    float rate, decay, momentum, dampening, first;
    __device__ __forceinline__ void step(float &x, float grad, float &mean, float &) const {
        float step = grad + decay * x;
        if (keeps) {
            mean = first == 1 ? step : momentum * mean + (1.0f - dampening) * step;
            step = nesterov ? step + momentum * mean : mean;
        }
        x -= rate * step;
    }
};

#define SGDS(name, M)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(256, 4) name(float *w, const Element *g, void *m, const float *clip, void *copy, \
                                                              int type, i64 n, int nesterov, float rate, float decay,            \
                                                              float momentum, float dampening, float first) {                    \
        SGD rule = {momentum != 0, nesterov != 0, rate, decay, momentum, dampening, first};                                      \
        update(rule, w, g, M{m}, Nothing{}, clip, copy, type, n);                                                                \
    }
SGDS(sgd, Plain<float>)
SGDS(sgdBF16, Plain<bf16>)
SGDS(sgdF16, Plain<f16>)
SGDS(sgd8, Coded<0>)

extern "C" __global__ void __launch_bounds__(256, 4) sgdBare(float *w, const Element *g, const float *clip, void *copy, int type, i64 n,
                                                             float rate, float decay) {
    update(SGD{false, false, rate, decay, 0, 0, 0}, w, g, Nothing{}, Nothing{}, clip, copy, type, n);
}

struct Lion {
    float rate, decay, beta1, beta2;
    __device__ __forceinline__ void step(float &x, float grad, float &mean, float &) const {
        float step = beta1 * mean + (1.0f - beta1) * grad;
        step = step > 0 ? 1.0f : step < 0 ? -1.0f : step; // of zero, or of what is not a number, itself
        x = x * (1.0f - rate * decay) - rate * step;
        mean = beta2 * mean + (1.0f - beta2) * grad;
    }
};

#define LION(name, M)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(256, 4) name(float *w, const Element *g, void *m, const float *clip, void *copy, \
                                                              int type, i64 n, float rate, float decay, float beta1,             \
                                                              float beta2) {                                                     \
        update(Lion{rate, decay, beta1, beta2}, w, g, M{m}, Nothing{}, clip, copy, type, n);                                     \
    }
LION(lion, Plain<float>)
LION(lionBF16, Plain<bf16>)
LION(lionF16, Plain<f16>)
LION(lion8, Coded<0>)
