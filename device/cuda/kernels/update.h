#include "codes.h"

// Update rules of optimizers. Weights are f32 or bf16, gradients of Element, moments of
// the types below; buffers begin at any element.
//
// A warp updates a block of 256 elements at a time, which is the block of 8-bit codes: a
// lane has four of its first half and four of its second. Numbers are fetched as they
// lie, all of them before the first is used, and changed in registers.
//
// Rules of optimizers, on the elements of a lane at a time. Weights and moments come out
// with the bits that device/cpu's have, whoever updates: what is rounded when is as in
// adamGo and the like of its kernels, and nothing is left to the compiler's fusing.
//
// step says whether what it made of its operands counts. Where it does not, they are
// fetched again and given to what careful returns, whose step always counts. A rule that
// is SURE says nothing of gradients that are not finite; others say that they do not count.
// Moments of which numbers below the normal ones become zero do so before anything is made
// of them: flushM and flushV say whether.

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
// the absmax of their blocks. fetch comes first, then open; close writes. KNOWN says that
// the type is, flushed that numbers below the normal ones become zero before they are used,
// as flushed of device/cpu says. A block of codes of nothing but such numbers becomes zero;
// careful says that there may be some.
struct Nothing {
    static const bool KNOWN = true;
    __device__ bool coded() const { return false; }
    __device__ bool flushed() const { return false; }
    __device__ void fetch(const Span &) {}
    __device__ void soon(const Span &) const {}
    __device__ void open(const Dynamic &, float (&f)[MINE]) const {
        for (int k = 0; k < MINE; k++) f[k] = 0;
    }
    __device__ void close(const Dynamic &, const Span &, const float (&)[MINE], bool) {}
};

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
    __device__ __forceinline__ void close(const Dynamic &, const Span &s, const float (&f)[MINE], bool) {
#pragma unroll
        for (int k = 0; k < MINE; k++) keep(f[k], &x[k / 4].x[k % 4]);
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
    __device__ __forceinline__ void close(const Dynamic &d, const Span &s, const float (&f)[MINE], bool careful) {
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

// Any is a moment of a type known when it runs, for mixtures: slower than the others.
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
    __device__ void close(const Dynamic &d, const Span &s, const float (&f)[MINE], bool careful) {
        switch (type) {
        case F32: return Plain<float>{memory}.close(d, s, f, careful);
        case BF16: return Plain<bf16>{memory}.close(d, s, f, careful);
        case F16: return Plain<f16>{memory}.close(d, s, f, careful);
        case Dyn8: return Coded<0>{memory}.close(d, s, f, careful);
        case UDyn8: return Coded<1>{memory}.close(d, s, f, careful);
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

    // step applies a rule and writes what it made, or says that this does not count for
    // some lane of the warp; what is made with CARE counts always.
    template <bool CARE, class Rule> __device__ __forceinline__ bool step(const Rule &rule, const Dynamic &codes, float by) {
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
        bool counts = rule.step(x, grad, mean, square, m.flushed(), v.flushed()), coded = m.coded() || v.coded();
        if (CARE && coded) spare(x, grad, mean, square);
        if (!CARE && (coded || !Rule::SURE) && !__all_sync(0xffffffffu, Rule::SURE ? worst == 0 : counts)) return false;
        w.close(s, x);
        m.close(codes, s, mean, CARE || Rule::SURE);
        v.close(codes, s, square, CARE || Rule::SURE);
        return true;
    }

    // spare undoes the steps of elements without a finite gradient: their weights stay as
    // they are and their moments become zero. They would spoil a whole block of codes.
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
        if (!(by > 0)) {
            now.leave();
        } else if (!M::KNOWN) {
            now.template step<true>(rule.careful(), codes, by);
        } else if (!now.template step<false>(rule, codes, by)) {
            asm volatile("" ::: "memory"); // so that nothing is held for this
            now.fetch(block, n, g);
            now.template step<true>(rule.careful(), codes, by);
        }
    }
}

// Kernels come by the types of their moments; Mixed are of types known when they run.
// MASTER are the parameters of all kernels on f32 weights, PURE of those on bf16 ones.
#define MASTER float *w, void *copy, int type, const Element *g, const float *clip, i64 n
#define PURE bf16 *w, u64 key, u64 first, const Element *g, const float *clip, i64 n
