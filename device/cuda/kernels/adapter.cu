// Norms of weights with a low-rank adapter (DoRA).

#define OUTPUTS 8 // outputs that a block computes

// inverseNorm: 1 over the length of each output's weights in w + scale·b·a. Weight i of
// output o is w[o·o0 + i·i0]; a is [rank width], b [outputs rank]. A block has some
// outputs, so that a is read once for them. A length of 0 gives 0.
extern "C" __global__ void __launch_bounds__(256) inverseNorm(const Element *w, const Element *a, const Element *b, Element *out, i64 outputs,
                                                              i64 width, i64 rank, i64 o0, i64 i0, float scale) {
    i64 first = (i64)blockIdx.x * OUTPUTS;
    double sum[OUTPUTS] = {};
    for (i64 i = threadIdx.x; i < width; i += blockDim.x) {
        float x[OUTPUTS];
#pragma unroll
        for (int k = 0; k < OUTPUTS; k++) x[k] = first + k < outputs ? wide(w[(first + k) * o0 + i * i0]) : 0.0f;
        for (i64 r = 0; r < rank; r++) {
            float up = scale * wide(a[r * width + i]);
#pragma unroll
            for (int k = 0; k < OUTPUTS; k++)
                if (first + k < outputs) x[k] += up * wide(b[(first + k) * rank + r]);
        }
#pragma unroll
        for (int k = 0; k < OUTPUTS; k++) sum[k] += (double)x[k] * x[k];
    }
#pragma unroll
    for (int k = 0; k < OUTPUTS; k++) {
        double all = rowSum(sum[k]);
        if (threadIdx.x == 0 && first + k < outputs) narrow(all > 0 ? (float)(1 / sqrt(all)) : 0.0f, &out[first + k]);
    }
}
