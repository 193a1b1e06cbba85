// Norms of rows of width elements. The blockDim.x threads with one threadIdx.y compute a row
// (see rowSum): a warp for narrow rows, the whole block for others. Each block sums the
// gradients of the weights over its rows, and foldRows then adds the blocks in order.

#define EACH(i) for (int i = threadIdx.x * V; i < width; i += blockDim.x * V)

// Statistics of a row: mean (0 for RMS norms) and 1/root(mean square or variance + eps).
template <int V, bool CENTERED> __device__ __forceinline__ void statistics(const Element *x, int width, float eps, float &mean, float &inverse) {
    mean = 0;
    float f[V];
    if (CENTERED) {
        float sum = 0;
        EACH(i) {
            load(x + i, f);
            for (int k = 0; k < V; k++) sum += f[k];
        }
        mean = rowSum(sum) / width;
    }
    float squares = 0;
    EACH(i) {
        load(x + i, f);
        for (int k = 0; k < V; k++) squares += (f[k] - mean) * (f[k] - mean);
    }
    inverse = 1.0f / sqrtf(rowSum(squares) / width + eps);
}

template <int V, bool CENTERED> __device__ __forceinline__ void norm(const Element *x, const Element *w, const Element *b, Element *y, i64 rows, int width, float eps) {
    i64 r = (i64)blockIdx.x * blockDim.y + threadIdx.y;
    if (r >= rows) return;
    x += r * width;
    y += r * width;
    float mean, inverse, f[V], g[V];
    statistics<V, CENTERED>(x, width, eps, mean, inverse);
    EACH(i) {
        load(x + i, f);
        load(w + i, g);
        for (int k = 0; k < V; k++) f[k] = (f[k] - mean) * inverse * g[k];
        if (b) {
            load(b + i, g);
            for (int k = 0; k < V; k++) f[k] += g[k];
        }
        store(y + i, f);
    }
}

// Threads with one threadIdx.y take every so many-th row. sums holds, for each threadIdx.y,
// width sums of dw and, with a bias, width sums of db. partial gets the sums of the block, a
// row for dw and a row for db. Without partial only dx is computed.
template <int V, bool CENTERED> __device__ __forceinline__ void normGrad(const Element *x, const Element *w, const Element *dy, Element *dx, float *dw, float *db, i64 rows, int width, float eps) {
    extern __shared__ float sums[];
    float *mine = sums + (db ? 2 : 1) * threadIdx.y * width;
    if (dw)
        EACH(i) for (int k = 0; k < V; k++) {
            mine[i + k] = 0;
            if (db) mine[width + i + k] = 0;
        }
    i64 lines = (i64)gridDim.x * blockDim.y;
    for (i64 r = (i64)blockIdx.x * blockDim.y + threadIdx.y; r < rows; r += lines) {
        const Element *px = x + r * width, *pdy = dy + r * width;
        float mean, inverse, f[V], g[V], d[V], level = 0, along = 0;
        statistics<V, CENTERED>(px, width, eps, mean, inverse);
        EACH(i) {
            load(px + i, f);
            load(pdy + i, d);
            load(w + i, g);
            for (int k = 0; k < V; k++) {
                float u = (f[k] - mean) * inverse;
                if (CENTERED) level += d[k] * g[k];
                along += d[k] * g[k] * u;
                if (dw) mine[i + k] += d[k] * u;
                if (db) mine[width + i + k] += d[k];
            }
        }
        if (CENTERED) level = rowSum(level) / width;
        along = rowSum(along) / width;
        EACH(i) {
            load(px + i, f);
            load(pdy + i, d);
            load(w + i, g);
            for (int k = 0; k < V; k++) f[k] = inverse * (d[k] * g[k] - level - (f[k] - mean) * inverse * along);
            store(dx + r * width + i, f);
        }
    }
    if (!dw) return;
    __syncthreads();
    int step = (db ? 2 : 1) * width;
    for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < step; i += blockDim.x * blockDim.y) {
        float sum = 0;
        for (int line = 0; line < blockDim.y; line++) sum += sums[line * step + i];
        float *to = i < width ? dw + i : db + i - width;
        to[(i64)blockIdx.x * width] = sum;
    }
}

// blockSums sums several numbers over all threads of a block at once.
template <int N> __device__ __forceinline__ void blockSums(float (&x)[N]) {
    __shared__ float part[N][32];
#pragma unroll
    for (int n = 0; n < N; n++) x[n] = warpSum(x[n]);
    __syncthreads(); // the last use of part is over
    if ((threadIdx.x & 31) == 0)
#pragma unroll
        for (int n = 0; n < N; n++) part[n][threadIdx.x >> 5] = x[n];
    __syncthreads();
#pragma unroll
    for (int n = 0; n < N; n++) {
        x[n] = 0;
        for (int i = 0; i < blockDim.x >> 5; i++) x[n] += part[n][i];
    }
}

// The gradient of rows that have at most one pack per thread of a block. Each thread has the
// same columns of all rows, so the sums over rows stay in registers. A round takes R rows at
// once, so that threads synchronize less often, while the rows of the next STAGES - 1 rounds
// are being copied to shared memory.
#define STAGES 3
template <int R, bool CENTERED> __device__ __forceinline__ void normGradPack(const Element *x, const Element *w, const Element *dy, Element *dx, float *dw, float *db, i64 rows, int width, float eps) {
    extern __shared__ Lane ring[]; // [STAGES][R][x, dy][thread]
    const int i = threadIdx.x * LANES;
    const bool mine = i < width;
    auto slot = [&](int stage, int m, int which) { return ring + ((stage * R + m) * 2 + which) * blockDim.x + threadIdx.x; };
    auto ahead = [&](i64 round, int stage) {
#pragma unroll
        for (int m = 0; m < R; m++) {
            i64 r = round * R + m;
            bool there = mine && r < rows;
            i64 at = there ? r * width + i : 0;
            fetch16((Element *)slot(stage, m, 0), x + at, there);
            fetch16((Element *)slot(stage, m, 1), dy + at, there);
        }
        commit();
    };
    float g[LANES] = {}, sumW[LANES] = {}, sumB[LANES] = {};
    if (mine) load(w + i, g);
    for (int s = 0; s < STAGES - 1; s++) ahead(blockIdx.x + (i64)s * gridDim.x, s);
    int stage = 0;
    for (i64 round = blockIdx.x; round * R < rows; round += gridDim.x) {
        ahead(round + (i64)(STAGES - 1) * gridDim.x, (stage + STAGES - 1) % STAGES);
        await<STAGES - 1>();
        Lane f[R], d[R];
#pragma unroll
        for (int m = 0; m < R; m++) {
            f[m] = *slot(stage, m, 0);
            d[m] = *slot(stage, m, 1);
        }
        stage = (stage + 1) % STAGES;
        float mean[R] = {}, sums[(CENTERED ? 3 : 2) * R] = {}; // of squares, of dy·w·x, of dy·w
        if (CENTERED) {
#pragma unroll
            for (int m = 0; m < R; m++)
                for (int k = 0; k < LANES; k++) mean[m] += wide(f[m].x[k]);
            blockSums(mean);
        }
#pragma unroll
        for (int m = 0; m < R; m++) {
            mean[m] /= width;
#pragma unroll
            for (int k = 0; k < LANES; k++) {
                float u = mine ? wide(f[m].x[k]) - mean[m] : 0.0f, v = wide(d[m].x[k]) * g[k];
                sums[m] += u * u;
                sums[R + m] += v * u;
                if (CENTERED) sums[2 * R + m] += v;
            }
        }
        blockSums(sums);
#pragma unroll
        for (int m = 0; m < R; m++) {
            float inverse = 1.0f / sqrtf(sums[m] / width + eps), out[LANES];
            float along = sums[R + m] * inverse * inverse / width; // mean of dy·w times the normalized row, divided by the norm once more for dx
            float level = CENTERED ? sums[2 * R + m] / width : 0.0f;
#pragma unroll
            for (int k = 0; k < LANES; k++) {
                float u = wide(f[m].x[k]) - mean[m], v = wide(d[m].x[k]);
                sumW[k] += v * u * inverse;
                if (CENTERED) sumB[k] += v;
                out[k] = inverse * (v * g[k] - level - u * along);
            }
            if (mine && round * R + m < rows) store(dx + (round * R + m) * width + i, out);
        }
    }
    await<0>();
    if (!mine) return;
    for (int k = 0; k < LANES; k++) {
        if (dw) dw[(i64)blockIdx.x * width + i + k] = sumW[k];
        if (CENTERED && db) db[(i64)blockIdx.x * width + i + k] = sumB[k];
    }
}
extern "C" __global__ void __launch_bounds__(1024) rmsNormGradPack(const Element *x, const Element *w, const Element *dy, Element *dx, float *dw, float *db, i64 rows, int width, float eps) {
    normGradPack<2, false>(x, w, dy, dx, dw, db, rows, width, eps);
}
extern "C" __global__ void __launch_bounds__(1024) layerNormGradPack(const Element *x, const Element *w, const Element *dy, Element *dx, float *dw, float *db, i64 rows, int width, float eps) {
    normGradPack<2, true>(x, w, dy, dx, dw, db, rows, width, eps);
}

#define NORM(name, V, CENTERED)                                                                                                                        \
    extern "C" __global__ void name(const Element *x, const Element *w, const Element *b, Element *y, i64 rows, int width, float eps) {                  \
        norm<V, CENTERED>(x, w, b, y, rows, width, eps);                                                                                               \
    }                                                                                                                                                  \
    extern "C" __global__ void name##Grad(const Element *x, const Element *w, const Element *dy, Element *dx, float *dw, float *db, i64 rows, int width, float eps) { \
        normGrad<V, CENTERED>(x, w, dy, dx, dw, db, rows, width, eps);                                                                                 \
    }
NORM(rmsNorm, LANES, false)
NORM(rmsNormOne, 1, false)
NORM(layerNorm, LANES, true)
NORM(layerNormOne, 1, true)

// Rows of at most P packs for each lane of a warp stay in registers: a warp reads a row once. blockDim.y warps
// of a block have a row each.
template <int P> struct Row {
    Lane at[P];
    __device__ __forceinline__ void read(const Element *x, int width) {
#pragma unroll
        for (int p = 0; p < P; p++) {
            int i = (p * 32 + threadIdx.x) * LANES;
            if (i < width) at[p] = *(const Lane *)(x + i);
        }
    }
};
#define PACKS(p, i)                                                 \
    _Pragma("unroll") for (int p = 0; p < P; p++)                   \
        if (int i = (p * 32 + threadIdx.x) * LANES; i < width)

// The mean of a row, 0 where it is not CENTERED, and 1/root(mean square or variance + eps).
template <int P, bool CENTERED> __device__ __forceinline__ void rowStatistics(const Row<P> &x, int width, float eps, float &mean, float &inverse) {
    mean = 0;
    if (CENTERED) {
        PACKS(p, i)
            for (int k = 0; k < LANES; k++) mean += wide(x.at[p].x[k]);
        mean = warpSum(mean) / width;
    }
    float squares = 0;
    PACKS(p, i)
        for (int k = 0; k < LANES; k++) {
            float u = wide(x.at[p].x[k]) - mean;
            squares += u * u;
        }
    inverse = 1.0f / sqrtf(warpSum(squares) / width + eps);
}

template <int P, bool CENTERED> __device__ __forceinline__ void normWarp(const Element *x, const Element *w, const Element *b, Element *y, i64 rows, int width, float eps) {
    i64 r = (i64)blockIdx.x * blockDim.y + threadIdx.y;
    if (r >= rows) return;
    Row<P> row;
    row.read(x + r * width, width);
    float mean, inverse;
    rowStatistics<P, CENTERED>(row, width, eps, mean, inverse);
    PACKS(p, i) {
        float f[LANES], g[LANES], add[LANES] = {};
        load(w + i, g);
        if (b) load(b + i, add);
        for (int k = 0; k < LANES; k++) f[k] = (wide(row.at[p].x[k]) - mean) * inverse * g[k] + add[k];
        store(y + r * width + i, f);
    }
}

// The gradient: a lane has the same columns of all rows of its warp, so their sums stay in registers, and the next
// row is on its way while one is computed. Each element is widened once. The warps of a block add their sums in
// order at the end. What is in plus, if anything, is added to dx.
template <int P, bool CENTERED> __device__ __forceinline__ void normGradWarp(const Element *x, const Element *w, const Element *dy, Element *dx, float *dw, float *db, i64 rows, int width, float eps, const Element *plus) {
    extern __shared__ float lines[]; // [warp][width]
    i64 step = (i64)gridDim.x * blockDim.y, r = (i64)blockIdx.x * blockDim.y + threadIdx.y;
    float sumW[P][LANES] = {}, sumB[P][LANES] = {}, weight[P][LANES] = {};
    Row<P> nextX, nextD;
    PACKS(p, i) load(w + i, weight[p]);
    if (r < rows) {
        nextX.read(x + r * width, width);
        nextD.read(dy + r * width, width);
    }
    float share = 1.0f / width;
    for (; r < rows; r += step) {
        float u[P][LANES], g[P][LANES], mean = 0, squares = 0, along = 0, level = 0;
        Row<P> d = nextD, added;
        PACKS(p, i)
            for (int k = 0; k < LANES; k++) {
                u[p][k] = wide(nextX.at[p].x[k]);
                if (CENTERED) mean += u[p][k];
            }
        if (plus) added.read(plus + r * width, width);
        if (r + step < rows) {
            nextX.read(x + (r + step) * width, width);
            nextD.read(dy + (r + step) * width, width);
        }
        if (CENTERED) mean = warpSum(mean) * share;
        PACKS(p, i)
            for (int k = 0; k < LANES; k++) {
                float v = wide(d.at[p].x[k]);
                u[p][k] -= mean;
                squares += u[p][k] * u[p][k];
                g[p][k] = v * weight[p][k];
                along += g[p][k] * u[p][k];
                if (CENTERED) level += g[p][k];
                if (CENTERED) sumB[p][k] += v;
            }
        squares = warpSum(squares);
        along = warpSum(along);
        if (CENTERED) level = warpSum(level) * share;
        float inverse = 1.0f / sqrtf(squares * share + eps), by = along * share * inverse * inverse;
        PACKS(p, i) {
            float out[LANES];
            for (int k = 0; k < LANES; k++) {
                sumW[p][k] += wide(d.at[p].x[k]) * inverse * u[p][k];
                out[k] = inverse * (g[p][k] - level - u[p][k] * by);
                if (plus) out[k] += wide(added.at[p].x[k]);
            }
            store(dx + r * width + i, out);
        }
    }
    auto fold = [&](float (&sum)[P][LANES], float *to) {
        if (!to) return;
        __syncthreads();
        PACKS(p, i)
            for (int k = 0; k < LANES; k++) lines[threadIdx.y * width + i + k] = sum[p][k];
        __syncthreads();
        for (int i = threadIdx.y * 32 + threadIdx.x; i < width; i += 32 * blockDim.y) {
            float all = 0;
            for (int y = 0; y < blockDim.y; y++) all += lines[y * width + i];
            to[(i64)blockIdx.x * width + i] = all;
        }
    };
    fold(sumW, dw);
    if (CENTERED) fold(sumB, db);
}

#define WARP(name, P, CENTERED)                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(256) name(const Element *x, const Element *w, const Element *b, Element *y, i64 rows, int width, float eps) { \
        normWarp<P, CENTERED>(x, w, b, y, rows, width, eps);                                                                                        \
    }
#define WARPGRAD(name, P, CENTERED)                                                                                                               \
    extern "C" __global__ void __launch_bounds__(128, P < 4 ? 3 : 2) name(const Element *x, const Element *w, const Element *dy, Element *dx, float *dw, float *db, i64 rows, int width, float eps) { \
        normGradWarp<P, CENTERED>(x, w, dy, dx, dw, db, rows, width, eps, 0);                                                                       \
    }
#define WARPPLUS(name, P, CENTERED)                                                                                                               \
    extern "C" __global__ void __launch_bounds__(128, P < 4 ? 3 : 2) name(const Element *x, const Element *w, const Element *dy, Element *dx, float *dw, float *db, i64 rows, int width, float eps, const Element *plus) { \
        normGradWarp<P, CENTERED>(x, w, dy, dx, dw, db, rows, width, eps, plus);                                                                    \
    }
WARP(rmsNormWarp1, 1, false)
WARP(rmsNormWarp2, 2, false)
WARP(rmsNormWarp3, 3, false)
WARP(rmsNormWarp4, 4, false)
WARPGRAD(rmsNormGradWarp1, 1, false)
WARPGRAD(rmsNormGradWarp2, 2, false)
WARPGRAD(rmsNormGradWarp3, 3, false)
WARPGRAD(rmsNormGradWarp4, 4, false)
WARP(layerNormWarp1, 1, true)
WARP(layerNormWarp2, 2, true)
WARP(layerNormWarp3, 3, true)
WARP(layerNormWarp4, 4, true)
WARPGRAD(layerNormGradWarp1, 1, true)
WARPGRAD(layerNormGradWarp2, 2, true)
WARPGRAD(layerNormGradWarp3, 3, true)
WARPGRAD(layerNormGradWarp4, 4, true)
WARPPLUS(layerNormGradPlusWarp1, 1, true)
WARPPLUS(layerNormGradPlusWarp2, 2, true)
WARPPLUS(layerNormGradPlusWarp3, 3, true)
WARPPLUS(layerNormGradPlusWarp4, 4, true)
