// Norms over groups of channels: sets × rows × channels, with statistics of each set and each group of
// width channels. Sums go over shares of the rows and then over shares and channels of a group, in order.

// a and b of a strip of 32 channels over a share of the rows: mode 0 Σx, 1 Σ(x-mean)², 2 Σdy and Σdy·(x-mean).
template <int MODE> __device__ __forceinline__ void strips(const Element *x, const Element *dy, const float *mean, float *partial, i64 rows, i64 channels, i64 width, i64 share, i64 shares) {
    i64 tiles = (channels + 31) / 32, set = blockIdx.x / tiles, c = blockIdx.x % tiles * 32 + threadIdx.x;
    i64 end = min((i64)(blockIdx.y + 1) * share, rows);
    float a = 0.0f, b = 0.0f, level = 0.0f;
    if (c < channels) {
        if (MODE > 0) level = mean[set * (channels / width) + c / width];
        for (i64 r = blockIdx.y * share + threadIdx.y; r < end; r += blockDim.y) {
            i64 i = (set * rows + r) * channels + c;
            float v = wide(x[i]) - level;
            if (MODE == 0) a += v;
            if (MODE == 1) a += v * v;
            if (MODE == 2) {
                float d = wide(dy[i]);
                a += d;
                b += d * v;
            }
        }
    }
    __shared__ float parts[2][8][33];
    parts[0][threadIdx.y][threadIdx.x] = a;
    parts[1][threadIdx.y][threadIdx.x] = b;
    __syncthreads();
    if (threadIdx.y > 0 || c >= channels) return;
    for (int i = 1; i < 8; i++) {
        a += parts[0][i][threadIdx.x];
        b += parts[1][i][threadIdx.x];
    }
    float *to = partial + (set * shares + blockIdx.y) * 2 * channels + c;
    to[0] = a;
    to[channels] = b;
}
extern "C" __global__ void normSums(const Element *x, float *partial, i64 rows, i64 channels, i64 width, i64 share, i64 shares) {
    strips<0>(x, x, nullptr, partial, rows, channels, width, share, shares);
}
extern "C" __global__ void normSquares(const Element *x, const float *mean, float *partial, i64 rows, i64 channels, i64 width, i64 share, i64 shares) {
    strips<1>(x, x, mean, partial, rows, channels, width, share, shares);
}
extern "C" __global__ void normGradSums(const Element *x, const Element *dy, const float *mean, float *partial, i64 rows, i64 channels, i64 width, i64 share, i64 shares) {
    strips<2>(x, dy, mean, partial, rows, channels, width, share, shares);
}

// to[group] = the mean of what strips summed.
extern "C" __global__ void normFold(const float *partial, float *to, i64 sets, i64 rows, i64 channels, i64 width, i64 shares) {
    i64 groups = channels / width, i = position();
    if (i >= sets * groups) return;
    double sum = 0.0;
    for (i64 s = 0; s < shares; s++)
        for (i64 c = i % groups * width; c < (i % groups + 1) * width; c++) sum += partial[(i / groups * shares + s) * 2 * channels + c];
    to[i] = (float)(sum / ((double)rows * width));
}

extern "C" __global__ void normApply(const Element *x, const Element *w, const Element *bias, const float *mean, const float *variance, Element *y, i64 n, i64 rows, i64 channels, i64 width, float eps) {
    for (i64 i = position(); i < n; i += (i64)gridDim.x * blockDim.x) {
        i64 c = i % channels, g = i / (rows * channels) * (channels / width) + c / width;
        float f = (wide(x[i]) - mean[g]) * (1.0f / sqrtf(variance[g] + eps));
        if (w) f = f * wide(w[c]) + wide(bias[c]);
        narrow(f, &y[i]);
    }
}

// The means of g and of g·u of each group, g being dy·w and u the normalized x.
extern "C" __global__ void normGradFold(const float *partial, const Element *w, const float *variance, float *means, i64 sets, i64 rows, i64 channels, i64 width, i64 shares, float eps) {
    i64 groups = channels / width, i = position();
    if (i >= sets * groups) return;
    double level = 0.0, along = 0.0;
    for (i64 c = i % groups * width; c < (i % groups + 1) * width; c++) {
        double a = 0.0, b = 0.0, weight = w ? wide(w[c]) : 1.0f;
        for (i64 s = 0; s < shares; s++) {
            const float *p = partial + (i / groups * shares + s) * 2 * channels + c;
            a += p[0];
            b += p[channels];
        }
        level += weight * a;
        along += weight * b;
    }
    double n = (double)rows * width;
    means[2 * i] = (float)(level / n);
    means[2 * i + 1] = (float)(along / n / sqrt((double)variance[i] + eps));
}

extern "C" __global__ void normWeights(const float *partial, const float *variance, Element *dw, Element *db, i64 sets, i64 channels, i64 width, i64 shares, float eps, int add) {
    i64 c = position();
    if (c >= channels) return;
    double weight = 0.0, bias = 0.0;
    for (i64 set = 0; set < sets; set++) {
        double a = 0.0, b = 0.0;
        for (i64 s = 0; s < shares; s++) {
            const float *p = partial + (set * shares + s) * 2 * channels + c;
            a += p[0];
            b += p[channels];
        }
        weight += b / sqrt((double)variance[set * (channels / width) + c / width] + eps);
        bias += a;
    }
    narrow((float)weight + (add ? wide(dw[c]) : 0.0f), &dw[c]);
    narrow((float)bias + (add ? wide(db[c]) : 0.0f), &db[c]);
}

extern "C" __global__ void normInput(const Element *x, const Element *w, const float *mean, const float *variance, const Element *dy, const float *means, Element *dx, i64 n, i64 rows, i64 channels, i64 width, float eps) {
    for (i64 i = position(); i < n; i += (i64)gridDim.x * blockDim.x) {
        i64 c = i % channels, g = i / (rows * channels) * (channels / width) + c / width;
        float inverse = 1.0f / sqrtf(variance[g] + eps), u = (wide(x[i]) - mean[g]) * inverse;
        float d = wide(dy[i]) * (w ? wide(w[c]) : 1.0f);
        narrow(inverse * (d - means[2 * g] - u * means[2 * g + 1]), &dx[i]);
    }
}
