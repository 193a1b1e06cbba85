// Adafactor, in passes that each need all of the one before. Lines are the rows of all
// matrices of a param; of a vector, stretches of it. Sums are of doubles, by line and
// then over lines in order, so that they do not depend on the grid. Where the clip factor
// is not positive all stay as they are.

struct Numbers {
    float rate, shrink; // the rate with the scale of the weights in it; 1 - rate·decay
};

// Means of squares by row, or of a vector by element, and sums of squares of weights.
extern "C" __global__ void adafactorRows(const float *w, const Element *g, float *row, const float *clip, double *sums, i64 n, i64 cols, int factored,
                                         float take, float eps) {
    double by = clip[0], squares = 0, weights = 0;
    if (!(by > 0)) return;
    i64 first = blockIdx.x * cols, last = first + cols < n ? first + cols : n;
    for (i64 i = first + threadIdx.x; i < last; i += blockDim.x) {
        double f = (double)wide(g[i]) * by, x = w[i];
        weights += x * x;
        squares += f * f;
        if (!factored) row[i] = (float)(row[i] + (f * f + eps - row[i]) * take);
    }
    squares = rowSum(squares);
    weights = rowSum(weights);
    if (threadIdx.x != 0) return;
    sums[blockIdx.x] = weights;
    if (factored) row[blockIdx.x] = (float)(row[blockIdx.x] + (squares / cols + eps - row[blockIdx.x]) * take);
}

// Means by column: a block has 32 columns of a matrix, and 32 lines of threads that take
// its rows in turn.
extern "C" __global__ void __launch_bounds__(1024) adafactorColumns(const Element *g, float *col, const float *clip, i64 rows, i64 cols, float take, float eps) {
    __shared__ double part[32][33];
    double by = clip[0], sum = 0;
    if (!(by > 0)) return;
    i64 j = (i64)blockIdx.x * 32 + threadIdx.x;
    g += blockIdx.y * rows * cols;
    if (j < cols)
        for (i64 i = threadIdx.y; i < rows; i += 32) {
            double f = (double)wide(g[i * cols + j]) * by;
            sum += f * f;
        }
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || j >= cols) return;
    sum = 0;
    for (int k = 0; k < 32; k++) sum += part[k][threadIdx.x];
    float *mine = col + blockIdx.y * cols + j;
    *mine = (float)(*mine + (sum / rows + eps - *mine) * take);
}

// byRow is what the gradients of a row are multiplied by: one block per matrix.
extern "C" __global__ void adafactorFactors(const float *row, float *byRow, const float *clip, i64 rows) {
    double by = clip[0], sum = 0;
    if (!(by > 0)) return;
    row += blockIdx.x * rows;
    byRow += blockIdx.x * rows;
    for (i64 i = threadIdx.x; i < rows; i += blockDim.x) sum += row[i];
    double mean = rowSum(sum) / rows;
    for (i64 i = threadIdx.x; i < rows; i += blockDim.x) byRow[i] = (float)(by / sqrt(row[i] / mean));
}

__device__ __forceinline__ double total(const double *sums, i64 lines) {
    double sum = 0;
    for (i64 i = threadIdx.x; i < lines; i += blockDim.x) sum += sums[i];
    return rowSum(sum);
}

// The rate, from the sums of squares of the weights; by one block.
extern "C" __global__ void adafactorRate(const double *sums, Numbers *to, const float *clip, i64 lines, i64 n, float rate, float decay, float least) {
    if (!(clip[0] > 0)) return;
    double size = sqrt(total(sums, lines) / n), a = rate;
    if (least > 0) a *= size > least ? size : least;
    if (threadIdx.x == 0) *to = {(float)a, (float)(1 - a * decay)};
}

// The rate lowered where steps, whose sums of squares these are, are too large.
extern "C" __global__ void adafactorBound(const double *sums, Numbers *to, const float *clip, i64 lines, i64 n, float threshold) {
    if (!(clip[0] > 0)) return;
    double size = sqrt(total(sums, lines) / n) / threshold;
    if (threadIdx.x == 0 && size > 1) to->rate /= (float)size;
}

struct Steps {
    const Element *g;
    const float *row, *col, *byRow; // row is by element of a vector, whose col is null
    float by;
    i64 rows, cols;
    __device__ __forceinline__ float at(i64 line, i64 i) const {
        if (!col) return wide(g[i]) * (float)(by / sqrt((double)row[i]));
        return wide(g[i]) * byRow[line] * (float)(1 / sqrt((double)col[line / rows * cols + i - line * cols]));
    }
};

extern "C" __global__ void adafactorSizes(const Element *g, const float *row, const float *col, const float *byRow, const float *clip, double *sums,
                                          i64 n, i64 rows, i64 cols) {
    if (!(clip[0] > 0)) return;
    Steps step = {g, row, col, byRow, clip[0], rows, cols};
    i64 line = blockIdx.x, first = line * cols, last = first + cols < n ? first + cols : n;
    double sum = 0;
    for (i64 i = first + threadIdx.x; i < last; i += blockDim.x) {
        double u = step.at(line, i);
        sum += u * u;
    }
    sum = rowSum(sum);
    if (threadIdx.x == 0) sums[line] = sum;
}

enum { None, F32, BF16, F16 };

__device__ __forceinline__ float load(const void *p, int type, i64 i) {
    if (type == BF16) return wide(((const bf16 *)p)[i]);
    if (type == F16) return wide(((const f16 *)p)[i]);
    return ((const float *)p)[i];
}
// save rounds; kept in f16, no number but zero becomes zero and no finite one infinite.
__device__ __forceinline__ void save(void *p, int type, i64 i, float x, bool kept) {
    if (type == F32) ((float *)p)[i] = x;
    if (type == BF16) narrow(x, (bf16 *)p + i);
    if (type != F16) return;
    f16 *y = (f16 *)p + i;
    narrow(x, y);
    u16 sign = y->bits & 0x8000, size = y->bits & 0x7fff;
    if (kept && size == 0 && x != 0) y->bits = sign | 1;
    if (kept && size == 0x7c00 && (__float_as_uint(x) & 0x7f800000) != 0x7f800000) y->bits = sign | 0x7bff;
}

// m, of a type, is the mean of steps if there is one.
extern "C" __global__ void adafactorStep(float *w, const Element *g, void *m, int mean, const float *row, const float *col, const float *byRow,
                                         const Numbers *now, const float *clip, void *copy, int type, i64 n, i64 rows, i64 cols, float beta1) {
    bool stays = !(clip[0] > 0);
    Steps step = {g, row, col, byRow, clip[0], rows, cols};
    for (i64 i = position(); i < n; i += (i64)gridDim.x * blockDim.x) {
        float x = w[i];
        if (!stays) {
            float u = now->rate * step.at(i / cols, i);
            if (mean != None) {
                u = beta1 * load(m, mean, i) + (1.0f - beta1) * u;
                save(m, mean, i, u, true);
            }
            w[i] = x = x * now->shrink - u;
        }
        save(copy, type, i, x, false);
    }
}
