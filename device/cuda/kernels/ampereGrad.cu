#include "ampere.h"

// Attention backward (see ampere.h): one kernel makes dq, going over keys, and one dk and dv,
// going over queries. Each computes the weights anew, from totals: the logarithms of base 2 of
// the sums that softmax divided by. The first also makes what the second needs of each query:
// totals, delta, the sums of o times do, and with dropout lines. With two STAGES what comes next is fetched ahead; one leaves
// room for a second block where shared memory is small.

// rounds calls compute for all the KEYS rows that fetch gets, stage by stage: fetch says whether
// there were any more. The first are under way.
template <class F, class G> __device__ __forceinline__ void rounds(F fetch, G compute) {
    bool more = true;
    for (int stage = 0; more; stage ^= STAGES - 1) {
        await<0>();
        __syncthreads(); // these are here, and nobody reads those of the other stage
        if (STAGES == 2) {
            more = fetch(1 - stage);
            commit();
        }
        compute(stage);
        if (STAGES == 2) continue;
        __syncthreads();
        more = fetch(0);
        commit();
    }
}

extern "C" __global__ void __launch_bounds__(128, 2) attentionGradQueries(const Element *q, const Element *k, const Element *v, const Element *o, const float *lse, const Element *grad, float *totals, float *delta, Line *lines, Element *dq, int samples, const int *list, MASK_PARAMS) {
    Mask c = MASK;
    extern __shared__ __align__(128) char memory[];
    __shared__ Range seen[HEIGHT];
    Item x;
    if (!itemOf<false>(c, list, samples, heads, x)) return;
    int h = x.line, lane = threadIdx.x & 31, mine = x.first + (threadIdx.x >> 5) * TILES * 16, row = mine + (lane >> 2);
    u32 qs = sharedAt(memory), gs = qs + BYTES(HEIGHT), ks = gs + BYTES(HEIGHT), vs = ks + STAGES * BYTES(KEYS);
    i64 queryStep = (i64)heads * HEAD, keyStep = (i64)keyHeads * HEAD;
    i64 queriesAt = (i64)x.tile.sample * T * queryStep + (i64)h * HEAD, keysAt = (i64)x.tile.sample * S * keyStep + (i64)(h * keyHeads / heads) * HEAD;
    Range range = rangeOf<false>(c, x.tile, x.first, x.end - 1), whole = NOTHING;
    fetchRows<HEIGHT>(qs, q + queriesAt, queryStep, x.first, x.end);
    fetchRows<HEIGHT>(gs, grad + queriesAt, queryStep, x.first, x.end);
    for (int i = threadIdx.x; i < HEIGHT; i += 128)
        seen[i] = x.first + i < x.end ? rangeOf<false>(c, x.tile, x.first + i, x.first + i) : Range NOTHING;
    if (mine + TILES * 16 <= x.end && !special(c, x.tile)) whole = wholeOf<false>(c, x.tile, mine, mine + TILES * 16 - 1);
    u32 limit = limitOf(c);
    float out[TILES][HEAD / 8][4], total[2 * TILES], inner[2 * TILES], unit = scale * LOG2E;
#pragma unroll
    for (int m = 0; m < TILES; m++) zero(out[m]);
    int j = range.from, next = j;
    auto fetch = [&](int stage) {
        if (next > range.to) return false;
        fetchRows<KEYS>(ks + stage * BYTES(KEYS), k + keysAt, keyStep, next, range.to + 1);
        fetchRows<KEYS>(vs + stage * BYTES(KEYS), v + keysAt, keyStep, next, range.to + 1);
        next += KEYS;
        return true;
    };
    fetch(0);
    commit();
    Quarters own[TILES];
    Line line[2 * TILES];
#pragma unroll
    for (int m = 0; m < TILES; m++) own[m].load(o + queriesAt, queryStep, row + m * 16, x.end);
    await<0>();
    __syncthreads();
#pragma unroll
    for (int m = 0; m < TILES; m++) {
        float sums[2];
        own[m].dot<HEIGHT>(gs, row - x.first + m * 16, sums);
        inner[2 * m] = sums[0];
        inner[2 * m + 1] = sums[1];
    }
#pragma unroll
    for (int y = 0; y < 2 * TILES; y++) {
        bool there = row + y * 8 < x.end;
        i64 at = ((i64)x.tile.sample * heads + h) * T + row + y * 8;
        total[y] = there ? totalOf(lse[at]) : 0;
        if (drops(c)) line[y] = lineOf(c, streamBase(key, stream), x.tile.sample, h, row + y * 8);
        if ((lane & 3) || !there) continue;
        totals[at] = total[y];
        delta[at] = inner[y];
        if (drops(c)) lines[at] = line[y];
    }
    rounds(fetch, [&](int stage) {
        float s[TILES][KEYS / 8][4], g[TILES][KEYS / 8][4];
        rowsByRows(s, qs, mine - x.first, ks + stage * BYTES(KEYS));
        rowsByRows(g, gs, mine - x.first, vs + stage * BYTES(KEYS));
        int column = j + (lane & 3) * 2;
        if (j < whole.from || j + KEYS - 1 > whole.to) hideRows<false>(c, x, s, mine, column, seen);
#pragma unroll
        for (int y = 0; y < 2 * TILES; y++) {
            u32 drop = drops(c) ? dropBits<KEYS / 4>(line[y], column, limit) : 0;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int z = 0; z < 2; z++) {
                    float &w = s[y >> 1][n][(y & 1) * 2 + z], d = g[y >> 1][n][(y & 1) * 2 + z];
                    if (drops(c)) d = drop >> (2 * n + z) & 1 ? 0 : d * c.keep;
                    w = power2(w * unit - total[y]) * (d - inner[y]);
                }
        }
        byColumns(out, s, ks + stage * BYTES(KEYS), 0);
        j += KEYS;
    });
#pragma unroll
    for (int m = 0; m < TILES; m++) putRows(dq + queriesAt, queryStep, row + m * 16, x.end, out[m], scale, scale);
}

// dk and dv of keys of a key head, over the queries of the heads that share it, KEYS queries at
// a time. Rows of scores are keys. Where there are too few blocks to fill the GPU, those heads
// are dealt to several blocks, which write their sums to parts, split by split, first all of dk and
// then of dv (see foldParts). Of wide heads a block makes WIDTH elements of HEAD.
#define WIDTH (HEAD > 128 ? HEAD / 2 : HEAD)

extern "C" __global__ void __launch_bounds__(128, 2) attentionGradKeys(const Element *q, const Element *k, const Element *v, const Element *grad, const float *totals, const float *delta, const Line *lines, Element *dk, Element *dv, float *parts, int splits, int samples, const int *list, MASK_PARAMS) {
    Mask c = MASK;
    extern __shared__ __align__(128) char memory[];
    __shared__ Range seen[HEIGHT];
    __shared__ float totalsHere[STAGES][KEYS], deltasHere[STAGES][KEYS];
    __shared__ Line linesHere[STAGES][DROPOUT ? KEYS : 1];
    Item x;
    if (!itemOf<true>(c, list, samples, keyHeads * splits * (HEAD / WIDTH), x)) return;
    int part = x.line / (HEAD / WIDTH), slab = x.line % (HEAD / WIDTH) * (WIDTH / 16);
    int lane = threadIdx.x & 31, mine = x.first + (threadIdx.x >> 5) * TILES * 16, row = mine + (lane >> 2);
    u32 ks = sharedAt(memory), vs = ks + BYTES(HEIGHT), qs = vs + BYTES(HEIGHT), gs = qs + STAGES * BYTES(KEYS);
    i64 queryStep = (i64)heads * HEAD, keyStep = (i64)keyHeads * HEAD, keysAt = (i64)x.tile.sample * S * keyStep + (i64)(part / splits) * HEAD;
    Range range = rangeOf<true>(c, x.tile, x.first, x.end - 1), whole = NOTHING;
    fetchRows<HEIGHT>(ks, k + keysAt, keyStep, x.first, x.end);
    fetchRows<HEIGHT>(vs, v + keysAt, keyStep, x.first, x.end);
    for (int n = threadIdx.x; n < HEIGHT; n += 128) {
        int j = x.first + n;
        bool there = j < x.end && !(MASKS && c.keyMask && c.keyMask[(i64)x.tile.sample * S + j] == 0);
        seen[n] = there ? rangeOf<true>(c, x.tile, j, j) : Range NOTHING;
    }
    if (mine + TILES * 16 <= x.end && !special(c, x.tile)) whole = wholeOf<true>(c, x.tile, mine, mine + TILES * 16 - 1);
    u32 limit = limitOf(c);
    float by = drops(c) ? c.keep : 1.0f;
    int group = heads / keyHeads / splits, i0 = range.from, nextHead = part * group, next = i0;
    float outK[TILES][WIDTH / 8][4], outV[TILES][WIDTH / 8][4], unit = scale * LOG2E;
#pragma unroll
    for (int m = 0; m < TILES; m++) {
        zero(outK[m]);
        zero(outV[m]);
    }
    auto fetch = [&](int stage) {
        if (nextHead == (part + 1) * group) return false;
        i64 queriesAt = (i64)x.tile.sample * T * queryStep + (i64)nextHead * HEAD;
        fetchRows<KEYS>(qs + stage * BYTES(KEYS), q + queriesAt, queryStep, next, range.to + 1);
        fetchRows<KEYS>(gs + stage * BYTES(KEYS), grad + queriesAt, queryStep, next, range.to + 1);
        int i = threadIdx.x % KEYS;
        bool there = next + i <= range.to;
        i64 at = ((i64)x.tile.sample * heads + nextHead) * T + (there ? next + i : 0);
        const float *from = (threadIdx.x < KEYS ? totals : delta) + at;
        u32 to = sharedAt(threadIdx.x < KEYS ? &totalsHere[stage][i] : &deltasHere[stage][i]);
        if (threadIdx.x < 2 * KEYS) asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(there ? 4 : 0));
        if (drops(c) && threadIdx.x < KEYS) asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(sharedAt(&linesHere[stage][i])), "l"(lines + at), "r"(there ? 8 : 0));
        if ((next += KEYS) > range.to) {
            next = range.from;
            nextHead++;
        }
        return true;
    };
    fetch(0);
    commit();
    rounds(fetch, [&](int stage) {
        float s[TILES][KEYS / 8][4], g[TILES][KEYS / 8][4];
        rowsByRows(s, ks, mine - x.first, qs + stage * BYTES(KEYS));
        rowsByRows(g, vs, mine - x.first, gs + stage * BYTES(KEYS));
        int in = (lane & 3) * 2;
        if (i0 < whole.from || i0 + KEYS - 1 > whole.to) hideRows<true>(c, x, s, mine, i0 + in, seen);
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int z = 0; z < 2; z++) {
                int i = n * 8 + in + z;
                float total = totalsHere[stage][i], inner = deltasHere[stage][i];
                Line line;
                if (drops(c)) line = linesHere[stage][i];
#pragma unroll
                for (int y = 0; y < 2 * TILES; y++) {
                    float &w = s[y >> 1][n][(y & 1) * 2 + z], &d = g[y >> 1][n][(y & 1) * 2 + z], p = power2(w * unit - total);
                    bool drop = drops(c) && lineBits(line.start + (row + y * 8) * LINE_STEP, line.turn) < limit;
                    w = drop ? 0 : p; // dv is scaled at the end
                    d = p * ((drop ? 0 : d * by) - inner);
                }
            }
        byColumns(outV, s, gs + stage * BYTES(KEYS), slab);
        byColumns(outK, g, qs + stage * BYTES(KEYS), slab);
        if ((i0 += KEYS) > range.to) i0 = range.from;
    });
    keysAt += slab * 16;
    if (splits > 1) {
        i64 size = (i64)samples * S * keyStep;
        float *partK = parts + part % splits * size + keysAt, *partV = partK + splits * size;
#pragma unroll
        for (int m = 0; m < TILES; m++) {
            putParts(partK, keyStep, row + m * 16, x.end, outK[m], scale);
            putParts(partV, keyStep, row + m * 16, x.end, outV[m], by);
        }
        return;
    }
#pragma unroll
    for (int m = 0; m < TILES; m++) {
        putRows(dk + keysAt, keyStep, row + m * 16, x.end, outK[m], scale, scale);
        putRows(dv + keysAt, keyStep, row + m * 16, x.end, outV[m], by, by);
    }
}
