// Update rules of optimizers. Weights and state are f32, gradients of Element; buffers
// begin at any element. copy, where there is one, gets the weight in a shorter type.

enum { NoCopy, CopyF32, CopyBF16, CopyF16 };

template <int V> __device__ __forceinline__ void copyTo(void *copy, int type, i64 i, const float (&w)[V]) {
    if (type == CopyBF16) store((bf16 *)copy + i, w);
    if (type == CopyF16) store((f16 *)copy + i, w);
    if (type == CopyF32) store((float *)copy + i, w);
}

// aligned says whether four elements of each buffer can be loaded at once.
__device__ __forceinline__ bool aligned(const float *w, const Element *g, const float *m, const float *v, const void *copy, int type) {
    u64 wide = (u64)w | (u64)m | (u64)v | (type == CopyF32 ? (u64)copy : 0), narrow = type == CopyF32 ? 0 : (u64)copy;
    return wide % 16 == 0 && narrow % 8 == 0 && (u64)g % (4 * sizeof(Element)) == 0;
}

// EACH calls a function for elements i..i+V-1, all of n: four at once as long as that
// is possible, which changes no result.
#define EACH(whole, n, update)                                                              \
    i64 packs = (whole) ? (n) / 4 : 0, stride = (i64)gridDim.x * blockDim.x;                 \
    for (i64 p = position(); p < packs; p += stride) update(4 * p, Width<4>());             \
    for (i64 i = 4 * packs + position(); i < (n); i += stride) update(i, Width<1>());
template <int N> struct Width { static const int size = N; };

extern "C" __global__ void adam(float *w, const Element *g, float *m, float *v, const float *clip, void *copy, int type, i64 n, int decoupled,
                                float rate, float decay, float beta1, float beta2, float eps, float bias1, float bias2) {
    float by = clip[0], step = rate / bias1;
    auto update = [&](i64 i, auto width) {
        const int V = decltype(width)::size;
        float x[V], grad[V], mean[V], square[V];
        load(w + i, x);
        load(g + i, grad);
        load(m + i, mean);
        load(v + i, square);
        if (!(by > 0)) return copyTo(copy, type, i, x); // all stay as they are
#pragma unroll
        for (int k = 0; k < V; k++) {
            grad[k] *= by;
            if (decoupled)
                x[k] *= 1.0f - rate * decay;
            else
                grad[k] += decay * x[k];
            mean[k] += (grad[k] - mean[k]) * (1.0f - beta1);
            square[k] = beta2 * square[k] + (1.0f - beta2) * grad[k] * grad[k];
            x[k] -= step * mean[k] / (sqrtf(square[k]) / bias2 + eps);
        }
        store(w + i, x);
        store(m + i, mean);
        store(v + i, square);
        copyTo(copy, type, i, x);
    };
    EACH(aligned(w, g, m, v, copy, type), n, update)
}

// m is null where there is no momentum. first: the first iteration, which starts the
// momentum at the gradient.
extern "C" __global__ void sgd(float *w, const Element *g, float *m, const float *clip, void *copy, int type, i64 n, int nesterov,
                               float rate, float decay, float momentum, float dampening, float first) {
    float by = clip[0];
    bool keeps = m && momentum != 0;
    auto update = [&](i64 i, auto width) {
        const int V = decltype(width)::size;
        float x[V], step[V], mean[V] = {};
        load(w + i, x);
        load(g + i, step);
        if (keeps) load(m + i, mean);
        if (!(by > 0)) return copyTo(copy, type, i, x);
#pragma unroll
        for (int k = 0; k < V; k++) {
            step[k] = step[k] * by + decay * x[k];
            mean[k] = first == 1 ? step[k] : momentum * mean[k] + (1.0f - dampening) * step[k];
            if (keeps) step[k] = nesterov ? step[k] + momentum * mean[k] : mean[k];
            x[k] -= rate * step[k];
        }
        store(w + i, x);
        if (keeps) store(m + i, mean);
        copyTo(copy, type, i, x);
    };
    EACH(aligned(w, g, m, m, copy, type), n, update)
}

extern "C" __global__ void lion(float *w, const Element *g, float *m, const float *clip, void *copy, int type, i64 n,
                                float rate, float decay, float beta1, float beta2) {
    float by = clip[0];
    auto update = [&](i64 i, auto width) {
        const int V = decltype(width)::size;
        float x[V], grad[V], mean[V];
        load(w + i, x);
        load(g + i, grad);
        load(m + i, mean);
        if (!(by > 0)) return copyTo(copy, type, i, x); // all stay as they are
#pragma unroll
        for (int k = 0; k < V; k++) {
            grad[k] *= by;
            float step = beta1 * mean[k] + (1.0f - beta1) * grad[k];
            step = step > 0 ? 1.0f : step < 0 ? -1.0f : step; // of zero, or of what is not a number, itself
            x[k] = x[k] * (1.0f - rate * decay) - rate * step;
            mean[k] = beta2 * mean[k] + (1.0f - beta2) * grad[k];
        }
        store(w + i, x);
        store(m + i, mean);
        copyTo(copy, type, i, x);
    };
    EACH(aligned(w, g, m, m, copy, type), n, update)
}
