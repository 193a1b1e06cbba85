#include "decode.h"
#include "functions.h"
#include "stored.h"

// What is between the matmuls of a step of tens to hundreds of rows.

// normRows is y = x / rms(x) · norm of rows, a block each. A thread holds HELD packs of a row.
#define HELD 4
extern "C" __global__ void __launch_bounds__(256) normRows(const Element *x, const Element *norm, Element *y, int width, float eps) {
    __shared__ float sums[8];
    const int lane = threadIdx.x & 31;
    releaseNext();
    awaitPrevious();
    x += (i64)blockIdx.x * width;
    y += (i64)blockIdx.x * width;
    Lane held[HELD], by[HELD];
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        const int i = (threadIdx.x + k * 256) * LANES;
        held[k] = {};
        if (i >= width) continue;
        held[k] = *(const Lane *)(x + i);
        by[k] = *(const Lane *)(norm + i);
    }
    float squares = 0;
#pragma unroll
    for (int k = 0; k < HELD; k++)
#pragma unroll
        for (int e = 0; e < LANES; e++) squares += wide(held[k].x[e]) * wide(held[k].x[e]);
    for (int i = (threadIdx.x + HELD * 256) * LANES; i < width; i += 256 * LANES) {
        Lane v = *(const Lane *)(x + i);
#pragma unroll
        for (int e = 0; e < LANES; e++) squares += wide(v.x[e]) * wide(v.x[e]);
    }
    squares = warpSum(squares);
    if (lane == 0) sums[threadIdx.x >> 5] = squares;
    __syncthreads();
    float inverse = 0;
#pragma unroll
    for (int w = 0; w < 8; w++) inverse += sums[w];
    inverse = 1.0f / sqrtf(inverse / width + eps);
    auto put = [&](int i, Lane v, const Lane &w) {
#pragma unroll
        for (int e = 0; e < LANES; e++) narrow(wide(v.x[e]) * inverse * wide(w.x[e]), &v.x[e]);
        *(Lane *)(y + i) = v;
    };
#pragma unroll
    for (int k = 0; k < HELD; k++)
        if ((threadIdx.x + k * 256) * LANES < width) put((threadIdx.x + k * 256) * LANES, held[k], by[k]);
    for (int i = (threadIdx.x + HELD * 256) * LANES; i < width; i += 256 * LANES) put(i, *(const Lane *)(x + i), *(const Lane *)(norm + i));
}

// turnRows takes rows of q, k and v side by side, [R (heads + 2 keyHeads) d]: q and k are rotated as the ops by
// themselves do, q goes to y [R heads d], k and v to the cache. A warp has a head of a row; n is how many numbers each cache has.
#define TURN_WARPS 4
extern "C" __global__ void __launch_bounds__(TURN_WARPS * 32)
    turnRows(const Element *x, const Element *biasQ, const Element *biasK, const Element *biasV, const float *freq, Element *y, void *cacheK, void *cacheV, int typeK, int typeV, int d, i64 n,
             int half, float turnScale, CACHE_PARAMS) {
    Cache c = CACHE;
    extern __shared__ Element line[]; // [TURN_WARPS][d]
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, all = heads + 2 * keyHeads, head = blockIdx.x * TURN_WARPS + warp, row = blockIdx.y;
    releaseNext();
    awaitPrevious();
    if (head >= all) return;
    const bool turns = head < heads + keyHeads, query = head < heads;
    const int key = query ? head : head < heads + keyHeads ? head - heads : head - heads - keyHeads, p = c.position(row);
    if (!query && p < 0) return;
    const Element *bias = query ? biasQ : turns ? biasK : biasV;
    if (bias) bias += (i64)key * d;
    x += ((i64)row * all + head) * d;
    Element *to = line + warp * d;
    auto number = [&](int i) {
        float v = wide(x[i]);
        if (bias) {
            Element e;
            narrow(v + wide(bias[i]), &e);
            v = wide(e);
        }
        return v;
    };
    const int turned = turns ? half : 0;
    for (int i = lane; i < turned; i += 32) {
        float s, c;
        sincosf((float)positions[row] * freq[i], &s, &c);
        s *= turnScale;
        c *= turnScale;
        const float low = number(i), high = number(i + half);
        narrow(low * c - high * s, to + i);
        narrow(high * c + low * s, to + i + half);
    }
    for (int i = 2 * turned + lane; i < d; i += 32) narrow(number(i), to + i);
    __syncwarp();
    if (!query) {
        storeRow(turns ? cacheK : cacheV, turns ? typeK : typeV, to, c.row(sequences[row], p, key), d, n);
        return;
    }
    y += ((i64)row * heads + head) * d;
    for (int i = lane * LANES; i < d; i += 32 * LANES) *(Lane *)(y + i) = *(const Lane *)(to + i); // d is a multiple of LANES
}

// gateRows is y [R n] = f(gate)·up of rows that have both side by side [R 2n], n a multiple of LANES.
extern "C" __global__ void __launch_bounds__(256) gateRows(const Element *x, Element *y, i64 packs, int n, int function) {
    releaseNext();
    awaitPrevious();
    for (i64 i = position(); i < packs; i += (i64)gridDim.x * 256) {
        const i64 row = i / (n / LANES), at = row * 2 * n + i % (n / LANES) * LANES;
        float gate[LANES], up[LANES];
        load(x + at, gate);
        load(x + at + n, up);
#pragma unroll
        for (int e = 0; e < LANES; e++) {
            float value = 0, slope;
            if (function == SiLU) both<SiLU>(gate[e], value, slope);
            if (function == GELUTanh) both<GELUTanh>(gate[e], value, slope);
            if (function == GELU) both<GELU>(gate[e], value, slope);
            if (function == ReLU) both<ReLU>(gate[e], value, slope);
            up[e] *= value;
        }
        store(y + i * LANES, up);
    }
}
