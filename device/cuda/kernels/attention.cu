#include "mask.h"

// Attention without holding the scores, plainly: f32 arithmetic, any width of heads up
// to HEAD (a multiple of 4), tiles of 32 queries × 32 keys. A row of a tile belongs to
// four neighbouring threads; 128 threads. Every sum has one fixed order.

#define TILE 32
#define STEP (HEAD + 1) // of tiles in shared memory, so that rows lie in different banks
#define PART (HEAD / 4) // columns of a row each thread owns: lane, lane + 4, ...

// tile loads rows from.. of a head into shared memory, zeros beyond the end.
__device__ __forceinline__ void tile(float *to, const Element *x, i64 rowStep, int from, int rows, int width) {
    for (int n = threadIdx.x; n < TILE * HEAD; n += 128) {
        int r = n / HEAD, c = n % HEAD;
        to[r * STEP + c] = from + r < rows && c < width ? wide(x[(i64)(from + r) * rowStep + c]) : 0.0f;
    }
}

__device__ __forceinline__ float dot(const float *a, const float *b) {
    float sum = 0;
#pragma unroll 16
    for (int c = 0; c < HEAD; c++) sum += a[c] * b[c];
    return sum;
}

// quad reduces over the four threads of a row.
__device__ __forceinline__ float quadSum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
__device__ __forceinline__ float quadMax(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

__device__ __forceinline__ void putRow(Element *to, const float (&sum)[PART], float by, int lane, int width) {
#pragma unroll
    for (int c = 0; c < PART; c++)
        if (lane + 4 * c < width) narrow(sum[c] * by, &to[lane + 4 * c]);
}

// seen is the score of a pair from its product, -inf where it is not seen.
__device__ __forceinline__ float seen(const Mask &c, int b, int i, int j, float product) {
    return visible(c, b, i, j) ? c.scale * product + added(c, i, j) : -INFINITE;
}

// o and lse of 32 queries of one head: grid (tiles of queries, heads, samples).
extern "C" __global__ void __launch_bounds__(128) attention(const Element *q, const Element *k, const Element *v, Element *o, float *lse, MASK_PARAMS) {
    Mask c = MASK;
    extern __shared__ float shared[];
    float *qs = shared, *ks = qs + TILE * STEP, *vs = ks + TILE * STEP, *ps = vs + TILE * STEP;
    int from = blockIdx.x * TILE, h = blockIdx.y, b = blockIdx.z, r = threadIdx.x >> 2, lane = threadIdx.x & 3, i = from + r;
    i64 queryStep = (i64)heads * width, keyStep = (i64)keyHeads * width;
    i64 keyAt = (i64)b * S * keyStep + (i64)(h * keyHeads / heads) * width, queryAt = (i64)b * T * queryStep + (i64)h * width;
    ofHead(c, mask, b, h);
    u64 base = streamBase(key, stream);
    tile(qs, q + queryAt, queryStep, from, T, width);
    float top = -INFINITE, sum = 0, out[PART];
#pragma unroll
    for (int x = 0; x < PART; x++) out[x] = 0;
    int end = endKey(c, from + TILE - 1);
    for (int j0 = firstKey(c, from) / TILE * TILE; j0 < end; j0 += TILE) {
        __syncthreads();
        tile(ks, k + keyAt, keyStep, j0, S, width);
        tile(vs, v + keyAt, keyStep, j0, S, width);
        __syncthreads();
        float score[8], most = top;
#pragma unroll
        for (int n = 0; n < 8; n++) {
            int j = lane + 4 * n;
            score[n] = seen(c, b, i, j0 + j, dot(qs + r * STEP, ks + j * STEP));
            most = fmaxf(most, score[n]);
        }
        most = quadMax(most);
        float shrink = most == -INFINITE ? 1.0f : expf(top - most), part = 0;
#pragma unroll
        for (int n = 0; n < 8; n++) {
            float p = score[n] == -INFINITE ? 0.0f : expf(score[n] - most);
            part += p;
            if (drops(c)) p *= dropped(c, base, b, h, i, j0 + lane + 4 * n);
            ps[r * 33 + lane + 4 * n] = p;
        }
        sum = sum * shrink + quadSum(part);
        top = most;
        __syncwarp();
#pragma unroll
        for (int x = 0; x < PART; x++) out[x] *= shrink;
        for (int j = 0; j < TILE; j++) {
            float p = ps[r * 33 + j];
#pragma unroll
            for (int x = 0; x < PART; x++) out[x] += p * vs[j * STEP + lane + 4 * x];
        }
    }
    if (i >= T) return;
    putRow(o + queryAt + i * queryStep, out, sum > 0 ? 1.0f / sum : 0.0f, lane, width);
    if (lane == 0) lse[((i64)b * heads + h) * T + i] = sum > 0 ? top + logf(sum) : -INFINITE;
}

// delta = the dot products of o and do, one per query and head, laid out like lse; a warp
// each.
extern "C" __global__ void attentionDelta(const Element *o, const Element *grad, float *delta, i64 n, int T, int heads, int width) {
    i64 row = (i64)blockIdx.x * blockDim.y + threadIdx.y; // over samples, queries, heads
    if (row >= n) return;
    float sum = 0;
    for (int c = threadIdx.x; c < width; c += 32) sum += wide(o[row * width + c]) * wide(grad[row * width + c]);
    sum = warpSum(sum);
    i64 b = row / ((i64)T * heads), i = row / heads % T, h = row % heads;
    if (threadIdx.x == 0) delta[(b * heads + h) * T + i] = sum;
}

// weights of a pair: w = dropout·softmax weight, ds = gradient of its score times scale.
__device__ __forceinline__ void pair(const Mask &c, u64 base, int b, int h, int i, int j, float product, float lse, float grad, float delta, float &w, float &ds) {
    float score = seen(c, b, i, j, product);
    w = ds = 0;
    if (score == -INFINITE) return;
    float p = expf(score - lse), drop = drops(c) ? dropped(c, base, b, h, i, j) : 1.0f;
    w = p * drop;
    ds = c.scale * p * (drop * grad - delta);
}

// dq of 32 queries of one head, over the keys they see.
extern "C" __global__ void __launch_bounds__(128) attentionGradQueries(const Element *q, const Element *k, const Element *v, const float *lse, const Element *grad, const float *delta, Element *dq, MASK_PARAMS) {
    Mask c = MASK;
    extern __shared__ float shared[];
    float *qs = shared, *gs = qs + TILE * STEP, *ks = gs + TILE * STEP, *vs = ks + TILE * STEP, *ps = vs + TILE * STEP;
    int from = blockIdx.x * TILE, h = blockIdx.y, b = blockIdx.z, r = threadIdx.x >> 2, lane = threadIdx.x & 3, i = from + r;
    i64 queryStep = (i64)heads * width, keyStep = (i64)keyHeads * width;
    i64 keyAt = (i64)b * S * keyStep + (i64)(h * keyHeads / heads) * width, queryAt = (i64)b * T * queryStep + (i64)h * width;
    ofHead(c, mask, b, h);
    u64 base = streamBase(key, stream);
    tile(qs, q + queryAt, queryStep, from, T, width);
    tile(gs, grad + queryAt, queryStep, from, T, width);
    i64 line = ((i64)b * heads + h) * T + i;
    float total = i < T ? lse[line] : 0, inner = i < T ? delta[line] : 0, out[PART];
#pragma unroll
    for (int x = 0; x < PART; x++) out[x] = 0;
    int end = endKey(c, from + TILE - 1);
    for (int j0 = firstKey(c, from) / TILE * TILE; j0 < end; j0 += TILE) {
        __syncthreads();
        tile(ks, k + keyAt, keyStep, j0, S, width);
        tile(vs, v + keyAt, keyStep, j0, S, width);
        __syncthreads();
        for (int n = 0; n < 8; n++) {
            int j = lane + 4 * n;
            float w, ds;
            pair(c, base, b, h, i, j0 + j, dot(qs + r * STEP, ks + j * STEP), total, dot(gs + r * STEP, vs + j * STEP), inner, w, ds);
            ps[r * 33 + j] = ds;
        }
        __syncwarp();
        for (int j = 0; j < TILE; j++) {
            float ds = ps[r * 33 + j];
#pragma unroll
            for (int x = 0; x < PART; x++) out[x] += ds * ks[j * STEP + lane + 4 * x];
        }
        __syncwarp();
    }
    if (i < T) putRow(dq + queryAt + i * queryStep, out, 1.0f, lane, width);
}

// dk and dv of 32 keys of one key head, over the queries of all heads that share it:
// grid (tiles of keys, key heads, samples). Two parameters are flash.cu's alone.
extern "C" __global__ void __launch_bounds__(128) attentionGradKeys(const Element *q, const Element *k, const Element *v, const float *lse, const Element *grad, const float *delta, Element *dk, Element *dv, float *, int, MASK_PARAMS) {
    Mask c = MASK;
    extern __shared__ float shared[];
    float *ks = shared, *vs = ks + TILE * STEP, *qs = vs + TILE * STEP, *gs = qs + TILE * STEP, *ws = gs + TILE * STEP, *ps = ws + TILE * 33;
    int from = blockIdx.x * TILE, kh = blockIdx.y, b = blockIdx.z, r = threadIdx.x >> 2, lane = threadIdx.x & 3, j = from + r;
    i64 queryStep = (i64)heads * width, keyStep = (i64)keyHeads * width, keyAt = (i64)b * S * keyStep + (i64)kh * width;
    u64 base = streamBase(key, stream);
    tile(ks, k + keyAt, keyStep, from, S, width);
    tile(vs, v + keyAt, keyStep, from, S, width);
    float outK[PART], outV[PART];
#pragma unroll
    for (int x = 0; x < PART; x++) outK[x] = outV[x] = 0;
    int end = endQuery(c, from + TILE - 1), group = heads / keyHeads;
    for (int h = kh * group; h < (kh + 1) * group; h++) {
        i64 queryAt = (i64)b * T * queryStep + (i64)h * width, line = ((i64)b * heads + h) * T;
        ofHead(c, mask, b, h);
        for (int i0 = firstQuery(c, from) / TILE * TILE; i0 < end; i0 += TILE) {
            __syncthreads();
            tile(qs, q + queryAt, queryStep, i0, T, width);
            tile(gs, grad + queryAt, queryStep, i0, T, width);
            __syncthreads();
            for (int n = 0; n < 8; n++) {
                int x = lane + 4 * n, i = i0 + x;
                float w, ds, total = i < T ? lse[line + i] : 0, inner = i < T ? delta[line + i] : 0;
                pair(c, base, b, h, i, j, dot(qs + x * STEP, ks + r * STEP), total, dot(gs + x * STEP, vs + r * STEP), inner, w, ds);
                ws[r * 33 + x] = w;
                ps[r * 33 + x] = ds;
            }
            __syncwarp();
            for (int i = 0; i < TILE; i++) {
                float w = ws[r * 33 + i], ds = ps[r * 33 + i];
#pragma unroll
                for (int x = 0; x < PART; x++) {
                    outV[x] += w * gs[i * STEP + lane + 4 * x];
                    outK[x] += ds * qs[i * STEP + lane + 4 * x];
                }
            }
            __syncwarp();
        }
    }
    if (j >= S) return;
    putRow(dk + keyAt + j * keyStep, outK, 1.0f, lane, width);
    putRow(dv + keyAt + j * keyStep, outV, 1.0f, lane, width);
}

// The gradient of a mask: of each pair that of its score, summed over the samples and heads that share the mask, in
// their order. A block has 32 queries × 32 keys of one mask: grid (masks × tiles of queries × tiles of keys).
#if MASKS
extern "C" __global__ void __launch_bounds__(128) attentionGradMask(const Element *q, const Element *k, const Element *v, const float *lse, const Element *grad, const float *delta, float *dmask, int samples, int maskSamples, int maskHeads, MASK_PARAMS) {
    Mask c = MASK;
    extern __shared__ float shared[];
    float *qs = shared, *gs = qs + TILE * STEP, *ks = gs + TILE * STEP, *vs = ks + TILE * STEP;
    int columns = (S + TILE - 1) / TILE, rows = (T + TILE - 1) / TILE, at = blockIdx.x / columns, which = at / rows;
    int i0 = at % rows * TILE, j0 = blockIdx.x % columns * TILE, r = threadIdx.x >> 2, lane = threadIdx.x & 3, i = i0 + r;
    int ofSample = which / maskHeads, ofMask = which % maskHeads; // the sample and the head of this mask, where it has one
    i64 queryStep = (i64)heads * width, keyStep = (i64)keyHeads * width;
    u64 base = streamBase(key, stream);
    float sum[8];
#pragma unroll
    for (int n = 0; n < 8; n++) sum[n] = 0;
    bool any = j0 < endKey(c, i0 + TILE - 1) && j0 + TILE > firstKey(c, i0);
    for (int b = maskSamples > 1 ? ofSample : 0; any && b < (maskSamples > 1 ? ofSample + 1 : samples); b++)
        for (int h = maskHeads > 1 ? ofMask : 0; h < (maskHeads > 1 ? ofMask + 1 : heads); h++) {
            i64 keyAt = (i64)b * S * keyStep + (i64)(h * keyHeads / heads) * width, queryAt = (i64)b * T * queryStep + (i64)h * width;
            __syncthreads();
            tile(qs, q + queryAt, queryStep, i0, T, width);
            tile(gs, grad + queryAt, queryStep, i0, T, width);
            tile(ks, k + keyAt, keyStep, j0, S, width);
            tile(vs, v + keyAt, keyStep, j0, S, width);
            __syncthreads();
            ofHead(c, mask, b, h);
            i64 line = ((i64)b * heads + h) * T + i;
            float total = i < T ? lse[line] : 0, inner = i < T ? delta[line] : 0;
            for (int n = 0; n < 8; n++) {
                int j = lane + 4 * n;
                float score = seen(c, b, i, j0 + j, dot(qs + r * STEP, ks + j * STEP));
                if (score == -INFINITE) continue;
                float drop = drops(c) ? dropped(c, base, b, h, i, j0 + j) : 1.0f;
                sum[n] += expf(score - total) * (drop * dot(gs + r * STEP, vs + j * STEP) - inner);
            }
        }
    for (int n = 0; n < 8; n++)
        if (int j = j0 + lane + 4 * n; i < T && j < S) dmask[((i64)which * T + i) * S + j] = sum[n];
}
#endif
