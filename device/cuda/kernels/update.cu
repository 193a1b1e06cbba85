// Update rules of optimizers. Weights and state are f32, gradients of Element; buffers
// begin at any element. copy, where there is one, gets the weight in a shorter type.

enum { NoCopy, CopyF32, CopyBF16, CopyF16 };

__device__ __forceinline__ void copyTo(void *copy, int type, i64 i, float w) {
    if (type == CopyBF16) narrow(w, &((bf16 *)copy)[i]);
    if (type == CopyF16) narrow(w, &((f16 *)copy)[i]);
    if (type == CopyF32) ((float *)copy)[i] = w;
}

#define STRIDE(n) for (i64 i = position(); i < (n); i += (i64)gridDim.x * blockDim.x)

extern "C" __global__ void adam(float *w, const Element *g, float *m, float *v, const float *clip, void *copy, int type, i64 n, int decoupled,
                                float rate, float decay, float beta1, float beta2, float eps, float bias1, float bias2) {
    float by = clip[0], step = rate / bias1;
    STRIDE(n) {
        float x = w[i], grad = wide(g[i]) * by;
        if (decoupled)
            x *= 1.0f - rate * decay;
        else
            grad += decay * x;
        float mean = m[i];
        mean += (grad - mean) * (1.0f - beta1);
        float square = beta2 * v[i] + (1.0f - beta2) * grad * grad;
        x -= step * mean / (sqrtf(square) / bias2 + eps);
        w[i] = x;
        m[i] = mean;
        v[i] = square;
        copyTo(copy, type, i, x);
    }
}

// m is null where there is no momentum. first: the first iteration, which starts the
// momentum at the gradient.
extern "C" __global__ void sgd(float *w, const Element *g, float *m, const float *clip, void *copy, int type, i64 n, int nesterov,
                               float rate, float decay, float momentum, float dampening, float first) {
    float by = clip[0];
    STRIDE(n) {
        float x = w[i], step = wide(g[i]) * by + decay * x;
        if (m && momentum != 0) {
            float mean = first == 1 ? step : momentum * m[i] + (1.0f - dampening) * step;
            m[i] = mean;
            step = nesterov ? step + momentum * mean : mean;
        }
        x -= rate * step;
        w[i] = x;
        copyTo(copy, type, i, x);
    }
}
