#include "ampere.h"

// Attention forward (see ampere.h). Softmax is kept up to date as keys come: top is the greatest
// product of a row so far, sum and out are relative to it. Values are fetched during the matmuls
// with keys, and the next keys during those with values.

extern "C" __global__ void __launch_bounds__(128, BLOCKS) attention(const Element *q, const Element *k, const Element *v, Element *o, float *lse, int samples, const int *list, MASK_PARAMS) {
    Mask c = MASK;
    extern __shared__ __align__(128) char memory[];
    __shared__ Range seen[HEIGHT];
    Item x;
    if (!itemOf<false>(c, list, samples, heads, x)) return;
    int h = x.line, lane = threadIdx.x & 31, mine = x.first + (threadIdx.x >> 5) * TILES * 16, row = mine + (lane >> 2);
    u32 qs = sharedAt(memory), ks = qs + BYTES(HEIGHT), vs = ks + BYTES(KEYS);
    i64 queryStep = (i64)heads * HEAD, keyStep = (i64)keyHeads * HEAD;
    i64 queriesAt = (i64)x.tile.sample * T * queryStep + (i64)h * HEAD, keysAt = (i64)x.tile.sample * S * keyStep + (i64)(h * keyHeads / heads) * HEAD;
    Range range = rangeOf<false>(c, x.tile, x.first, x.end - 1), whole = NOTHING;
    fetchRows<HEIGHT>(qs, q + queriesAt, queryStep, x.first, x.end);
    fetchRows<KEYS>(ks, k + keysAt, keyStep, range.from, range.to + 1);
    commit();
    for (int i = threadIdx.x; i < HEIGHT; i += 128)
        seen[i] = x.first + i < x.end ? rangeOf<false>(c, x.tile, x.first + i, x.first + i) : Range NOTHING;
    if (mine + TILES * 16 <= x.end && !special(c, x.tile)) whole = wholeOf<false>(c, x.tile, mine, mine + TILES * 16 - 1);
    Line lines[2 * TILES];
    u32 limit = limitOf(c);
    if (drops(c))
#pragma unroll
        for (int y = 0; y < 2 * TILES; y++) lines[y] = lineOf(c, streamBase(key, stream), x.tile.sample, h, row + y * 8);
    float out[TILES][HEAD / 8][4], top[2 * TILES], sum[2 * TILES], unit = scale * LOG2E;
#pragma unroll
    for (int m = 0; m < TILES; m++) zero(out[m]);
#pragma unroll
    for (int y = 0; y < 2 * TILES; y++) {
        top[y] = -INFINITE;
        sum[y] = 0;
    }
    for (int j = range.from; j <= range.to; j += KEYS) {
        await<0>();
        __syncthreads(); // keys are here, and nobody reads values
        fetchRows<KEYS>(vs, v + keysAt, keyStep, j, range.to + 1);
        commit();
        float s[TILES][KEYS / 8][4];
        rowsByRows(s, qs, mine - x.first, ks);
        int column = j + (lane & 3) * 2;
        if (j < whole.from || j + KEYS - 1 > whole.to) hideRows<false>(c, x, s, mine, column, seen);
#pragma unroll
        for (int y = 0; y < 2 * TILES; y++) { // the rows of a lane, eight apart
            float most = top[y], part = 0;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) most = fmaxf(most, fmaxf(s[y >> 1][n][(y & 1) * 2], s[y >> 1][n][(y & 1) * 2 + 1]));
            most = lineMax(most);
            float from = most == -INFINITE ? 0 : most * unit, shrink = power2(top[y] * unit - from);
            top[y] = most;
            u32 drop = drops(c) ? dropBits<KEYS / 4>(lines[y], column, limit) : 0;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int z = 0; z < 2; z++) {
                    float w = power2(s[y >> 1][n][(y & 1) * 2 + z] * unit - from);
                    part += w;
                    if (drop >> (2 * n + z) & 1) w = 0;
                    s[y >> 1][n][(y & 1) * 2 + z] = w;
                }
            sum[y] = sum[y] * shrink + part; // each lane's own share
#pragma unroll
            for (int n = 0; n < HEAD / 8; n++) {
                out[y >> 1][n][(y & 1) * 2] *= shrink;
                out[y >> 1][n][(y & 1) * 2 + 1] *= shrink;
            }
        }
        await<0>();
        __syncthreads(); // values are here, and nobody reads keys
        if (j + KEYS <= range.to) fetchRows<KEYS>(ks, k + keysAt, keyStep, j + KEYS, range.to + 1);
        commit();
        byColumns(out, s, vs, 0);
    }
    float by = drops(c) ? c.keep : 1.0f;
#pragma unroll
    for (int y = 0; y < 2 * TILES; y++) sum[y] = lineSum(sum[y]);
#pragma unroll
    for (int m = 0; m < TILES; m++)
        putRows(o + queriesAt, queryStep, row + m * 16, x.end, out[m], sum[2 * m] > 0 ? by / sum[2 * m] : 0.0f, sum[2 * m + 1] > 0 ? by / sum[2 * m + 1] : 0.0f);
#pragma unroll
    for (int y = 0; y < 2 * TILES; y++)
        if ((lane & 3) == 0 && row + y * 8 < x.end)
            lse[((i64)x.tile.sample * heads + h) * T + row + y * 8] = sum[y] > 0 ? top[y] * scale + logf(sum[y]) : -INFINITE;
}
