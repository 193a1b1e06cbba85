#include "flash.h"

// Attention backward on tensor cores (see flash.h). One kernel makes dq, going over keys,
// and one dk and dv, going over queries; each computes the weights anew from lse.

// Rows a warp works on, in tiles of 16: more of them share a right factor once it is
// loaded, as far as there are registers for their sums.
#define TILES (HEAD <= 64 ? 2 : 1)
#define ROWS (WARPS * TILES * 16) // of a block

// dq of ROWS queries of a head per block; KEYS keys at a time.
extern "C" __global__ void __launch_bounds__(128) attentionGradQueries(const Element *q, const Element *k, const Element *v, const float *lse, const Element *grad, const float *delta, Element *dq, MASK_PARAMS) {
    Mask c = MASK;
    extern __shared__ Element tiles[];
    Element *qs = tiles, *gs = qs + ROWS * PITCH, *ks = gs + ROWS * PITCH, *vs = ks + 2 * KEYS * PITCH;
    int i0 = (gridDim.x - 1 - blockIdx.x) * ROWS, h = blockIdx.y, b = blockIdx.z, lane = threadIdx.x & 31, mine = (threadIdx.x >> 5) * TILES * 16;
    i64 queryStep = (i64)heads * HEAD, keyStep = (i64)keyHeads * HEAD, queryAt = (i64)b * T * queryStep + (i64)h * HEAD;
    i64 keyAt = (i64)b * S * keyStep + (i64)(h * keyHeads / heads) * HEAD, line = ((i64)b * heads + h) * T;
    k += keyAt;
    v += keyAt;
    ofHead(c, mask, b, h);
    u64 base = streamBase(key, stream);
    int first = firstKey(c, i0) / KEYS * KEYS, end = endKey(c, i0 + ROWS - 1), row = i0 + mine + (lane >> 2);
    float out[TILES][HEAD / 8][4], total[2 * TILES], inner[2 * TILES], unit = scale * LOG2E;
#pragma unroll
    for (int m = 0; m < TILES; m++) zero(out[m]);
#pragma unroll
    for (int y = 0; y < 2 * TILES; y++) {
        total[y] = row + y * 8 < T ? lse[line + row + y * 8] * LOG2E : 0;
        inner[y] = row + y * 8 < T ? delta[line + row + y * 8] : 0;
    }
    Span own = queriesSpan(c, b, i0, i0 + ROWS - 1);
    auto next = [&](int j) {
        while (j < end && apart(own, spanOf(c, b, j, j + KEYS - 1))) j += KEYS;
        return j;
    };
    first = next(first);
    fetchTile<ROWS>(qs, q + queryAt, queryStep, i0, T);
    fetchTile<ROWS>(gs, grad + queryAt, queryStep, i0, T);
    fetchTile<KEYS>(ks, k, keyStep, first, S);
    fetchTile<KEYS>(vs, v, keyStep, first, S);
    commit();
    for (int j0 = first, j1, stage = 0; j0 < end; j0 = j1, stage ^= 1) {
        j1 = next(j0 + KEYS);
        Element *kt = ks + stage * KEYS * PITCH, *vt = vs + stage * KEYS * PITCH;
        await<0>();
        __syncthreads();
        if (j1 < end) {
            fetchTile<KEYS>(ks + (stage ^ 1) * KEYS * PITCH, k, keyStep, j1, S);
            fetchTile<KEYS>(vs + (stage ^ 1) * KEYS * PITCH, v, keyStep, j1, S);
        }
        commit();
        bool all = whole(c, i0 + mine, i0 + mine + TILES * 16 - 1, j0, j0 + KEYS - 1) && !mixed(own, spanOf(c, b, j0, j0 + KEYS - 1));
#pragma unroll
        for (int half = 0; half < 2; half++) { // of the keys, so that the sums fit into registers
            float s[TILES][KEYS / 16][4], g[TILES][KEYS / 16][4];
#pragma unroll
            for (int m = 0; m < TILES; m++) {
                zero(s[m]);
                zero(g[m]);
            }
#pragma unroll
            for (int d = 0; d < SLABS; d++) {
                Left a[TILES], e[TILES];
                Right f;
#pragma unroll
                for (int m = 0; m < TILES; m++) {
                    left(a[m], qs, mine + m * 16, d * 16);
                    left(e[m], gs, mine + m * 16, d * 16);
                }
#pragma unroll
                for (int n = 0; n < KEYS / 32; n++) {
                    right(f, kt, half * (KEYS / 2) + n * 16, d * 16);
#pragma unroll
                    for (int m = 0; m < TILES; m++) {
                        mma(s[m][2 * n], a[m], f, 0);
                        mma(s[m][2 * n + 1], a[m], f, 1);
                    }
                    right(f, vt, half * (KEYS / 2) + n * 16, d * 16);
#pragma unroll
                    for (int m = 0; m < TILES; m++) {
                        mma(g[m][2 * n], e[m], f, 0);
                        mma(g[m][2 * n + 1], e[m], f, 1);
                    }
                }
            }
            int from = j0 + half * (KEYS / 2) + (lane & 3) * 2;
            if (!all)
#pragma unroll
                for (int m = 0; m < TILES; m++)
#pragma unroll
                    for (int n = 0; n < KEYS / 16; n++)
#pragma unroll
                        for (int x = 0; x < 4; x++) s[m][n][x] = product(c, b, row + m * 16 + (x >> 1) * 8, from + n * 8 + (x & 1), s[m][n][x]);
#pragma unroll
            for (int m = 0; m < TILES; m++)
#pragma unroll
                for (int n = 0; n < KEYS / 16; n++)
#pragma unroll
                    for (int x = 0; x < 4; x++) {
                        int y = 2 * m + (x >> 1);
                        float p = s[m][n][x] == -INFINITE ? 0.0f : power2(s[m][n][x] * unit - total[y]);
                        if (drops(c)) g[m][n][x] *= dropped(c, base, b, h, row + y * 8, from + n * 8 + (x & 1));
                        s[m][n][x] = p * (g[m][n][x] - inner[y]);
                    }
#pragma unroll
            for (int n = 0; n < KEYS / 32; n++) {
                Left a[TILES];
                Right f;
#pragma unroll
                for (int m = 0; m < TILES; m++) asLeft(a[m], s[m][2 * n], s[m][2 * n + 1]);
#pragma unroll
                for (int d = 0; d < SLABS; d++) {
                    down(f, kt, half * (KEYS / 2) + n * 16, d * 16);
#pragma unroll
                    for (int m = 0; m < TILES; m++) {
                        mma(out[m][2 * d], a[m], f, 0);
                        mma(out[m][2 * d + 1], a[m], f, 1);
                    }
                }
            }
        }
    }
    await<0>();
#pragma unroll
    for (int m = 0; m < TILES; m++) putRows(dq + queryAt, queryStep, row + m * 16, T, out[m], scale, scale);
}

// dk and dv of ROWS keys of a key head per block, over the queries of the heads that
// share it, STRIP queries at a time. Tiles are turned: rows are keys. Where there are
// too few blocks to fill the GPU, those heads are dealt to several blocks, which write
// their sums to parts, split by split, first all of dk and then of dv (see foldParts).
#define STRIP 32

extern "C" __global__ void __launch_bounds__(128) attentionGradKeys(const Element *q, const Element *k, const Element *v, const float *lse, const Element *grad, const float *delta, Element *dk, Element *dv, float *parts, int splits, MASK_PARAMS) {
    Mask c = MASK;
    extern __shared__ Element tiles[];
    Element *ks = tiles, *vs = ks + ROWS * PITCH, *qs = vs + ROWS * PITCH, *gs = qs + 2 * STRIP * PITCH;
    __shared__ float totals[2][STRIP], inners[2][STRIP];
    int j0 = blockIdx.x * ROWS, kh = blockIdx.y / splits, split = blockIdx.y % splits, b = blockIdx.z, lane = threadIdx.x & 31, mine = (threadIdx.x >> 5) * TILES * 16;
    i64 queryStep = (i64)heads * HEAD, keyStep = (i64)keyHeads * HEAD, keyAt = (i64)b * S * keyStep + (i64)kh * HEAD;
    u64 base = streamBase(key, stream);
    int group = heads / keyHeads / splits, head = kh * group * splits + split * group, first = firstQuery(c, j0) / STRIP * STRIP, end = endQuery(c, j0 + ROWS - 1), row = j0 + mine + (lane >> 2);
    int strips = end > first ? (end - first + STRIP - 1) / STRIP : 0, rounds = group * strips;
    float outK[TILES][HEAD / 8][4], outV[TILES][HEAD / 8][4], unit = scale * LOG2E;
#pragma unroll
    for (int m = 0; m < TILES; m++) {
        zero(outK[m]);
        zero(outV[m]);
    }
    // round n is strip n % strips of the block's head n / strips
    auto fetch = [&](int n, int stage) {
        int h = head + n / strips, i0 = first + n % strips * STRIP;
        i64 queryAt = (i64)b * T * queryStep + (i64)h * HEAD, line = ((i64)b * heads + h) * T;
        fetchTile<STRIP>(qs + stage * STRIP * PITCH, q + queryAt, queryStep, i0, T);
        fetchTile<STRIP>(gs + stage * STRIP * PITCH, grad + queryAt, queryStep, i0, T);
        if (threadIdx.x < STRIP) {
            bool there = i0 + threadIdx.x < T;
            totals[stage][threadIdx.x] = there ? lse[line + i0 + threadIdx.x] * LOG2E : 0;
            inners[stage][threadIdx.x] = there ? delta[line + i0 + threadIdx.x] : 0;
        }
    };
    // the next round whose queries see any of the keys
    Span own = spanOf(c, b, j0, j0 + ROWS - 1);
    auto ofRound = [&](int n) { return queriesSpan(c, b, first + n % strips * STRIP, first + n % strips * STRIP + STRIP - 1); };
    auto next = [&](int n) {
        while (n < rounds && apart(own, ofRound(n))) n++;
        return n;
    };
    fetchTile<ROWS>(ks, k + keyAt, keyStep, j0, S);
    fetchTile<ROWS>(vs, v + keyAt, keyStep, j0, S);
    int n = next(0);
    if (n < rounds) fetch(n, 0);
    commit();
    for (int after, stage = 0; n < rounds; n = after, stage ^= 1) {
        after = next(n + 1);
        Element *qt = qs + stage * STRIP * PITCH, *gt = gs + stage * STRIP * PITCH;
        await<0>();
        __syncthreads();
        if (after < rounds) fetch(after, stage ^ 1);
        commit();
        int h = head + n / strips, i0 = first + n % strips * STRIP, in = (lane & 3) * 2;
        ofHead(c, mask, b, h);
        float s[TILES][STRIP / 8][4], g[TILES][STRIP / 8][4];
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            zero(s[t]);
            zero(g[t]);
        }
#pragma unroll
        for (int d = 0; d < SLABS; d++) {
            Left a[TILES], e[TILES];
            Right f;
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                left(a[t], ks, mine + t * 16, d * 16);
                left(e[t], vs, mine + t * 16, d * 16);
            }
#pragma unroll
            for (int m = 0; m < STRIP / 16; m++) {
                right(f, qt, m * 16, d * 16);
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                    mma(s[t][2 * m], a[t], f, 0);
                    mma(s[t][2 * m + 1], a[t], f, 1);
                }
                right(f, gt, m * 16, d * 16);
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                    mma(g[t][2 * m], e[t], f, 0);
                    mma(g[t][2 * m + 1], e[t], f, 1);
                }
            }
        }
        if (!whole(c, i0, i0 + STRIP - 1, j0 + mine, j0 + mine + TILES * 16 - 1) || mixed(own, ofRound(n)))
#pragma unroll
            for (int t = 0; t < TILES; t++)
#pragma unroll
                for (int m = 0; m < STRIP / 8; m++)
#pragma unroll
                    for (int x = 0; x < 4; x++) s[t][m][x] = product(c, b, i0 + in + m * 8 + (x & 1), row + t * 16 + (x >> 1) * 8, s[t][m][x]);
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int m = 0; m < STRIP / 8; m++)
#pragma unroll
                for (int x = 0; x < 4; x++) {
                    int i = in + m * 8 + (x & 1);
                    float p = s[t][m][x] == -INFINITE ? 0.0f : power2(s[t][m][x] * unit - totals[stage][i]), w = p;
                    if (drops(c)) {
                        float drop = dropped(c, base, b, h, i0 + i, row + t * 16 + (x >> 1) * 8);
                        w *= drop;
                        g[t][m][x] *= drop;
                    }
                    s[t][m][x] = w;
                    g[t][m][x] = p * (g[t][m][x] - inners[stage][i]);
                }
#pragma unroll
        for (int m = 0; m < STRIP / 16; m++) {
            Left a[TILES], e[TILES];
            Right f;
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                asLeft(a[t], s[t][2 * m], s[t][2 * m + 1]);
                asLeft(e[t], g[t][2 * m], g[t][2 * m + 1]);
            }
#pragma unroll
            for (int d = 0; d < SLABS; d++) {
                down(f, gt, m * 16, d * 16);
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                    mma(outV[t][2 * d], a[t], f, 0);
                    mma(outV[t][2 * d + 1], a[t], f, 1);
                }
                down(f, qt, m * 16, d * 16);
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                    mma(outK[t][2 * d], e[t], f, 0);
                    mma(outK[t][2 * d + 1], e[t], f, 1);
                }
            }
        }
    }
    await<0>();
    if (splits > 1) {
        i64 size = (i64)gridDim.z * S * keyStep;
        float *partK = parts + split * size + keyAt, *partV = partK + splits * size;
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            putParts(partK, keyStep, row + t * 16, S, outK[t], scale);
            putParts(partV, keyStep, row + t * 16, S, outV[t], 1.0f);
        }
        return;
    }
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        putRows(dk + keyAt, keyStep, row + t * 16, S, outK[t], scale, scale);
        putRows(dv + keyAt, keyStep, row + t * 16, S, outV[t], 1.0f, 1.0f);
    }
}
