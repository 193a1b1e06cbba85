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

__device__ __forceinline__ bool finite(float x) { return (__float_as_uint(x) & 0x7f800000) != 0x7f800000; }

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

// keep rounds what a rule keeps: in f16 no number but zero becomes zero, and no finite
// one infinite.
template <class E> __device__ __forceinline__ void keep(float x, E *y) { narrow(x, y); }
template <> __device__ __forceinline__ void keep(float x, f16 *y) {
    narrow(x, y);
    u16 sign = y->bits & 0x8000, size = y->bits & 0x7fff;
    if (size == 0 && x != 0) y->bits = sign | 1;
    if (size == 0x7c00 && finite(x)) y->bits = sign | 0x7bff;
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
    __device__ bool coded() const { return false; }
    __device__ void fetch(const Span &) {}
    __device__ void open(const Dynamic &, float (&f)[MINE]) const {
        for (int k = 0; k < MINE; k++) f[k] = 0;
    }
    __device__ void close(const Dynamic &, const Span &, const float (&)[MINE]) {}
};

template <class E> struct Plain {
    void *memory;
    Pack<E, 4> x[2];
    __device__ bool coded() const { return false; }
    __device__ __forceinline__ void fetch(const Span &s) { ::fetch((const E *)memory, s, x); }
    __device__ __forceinline__ void open(const Dynamic &, float (&f)[MINE]) const {
#pragma unroll
        for (int k = 0; k < MINE; k++) f[k] = wide(x[k / 4].x[k % 4]);
    }
    __device__ __forceinline__ void close(const Dynamic &, const Span &s, const float (&f)[MINE]) {
#pragma unroll
        for (int k = 0; k < MINE; k++) keep(f[k], &x[k / 4].x[k % 4]);
        put((E *)memory, s, x);
    }
};

// KIND 0 has a sign, 1 has none.
template <int KIND> struct Coded {
    void *memory;
    float absmax;
    Pack<u8, 4> x[2];
    __device__ bool coded() const { return true; }
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

enum { None, F32, BF16, F16, Dyn8, UDyn8 };

// Any is a moment of a type known when it runs, for mixtures: slower than the others.
struct Any {
    void *memory;
    int type;
    Span span;
    __device__ bool coded() const { return type >= Dyn8; }
    __device__ void fetch(const Span &s) { span = s; }
    template <class M> __device__ void openAs(M m, const Dynamic &d, float (&f)[MINE]) const {
        m.fetch(span);
        m.open(d, f);
    }
    __device__ void open(const Dynamic &d, float (&f)[MINE]) const {
        switch (type) {
        case F32: return openAs(Plain<float>{memory}, d, f);
        case BF16: return openAs(Plain<bf16>{memory}, d, f);
        case F16: return openAs(Plain<f16>{memory}, d, f);
        case Dyn8: return openAs(Coded<0>{memory}, d, f);
        case UDyn8: return openAs(Coded<1>{memory}, d, f);
        }
    }
    __device__ void close(const Dynamic &d, const Span &s, const float (&f)[MINE]) {
        switch (type) {
        case F32: return Plain<float>{memory}.close(d, s, f);
        case BF16: return Plain<bf16>{memory}.close(d, s, f);
        case F16: return Plain<f16>{memory}.close(d, s, f);
        case Dyn8: return Coded<0>{memory}.close(d, s, f);
        case UDyn8: return Coded<1>{memory}.close(d, s, f);
        }
    }
};

__device__ __forceinline__ void copyTo(void *copy, int type, const Span &s, const float (&w)[MINE]) {
    if (type == BF16) put((bf16 *)copy, s, w);
    if (type == F16) put((f16 *)copy, s, w);
    if (type == F32) put((float *)copy, s, w);
}

// update applies a rule to all weights; where the clip factor is not positive, all stay
// as they are. Beside codes, an element without a finite gradient leaves its weight as it
// is and its moments become zero: it would spoil its whole block.
template <class Rule, class M, class V>
__device__ __forceinline__ void update(const Rule &rule, float *w, const Element *g, M m, V v, const float *clip, void *copy, int type, i64 n) {
    __shared__ Dynamic codes;
    const bool coded = m.coded() || v.coded();
    if (coded) codes.take();
    float by = clip[0];
    bool stays = !(by > 0);
    i64 blocks = (n + BLOCK - 1) / BLOCK, warps = (i64)gridDim.x * blockDim.x / 32;
    for (i64 block = position() / 32; block < blocks; block += warps) {
        Span s = {block, block * BLOCK + threadIdx.x % 32 * 4, n, (block + 1) * BLOCK <= n};
        Pack<float, 4> weight[2];
        Pack<Element, 4> gradient[2];
        float x[MINE], mean[MINE], square[MINE];
        fetch(w, s, weight);
        if (stays) {
#pragma unroll
            for (int k = 0; k < MINE; k++) x[k] = weight[k / 4].x[k % 4];
            copyTo(copy, type, s, x);
            continue;
        }
        fetch(g, s, gradient);
        m.fetch(s);
        v.fetch(s);
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

extern "C" __global__ void __launch_bounds__(256) adamMixed(float *w, const Element *g, void *m, void *v, const float *clip, void *copy, int type,
                                                            i64 n, int decoupled, int mean, int square, float rate, float decay,
                                                            float beta1, float beta2, float eps, float bias1, float bias2) {
    update(Adam{decoupled != 0, rate, decay, beta1, beta2, eps, bias1, bias2}, w, g, Any{m, mean}, Any{v, square}, clip, copy, type, n);
}

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
