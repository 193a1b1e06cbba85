// Update rules of optimizers. Weights are f32 or bf16, gradients of Element, moments of
// the types below; buffers begin at any element.
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

// soon asks for the elements of a lane, which are all there, so that they lie in the cache
// when they are fetched.
template <class E> __device__ __forceinline__ void soon(const E *p, const Span &s) {
#pragma unroll
    for (int h = 0; h < 2; h++) asm volatile("prefetch.global.L2 [%0];" ::"l"(p + s.first + h * HALF));
}

__device__ __forceinline__ Span spanOf(i64 block, i64 n) { return {block, block * BLOCK + threadIdx.x % 32 * 4, n, (block + 1) * BLOCK <= n}; }

// fetch loads the elements of a lane; beyond the end lie zeros.
template <class E> __device__ __forceinline__ void fetch(const E *p, const Span &s, Pack<E, 4> (&x)[2], E zero = E{}) {
    if (s.whole && (u64)p % sizeof(x[0]) == 0) {
#pragma unroll
        for (int h = 0; h < 2; h++) x[h] = *(const Pack<E, 4> *)(p + s.first + h * HALF);
        return;
    }
#pragma unroll
    for (int k = 0; k < MINE; k++) x[k / 4].x[k % 4] = s.at(k) < s.n ? p[s.at(k)] : zero;
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
    __device__ bool coded() const { return false; }
    __device__ void fetch(const Span &) {}
    __device__ void soon(const Span &) const {}
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
    __device__ __forceinline__ void soon(const Span &s) const { ::soon((const E *)memory, s); }
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
        ::fetch(codes(s), s, x, (u8)(KIND ? 0 : ZERO_CODE));
    }
    __device__ __forceinline__ void soon(const Span &s) const { ::soon(codes(s), s); }
    __device__ __forceinline__ void open(const Dynamic &d, float (&f)[MINE]) const {
#pragma unroll
        for (int k = 0; k < MINE; k++) f[k] = __fmul_rn(d.values[KIND][x[k / 4].x[k % 4]], absmax);
    }
    __device__ __forceinline__ void close(const Dynamic &d, const Span &s, const float (&f)[MINE]) {
        u32 most = 0; // magnitudes of floats are in the order of their bits
#pragma unroll
        for (int k = 0; k < MINE; k++) most = max(most, __float_as_uint(f[k]) & 0x7fffffff);
        most = __reduce_max_sync(0xffffffffu, most);
        float r = reciprocal(__uint_as_float(most));
#pragma unroll
        for (int k = 0; k < MINE; k++) x[k / 4].x[k % 4] = (u8)d.stateCode<KIND>(f[k], r);
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
    __device__ void soon(const Span &) const {}
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

// A weight in f32, with a copy in a type of its own, or none. Weights that stay as they
// are still have their copy made.
struct Master {
    float *memory;
    void *copy;
    int type;
    Pack<float, 4> x[2];
    __device__ __forceinline__ void fetch(const Span &s) { ::fetch((const float *)memory, s, x); }
    __device__ __forceinline__ void soon(const Span &s) const { ::soon((const float *)memory, s); }
    __device__ __forceinline__ float open(int k) const { return x[k / 4].x[k % 4]; }
    __device__ __forceinline__ void close(const Span &s, const float (&w)[MINE]) {
        put(memory, s, w);
        leave(s, w);
    }
    __device__ __forceinline__ void leave(const Span &s, const float (&w)[MINE]) {
        if (type == BF16) put((bf16 *)copy, s, w);
        if (type == F16) put((f16 *)copy, s, w);
        if (type == F32) put((float *)copy, s, w);
    }
};

// A weight in bf16 and nowhere else, rounded as op.RoundRandomly does.
struct Pure {
    bf16 *memory;
    u64 key, first; // stream, and the position of the first element in it
    Pack<bf16, 4> x[2];
    __device__ __forceinline__ void fetch(const Span &s) { ::fetch((const bf16 *)memory, s, x); }
    __device__ __forceinline__ void soon(const Span &s) const { ::soon((const bf16 *)memory, s); }
    __device__ __forceinline__ float open(int k) const { return wide(x[k / 4].x[k % 4]); }
    __device__ __forceinline__ void close(const Span &s, const float (&w)[MINE]) {
        u64 base = mix(key);
#pragma unroll
        for (int k = 0; k < MINE; k++) x[k / 4].x[k % 4] = roundRandomly(w[k], base, first + s.at(k));
        put(memory, s, x);
    }
    __device__ __forceinline__ void leave(const Span &, const float (&)[MINE]) {}
};

// Fetched is a block of a lane: weights, gradients and moments as they lie.
template <class W, class M, class V> struct Fetched {
    Span s;
    W w;
    M m;
    V v;
    Pack<Element, 4> gradient[2];
    __device__ __forceinline__ void fetch(i64 block, i64 n, const Element *g) {
        s = spanOf(block, n);
        w.fetch(s);
        ::fetch(g, s, gradient);
        m.fetch(s);
        v.fetch(s);
    }

    // step applies a rule. Beside codes, an element without a finite gradient leaves its
    // weight as it is and its moments become zero: it would spoil its whole block.
    template <class Rule> __device__ __forceinline__ void step(const Rule &rule, const Dynamic &codes, float by) {
        float x[MINE], mean[MINE], square[MINE], grad[MINE];
        float worst = 0; // 0 times what is not finite is not a number
        m.open(codes, mean);
        v.open(codes, square);
#pragma unroll
        for (int k = 0; k < MINE; k++) {
            grad[k] = __fmul_rn(wide(gradient[k / 4].x[k % 4]), by);
            worst += 0.0f * grad[k];
            x[k] = w.open(k);
        }
        if (!(m.coded() || v.coded()) || worst == 0) {
#pragma unroll
            for (int k = 0; k < MINE; k++) rule.step(x[k], grad[k], mean[k], square[k]);
        } else {
            for (int k = 0; k < MINE; k++)
                if (finite(grad[k]))
                    rule.step(x[k], grad[k], mean[k], square[k]);
                else
                    mean[k] = square[k] = 0;
        }
        w.close(s, x);
        m.close(codes, s, mean);
        v.close(codes, s, square);
    }

    // leave writes the copy of weights that stay as they are.
    __device__ __forceinline__ void leave() {
        float x[MINE];
#pragma unroll
        for (int k = 0; k < MINE; k++) x[k] = w.open(k);
        w.leave(s, x);
    }
};

// update applies a rule to all weights; where the clip factor is not positive, all stay
// as they are. AHEAD: a warp asks for its next block before it works on the one it has,
// which pays where that work is long, as with codes on both sides, and costs elsewhere.
template <bool AHEAD, class Rule, class W, class M, class V>
__device__ __forceinline__ void update(const Rule &rule, W w, const Element *g, M m, V v, const float *clip, i64 n) {
    __shared__ Dynamic codes;
    if (m.coded() || v.coded()) codes.take();
    float by = clip[0];
    i64 blocks = (n + BLOCK - 1) / BLOCK, warps = (i64)gridDim.x * blockDim.x / 32;
    Fetched<W, M, V> now = {{}, w, m, v};
    for (i64 block = position() / 32; block < blocks; block += warps) {
        now.fetch(block, n, g);
        Span next = spanOf(block + warps, n);
        if (AHEAD && next.whole) {
            w.soon(next);
            soon(g, next);
            m.soon(next);
            v.soon(next);
        }
        if (by > 0)
            now.step(rule, codes, by);
        else
            now.leave();
    }
}

// Kernels come by the types of their moments; Mixed are of types known when they run.
// MASTER are the parameters of all kernels on f32 weights, PURE of those on bf16 ones.
#define MASTER float *w, void *copy, int type, const Element *g, const float *clip, i64 n
#define PURE bf16 *w, u64 key, u64 first, const Element *g, const float *clip, i64 n

// Sums and products are rounded as written, so that moments of all types meet the same
// arithmetic; roots and quotients may be two units off.
struct Adam {
    bool decoupled;
    float rate, decay, beta1, beta2, eps, bias1, bias2;
    __device__ __forceinline__ void step(float &x, float grad, float &mean, float &square) const {
        if (decoupled)
            x = __fmul_rn(x, 1.0f - rate * decay);
        else
            grad = __fmaf_rn(decay, x, grad);
        mean = __fmaf_rn(__fsub_rn(grad, mean), 1.0f - beta1, mean);
        square = __fmaf_rn(__fmul_rn(1.0f - beta2, grad), grad, __fmul_rn(beta2, square));
        float root, step; // what is below the smallest normal number counts as 0, which saves scaling
        asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(square));
        asm("div.approx.ftz.f32 %0, %1, %2;" : "=f"(step) : "f"(__fmul_rn(rate / bias1, mean)), "f"(fmaxf(__fmaf_rn(root, 1.0f / bias2, eps), 1.2e-38f)));
        x = __fsub_rn(x, step);
    }
};

#define ADAM_NUMBERS int decoupled, float rate, float decay, float beta1, float beta2, float eps, float bias1, float bias2
#define ADAM_RULE Adam{decoupled != 0, rate, decay, beta1, beta2, eps, bias1, bias2}
#define ADAM(name, ahead, M, V)                                                                     \
    extern "C" __global__ void __launch_bounds__(256, 4) name(MASTER, void *m, void *v, ADAM_NUMBERS) { \
        update<ahead>(ADAM_RULE, Master{w, copy, type}, g, M{m}, V{v}, clip, n);                    \
    }
ADAM(adam, false, Plain<float>, Plain<float>)
ADAM(adamBF16, false, Plain<bf16>, Plain<bf16>)
ADAM(adamF16, false, Plain<f16>, Plain<f16>)
ADAM(adam8, true, Coded<0>, Coded<1>)
ADAM(adam8F32, false, Coded<0>, Plain<float>)
ADAM(adam8F16, false, Coded<0>, Plain<f16>)
extern "C" __global__ void __launch_bounds__(256) adamMixed(MASTER, void *m, void *v, int mType, int vType, ADAM_NUMBERS) {
    update<false>(ADAM_RULE, Master{w, copy, type}, g, Any{m, mType}, Any{v, vType}, clip, n);
}
extern "C" __global__ void __launch_bounds__(256) adamPure(PURE, void *m, void *v, int mType, int vType, ADAM_NUMBERS) {
    update<false>(ADAM_RULE, Pure{w, key, first}, g, Any{m, mType}, Any{v, vType}, clip, n);
}

// SGD. starts: the first iteration, which starts the momentum at the gradient.
struct SGD {
    bool keeps, nesterov;
    float rate, decay, momentum, dampening, starts;
    __device__ __forceinline__ void step(float &x, float grad, float &mean, float &) const {
        float step = grad + decay * x;
        if (keeps) {
            mean = starts == 1 ? step : momentum * mean + (1.0f - dampening) * step;
            step = nesterov ? step + momentum * mean : mean;
        }
        x -= rate * step;
    }
};

#define SGD_NUMBERS int nesterov, float rate, float decay, float momentum, float dampening, float starts
#define SGD_RULE SGD{momentum != 0, nesterov != 0, rate, decay, momentum, dampening, starts}
#define SGDS(name, M)                                                                      \
    extern "C" __global__ void __launch_bounds__(256, 4) name(MASTER, void *m, SGD_NUMBERS) { \
        update<false>(SGD_RULE, Master{w, copy, type}, g, M{m}, Nothing{}, clip, n);              \
    }
SGDS(sgd, Plain<float>)
SGDS(sgdBF16, Plain<bf16>)
SGDS(sgdF16, Plain<f16>)
SGDS(sgd8, Coded<0>)
extern "C" __global__ void __launch_bounds__(256) sgdPure(PURE, void *m, int mType, SGD_NUMBERS) {
    update<false>(SGD_RULE, Pure{w, key, first}, g, Any{m, mType}, Nothing{}, clip, n);
}
extern "C" __global__ void __launch_bounds__(256, 4) sgdBare(MASTER, float rate, float decay) {
    update<false>(SGD{false, false, rate, decay, 0, 0, 0}, Master{w, copy, type}, g, Nothing{}, Nothing{}, clip, n);
}
extern "C" __global__ void __launch_bounds__(256) sgdBarePure(PURE, float rate, float decay) {
    update<false>(SGD{false, false, rate, decay, 0, 0, 0}, Pure{w, key, first}, g, Nothing{}, Nothing{}, clip, n);
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

#define LION_NUMBERS float rate, float decay, float beta1, float beta2
#define LION_RULE Lion{rate, decay, beta1, beta2}
#define LION(name, M)                                                                       \
    extern "C" __global__ void __launch_bounds__(256, 4) name(MASTER, void *m, LION_NUMBERS) { \
        update<false>(LION_RULE, Master{w, copy, type}, g, M{m}, Nothing{}, clip, n);              \
    }
LION(lion, Plain<float>)
LION(lionBF16, Plain<bf16>)
LION(lionF16, Plain<f16>)
LION(lion8, Coded<0>)
extern "C" __global__ void __launch_bounds__(256) lionPure(PURE, void *m, int mType, LION_NUMBERS) {
    update<false>(LION_RULE, Pure{w, key, first}, g, Any{m, mType}, Nothing{}, clip, n);
}
