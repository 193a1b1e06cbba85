// Cross entropy of rows of logits. A block per row.

#define IGNORED (-100)

// The logarithm of the sum of exponentials of a row; rows are step floats apart. A thread
// takes four logits at a time, so that only one exponential in five is spent on rescaling to
// a new maximum.
template <class L> __device__ __forceinline__ float logSum(const L *logits, i64 classes, i64 step) {
    float top = -INFINITE, sum = 0;
    bool aligned = step % 4 == 0; // then all rows begin where four can be loaded at once
    for (i64 v = threadIdx.x * 4; v < classes; v += blockDim.x * 4) {
        float x[4];
        if (aligned && v + 4 <= classes)
            load(logits + v, x);
        else
            for (int k = 0; k < 4; k++) x[k] = v + k < classes ? wide(logits[v + k]) : -INFINITE;
        float most = fmaxf(fmaxf(x[0], x[1]), fmaxf(x[2], x[3]));
        if (most > top) {
            sum *= power(top - most);
            top = most;
        }
        if (top > -INFINITE)
            for (int k = 0; k < 4; k++) sum += power(x[k] - top);
    }
    float most = rowMax(top);
    sum = rowSum(top == -INFINITE ? 0.0f : sum * power(top - most));
    return most + logf(sum);
}

__device__ __forceinline__ i64 target(int id, i64 classes) { return id < 0 ? 0 : id >= classes ? classes - 1 : id; }

// losses[row] = -log softmax(logits)[target], 0 where the target is ignored.
template <class L> __device__ __forceinline__ void rowLoss(const L *logits, const int *targets, float *losses, i64 classes, i64 step) {
    logits += blockIdx.x * step;
    int id = targets[blockIdx.x];
    float loss = 0;
    if (id != IGNORED) loss = logSum(logits, classes, step) - wide(logits[target(id, classes)]);
    if (threadIdx.x == 0) losses[blockIdx.x] = loss;
}
extern "C" __global__ void rowLosses(const Element *logits, const int *targets, float *losses, i64 classes) { rowLoss(logits, targets, losses, classes, classes); }
extern "C" __global__ void rowLossesWide(const float *logits, const int *targets, float *losses, i64 classes, i64 step) { rowLoss(logits, targets, losses, classes, step); }

// dlogits = scale·dloss·(softmax - onehot)
extern "C" __global__ void crossEntropyGrad(const Element *logits, const int *targets, const float *scale, const float *dloss, Element *dlogits, i64 classes) {
    logits += blockIdx.x * classes;
    dlogits += blockIdx.x * classes;
    int id = targets[blockIdx.x];
    if (id == IGNORED) {
        for (i64 v = threadIdx.x; v < classes; v += blockDim.x) narrow(0.0f, &dlogits[v]);
        return;
    }
    float total = logSum(logits, classes, classes), by = *scale * *dloss;
    i64 hit = target(id, classes);
    for (i64 v = threadIdx.x; v < classes; v += blockDim.x) narrow(by * (power(wide(logits[v]) - total) - (v == hit ? 1.0f : 0.0f)), &dlogits[v]);
}

// The loss and its gradient in place: the f32 logits of a row are overwritten from its start by
// their gradients, which are of Element. Rows are step floats apart. All threads have read a
// group of elements before it is written; elements are no wider than floats, so it overwrites
// only what was read.
extern "C" __global__ void lossInPlace(float *logits, const int *targets, const float *scale, const float *dloss, float *losses, i64 classes, i64 step) {
    logits += blockIdx.x * step;
    Element *out = (Element *)logits;
    int id = targets[blockIdx.x];
    if (id == IGNORED) {
        for (i64 v = threadIdx.x; v < classes; v += blockDim.x) narrow(0.0f, &out[v]);
        if (threadIdx.x == 0) losses[blockIdx.x] = 0;
        return;
    }
    float total = logSum(logits, classes, step), by = *scale * *dloss;
    i64 hit = target(id, classes);
    if (threadIdx.x == 0) losses[blockIdx.x] = total - logits[hit];
    bool aligned = step % 4 == 0;
    for (i64 from = 0; from < classes; from += 4 * blockDim.x) {
        i64 v = from + threadIdx.x * 4;
        float x[4];
        if (aligned && v + 4 <= classes)
            load(logits + v, x);
        else
            for (int k = 0; k < 4; k++) x[k] = v + k < classes ? logits[v + k] : 0.0f;
        __syncthreads();
        for (int k = 0; k < 4; k++) x[k] = by * (power(x[k] - total) - (v + k == hit ? 1.0f : 0.0f));
        if (aligned && v + 4 <= classes)
            store(out + v, x);
        else
            for (int k = 0; k < 4 && v + k < classes; k++) narrow(x[k], &out[v + k]);
    }
}
