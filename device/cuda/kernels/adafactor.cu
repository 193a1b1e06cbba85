// Adafactor. A param is lines of cols elements; so many rows of them are a matrix. A vector is
// one line, whose squares are stored by element, in col. Weights are f32, or bf16 that is
// rounded stochastically. Sums are f64, each in one fixed order. Where the clip factor is not
// positive, nothing changes, but the copy is written.

__device__ __forceinline__ double square(const Element *g, i64 at, float by, float eps) {
    double x = (double)wide(g[at]) * by;
    return x * x + eps;
}

// nearer moves a running mean towards a new number, with one rounding: the number may be far
// smaller than the mean.
__device__ __forceinline__ float nearer(float mean, double x, float take) { return (float)(mean + (x - mean) * take); }

// Means of squares by row, a block each.
extern "C" __global__ void __launch_bounds__(256) adafactorRows(const Element *g, float *row, const float *clip, i64 lines, i64 cols, float take, float eps) {
    if (!(clip[0] > 0)) return;
    for (i64 r = blockIdx.x; r < lines; r += gridDim.x) {
        double sum = 0;
        for (i64 j = threadIdx.x; j < cols; j += blockDim.x) sum += square(g, r * cols + j, clip[0], eps);
        sum = rowSum(sum);
        if (threadIdx.x == 0) row[r] = nearer(row[r], sum / cols, take);
    }
}

// Means of squares by column: 32 columns of a matrix in a block of 32 × 32 threads.
extern "C" __global__ void __launch_bounds__(1024) adafactorColumns(const Element *g, float *col, const float *clip, i64 rows, i64 cols, float take, float eps) {
    if (!(clip[0] > 0)) return;
    __shared__ double part[32][33];
    i64 j = (i64)blockIdx.x * 32 + threadIdx.x, matrix = blockIdx.y;
    double sum = 0;
    for (i64 i = threadIdx.y; j < cols && i < rows; i += 32) sum += square(g, (matrix * rows + i) * cols + j, clip[0], eps);
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || j >= cols) return;
    for (int i = 1; i < 32; i++) sum += part[i][threadIdx.x];
    float *to = col + matrix * cols + j;
    *to = nearer(*to, sum / rows, take);
}

// The mean of a matrix's rows, a block each.
extern "C" __global__ void __launch_bounds__(256) adafactorMeans(const float *row, float *mean, i64 rows) {
    double sum = 0;
    for (i64 i = threadIdx.x; i < rows; i += blockDim.x) sum += row[blockIdx.x * rows + i];
    sum = rowSum(sum);
    if (threadIdx.x == 0) mean[blockIdx.x] = (float)(sum / rows);
}

// Squares of a vector.
extern "C" __global__ void adafactorVector(const Element *g, float *v, const float *clip, i64 n, float take, float eps) {
    if (!(clip[0] > 0)) return;
    for (i64 i = position(); i < n; i += (i64)gridDim.x * blockDim.x) v[i] = nearer(v[i], square(g, i, clip[0], eps), take);
}

// Line is a row of a param: its gradients are divided by the square root of scale·col.
struct Line {
    const float *col;
    float scale;
    __device__ Line(const float *row, const float *col_, const float *mean, i64 line, i64 rows, i64 cols) {
        col = row ? col_ + line / rows * cols : col_;
        scale = row ? row[line] / mean[line / rows] : 1.0f;
    }
    __device__ float step(float g, i64 j) const { return g / sqrtf(scale * col[j]); }
};

enum { None, F32, BF16, F16 };

__device__ __forceinline__ float get(const void *p, int type, i64 i) {
    return type == BF16 ? wide(((const bf16 *)p)[i]) : type == F16 ? wide(((const f16 *)p)[i]) : ((const float *)p)[i];
}
template <bool STATE> __device__ __forceinline__ void set(void *p, int type, i64 i, float x) {
    if (type == BF16) narrow(x, (bf16 *)p + i);
    if (type == F16 && STATE) keep(x, (f16 *)p + i);
    if (type == F16 && !STATE) narrow(x, (f16 *)p + i);
    if (type == F32) ((float *)p)[i] = x;
}

// Sums of squares of steps and of weights, two per block.
extern "C" __global__ void __launch_bounds__(256) adafactorSizes(const void *w, int wType, const Element *g, const float *row, const float *col, const float *mean,
                                                                 const float *clip, double *partial, i64 lines, i64 rows, i64 cols) {
    double steps = 0, weights = 0;
    for (i64 r = blockIdx.x; r < lines; r += gridDim.x) {
        Line line(row, col, mean, r, rows, cols);
        for (i64 j = threadIdx.x; j < cols; j += blockDim.x) {
            double u = line.step(wide(g[r * cols + j]) * clip[0], j), x = get(w, wType, r * cols + j);
            steps += u * u;
            weights += x * x;
        }
    }
    steps = rowSum(steps);
    weights = rowSum(weights);
    if (threadIdx.x == 0) {
        partial[2 * blockIdx.x] = steps;
        partial[2 * blockIdx.x + 1] = weights;
    }
}

// rates[0] is the learning rate, rates[1] the same divided by the factor by which the root mean
// square of the steps is above the threshold.
extern "C" __global__ void adafactorRates(const double *partial, float *rates, i64 blocks, double count, float rate, float least, float threshold) {
    double steps = 0, weights = 0, by = rate;
    for (i64 i = 0; i < blocks; i++) {
        steps += partial[2 * i];
        weights += partial[2 * i + 1];
    }
    if (least > 0) by *= fmax((double)least, sqrt(weights / count));
    rates[0] = (float)by;
    rates[1] = (float)(by / fmax(1.0, sqrt(steps / count) / threshold));
}

extern "C" __global__ void __launch_bounds__(256) adafactorApply(void *w, int wType, u64 key, u64 first, const Element *g, void *m, int mType, const float *row, const float *col,
                                                                 const float *mean, const float *clip, const float *rates, void *copy, int type,
                                                                 i64 lines, i64 rows, i64 cols, float decay, float beta1) {
    for (i64 r = blockIdx.x; r < lines; r += gridDim.x) {
        Line line(row, col, mean, r, rows, cols);
        for (i64 j = threadIdx.x; j < cols; j += blockDim.x) {
            i64 i = r * cols + j;
            float x = get(w, wType, i);
            if (clip[0] > 0) {
                float u = rates[1] * line.step(wide(g[i]) * clip[0], j);
                if (m) {
                    u = beta1 * get(m, mType, i) + (1.0f - beta1) * u;
                    if (mType == BF16)
                        ((bf16 *)m)[i] = roundBy(u, (u32)stateBits(streamBase(key, 1), first + i) & 0xffff);
                    else
                        set<true>(m, mType, i, u);
                }
                x = x - rates[0] * decay * x - u;
                if (wType == BF16)
                    ((bf16 *)w)[i] = roundRandomly(x, mix(key), first + i);
                else
                    ((float *)w)[i] = x;
            }
            set<false>(copy, type, i, x);
        }
    }
}
