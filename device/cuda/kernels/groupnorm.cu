// Norms over groups of channels: sets x rows x channels, with statistics of each set and each group of
// width channels. A thread has some neighbouring channels of every so many rows: V of them, LANES where
// they divide the channels, half as many for gradients, which else have too many registers. Sums go over shares of the rows and then over shares and channels of a group, in order.

template <int V> struct Part {
    i64 set, c, n, at, step; // the first channel, how many rows, where the first begins, how far the next is
    __device__ __forceinline__ Part(i64 rows, i64 channels, i64 share) {
        i64 tiles = (channels / V + blockDim.x - 1) / blockDim.x;
        set = blockIdx.x / tiles;
        c = (blockIdx.x % tiles * blockDim.x + threadIdx.x) * V;
        i64 first = blockIdx.y * share + threadIdx.y, end = min((i64)(blockIdx.y + 1) * share, rows);
        n = c >= channels || first >= end ? 0 : (end - first + blockDim.y - 1) / blockDim.y;
        at = (set * rows + first) * channels + c;
        step = blockDim.y * channels;
    }
};

// How many rows a thread loads before it computes.
#define AHEAD 4
#define AHEAD_OF(p, i, u) _Pragma("unroll") for (int u = 0; u < AHEAD; u++) if (i + u < p.n)
#define ROWS(p, i) for (i64 i = 0; i < p.n; i += AHEAD)

// Sum is what sums of a block are added in. With f32 elements they lose nothing, and what a thread loses is made good: add
// gives x to sum, and lost has what was cut off.
#if ELEMENT == 0
typedef double Sum;
__device__ __forceinline__ void add(float &sum, float &lost, float x) {
    float y = x - lost, all = sum + y;
    lost = (all - sum) - y;
    sum = all;
}
#else
typedef float Sum;
__device__ __forceinline__ void add(float &sum, float &, float x) { sum += x; }
#endif

// partial[set share] = the sums a and b of all threads of the block, by channel.
template <int V> __device__ __forceinline__ void sums(const Part<V> &p, const float (&a)[V], const float (&b)[V], float *partial, i64 channels, i64 shares) {
    __shared__ float all[256][2 * V + 1];
    float *mine = all[threadIdx.y * blockDim.x + threadIdx.x];
#pragma unroll
    for (int i = 0; i < V; i++) {
        mine[i] = a[i];
        mine[V + i] = b[i];
    }
    __syncthreads();
    i64 tiles = (channels / V + blockDim.x - 1) / blockDim.x, first = blockIdx.x % tiles * blockDim.x * V;
    for (int t = threadIdx.y * blockDim.x + threadIdx.x; t < 2 * V * (int)blockDim.x; t += blockDim.x * blockDim.y) {
        int which = t / (V * (int)blockDim.x), k = t % (V * (int)blockDim.x);
        if (first + k >= channels) continue;
        Sum sum = 0;
        for (int y = 0; y < (int)blockDim.y; y++) sum += all[y * blockDim.x + k / V][which * V + k % V];
        partial[((p.set * shares + blockIdx.y) * 2 + which) * channels + first + k] = (float)sum;
    }
}

// The sums of x and of its squares, as far as they are from the first row of the set.
template <int V> __device__ __forceinline__ void moments(const Element *x, float *partial, i64 rows, i64 channels, i64 share, i64 shares) {
    Part<V> p(rows, channels, share);
    float a[V] = {}, b[V] = {}, lost[V] = {}, level[V] = {};
    if (p.c < channels) load(x + p.set * rows * channels + p.c, level);
    ROWS(p, i) {
        Pack<Element, V> from[AHEAD];
        AHEAD_OF(p, i, u) from[u] = *(const Pack<Element, V> *)(x + p.at + u * p.step);
        AHEAD_OF(p, i, u) {
#pragma unroll
            for (int k = 0; k < V; k++) {
                float v = wide(from[u].x[k]) - level[k];
                add(a[k], lost[k], v);
                b[k] += v * v;
            }
        }
        p.at += AHEAD * p.step;
    }
    sums(p, a, b, partial, channels, shares);
}

// What a norm multiplies and adds.
template <int V> struct Line {
    float mean[V], scale[V], bias[V];
    __device__ __forceinline__ Line(const Part<V> &p, const float *means, const float *variance, const Element *w, const Element *b, i64 channels, i64 width, float eps) {
#pragma unroll
        for (int k = 0; k < V; k++) {
            i64 c = min(p.c + k, channels - 1), g = p.set * (channels / width) + c / width;
            mean[k] = means[g];
            scale[k] = 1.0f / sqrtf(variance[g] + eps);
            if (w) scale[k] *= wide(w[c]);
            bias[k] = b ? wide(b[c]) : 0.0f;
        }
    }
    __device__ __forceinline__ float at(int k, float x) const { return fmaf(x - mean[k], scale[k], bias[k]); }
};

template <int V> __device__ __forceinline__ void apply(const Element *x, const Element *w, const Element *b, const Element *plus, const float *means, const float *variance, Element *y, i64 rows, i64 channels, i64 width, i64 share, float eps, int relu) {
    Part<V> p(rows, channels, share);
    Line<V> line(p, means, variance, w, b, channels, width, eps);
    ROWS(p, i) {
        Pack<Element, V> from[AHEAD], more[AHEAD];
        AHEAD_OF(p, i, u) {
            from[u] = *(const Pack<Element, V> *)(x + p.at + u * p.step);
            if (plus) more[u] = *(const Pack<Element, V> *)(plus + p.at + u * p.step);
        }
        AHEAD_OF(p, i, u) {
            float f[V];
#pragma unroll
            for (int k = 0; k < V; k++) {
                f[k] = line.at(k, wide(from[u].x[k]));
                if (plus) f[k] += wide(more[u].x[k]);
                if (relu && f[k] <= 0.0f) f[k] = 0.0f;
            }
            store(y + p.at + u * p.step, f);
        }
        p.at += AHEAD * p.step;
    }
}

// The sums of dy and of dy·(x - mean), dy being 0 where the function cut off. With something that was added
// they are its gradient too, which is written.
template <int V> __device__ __forceinline__ void gradSums(const Element *x, const Element *w, const Element *b, const Element *plus, const float *means, const float *variance, const Element *dy, Element *dplus, float *partial, i64 rows, i64 channels, i64 width, i64 share, i64 shares, float eps, int relu) {
    Part<V> p(rows, channels, share);
    Line<V> line(p, means, variance, w, b, channels, width, eps);
    float a[V] = {}, along[V] = {};
    ROWS(p, i) {
        Pack<Element, V> from[AHEAD], more[AHEAD], back[AHEAD];
        AHEAD_OF(p, i, u) {
            from[u] = *(const Pack<Element, V> *)(x + p.at + u * p.step);
            back[u] = *(const Pack<Element, V> *)(dy + p.at + u * p.step);
            if (plus) more[u] = *(const Pack<Element, V> *)(plus + p.at + u * p.step);
        }
        AHEAD_OF(p, i, u) {
            float d[V];
#pragma unroll
            for (int k = 0; k < V; k++) {
                float v = wide(from[u].x[k]), y = line.at(k, v);
                if (plus) y += wide(more[u].x[k]);
                d[k] = relu && !(y > 0.0f) ? 0.0f : wide(back[u].x[k]);
                a[k] += d[k];
                along[k] += d[k] * (v - line.mean[k]);
            }
            if (plus) store(dplus + p.at + u * p.step, d);
        }
        p.at += AHEAD * p.step;
    }
    sums(p, a, along, partial, channels, shares);
}

// dx, from dy or from what gradSums wrote, which has no function any more.
template <int V> __device__ __forceinline__ void gradInput(const Element *x, const Element *w, const Element *b, const float *means, const float *variance, const Element *dy, const float *groups, Element *dx, i64 rows, i64 channels, i64 width, i64 share, float eps, int relu) {
    Part<V> p(rows, channels, share);
    Line<V> line(p, means, variance, w, b, channels, width, eps);
    float byX[V], add[V];
#pragma unroll
    for (int k = 0; k < V; k++) {
        i64 g = p.set * (channels / width) + min(p.c + k, channels - 1) / width;
        float inverse = 1.0f / sqrtf(variance[g] + eps);
        byX[k] = -inverse * inverse * groups[2 * g + 1];
        add[k] = -inverse * groups[2 * g];
    }
    ROWS(p, i) {
        Pack<Element, V> from[AHEAD], back[AHEAD];
        AHEAD_OF(p, i, u) {
            from[u] = *(const Pack<Element, V> *)(x + p.at + u * p.step);
            back[u] = *(const Pack<Element, V> *)(dy + p.at + u * p.step);
        }
        AHEAD_OF(p, i, u) {
            float f[V];
#pragma unroll
            for (int k = 0; k < V; k++) {
                float v = wide(from[u].x[k]);
                float d = relu && !(line.at(k, v) > 0.0f) ? 0.0f : wide(back[u].x[k]);
                f[k] = fmaf(line.scale[k], d, fmaf(byX[k], v - line.mean[k], add[k]));
            }
            store(dx + p.at + u * p.step, f);
        }
        p.at += AHEAD * p.step;
    }
}

#define BOTH(name, N, BLOCKS, PARAMS, CALL) \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS) name PARAMS { constexpr int V = N; CALL; } \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS) name##Single PARAMS { constexpr int V = 1; CALL; }

BOTH(normMoments, LANES, 3, (const Element *x, float *partial, i64 rows, i64 channels, i64 share, i64 shares), moments<V>(x, partial, rows, channels, share, shares))
BOTH(normApply, LANES, 3, (const Element *x, const Element *w, const Element *b, const Element *plus, const float *means, const float *variance, Element *y, i64 rows, i64 channels, i64 width, i64 share, float eps, int relu),
    if (plus) apply<V>(x, w, b, plus, means, variance, y, rows, channels, width, share, eps, relu); else apply<V>(x, w, b, nullptr, means, variance, y, rows, channels, width, share, eps, relu))
BOTH(normGradSums, LANES / 2, 3, (const Element *x, const Element *w, const Element *b, const Element *plus, const float *means, const float *variance, const Element *dy, Element *dplus, float *partial, i64 rows, i64 channels, i64 width, i64 share, i64 shares, float eps, int relu),
    gradSums<V>(x, w, b, nullptr, means, variance, dy, nullptr, partial, rows, channels, width, share, shares, eps, relu))
BOTH(normSumGradSums, LANES / 2, 3, (const Element *x, const Element *w, const Element *b, const Element *plus, const float *means, const float *variance, const Element *dy, Element *dplus, float *partial, i64 rows, i64 channels, i64 width, i64 share, i64 shares, float eps, int relu),
    gradSums<V>(x, w, b, plus, means, variance, dy, dplus, partial, rows, channels, width, share, shares, eps, relu))
BOTH(normInput, LANES / 2, 3, (const Element *x, const Element *w, const Element *b, const float *means, const float *variance, const Element *dy, const float *groups, Element *dx, i64 rows, i64 channels, i64 width, i64 share, float eps, int relu),
    gradInput<V>(x, w, b, means, variance, dy, groups, dx, rows, channels, width, share, eps, relu))

// Both sums of a channel over all shares, by a warp.
__device__ __forceinline__ void folded(const float *partial, i64 set, i64 c, i64 channels, i64 shares, double &a, double &b) {
    a = b = 0.0;
#pragma unroll 4
    for (i64 s = threadIdx.x; s < shares; s += 32) {
        const float *p = partial + (set * shares + s) * 2 * channels + c;
        a += p[0];
        b += p[channels];
    }
    a = warpSum(a);
    b = warpSum(b);
}

// The mean and the variance of a group by each warp.
extern "C" __global__ void normFold(const Element *x, const float *partial, float *means, float *variance, i64 sets, i64 rows, i64 channels, i64 width, i64 shares) {
    i64 groups = channels / width, i = (i64)blockIdx.x * blockDim.y + threadIdx.y;
    if (i >= sets * groups) return;
    double n = 0.0, mean = 0.0, squares = 0.0;
    for (i64 c = i % groups * width; c < (i % groups + 1) * width; c++) {
        double a, b;
        folded(partial, i / groups, c, channels, shares, a, b);
        double level = wide(x[i / groups * rows * channels + c]) + a / rows, away = level - mean;
        squares += b - a * a / rows + away * away * n * rows / (n + rows);
        n += rows;
        mean += away * rows / n;
    }
    if (threadIdx.x > 0) return;
    means[i] = (float)mean;
    variance[i] = (float)(squares < 0.0 ? 0.0 : squares / n);
}

// The means of g and of g·u of a group by each warp, g being dy·w and u the normalized x; and the sums of its channels, of
// dy and of dy·u, or with one set the gradients of weight and bias.
extern "C" __global__ void normGradFold(const float *partial, const Element *w, const float *variance, float *means, float *totals, Element *dw, Element *db, i64 sets, i64 rows, i64 channels, i64 width, i64 shares, float eps, int add) {
    i64 groups = channels / width, i = (i64)blockIdx.x * blockDim.y + threadIdx.y, set = i / groups;
    if (i >= sets * groups) return;
    double level = 0.0, along = 0.0, inverse = 1.0 / sqrt((double)variance[i] + eps);
    for (i64 c = i % groups * width; c < (i % groups + 1) * width; c++) {
        double a, b, weight = w ? wide(w[c]) : 1.0f;
        folded(partial, set, c, channels, shares, a, b);
        level += weight * a;
        along += weight * b * inverse;
        if (threadIdx.x > 0) continue;
        if (sets == 1 && dw) {
            narrow((float)(b * inverse) + (add ? wide(dw[c]) : 0.0f), &dw[c]);
            narrow((float)a + (add ? wide(db[c]) : 0.0f), &db[c]);
        } else if (dw) {
            totals[(set * channels + c) * 2] = (float)a;
            totals[(set * channels + c) * 2 + 1] = (float)(b * inverse);
        }
    }
    if (threadIdx.x > 0) return;
    double n = (double)rows * width;
    means[2 * i] = (float)(level / n);
    means[2 * i + 1] = (float)(along / n);
}

// The gradients of weight and bias over several sets.
extern "C" __global__ void normWeights(const float *totals, Element *dw, Element *db, i64 sets, i64 channels, int add) {
    i64 c = position();
    if (c >= channels) return;
    double weight = 0.0, bias = 0.0;
    for (i64 set = 0; set < sets; set++) {
        bias += totals[(set * channels + c) * 2];
        weight += totals[(set * channels + c) * 2 + 1];
    }
    narrow((float)weight + (add ? wide(dw[c]) : 0.0f), &dw[c]);
    narrow((float)bias + (add ? wide(db[c]) : 0.0f), &db[c]);
}
