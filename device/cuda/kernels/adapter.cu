// The lengths of adapted weights, for DoRA.

// out[o] = 1/‖the weights of output o in w + scale·b·a‖, 0 for none. With rows w is
// [outputs width], else [width outputs]; a is [rank width], b [outputs rank]. A block per
// output.
extern "C" __global__ void inverseNorm(const Element *w, const Element *a, const Element *b, Element *out, i64 outputs, i64 width, i64 rank, float scale, int rows) {
    const i64 o = blockIdx.x;
    float sum = 0;
    for (i64 i = threadIdx.x; i < width; i += blockDim.x) {
        float v = wide(rows ? w[o * width + i] : w[i * outputs + o]);
        for (i64 r = 0; r < rank; r++) v += scale * wide(b[o * rank + r]) * wide(a[r * width + i]);
        sum += v * v;
    }
    sum = rowSum(sum);
    if (threadIdx.x == 0) narrow(sum > 0 ? 1 / sqrtf(sum) : 0, out + o);
}
