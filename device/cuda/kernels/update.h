#include "codes.h"

// What the updates of optimizers share. Weights are f32 or bf16, gradients of Element, states
// of the types below; buffers begin at any element. An optimizer's own file has its rule, a
// struct with a step, and its kernels.
//
// A warp updates a block of 256 elements at a time, which is the block of 8-bit codes: a
// lane has four of its first half and four of its second. All numbers are loaded before the
// first is used, and changed in registers.
//
// A rule works on the elements of a lane. It rounds exactly as the plain step in package
// optim does, with intrinsics that the compiler does not fuse, so that GPU and CPU give the
// same bits.
//
// step returns whether its results are valid. Where they are not, the operands are loaded
// again and given to the rule that careful returns, whose results are always valid. A rule
// that is SURE is always valid, except that gradients may not be finite; other rules return
// false for such gradients. flushM and flushV say whether denormal numbers of the first and
// second state become zero, see Cell in package optim.

#define MINE 8 // elements of a lane

// flush is x, or zero of its sign where x is below the normal numbers.
__device__ __forceinline__ float flush(float x) {
    float y;
    asm("mul.rn.ftz.f32 %0, %1, 0f3f800000;" : "=f"(y) : "f"(x)); // by 1
    return y;
}

#define BLOCK 256
#define HALF (BLOCK / 2)

struct Span {
    i64 block; // its number
    i64 first; // this lane's first element
    i64 n;     // elements in all
    bool whole;
    __device__ __forceinline__ i64 at(int k) const { return first + k / 4 * HALF + k % 4; }
};

// soon prefetches the elements of a lane, which must all exist, into the L2 cache.
template <class E> __device__ __forceinline__ void soon(const E *p, const Span &s) {
#pragma unroll
    for (int h = 0; h < 2; h++) asm volatile("prefetch.global.L2 [%0];" ::"l"(p + s.first + h * HALF));
}

__device__ __forceinline__ Span spanOf(i64 block, i64 n) { return {block, block * BLOCK + threadIdx.x % 32 * 4, n, (block + 1) * BLOCK <= n}; }

// fetch loads the elements of a lane; zeros stand for those beyond the end.
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

// Stream is where the random bits of a state in bf16 come from: streamBase of its key and
// number, and the position of element 0.
struct Stream {
    u64 base, first;
};

// A state: nothing, plain numbers, or 8-bit dynamic codes behind the absmax of their blocks.
// fetch comes first, then open; close writes. KNOWN: the type is known when the kernel is
// compiled. flushed: denormal numbers become zero, see flushesDenormals of device/cpu. A
// block of 8-bit codes of nothing but denormal numbers becomes zero; careful says that there
// may be such a block.
struct Nothing {
    static const bool KNOWN = true;
    __device__ bool coded() const { return false; }
    __device__ bool flushed() const { return false; }
    __device__ void fetch(const Span &) {}
    __device__ void soon(const Span &) const {}
    __device__ void open(const Dynamic &, float (&f)[MINE]) const {
        for (int k = 0; k < MINE; k++) f[k] = 0;
    }
    __device__ void close(const Dynamic &, const Span &, const float (&)[MINE], bool, const Stream &) {}
};

// keepFour rounds four neighbouring elements of a state: to nearest, or stochastically in bf16.
template <class E> __device__ __forceinline__ void keepFour(const float *f, Pack<E, 4> &x, const Stream &, i64) {
#pragma unroll
    for (int k = 0; k < 4; k++) keep(f[k], &x.x[k]);
}
__device__ __forceinline__ void keepFour(const float *f, Pack<bf16, 4> &x, const Stream &r, i64 element) {
    u64 bits = stateBits(r.base, r.first + element);
#pragma unroll
    for (int k = 0; k < 4; k++) x.x[k] = roundBy(f[k], (u32)(bits >> 16 * k) & 0xffff);
}

template <class E> const bool FLUSHED = true;
template <> const bool FLUSHED<f16> = false;

template <class E> struct Plain {
    static const bool KNOWN = true;
    void *memory;
    Pack<E, 4> x[2];
    __device__ bool coded() const { return false; }
    __device__ bool flushed() const { return FLUSHED<E>; }
    __device__ __forceinline__ void fetch(const Span &s) { ::fetch((const E *)memory, s, x); }
    __device__ __forceinline__ void soon(const Span &s) const { ::soon((const E *)memory, s); }
    __device__ __forceinline__ void open(const Dynamic &, float (&f)[MINE]) const {
#pragma unroll
        for (int k = 0; k < MINE; k++) f[k] = wide(x[k / 4].x[k % 4]);
    }
    __device__ __forceinline__ void close(const Dynamic &, const Span &s, const float (&f)[MINE], bool, const Stream &r) {
#pragma unroll
        for (int h = 0; h < 2; h++) keepFour(&f[4 * h], x[h], r, s.first + h * HALF);
        put((E *)memory, s, x);
    }
};

// KIND 0 has a sign, 1 has none.
template <int KIND> struct Coded {
    static const bool KNOWN = true;
    void *memory;
    float absmax;
    Pack<u8, 4> x[2];
    __device__ bool coded() const { return true; }
    __device__ bool flushed() const { return false; }
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
    __device__ __forceinline__ void close(const Dynamic &d, const Span &s, const float (&f)[MINE], bool careful, const Stream &) {
        u32 most = 0; // magnitudes of floats are in the order of their bits
#pragma unroll
        for (int k = 0; k < MINE; k++) most = max(most, __float_as_uint(f[k]) & 0x7fffffff);
        most = __reduce_max_sync(0xffffffffu, most);
        if (careful && most < __float_as_uint(0x1p-126f)) { // as EncodeState of package quant
            most = 0;
#pragma unroll
            for (int k = 0; k < MINE; k++) x[k / 4].x[k % 4] = KIND ? 0 : ZERO_CODE;
        } else {
            float r = reciprocal(__uint_as_float(most));
#pragma unroll
            for (int k = 0; k < MINE; k++) x[k / 4].x[k % 4] = (u8)d.stateCode<KIND>(f[k], r);
        }
        if (threadIdx.x % 32 == 0) ((float *)memory)[s.block] = __uint_as_float(most);
        put(codes(s), s, x);
    }
};

enum { None, F32, BF16, F16, Dyn8, UDyn8 };

// Any is a state whose type is a parameter, for mixtures: slower than the others.
struct Any {
    static const bool KNOWN = false;
    void *memory;
    int type;
    Span span;
    __device__ bool coded() const { return type >= Dyn8; }
    __device__ bool flushed() const { return type == F32 || type == BF16; }
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
    __device__ void close(const Dynamic &d, const Span &s, const float (&f)[MINE], bool careful, const Stream &r) {
        switch (type) {
        case F32: return Plain<float>{memory}.close(d, s, f, careful, r);
        case BF16: return Plain<bf16>{memory}.close(d, s, f, careful, r);
        case F16: return Plain<f16>{memory}.close(d, s, f, careful, r);
        case Dyn8: return Coded<0>{memory}.close(d, s, f, careful, r);
        case UDyn8: return Coded<1>{memory}.close(d, s, f, careful, r);
        }
    }
};

// A weight in f32, with a low-precision copy or none. The copy is written also where the
// update is skipped.
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

// A weight that is stored in bf16 only, rounded as op.RoundStochastic does.
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

// Fetched holds what a lane has loaded of a block: weights, gradients and states as stored.
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

    // step applies a rule and writes the results. It returns false, with nothing written,
    // where they are not valid for some lane of the warp; with CARE they always are.
    template <bool CARE, class Rule> __device__ __forceinline__ bool step(const Rule &rule, const Dynamic &codes, float by, const Stream (&streams)[2]) {
        float x[MINE], mean[MINE], square[MINE], grad[MINE];
        float worst = 0; // 0 times infinity or NaN is NaN
        m.open(codes, mean);
        v.open(codes, square);
#pragma unroll
        for (int k = 0; k < MINE; k++) {
            grad[k] = __fmul_rn(wide(gradient[k / 4].x[k % 4]), by);
            worst += 0.0f * grad[k];
            x[k] = w.open(k);
        }
        bool counts = rule.step(x, grad, mean, square, m.flushed(), v.flushed()), coded = m.coded() || v.coded();
        if (CARE && coded) spare(x, grad, mean, square);
        if (!CARE && (coded || !Rule::SURE) && !__all_sync(0xffffffffu, Rule::SURE ? worst == 0 : counts)) return false;
        w.close(s, x);
        m.close(codes, s, mean, CARE || Rule::SURE, streams[0]);
        v.close(codes, s, square, CARE || Rule::SURE, streams[1]);
        return true;
    }

    // spare undoes the step of elements whose gradient is not finite: their weights stay as
    // they are and their states become zero. They would spoil a whole block of 8-bit codes.
    __device__ __forceinline__ void spare(float (&x)[MINE], const float (&grad)[MINE], float (&mean)[MINE], float (&square)[MINE]) const {
#pragma unroll
        for (int k = 0; k < MINE; k++)
            if (!finite(grad[k])) x[k] = w.open(k), mean[k] = square[k] = 0;
    }

    // leave writes the copy of weights that stay as they are.
    __device__ __forceinline__ void leave() {
        float x[MINE];
#pragma unroll
        for (int k = 0; k < MINE; k++) x[k] = w.open(k);
        w.leave(s, x);
    }
};

// update applies a rule to all weights; where the clip factor is not positive, they stay as
// they are. AHEAD: a warp prefetches its next block before it works on the current one, which
// pays where that work is long, as with two 8-bit states, and costs time elsewhere.
template <bool AHEAD, class Rule, class W, class M, class V>
__device__ __forceinline__ void update(const Rule &rule, W w, const Element *g, M m, V v, const float *clip, i64 n, u64 key, u64 first) {
    __shared__ Dynamic codes;
    if (m.coded() || v.coded()) codes.take();
    float by = clip[0];
    const Stream streams[2] = {{streamBase(key, 1), first}, {streamBase(key, 2), first}};
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
        if (!(by > 0)) {
            now.leave();
        } else if (!M::KNOWN) {
            now.template step<true>(rule.careful(), codes, by, streams);
        } else if (!now.template step<false>(rule, codes, by, streams)) {
            asm volatile("" ::: "memory"); // so that no registers are held for this
            now.fetch(block, n, g);
            now.template step<true>(rule.careful(), codes, by, streams);
        }
    }
}

// There is a kernel per type of the states; those named Mixed and Pure take the types as
// parameters.
// MASTER are the parameters of all kernels on f32 weights, PURE of those on bf16 ones. key and
// first are the random stream of what is rounded to bf16, and its position of element 0.
#define MASTER float *w, void *copy, int type, u64 key, u64 first, const Element *g, const float *clip, i64 n
#define PURE bf16 *w, u64 key, u64 first, const Element *g, const float *clip, i64 n
