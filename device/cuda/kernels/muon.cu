// Muon on matrices: the momentum of a gradient is made orthogonal by matmuls in bf16, which are cuBLASLt's; what comes
// before and behind them is here. Numbers are rounded where PyTorch rounds them. Weights and states begin at any
// element; rows of x are step elements apart. Where the clip factor is not positive, nothing changes, but the copy is
// written.

enum { None, F32, BF16, F16 };

__device__ __forceinline__ float rounded(float x) {
    bf16 y;
    narrow(x, &y);
    return wide(y);
}

// The momentum, and x = what is made orthogonal, with its sum of squares by block.
extern "C" __global__ void __launch_bounds__(256) muonBegin(const Element *g, float *m, const float *clip, bf16 *x, double *partial, i64 rows, i64 cols, i64 step, float take, float blend) {
    double sum = 0;
    for (i64 r = blockIdx.x; r < rows; r += gridDim.x)
        for (i64 j = threadIdx.x; j < cols; j += blockDim.x) {
            i64 i = r * cols + j;
            float f = 0;
            if (clip[0] > 0) {
                float v = wide(g[i]) * clip[0], mean = m[i];
                mean += (v - mean) * take;
                m[i] = mean;
                f = rounded(v + (mean - v) * blend);
            }
            narrow(f, &x[r * step + j]);
            sum += (double)f * f;
        }
    sum = rowSum(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// Its norm.
extern "C" __global__ void muonNorm(const double *partial, float *norm, i64 blocks, float least) {
    double sum = 0;
    for (i64 i = threadIdx.x; i < blocks; i += blockDim.x) sum += partial[i];
    sum = rowSum(sum);
    if (threadIdx.x == 0) *norm = fmaxf(rounded((float)sqrt(sum)), rounded(least));
}

extern "C" __global__ void muonScale(bf16 *x, const float *norm, i64 n) {
    for (i64 i = position(); i < n; i += (i64)gridDim.x * blockDim.x) narrow(wide(x[i]) / *norm, &x[i]);
}

// The step. by is the factor of the rate, matched the one where match is not 0.
extern "C" __global__ void __launch_bounds__(256) muonEnd(void *w, int wType, u64 key, u64 first, const bf16 *x, const float *clip, void *copy, int type,
                                                          i64 rows, i64 cols, i64 step, double by, double matched, float shrink, float rate, float match) {
    float size = (float)(rate * (match != 0 ? matched : by));
    for (i64 r = blockIdx.x; r < rows; r += gridDim.x)
        for (i64 j = threadIdx.x; j < cols; j += blockDim.x) {
            i64 i = r * cols + j;
            float f = wType == BF16 ? wide(((const bf16 *)w)[i]) : ((const float *)w)[i];
            if (clip[0] > 0) {
                f = f * shrink - size * wide(x[r * step + j]);
                if (wType == BF16)
                    ((bf16 *)w)[i] = roundRandomly(f, mix(key), first + i);
                else
                    ((float *)w)[i] = f;
            }
            if (type == BF16) narrow(f, (bf16 *)copy + i);
            if (type == F16) narrow(f, (f16 *)copy + i);
            if (type == F32) ((float *)copy)[i] = f;
        }
}
