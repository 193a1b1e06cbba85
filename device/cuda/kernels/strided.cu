// Elementwise ops of tensors that are walked over with strides. Dimensions and strides come as
// parameters, at most eight of each; those that a walk does not have are 1 and 0.

#define EIGHT(p) i64 p##0, i64 p##1, i64 p##2, i64 p##3, i64 p##4, i64 p##5, i64 p##6, i64 p##7
#define LIST(p) {p##0, p##1, p##2, p##3, p##4, p##5, p##6, p##7}

// places finds the element of two tensors that element i of the walk is.
template <class I> __device__ __forceinline__ void places(I i, const i64 (&d)[8], const i64 (&x)[8], const i64 (&y)[8], i64 &a, i64 &b) {
    a = b = 0;
#pragma unroll
    for (int k = 7; k >= 0; k--) {
        if (d[k] == 1) continue;
        I at = i % (I)d[k];
        i /= (I)d[k];
        a += at * x[k];
        b += at * y[k];
    }
}
#define PLACES(i, a, b)                                       \
    i64 a, b;                                                 \
    if (n < (1ll << 31)) places<u32>((u32)i, d, x, y, a, b);  \
    else places<u64>((u64)i, d, x, y, a, b);
#define EACH(i, n) for (i64 i = position(); i < n; i += (i64)gridDim.x * blockDim.x)

// to[b] = from[a] for elements of 2 or 4 bytes, or 16 bytes of them.
template <class E> __device__ __forceinline__ void moveAll(const E *from, E *to, i64 n, const i64 (&d)[8], const i64 (&x)[8], const i64 (&y)[8]) {
    EACH(i, n) {
        PLACES(i, a, b)
        to[b] = from[a];
    }
}
extern "C" __global__ void move2(const u16 *from, u16 *to, i64 n, EIGHT(d), EIGHT(x), EIGHT(y)) {
    const i64 dd[8] = LIST(d), xx[8] = LIST(x), yy[8] = LIST(y);
    moveAll(from, to, n, dd, xx, yy);
}
extern "C" __global__ void move4(const u32 *from, u32 *to, i64 n, EIGHT(d), EIGHT(x), EIGHT(y)) {
    const i64 dd[8] = LIST(d), xx[8] = LIST(x), yy[8] = LIST(y);
    moveAll(from, to, n, dd, xx, yy);
}

struct alignas(16) Sixteen { u64 x[2]; };
extern "C" __global__ void move16(const Sixteen *from, Sixteen *to, i64 n, EIGHT(d), EIGHT(x), EIGHT(y)) {
    const i64 dd[8] = LIST(d), xx[8] = LIST(x), yy[8] = LIST(y);
    moveAll(from, to, n, dd, xx, yy);
}

// Planes of n packs of 16 bytes to places with COUNT elements each: images as files have them to channels last. A thread has a
// pack of each plane.
template <class E, int COUNT> __device__ __forceinline__ void interleaved(const E *from, E *to, i64 samples, i64 n) {
    const int each = 16 / sizeof(E);
    EACH(i, samples * n) {
        i64 sample = samples * n < (1ll << 31) ? (i64)((u32)i / (u32)n) : i / n, at = i - sample * n;
        Pack<E, each> in[COUNT], out[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; k++) in[k] = ((const Pack<E, each> *)from)[(sample * COUNT + k) * n + at];
#pragma unroll
        for (int k = 0; k < COUNT * each; k++) out[k / each].x[k % each] = in[k % COUNT].x[k / COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; k++) ((Pack<E, each> *)to)[i * COUNT + k] = out[k];
    }
}
extern "C" __global__ void interleave2(const u16 *from, u16 *to, i64 samples, i64 n) { interleaved<u16, 3>(from, to, samples, n); }
extern "C" __global__ void interleave4(const u32 *from, u32 *to, i64 samples, i64 n) { interleaved<u32, 3>(from, to, samples, n); }

// A piece of zeros with elements put in: of n along the middle dimension, element start + k·step is
// element k of count.
template <class E> __device__ __forceinline__ void padAll(const E *from, E *to, i64 outer, i64 n, i64 inner, i64 count, i64 start, i64 step) {
    bool small = outer * n * inner < (1ll << 31);
    EACH(i, outer * n * inner) {
        i64 line = small ? (i64)((u32)i / (u32)inner) : i / inner, o = small ? (i64)((u32)line / (u32)n) : line / n;
        i64 k = line - o * n - start;
        E v = {};
        if (k >= 0 && k < count * step && k % step == 0) v = from[(o * count + k / step) * inner + i - line * inner];
        to[i] = v;
    }
}
extern "C" __global__ void pad2(const u16 *from, u16 *to, i64 outer, i64 n, i64 inner, i64 count, i64 start, i64 step) { padAll(from, to, outer, n, inner, count, start, step); }
extern "C" __global__ void pad4(const u32 *from, u32 *to, i64 outer, i64 n, i64 inner, i64 count, i64 start, i64 step) { padAll(from, to, outer, n, inner, count, start, step); }

extern "C" __global__ void pad16(const Sixteen *from, Sixteen *to, i64 outer, i64 n, i64 inner, i64 count, i64 start, i64 step) { padAll(from, to, outer, n, inner, count, start, step); }

// The functions of two numbers, as package op numbers them.
enum { Plus = 1, Minus, Times, Divide, Pow, Maximum, Minimum, PReLU, If, Unless, Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual };

__device__ __forceinline__ float value2(int f, float x, float y) {
    switch (f) {
    case Plus: return x + y;
    case Minus: return x - y;
    case Times: return x * y;
    case Divide: return x / y;
    case Pow: return powf(x, y);
    case Maximum: return x != x || y != y ? x + y : fmaxf(x, y);
    case Minimum: return x != x || y != y ? x + y : fminf(x, y);
    case PReLU: return x > 0.0f ? x : y * x;
    case If: return x != 0.0f ? y : 0.0f;
    case Unless: return x == 0.0f ? y : 0.0f;
    case Equal: return x == y;
    case NotEqual: return x != y;
    case Less: return x < y;
    case LessEqual: return x <= y;
    case Greater: return x > y;
    }
    return x >= y;
}

__device__ __forceinline__ float slope2(int f, float x, float y, int second) {
    switch (f) {
    case Plus: return 1.0f;
    case Minus: return second ? -1.0f : 1.0f;
    case Times: return second ? x : y;
    case Divide: return second ? -x / (y * y) : 1.0f / y;
    case Pow:
        if (second) return x == 0.0f && y >= 0.0f ? 0.0f : powf(x, y) * logf(x);
        return y == 0.0f ? 0.0f : y * powf(x, y - 1.0f);
    case Maximum: return x == y ? 0.5f : (x > y) != (second != 0) ? 1.0f : 0.0f;
    case Minimum: return x == y ? 0.5f : (x < y) != (second != 0) ? 1.0f : 0.0f;
    case PReLU:
        if (second) return x > 0.0f ? 0.0f : x;
        return x > 0.0f ? 1.0f : y;
    case If: return second && x != 0.0f ? 1.0f : 0.0f;
    }
    return second && x == 0.0f ? 1.0f : 0.0f; // Unless
}

extern "C" __global__ void binary(const Element *p, const Element *q, Element *z, i64 n, int f, EIGHT(d), EIGHT(x), EIGHT(y)) {
    const i64 dd[8] = LIST(d), xx[8] = LIST(x), yy[8] = LIST(y);
    EACH(i, n) {
        i64 a, b;
        if (n < (1ll << 31)) places<u32>((u32)i, dd, xx, yy, a, b);
        else places<u64>((u64)i, dd, xx, yy, a, b);
        narrow(value2(f, wide(p[a]), wide(q[b])), &z[i]);
    }
}

// f is negative for the slope by the second operand.
extern "C" __global__ void binaryGrad(const Element *p, const Element *q, const Element *dz, Element *to, i64 n, int f, EIGHT(d), EIGHT(x), EIGHT(y)) {
    const i64 dd[8] = LIST(d), xx[8] = LIST(x), yy[8] = LIST(y);
    EACH(i, n) {
        i64 a, b;
        if (n < (1ll << 31)) places<u32>((u32)i, dd, xx, yy, a, b);
        else places<u64>((u64)i, dd, xx, yy, a, b);
        float slope = slope2(f < 0 ? -f : f, wide(p[a]), wide(q[b]), f < 0);
        narrow(slope == 0.0f ? 0.0f : slope * wide(dz[i]), &to[i]);
    }
}

// The functions of one number that elementwise.cu has no kernel for.
enum { LeakyReLU = 7, ELU, SELU, Softplus, Mish, Hardswish, Hardsigmoid, LogSigmoid, Softsign, Clamp, Exp, Log, Sqrt, Rsqrt, Abs, Square, Power, Sin, Cos, Erf, Log1p, Expm1, Round, Floor, Sign };

__device__ __forceinline__ float logistic(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ __forceinline__ float plusLog(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

__device__ __forceinline__ float value1(int f, float x, float a, float b) {
    switch (f) {
    case LeakyReLU: return x > 0.0f ? x : a * x;
    case ELU: return x > 0.0f ? x : a * expm1f(x);
    case SELU: return 1.0507009873554805f * (x > 0.0f ? x : 1.6732632423543772f * expm1f(x));
    case Softplus: return x * a > b ? x : plusLog(x * a) / a;
    case Mish: return x * tanhf(plusLog(x));
    case Hardswish: return x * fminf(fmaxf(x + 3.0f, 0.0f), 6.0f) / 6.0f;
    case Hardsigmoid: return fminf(fmaxf(x + 3.0f, 0.0f), 6.0f) / 6.0f;
    case LogSigmoid: return -plusLog(-x);
    case Softsign: return x / (1.0f + fabsf(x));
    case Clamp: return fminf(fmaxf(x, a), b);
    case Exp: return expf(x);
    case Log: return logf(x);
    case Sqrt: return sqrtf(x);
    case Rsqrt: return 1.0f / sqrtf(x);
    case Abs: return fabsf(x);
    case Square: return x * x;
    case Power: return powf(x, a);
    case Sin: return sinf(x);
    case Cos: return cosf(x);
    case Erf: return erff(x);
    case Log1p: return log1pf(x);
    case Round: return rintf(x);
    case Floor: return floorf(x);
    case Sign: return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f;
    }
    return expm1f(x);
}

__device__ __forceinline__ float slope1(int f, float x, float a, float b) {
    float t;
    switch (f) {
    case LeakyReLU: return x > 0.0f ? 1.0f : a;
    case ELU: return x > 0.0f ? 1.0f : a * expf(x);
    case SELU: return 1.0507009873554805f * (x > 0.0f ? 1.0f : 1.6732632423543772f * expf(x));
    case Softplus: return x * a > b ? 1.0f : logistic(x * a);
    case Mish: t = tanhf(plusLog(x)); return t + x * logistic(x) * (1.0f - t * t);
    case Hardswish: return x <= -3.0f ? 0.0f : x < 3.0f ? x / 3.0f + 0.5f : 1.0f;
    case Hardsigmoid: return x > -3.0f && x < 3.0f ? 1.0f / 6.0f : 0.0f;
    case LogSigmoid: return logistic(-x);
    case Softsign: t = 1.0f + fabsf(x); return 1.0f / (t * t);
    case Clamp: return x >= a && x <= b ? 1.0f : 0.0f;
    case Exp: return expf(x);
    case Log: return 1.0f / x;
    case Sqrt: return 0.5f / sqrtf(x);
    case Rsqrt: return -0.5f / (x * sqrtf(x));
    case Abs: return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f;
    case Square: return 2.0f * x;
    case Power: return a == 0.0f ? 0.0f : a * powf(x, a - 1.0f);
    case Sin: return cosf(x);
    case Cos: return -sinf(x);
    case Erf: return 1.1283791670955126f * expf(-x * x);
    case Log1p: return 1.0f / (1.0f + x);
    case Round:
    case Floor:
    case Sign: return 0.0f;
    }
    return expf(x);
}

extern "C" __global__ void function(const Element *x, Element *y, i64 n, int f, float a, float b) {
    EACH(i, n) narrow(value1(f, wide(x[i]), a, b), &y[i]);
}
extern "C" __global__ void functionGrad(const Element *x, const Element *dy, Element *dx, i64 n, int f, float a, float b) {
    EACH(i, n) narrow(slope1(f, wide(x[i]), a, b) * wide(dy[i]), &dx[i]);
}

// Rows of x along the middle dimension, taken by ids.
extern "C" __global__ void gather(const Element *x, const int *ids, Element *y, i64 total, i64 n, i64 m, i64 inner) {
    EACH(i, total) {
        i64 id = ids[i];
        id = id < 0 ? 0 : id >= n ? n - 1 : id;
        y[i] = x[(i / (m * inner) * n + id) * inner + i % inner];
    }
}
// A thread adds along one line, in order.
extern "C" __global__ void gatherGrad(const int *ids, const Element *dy, Element *dx, i64 lines, i64 n, i64 m, i64 inner) {
    EACH(line, lines) {
        i64 o = line / inner, k = line % inner;
        Element *to = dx + o * n * inner + k;
        for (i64 j = 0; j < n; j++) {
            float sum = 0.0f;
            for (i64 i = 0; i < m; i++) {
                i64 at = (o * m + i) * inner + k, id = ids[at];
                id = id < 0 ? 0 : id >= n ? n - 1 : id;
                if (id == j) sum += wide(dy[at]);
            }
            narrow(sum, &to[j * inner]);
        }
    }
}
// A thread goes along one line, in order. NaN stays.
extern "C" __global__ void scatterReduce(const Element *x, const int *ids, const Element *z, Element *y, i64 lines, i64 n, i64 m, i64 inner, int least) {
    EACH(line, lines) {
        i64 o = line / inner, k = line % inner;
        for (i64 j = 0; j < n; j++) y[(o * n + j) * inner + k] = x[(o * n + j) * inner + k];
        for (i64 i = 0; i < m; i++) {
            i64 at = (o * m + i) * inner + k, id = ids[at];
            id = id < 0 ? 0 : id >= n ? n - 1 : id;
            Element *to = y + (o * n + id) * inner + k;
            float v = wide(z[at]), there = wide(*to);
            if (v != v || (least ? v < there : v > there)) *to = z[at];
        }
    }
}
// NaN is the largest.
__device__ __forceinline__ bool less(float a, float b) { return a < b || a == a && b != b; }

// An element's place in the order of its row of n is how many come before it.
extern "C" __global__ void argSort(const Element *x, int *y, i64 total, i64 n, int back) {
    EACH(i, total) {
        const Element *row = x + i / n * n;
        i64 at = i % n, before = 0;
        float v = wide(row[at]);
        for (i64 k = 0; k < n; k++) {
            float w = wide(row[k]);
            bool first = back ? less(v, w) : less(w, v), behind = back ? less(w, v) : less(v, w);
            before += first || !behind && k < at;
        }
        y[i - at + before] = (int)at;
    }
}
