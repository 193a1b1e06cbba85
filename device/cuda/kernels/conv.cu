// Convolutions with channels last, pooling and resampling. Convolutions here are plain and for where
// cuDNN has none; the weights' order for it is made here too.

#define EACH(i, n) for (i64 i = position(); i < n; i += (i64)gridDim.x * blockDim.x)

// Weights [O C places] to [O places C].
extern "C" __global__ void byPlaces(const Element *w, Element *to, i64 n, i64 c, i64 taps) {
    EACH(i, n) to[i] = w[i / (c * taps) * c * taps + i % c * taps + i / c % taps];
}
// And back, added to what is there where asked for.
extern "C" __global__ void toWeights(const Element *from, Element *w, i64 n, i64 c, i64 taps, int add) {
    EACH(i, n) {
        float f = wide(from[i / (c * taps) * c * taps + i % taps * c + i / taps % c]);
        narrow(add ? f + wide(w[i]) : f, &w[i]);
    }
}

// Squares of side s as single places: channel (i·s + j)·C + c of the D that a place then has is channel c of place (i, j) of
// its square; zeros lie behind them, and around the image. A thread has LANES channels of a place.
template <int CHANNELS, int SIDE, int DEPTH> __device__ __forceinline__ void asSquares(const Element *x, Element *y, u32 n, int high, int across, int c, int s, int up, int left, u32 h, u32 w, int d) {
    if (CHANNELS > 0) c = CHANNELS, s = SIDE, d = DEPTH; // what is divided by is known to the compiler
    u32 each = d / LANES;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        int first = (int)(i % each) * LANES;
        u32 r = i / each, line = r / w;
        int v = (int)(line % h) * s - up, u = (int)(r % w) * s - left;
        const Element *image = x + (i64)(line / h) * high * across * c;
        Pack<Element, LANES> to;
#pragma unroll
        for (int k = 0; k < LANES; k++) {
            int place = (first + k) / c, a = v + place / s, e = u + place % s;
            if (place < s * s && a >= 0 && a < high && e >= 0 && e < across)
                to.x[k] = image[((i64)a * across + e) * c + (first + k) % c];
            else
                narrow(0.0f, &to.x[k]);
        }
        *(Pack<Element, LANES> *)(y + (i64)i * LANES) = to;
    }
}
#define SQUARES i64 n, i64 high, i64 across, i64 C, i64 S, i64 up, i64 left, i64 h, i64 w, i64 D
extern "C" __global__ void squares(const Element *x, Element *y, SQUARES) { asSquares<0, 0, 0>(x, y, n, high, across, C, S, up, left, h, w, D); }
extern "C" __global__ void squaresOfImages(const Element *x, Element *y, SQUARES) { asSquares<3, 2, 16>(x, y, n, high, across, C, S, up, left, h, w, D); }
// Weights [O C kh kw] for such places: [O h w D].
extern "C" __global__ void squareWeights(const Element *weights, Element *to, i64 n, i64 C, i64 S, i64 kh, i64 kw, i64 h, i64 w, i64 D) {
    int c = (int)C, s = (int)S, d = (int)D;
    EACH(i, n) {
        int channel = (int)(i % d), place = channel / c, v = (int)(i / ((i64)d * w) % h) * s + place / s, u = (int)(i / d % w) * s + place % s;
        if (place < s * s && v < kh && u < kw)
            to[i] = weights[((i / ((i64)d * w * h) * c + channel % c) * kh + v) * kw + u];
        else
            narrow(0.0f, &to[i]);
    }
}

#define THREE(p) i64 p##0, i64 p##1, i64 p##2
#define GEOMETRY i64 B, i64 C, i64 O, i64 each, i64 made, THREE(in), THREE(out), THREE(k), THREE(s), THREE(p), THREE(d)

// A thread per element of y.
extern "C" __global__ void convForward(const Element *x, const Element *w, Element *y, GEOMETRY) {
    i64 taps = k0 * k1 * k2;
    EACH(i, B * out0 * out1 * out2 * O) {
        i64 o = i % O, r = i / O, b = r / (out0 * out1 * out2);
        i64 z = r / (out1 * out2) % out0 * s0 - p0, v = r / out2 % out1 * s1 - p1, u = r % out2 * s2 - p2;
        float sum = 0.0f;
        for (i64 t = 0; t < taps; t++) {
            i64 zz = z + t / (k1 * k2) * d0, vv = v + t / k2 % k1 * d1, uu = u + t % k2 * d2;
            if (zz < 0 || zz >= in0 || vv < 0 || vv >= in1 || uu < 0 || uu >= in2) continue;
            const Element *row = x + (((b * in0 + zz) * in1 + vv) * in2 + uu) * C + o / made * each;
            const Element *weight = w + o * each * taps + t;
            for (i64 c = 0; c < each; c++) sum += wide(row[c]) * wide(weight[c * taps]);
        }
        narrow(sum, &y[i]);
    }
}

// A thread per element of x.
extern "C" __global__ void convInput(const Element *dy, const Element *w, Element *dx, GEOMETRY) {
    i64 taps = k0 * k1 * k2;
    EACH(i, B * in0 * in1 * in2 * C) {
        i64 c = i % C, r = i / C, b = r / (in0 * in1 * in2), g = c / each;
        i64 z = r / (in1 * in2) % in0 + p0, v = r / in2 % in1 + p1, u = r % in2 + p2;
        float sum = 0.0f;
        for (i64 t = 0; t < taps; t++) {
            i64 zz = z - t / (k1 * k2) * d0, vv = v - t / k2 % k1 * d1, uu = u - t % k2 * d2;
            if (zz < 0 || vv < 0 || uu < 0 || zz % s0 || vv % s1 || uu % s2 || zz / s0 >= out0 || vv / s1 >= out1 || uu / s2 >= out2) continue;
            const Element *row = dy + (((b * out0 + zz / s0) * out1 + vv / s1) * out2 + uu / s2) * O + g * made;
            for (i64 o = 0; o < made; o++) sum += wide(row[o]) * wide(w[((g * made + o) * each + c % each) * taps + t]);
        }
        narrow(sum, &dx[i]);
    }
}

// A block per weight.
extern "C" __global__ void convWeight(const Element *x, const Element *dy, Element *dw, int add, GEOMETRY) {
    i64 taps = k0 * k1 * k2, i = blockIdx.x, t = i % taps, c = i / taps % each, o = i / (taps * each);
    i64 z = t / (k1 * k2) * d0 - p0, v = t / k2 % k1 * d1 - p1, u = t % k2 * d2 - p2;
    float sum = 0.0f;
    for (i64 r = threadIdx.x; r < B * out0 * out1 * out2; r += blockDim.x) {
        i64 b = r / (out0 * out1 * out2), zz = z + r / (out1 * out2) % out0 * s0, vv = v + r / out2 % out1 * s1, uu = u + r % out2 * s2;
        if (zz < 0 || zz >= in0 || vv < 0 || vv >= in1 || uu < 0 || uu >= in2) continue;
        sum += wide(x[(((b * in0 + zz) * in1 + vv) * in2 + uu) * C + o / made * each + c]) * wide(dy[r * O + o]);
    }
    sum = rowSum(sum);
    if (threadIdx.x == 0) narrow(add ? sum + wide(dw[i]) : sum, &dw[i]);
}

// Windows of pooling: places from first to before end, each step, and how many count in a mean.
#define POOLING i64 B, i64 C, THREE(in), THREE(out), THREE(k), THREE(s), THREE(p), THREE(d), int adaptive, int counts
struct Window { i64 first, end, step, counted; };
__device__ __forceinline__ Window window(i64 o, i64 in, i64 out, i64 k, i64 s, i64 p, i64 d, int adaptive, int counts) {
    Window w;
    if (adaptive) {
        w.first = o * in / out;
        w.end = ((o + 1) * in + out - 1) / out;
        w.step = 1;
        w.counted = w.end - w.first;
        return w;
    }
    w.step = d;
    w.first = o * s - p;
    w.end = w.first + d * (k - 1) + 1;
    w.counted = min(w.end, in + p) - w.first;
    while (w.first < 0) w.first += d;
    w.end = min(w.end, in);
    if (!counts) w.counted = (w.end - w.first + d - 1) / d;
    return w;
}
#define WINDOW(n, o) window(o, in##n, out##n, k##n, s##n, p##n, d##n, adaptive, counts)

extern "C" __global__ void pool(const Element *x, Element *y, int largest, POOLING) {
    EACH(i, B * out0 * out1 * out2 * C) {
        i64 c = i % C, r = i / C, b = r / (out0 * out1 * out2);
        Window z = WINDOW(0, r / (out1 * out2) % out0), v = WINDOW(1, r / out2 % out1), u = WINDOW(2, r % out2);
        float all = largest ? -INFINITE : 0.0f;
        for (i64 a = z.first; a < z.end; a += z.step)
            for (i64 e = v.first; e < v.end; e += v.step)
                for (i64 f = u.first; f < u.end; f += u.step) {
                    float g = wide(x[(((b * in0 + a) * in1 + e) * in2 + f) * C + c]);
                    all = largest ? fmaxf(all, g) : all + g;
                }
        narrow(largest ? all : all / (float)(z.counted * v.counted * u.counted), &y[i]);
    }
}

// The windows along a dimension that a place may lie in: from low to high.
__device__ __forceinline__ void windows(i64 i, i64 in, i64 out, i64 k, i64 s, i64 p, i64 d, int adaptive, i64 &low, i64 &high) {
    if (adaptive) {
        low = max(i * out / in - 1, 0ll);
        high = min((i + 1) * out / in + 1, out - 1);
    } else {
        i64 first = i + p - d * (k - 1);
        low = first <= 0 ? 0 : (first + s - 1) / s;
        high = min((i + p) / s, out - 1);
    }
}
#define HOLDS(w, i) ((i) >= w.first && (i) < w.end && ((i) - w.first) % w.step == 0)

// A thread per element of x; x is not read for means.
extern "C" __global__ void poolGrad(const Element *x, const Element *dy, Element *dx, int largest, POOLING) {
    EACH(i, B * in0 * in1 * in2 * C) {
        i64 c = i % C, r = i / C, b = r / (in0 * in1 * in2), zi = r / (in1 * in2) % in0, vi = r / in2 % in1, ui = r % in2;
        i64 z0, z1, v0, v1, u0, u1;
        windows(zi, in0, out0, k0, s0, p0, d0, adaptive, z0, z1);
        windows(vi, in1, out1, k1, s1, p1, d1, adaptive, v0, v1);
        windows(ui, in2, out2, k2, s2, p2, d2, adaptive, u0, u1);
        float sum = 0.0f;
        for (i64 oz = z0; oz <= z1; oz++) {
            Window z = WINDOW(0, oz);
            if (!HOLDS(z, zi)) continue;
            for (i64 ov = v0; ov <= v1; ov++) {
                Window v = WINDOW(1, ov);
                if (!HOLDS(v, vi)) continue;
                for (i64 ou = u0; ou <= u1; ou++) {
                    Window u = WINDOW(2, ou);
                    if (!HOLDS(u, ui)) continue;
                    float g = wide(dy[(((b * out0 + oz) * out1 + ov) * out2 + ou) * C + c]);
                    if (!largest) {
                        sum += g / (float)(z.counted * v.counted * u.counted);
                        continue;
                    }
                    i64 best = -1;
                    float top = 0.0f;
                    for (i64 a = z.first; a < z.end; a += z.step)
                        for (i64 e = v.first; e < v.end; e += v.step)
                            for (i64 f = u.first; f < u.end; f += u.step) {
                                i64 at = ((b * in0 + a) * in1 + e) * in2 + f;
                                float h = wide(x[at * C + c]);
                                if (best < 0 || h > top) {
                                    best = at;
                                    top = h;
                                }
                            }
                    if (best == r) sum += g;
                }
            }
        }
        narrow(sum, &dx[i]);
    }
}

// Pooling by the largest with windows of one size, LANES channels by a thread: y of a place, or which place of its
// window was the first largest, or both.
extern "C" __global__ void __launch_bounds__(256) poolLargest(const Element *x, Element *y, u8 *which, POOLING) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, each = (u32)(C / LANES), r = i / each, c = i % each * LANES;
    if (r >= (u32)(B * out0 * out1 * out2)) return;
    u32 ou = r % (u32)out2, ov = r / (u32)out2 % (u32)out1, oz = r / (u32)(out2 * out1) % (u32)out0, b = r / (u32)(out2 * out1 * out0);
    float top[LANES];
    u8 best[LANES];
    bool any = false;
    for (int kz = 0; kz < (int)k0; kz++) {
        int z = oz * (int)s0 - (int)p0 + kz * (int)d0;
        if (z < 0 || z >= (int)in0) continue;
        for (int kv = 0; kv < (int)k1; kv++) {
            int v = ov * (int)s1 - (int)p1 + kv * (int)d1;
            if (v < 0 || v >= (int)in1) continue;
            for (int ku = 0; ku < (int)k2; ku++) {
                int u = ou * (int)s2 - (int)p2 + ku * (int)d2;
                if (u < 0 || u >= (int)in2) continue;
                float f[LANES];
                load(x + (i64)(((b * (u32)in0 + z) * (u32)in1 + v) * (u32)in2 + u) * C + c, f);
                u8 at = (u8)((kz * (int)k1 + kv) * (int)k2 + ku);
#pragma unroll
                for (int k = 0; k < LANES; k++)
                    if (!any || f[k] > top[k]) {
                        top[k] = f[k];
                        best[k] = at;
                    }
                any = true;
            }
        }
    }
    if (y) store(y + (i64)r * C + c, top);
    if (which) {
        Pack<u8, LANES> w;
#pragma unroll
        for (int k = 0; k < LANES; k++) w.x[k] = best[k];
        *(Pack<u8, LANES> *)(which + (i64)r * C + c) = w;
    }
}

// The windows of one size that a place may lie in, as windows has them.
__device__ __forceinline__ void around(int i, i64 out, i64 k, i64 s, i64 p, i64 d, int &low, int &high) {
    int first = i + (int)p - (int)d * ((int)k - 1);
    low = first <= 0 ? 0 : (int)((u32)(first + (int)s - 1) / (u32)s);
    high = min((int)((u32)(i + (int)p) / (u32)s), (int)out - 1);
}

// Its gradient: each place of x has those of the windows whose largest it is.
extern "C" __global__ void __launch_bounds__(256) poolLargestGrad(const u8 *which, const Element *dy, Element *dx, POOLING) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, each = (u32)(C / LANES), r = i / each, c = i % each * LANES;
    if (r >= (u32)(B * in0 * in1 * in2)) return;
    u32 ui = r % (u32)in2, vi = r / (u32)in2 % (u32)in1, zi = r / (u32)(in2 * in1) % (u32)in0, b = r / (u32)(in2 * in1 * in0);
    bool dense = d0 * d1 * d2 == 1;
    int z0, z1, v0, v1, u0, u1;
    around(zi, out0, k0, s0, p0, d0, z0, z1);
    around(vi, out1, k1, s1, p1, d1, v0, v1);
    around(ui, out2, k2, s2, p2, d2, u0, u1);
    float sum[LANES] = {};
    for (int oz = z0; oz <= z1; oz++) {
        int kz = (int)zi + (int)p0 - oz * (int)s0;
        if (!dense && kz % (int)d0) continue;
        for (int ov = v0; ov <= v1; ov++) {
            int kv = (int)vi + (int)p1 - ov * (int)s1;
            if (!dense && kv % (int)d1) continue;
            for (int ou = u0; ou <= u1; ou++) {
                int ku = (int)ui + (int)p2 - ou * (int)s2;
                if (!dense && ku % (int)d2) continue;
                i64 from = (i64)(((b * (u32)out0 + oz) * (u32)out1 + ov) * (u32)out2 + ou) * C + c;
                int at = dense ? (kz * (int)k1 + kv) * (int)k2 + ku : (kz / (int)d0 * (int)k1 + kv / (int)d1) * (int)k2 + ku / (int)d2;
                Pack<u8, LANES> w = *(const Pack<u8, LANES> *)(which + from);
                float f[LANES];
                load(dy + from, f);
#pragma unroll
                for (int k = 0; k < LANES; k++)
                    if (w.x[k] == at) sum[k] += f[k];
            }
        }
    }
    store(dx + (i64)r * C + c, sum);
}

// The same for windows of K by K places, two or three, that move by two: a thread has the two by two places that begin a
// window. They lie in it and, where K is three, in those before it.
template <int K> __device__ __forceinline__ void halvedGrad(const u8 *which, const Element *dy, Element *dx, int C, int in1, int in2, int out1, int out2, int p1, int p2) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, each = C / LANES, t = i / each, c = i % each * LANES, u = 2 * t - p2;
    int high = (in1 + p1 + 1) / 2, q = blockIdx.y % high, b = blockIdx.y / high, v = 2 * q - p1;
    if (u >= in2) return;
    float sum[2][2][LANES] = {};
#pragma unroll
    for (int up = K - 2; up >= 0; up--)
#pragma unroll
        for (int left = K - 2; left >= 0; left--) {
            int ov = q - up, ou = t - left;
            if (ov < 0 || ov >= out1 || ou < 0 || ou >= out2) continue;
            i64 from = ((i64)(b * out1 + ov) * out2 + ou) * C + c;
            Pack<u8, LANES> w = *(const Pack<u8, LANES> *)(which + from);
            float f[LANES];
            load(dy + from, f);
#pragma unroll
            for (int at = 0; at < 4; at++) {
                int kv = at / 2 + 2 * up, ku = at % 2 + 2 * left;
                if (kv >= K || ku >= K) continue;
#pragma unroll
                for (int k = 0; k < LANES; k++)
                    if (w.x[k] == kv * K + ku) sum[at / 2][at % 2][k] += f[k];
            }
        }
#pragma unroll
    for (int at = 0; at < 4; at++) {
        int y = v + at / 2, x = u + at % 2;
        if (y >= 0 && y < in1 && x >= 0 && x < in2) store(dx + ((i64)(b * in1 + y) * in2 + x) * C + c, sum[at / 2][at % 2]);
    }
}
#define HALVED i64 C, i64 in1, i64 in2, i64 out1, i64 out2, i64 p1, i64 p2
extern "C" __global__ void __launch_bounds__(256) poolHalvedGrad2(const u8 *which, const Element *dy, Element *dx, HALVED) { halvedGrad<2>(which, dy, dx, C, in1, in2, out1, out2, p1, p2); }
extern "C" __global__ void __launch_bounds__(256) poolHalvedGrad3(const u8 *which, const Element *dy, Element *dx, HALVED) { halvedGrad<3>(which, dy, dx, C, in1, in2, out1, out2, p1, p2); }

// Resampling: what place o of the new ones reads.
enum { Nearest = 1, NearestExact, Linear, Cubic };
__device__ __forceinline__ double cubicWeight(double d) {
    const double a = -0.75;
    d = fabs(d);
    if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
    if (d < 2) return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
    return 0;
}
__device__ __forceinline__ i64 inside(i64 i, i64 n) { return i < 0 ? 0 : i >= n ? n - 1 : i; }
__device__ __forceinline__ int tapsOf(i64 o, i64 n, double scale, int mode, int corners, i64 (&from)[4], float (&weight)[4]) {
    double at = corners ? o * scale : (o + 0.5) * scale - 0.5;
    if (mode == Nearest || mode == NearestExact) {
        from[0] = inside((i64)floor((o + (mode == Nearest ? 0.0 : 0.5)) * scale), n);
        weight[0] = 1.0f;
        return 1;
    }
    if (mode == Linear) {
        at = at < 0 ? 0 : at;
        from[0] = inside((i64)at, n);
        double part = at - (double)from[0];
        part = part > 1 ? 1 : part;
        from[1] = inside(from[0] + 1, n);
        weight[0] = (float)(1 - part);
        weight[1] = (float)part;
        return 2;
    }
    i64 low = (i64)floor(at);
    for (int i = 0; i < 4; i++) {
        from[i] = inside(low - 1 + i, n);
        weight[i] = (float)cubicWeight(at - (double)low - (i - 1));
    }
    return 4;
}
extern "C" __global__ void resample(const Element *x, Element *y, i64 outer, i64 n, i64 made, i64 inner, int mode, int corners, double scale, int back) {
    i64 from[4];
    float weight[4];
    if (!back) {
        EACH(i, outer * made * inner) {
            int taps = tapsOf(i / inner % made, n, scale, mode, corners, from, weight);
            float sum = 0.0f;
            for (int t = 0; t < taps; t++) sum += weight[t] * wide(x[(i / (made * inner) * n + from[t]) * inner + i % inner]);
            narrow(sum, &y[i]);
        }
        return;
    }
    EACH(i, outer * n * inner) {
        i64 place = i / inner % n;
        float sum = 0.0f;
        for (i64 o = 0; o < made; o++) {
            int taps = tapsOf(o, n, scale, mode, corners, from, weight);
            for (int t = 0; t < taps; t++)
                if (from[t] == place) sum += weight[t] * wide(x[(i / (n * inner) * made + o) * inner + i % inner]);
        }
        narrow(sum, &y[i]);
    }
}
