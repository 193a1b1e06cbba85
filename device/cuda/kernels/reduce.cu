// Sums over many elements in two stages, each in a fixed order: first sums of parts, then the
// sum of those.

// Stage one of the sum over rows: block (x, y) sums its columns over its share of the
// rows, partial[y][column]. Threads are 32 × 8: 32 columns, 8 rows at a time.
extern "C" __global__ void sumRows(const Element *x, float *partial, i64 rows, i64 width, i64 share) {
    i64 column = (i64)blockIdx.x * 32 + threadIdx.x;
    i64 from = blockIdx.y * share, to = from + share < rows ? from + share : rows;
    float sum = 0;
    if (column < width)
        for (i64 r = from + threadIdx.y; r < to; r += 8) sum += wide(x[r * width + column]);
    __shared__ float part[8][32];
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= width) return;
    for (int i = 1; i < 8; i++) sum += part[i][threadIdx.x];
    partial[(i64)blockIdx.y * width + column] = sum;
}

// The same for a width that is a multiple of LANES: a thread sums LANES neighbouring columns, with
// four rows on their way at once.
extern "C" __global__ void sumRowsWide(const Element *x, float *partial, i64 rows, i64 width, i64 share) {
    i64 column = ((i64)blockIdx.x * 32 + threadIdx.x) * LANES;
    i64 from = blockIdx.y * share, to = from + share < rows ? from + share : rows;
    float sum[LANES] = {};
    if (column < width) {
        i64 r = from + threadIdx.y;
        for (; r + 24 < to; r += 32) {
            float f[4][LANES];
#pragma unroll
            for (int i = 0; i < 4; i++) load(x + (r + 8 * i) * width + column, f[i]);
#pragma unroll
            for (int k = 0; k < LANES; k++) sum[k] += (f[0][k] + f[1][k]) + (f[2][k] + f[3][k]);
        }
        for (; r < to; r += 8) {
            float f[LANES];
            load(x + r * width + column, f);
            for (int k = 0; k < LANES; k++) sum[k] += f[k];
        }
    }
    __shared__ float part[8][LANES][32];
    for (int k = 0; k < LANES; k++) part[threadIdx.y][k][threadIdx.x] = sum[k];
    __syncthreads();
    // Now a thread adds one column, or some: line y of the block has those of remainder y.
    if (column >= width) return;
    for (int k = threadIdx.y; k < LANES; k += 8) {
        float all = 0;
        for (int i = 0; i < 8; i++) all += part[i][k][threadIdx.x];
        partial[(i64)blockIdx.y * width + column + k] = all;
    }
}

// Stage two: y[column] = the sum of the parts, by 32 × 32 threads: 32 columns, and 32
// lines that take the parts in turn.
extern "C" __global__ void foldRows(const float *partial, Element *y, i64 parts, i64 width, int add) {
    i64 column = (i64)blockIdx.x * 32 + threadIdx.x;
    float sum = 0;
    if (column < width)
#pragma unroll 8
        for (i64 p = threadIdx.y; p < parts; p += 32) sum += partial[p * width + column];
    __shared__ float lines[32][33];
    lines[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= width) return;
    for (int i = 1; i < 32; i++) sum += lines[i][threadIdx.x];
    if (add) sum += wide(y[column]);
    narrow(sum, &y[column]);
}

// y = the sum of parts of n elements each, in their order; n is a multiple of 4.
extern "C" __global__ void foldParts(const float *partial, Element *y, i64 parts, i64 n) {
    i64 i = position() * 4;
    if (i >= n) return;
    float sum[4], f[4];
    load(partial + i, sum);
    for (i64 p = 1; p < parts; p++) {
        load(partial + p * n + i, f);
        for (int k = 0; k < 4; k++) sum[k] += f[k];
    }
    store(y + i, sum);
}

// Stage one of sums of all elements: partial[block]. x begins at any element; a thread
// takes LANES neighbours at a time, whether they can be loaded at once or not, so that
// the order of the sum does not depend on where x lies.
extern "C" __global__ void sumSquares(const Element *x, double *partial, i64 n) {
    double sum = 0;
    bool aligned = (u64)x % 16 == 0;
    for (i64 i = position() * LANES; i < n; i += (i64)gridDim.x * blockDim.x * LANES) {
        float f[LANES];
        if (aligned && i + LANES <= n)
            load(x + i, f);
        else
            for (int k = 0; k < LANES; k++) f[k] = i + k < n ? wide(x[i + k]) : 0.0f;
        for (int k = 0; k < LANES; k++) sum += (double)f[k] * f[k];
    }
    sum = rowSum(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}
extern "C" __global__ void sumDifferences(const Element *x, const Element *target, double *partial, i64 n) {
    double sum = 0;
    for (i64 i = position(); i < n; i += (i64)gridDim.x * blockDim.x) {
        double f = (double)wide(x[i]) - wide(target[i]);
        sum += f * f;
    }
    sum = rowSum(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// folded adds partial sums with one block.
template <class P> __device__ __forceinline__ double folded(const P *partial, i64 parts) {
    double sum = 0;
    for (i64 i = threadIdx.x; i < parts; i += blockDim.x) sum += partial[i];
    return rowSum(sum);
}
extern "C" __global__ void foldSquares(const double *partial, double *y, i64 parts, int add) {
    double sum = folded(partial, parts);
    if (threadIdx.x == 0) *y = add ? *y + sum : sum;
}
extern "C" __global__ void foldDifferences(const double *partial, const float *scale, float *loss, i64 parts) {
    double sum = folded(partial, parts);
    if (threadIdx.x == 0) *loss = (float)(sum * *scale);
}
extern "C" __global__ void foldLosses(const float *rows, const float *scale, float *loss, i64 n) {
    double sum = folded(rows, n);
    if (threadIdx.x == 0) *loss = (float)(sum * *scale);
}

extern "C" __global__ void meanSquareGrad(const Element *x, const Element *target, const float *scale, const float *dloss, Element *dx, i64 n) {
    float by = 2.0f * *scale * *dloss;
    for (i64 i = position(); i < n; i += (i64)gridDim.x * blockDim.x) narrow(by * (wide(x[i]) - wide(target[i])), &dx[i]);
}

// The norm of all gradients and the factor that updates multiply them by: it divides by the
// loss scale and clips. Partial sums are added in order.
extern "C" __global__ void clipScale(const double *partial, float *out, i64 parts, float most, float scale) {
    double sum = 0, by = scale == 0 ? 1.0 : scale;
    for (i64 i = 0; i < parts; i++) sum += partial[i];
    double norm = sqrt(sum) / by, factor = 1 / by;
    if (most > 0) factor = fmin(1.0, most / (norm + 1e-6)) / by;
    if (!isfinite(norm)) factor = 0;
    out[0] = (float)factor;
    out[1] = (float)norm;
}
