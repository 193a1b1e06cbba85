#include "flash.h"

// Attention forward on tensor cores (see flash.h): 128 queries of a head per block, 32
// per warp; KEYS keys at a time. Softmax is kept up to date as keys come: top is the
// greatest product of a row so far, sum and out are relative to it.

#define QUERIES 128

extern "C" __global__ void __launch_bounds__(128) attention(const Element *q, const Element *k, const Element *v, Element *o, float *lse, MASK_PARAMS) {
    Mask c = MASK;
    extern __shared__ Element tiles[];
    Element *qs = tiles, *ks = qs + QUERIES * PITCH, *vs = ks + 2 * KEYS * PITCH;
    int i0 = (gridDim.x - 1 - blockIdx.x) * QUERIES, h = blockIdx.y, b = blockIdx.z, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    i64 queryStep = (i64)heads * HEAD, keyStep = (i64)keyHeads * HEAD;
    q += (i64)b * T * queryStep + (i64)h * HEAD;
    o += (i64)b * T * queryStep + (i64)h * HEAD;
    i64 shared = (i64)b * S * keyStep + (i64)(h * keyHeads / heads) * HEAD;
    k += shared;
    v += shared;
    ofHead(c, mask, b, h);
    u64 base = streamBase(key, stream);
    int first = firstKey(c, i0) / KEYS * KEYS, end = endKey(c, i0 + QUERIES - 1), row = i0 + warp * 32 + (lane >> 2);
    float out[2][HEAD / 8][4], top[4], sum[4], unit = scale * LOG2E;
    zero(out[0]);
    zero(out[1]);
#pragma unroll
    for (int x = 0; x < 4; x++) {
        top[x] = -INFINITE;
        sum[x] = 0;
    }
    // the next tile of keys that any of the queries sees
    Span own = queriesSpan(c, b, i0, i0 + QUERIES - 1);
    auto next = [&](int j) {
        while (j < end && apart(own, spanOf(c, b, j, j + KEYS - 1))) j += KEYS;
        return j;
    };
    first = next(first);
    fetchTile<QUERIES>(qs, q, queryStep, i0, T);
    fetchTile<KEYS>(ks, k, keyStep, first, S);
    commit();
    fetchTile<KEYS>(vs, v, keyStep, first, S);
    commit();
    for (int j0 = first, j1, stage = 0; j0 < end; j0 = j1, stage ^= 1) {
        j1 = next(j0 + KEYS);
        Element *kt = ks + stage * KEYS * PITCH, *vt = vs + stage * KEYS * PITCH;
        await<1>();
        __syncthreads(); // these keys are here, and the other stage is no longer read
        if (j1 < end) fetchTile<KEYS>(ks + (stage ^ 1) * KEYS * PITCH, k, keyStep, j1, S);
        commit();
        float s[2][KEYS / 8][4];
        zero(s[0]);
        zero(s[1]);
#pragma unroll
        for (int d = 0; d < SLABS; d++) {
            Left a[2];
            Right f;
            left(a[0], qs, warp * 32, d * 16);
            left(a[1], qs, warp * 32 + 16, d * 16);
#pragma unroll
            for (int n = 0; n < KEYS / 16; n++) {
                right(f, kt, n * 16, d * 16);
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    mma(s[m][2 * n], a[m], f, 0);
                    mma(s[m][2 * n + 1], a[m], f, 1);
                }
            }
        }
        if (!whole(c, i0 + warp * 32, i0 + warp * 32 + 31, j0, j0 + KEYS - 1) || mixed(own, spanOf(c, b, j0, j0 + KEYS - 1)))
#pragma unroll
            for (int m = 0; m < 2; m++)
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                    for (int x = 0; x < 4; x++) s[m][n][x] = product(c, b, row + m * 16 + (x >> 1) * 8, j0 + n * 8 + (lane & 3) * 2 + (x & 1), s[m][n][x]);
#pragma unroll
        for (int y = 0; y < 4; y++) { // the four rows of a lane: 0, 8, 16, 24 below row
            float most = top[y], part = 0;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) most = fmaxf(most, fmaxf(s[y >> 1][n][(y & 1) * 2], s[y >> 1][n][(y & 1) * 2 + 1]));
            most = lineMax(most);
            float from = most == -INFINITE ? 0 : most * unit, shrink = power2(top[y] * unit - from);
            top[y] = most;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int x = 0; x < 2; x++) {
                    float p = power2(s[y >> 1][n][(y & 1) * 2 + x] * unit - from);
                    part += p;
                    if (drops(c)) p *= dropped(c, base, b, h, row + y * 8, j0 + n * 8 + (lane & 3) * 2 + x);
                    s[y >> 1][n][(y & 1) * 2 + x] = p;
                }
            sum[y] = sum[y] * shrink + part; // each lane's own share
#pragma unroll
            for (int n = 0; n < HEAD / 8; n++) {
                out[y >> 1][n][(y & 1) * 2] *= shrink;
                out[y >> 1][n][(y & 1) * 2 + 1] *= shrink;
            }
        }
        await<1>();
        __syncthreads(); // these values are here
        if (j1 < end) fetchTile<KEYS>(vs + (stage ^ 1) * KEYS * PITCH, v, keyStep, j1, S);
        commit();
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) {
            Left p[2];
            Right f;
            asLeft(p[0], s[0][2 * n], s[0][2 * n + 1]);
            asLeft(p[1], s[1][2 * n], s[1][2 * n + 1]);
#pragma unroll
            for (int d = 0; d < SLABS; d++) {
                down(f, vt, n * 16, d * 16);
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    mma(out[m][2 * d], p[m], f, 0);
                    mma(out[m][2 * d + 1], p[m], f, 1);
                }
            }
        }
    }
    await<0>();
#pragma unroll
    for (int y = 0; y < 4; y++) sum[y] = lineSum(sum[y]);
#pragma unroll
    for (int m = 0; m < 2; m++)
        putRows(o, queryStep, row + m * 16, T, out[m], sum[2 * m] > 0 ? 1.0f / sum[2 * m] : 0.0f, sum[2 * m + 1] > 0 ? 1.0f / sum[2 * m + 1] : 0.0f);
#pragma unroll
    for (int y = 0; y < 4; y++)
        if ((lane & 3) == 0 && row + y * 8 < T) lse[((i64)b * heads + h) * T + row + y * 8] = sum[y] > 0 ? top[y] * scale + logf(sum[y]) : -INFINITE;
}
