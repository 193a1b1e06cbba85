#include "mask.h"
#include "fragments.h"
#include "wgmma.h"
#include "documents.h"

// Attention backward on tensor cores of the Hopper generation (see hopper.cu, whose blocks and
// warpgroups these are): one kernel makes dq, going over keys, and one dk and dv, going over
// queries. Each computes the weights anew, from totals: the logarithms of base 2 of the sums
// that softmax divided by. The first also makes what the second needs of each query: totals,
// delta, the sums of o times do, and with dropout lines.

// STAGES of strips; there are two places for tiles, so that the next one's is fetched ahead. Lines
// take the room of a third.
#define STAGES (DROPOUT ? 2 : 3)
#define STRIP 64 // keys, or queries, at a time
#define ROWS_BYTES (PANELS * ROWS * 128)
#define STRIP_BYTES (PANELS * STRIP * 128)

extern "C" __global__ void __launch_bounds__(384, 1) attentionGradQueries(const Element *q, const Element *k, const Element *v, const Element *o, const float *lse, const Element *grad, float *totals, float *delta, Line *lines, Element *dq, i64 queryStep, i64 keyStep, int samples, const int *list, MASK_PARAMS) {
    Mask c = MASK;
    extern __shared__ char memory[];
    u32 qs = sharedAt(memory) + 1023 & ~1023u, gs = qs + 2 * ROWS_BYTES, ks = gs + 2 * ROWS_BYTES, vs = ks + STAGES * STRIP_BYTES;
    __shared__ Barrier queriesHere[2], queriesFree[2], keysHere[STAGES], keysFree[STAGES], valuesFree[STAGES];
    if (threadIdx.x == 0) {
        for (int n = 0; n < 2; n++) {
            reset(queriesHere[n], 128);
            reset(queriesFree[n], 8);
        }
        for (int n = 0; n < STAGES; n++) {
            reset(keysHere[n], 128);
            reset(keysFree[n], 8);
            reset(valuesFree[n], 8);
        }
    }
    __syncthreads();
    i64 rowStep = (i64)heads * HEAD; // of o and its gradient; those of q, k, v and theirs are given
    Tile t;
    int h, tiles = tilesOf(c, list, samples);
    if (threadIdx.x < 128) {
        FETCHING_REGISTERS(40);
        Ring<STAGES> ring = {0, 1};
        Ring<2> tileRing = {0, 1};
        for (int n = 0; turn<false>(c, list, tiles, samples, n, heads, t, h); n++, tileRing.next()) {
            Range range = rangeOf<false>(c, t, t.first, t.end - 1);
            i64 queriesAt = (i64)t.sample * T * queryStep + (i64)h * HEAD, rowsAt = (i64)t.sample * T * rowStep + (i64)h * HEAD, keysAt = (i64)t.sample * S * keyStep + (i64)(h * keyHeads / heads) * HEAD;
            for (int j = range.from; j <= range.to; j += STRIP, ring.next()) {
                waitFor(valuesFree[ring.at], ring.phase);
                fetchRows<STRIP>(vs + ring.at * STRIP_BYTES, v + keysAt, keyStep, j, range.to + 1);
                waitFor(keysFree[ring.at], ring.phase);
                fetchRows<STRIP>(ks + ring.at * STRIP_BYTES, k + keysAt, keyStep, j, range.to + 1);
                arriveFetched(keysHere[ring.at]);
                if (j != range.from) continue;
                waitFor(queriesFree[tileRing.at], tileRing.phase);
                fetchRows<ROWS>(qs + tileRing.at * ROWS_BYTES, q + queriesAt, queryStep, t.first, t.end);
                fetchRows<ROWS>(gs + tileRing.at * ROWS_BYTES, grad + rowsAt, rowStep, t.first, t.end);
                arriveFetched(queriesHere[tileRing.at]);
            }
        }
        asm volatile("cp.async.wait_all;"); // nothing is under way when the block ends
        return;
    }
    COMPUTING_REGISTERS(232);
    int lane = threadIdx.x & 31, half = (threadIdx.x >> 7) - 1; // which 64 rows
    u32 limit = limitOf(c);
    float unit = scale * LOG2E;
    Ring<2> tileRing = {0, 0};
    Ring<STAGES> ring = {0, 0}; // of the keys whose scores are next; last is where the ones before are
    int last = 0;
    auto release = [&](Barrier &b) {
        if (lane == 0) arrive(b);
    };
    if (half == 1) endTurn(1); // the first half begins
    bool more = turn<false>(c, list, tiles, samples, 0, heads, t, h);
    for (int n = 1; more; n++, tileRing.next()) {
        Range range = rangeOf<false>(c, t, t.first, t.end - 1), own = NOTHING, whole = NOTHING, seen[2];
        int first = t.first + half * 64, final = min(first + 63, t.end - 1), row = first + (threadIdx.x >> 5 & 3) * 16 + (lane >> 2);
        if (first < t.end) own = rangeOf<false>(c, t, first, final);
        if (first + 63 < t.end && !special(c, t)) whole = wholeOf<false>(c, t, first, final);
        float total[2], inner[2];
        Line line[2];
        i64 at = ((i64)t.sample * heads + h) * T + row;
        Quarters mine;
        mine.load(o + (i64)t.sample * T * rowStep + (i64)h * HEAD, rowStep, row, t.end);
#pragma unroll
        for (int y = 0; y < 2; y++) {
            seen[y] = row + y * 8 < t.end ? rangeOf<false>(c, t, row + y * 8, row + y * 8) : Range NOTHING;
            total[y] = row + y * 8 < t.end ? totalOf(lse[at + y * 8]) : 0;
            if (drops(c)) line[y] = lineOf(c, streamBase(key, stream), t.sample, h, row + y * 8);
        }
        float s[STRIP / 8][4], g[STRIP / 8][4], out[HEAD / 8][4];
        u32 p[STRIP / 16][4];
        zero(out);
        auto scores = [&]() {
            waitFor(keysHere[ring.at], ring.phase);
            seeFetched();
            awaitTurn(half);
            held(s);
            held(g);
            begin();
            rowsByRows<ROWS>(s, qs + tileRing.at * ROWS_BYTES, half * 64, ks + ring.at * STRIP_BYTES);
            rowsByRows<ROWS>(g, gs + tileRing.at * ROWS_BYTES, half * 64, vs + ring.at * STRIP_BYTES);
            submit();
        };
        auto sums = [&]() {
            held(out);
            begin();
            byColumns(out, p, ks + last * STRIP_BYTES);
            submit();
        };
        auto valuesDone = [&]() {
            release(valuesFree[ring.at]);
            last = ring.at;
            ring.next();
        };
        auto pass = [&]() { // keys that no row of ours sees
            awaitTurn(half);
            endTurn(half);
            waitFor(keysHere[ring.at], ring.phase);
            valuesDone();
            release(keysFree[last]);
        };
        u32 drop[2];
        auto chances = [&](int j0) { // while scores are made
            if (drops(c))
#pragma unroll
                for (int y = 0; y < 2; y++) drop[y] = dropBits<STRIP / 4>(line[y], j0 + (lane & 3) * 2, limit);
        };
        auto gradients = [&](int j0) {
            int column = j0 + (lane & 3) * 2;
            if (j0 < whole.from || j0 + STRIP - 1 > whole.to) hide<STRIP / 8, false>(c, t, s, row, column, seen);
#pragma unroll
            for (int y = 0; y < 2; y++) {
#pragma unroll
                for (int i = 0; i < STRIP / 8; i++)
#pragma unroll
                    for (int x = 2 * y; x < 2 * y + 2; x++) {
                        if (drops(c)) g[i][x] = drop[y] >> (2 * i + (x & 1)) & 1 ? 0 : g[i][x] * c.keep;
                        s[i][x] = power2(s[i][x] * unit - total[y]) * (g[i][x] - inner[y]);
                    }
            }
        };
        Tile after; // looked up during the last sums
        int headAfter;
        auto look = [&]() {
            release(queriesFree[tileRing.at]);
            more = turn<false>(c, list, tiles, samples, n, heads, after, headAfter);
        };
        waitFor(queriesHere[tileRing.at], tileRing.phase);
        mine.dot<ROWS>(gs + tileRing.at * ROWS_BYTES, row - t.first, inner);
#pragma unroll
        for (int y = 0; y < 2; y++)
            if ((lane & 3) == 0 && row + y * 8 < t.end) {
                totals[at + y * 8] = total[y];
                delta[at + y * 8] = inner[y];
                if (drops(c)) lines[at + y * 8] = line[y];
            }
        int j = range.from;
        for (; j <= range.to && (own.from > own.to || j + STRIP <= own.from); j += STRIP) pass();
        if (j <= own.to) {
            scores();
            endTurn(half);
            chances(j);
            finish<0>();
            held(s);
            held(g);
            valuesDone();
            gradients(j);
            asFactor(p, s);
            for (j += STRIP; j <= own.to; j += STRIP) {
                scores();
                sums();
                endTurn(half);
                chances(j);
                finish<1>();
                held(s);
                held(g);
                int before = last;
                valuesDone();
                gradients(j);
                finish<0>();
                held(out);
                release(keysFree[before]);
                asFactor(p, s);
            }
            sums();
            look();
            finish<0>();
            held(out);
            release(keysFree[last]);
        } else {
            look();
        }
        for (; j <= range.to; j += STRIP) pass();
        putRows(dq + (i64)t.sample * T * queryStep + (i64)h * HEAD, queryStep, row, t.end, out, scale, scale);
        t = after;
        h = headAfter;
    }
}

// dk and dv of a tile of keys of a key head, over the queries of the heads that share it. Rows
// of scores are keys. Where there are too few tiles to fill the GPU, those heads are dealt to
// several turns, which write their sums to parts, split by split, first all of dk and then of
// dv (see foldParts).
extern "C" __global__ void __launch_bounds__(384, 1) attentionGradKeys(const Element *q, const Element *k, const Element *v, const Element *grad, const float *totals, const float *delta, const Line *lines, Element *dk, Element *dv, float *parts, int splits, i64 queryStep, i64 keyStep, int samples, const int *list, MASK_PARAMS) {
    Mask c = MASK;
    extern __shared__ char memory[];
    u32 ks = sharedAt(memory) + 1023 & ~1023u, vs = ks + 2 * ROWS_BYTES, qs = vs + 2 * ROWS_BYTES, gs = qs + STAGES * STRIP_BYTES;
    __shared__ float totalsHere[STAGES][STRIP], deltasHere[STAGES][STRIP];
    __shared__ Line linesHere[STAGES][DROPOUT ? STRIP : 1];
    __shared__ Barrier keysHere[2], keysFree[2], queriesHere[STAGES], queriesFree[STAGES];
    if (threadIdx.x == 0) {
        for (int n = 0; n < 2; n++) {
            reset(keysHere[n], 128);
            reset(keysFree[n], 8);
        }
        for (int n = 0; n < STAGES; n++) {
            reset(queriesHere[n], 128);
            reset(queriesFree[n], 8);
        }
    }
    __syncthreads();
    i64 rowStep = (i64)heads * HEAD; // of o and its gradient; those of q, k, v and theirs are given
    Tile t;
    int part, group = heads / keyHeads / splits, tiles = tilesOf(c, list, samples);
    if (threadIdx.x < 128) {
        if (DROPOUT) FETCHING_REGISTERS(24);
        else FETCHING_REGISTERS(40);
        Ring<STAGES> ring = {0, 1};
        Ring<2> tileRing = {0, 1};
        for (int n = 0; turn<true>(c, list, tiles, samples, n, keyHeads * splits, t, part); n++, tileRing.next()) {
            Range range = rangeOf<true>(c, t, t.first, t.end - 1);
            i64 keysAt = (i64)t.sample * S * keyStep + (i64)(part / splits) * HEAD;
            for (int h = part * group; h < part * group + group; h++) {
                i64 queriesAt = (i64)t.sample * T * queryStep + (i64)h * HEAD, rowsAt = (i64)t.sample * T * rowStep + (i64)h * HEAD, line = ((i64)t.sample * heads + h) * T;
                for (int i = range.from; i <= range.to; i += STRIP, ring.next()) {
                    waitFor(queriesFree[ring.at], ring.phase);
                    fetchRows<STRIP>(qs + ring.at * STRIP_BYTES, q + queriesAt, queryStep, i, range.to + 1);
                    fetchRows<STRIP>(gs + ring.at * STRIP_BYTES, grad + rowsAt, rowStep, i, range.to + 1);
                    int x = threadIdx.x & STRIP - 1;
                    bool there = i + x <= range.to;
                    const float *from = (threadIdx.x < STRIP ? totals : delta) + line + (there ? i + x : 0);
                    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(sharedAt(threadIdx.x < STRIP ? &totalsHere[ring.at][x] : &deltasHere[ring.at][x])), "l"(from), "r"(there ? 4 : 0));
                    if (drops(c) && threadIdx.x < STRIP)
                        asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(sharedAt(&linesHere[ring.at][x])), "l"(lines + line + (there ? i + x : 0)), "r"(there ? 8 : 0));
                    arriveFetched(queriesHere[ring.at]);
                    if (h != part * group || i != range.from) continue;
                    waitFor(keysFree[tileRing.at], tileRing.phase);
                    fetchRows<ROWS>(ks + tileRing.at * ROWS_BYTES, k + keysAt, keyStep, t.first, t.end);
                    fetchRows<ROWS>(vs + tileRing.at * ROWS_BYTES, v + keysAt, keyStep, t.first, t.end);
                    arriveFetched(keysHere[tileRing.at]);
                }
            }
        }
        asm volatile("cp.async.wait_all;"); // nothing is under way when the block ends
        return;
    }
    if (DROPOUT) COMPUTING_REGISTERS(240);
    else COMPUTING_REGISTERS(232);
    int lane = threadIdx.x & 31, half = (threadIdx.x >> 7) - 1; // which 64 rows
    u32 limit = limitOf(c);
    float unit = scale * LOG2E;
    Ring<2> tileRing = {0, 0};
    Ring<STAGES> ring = {0, 0};
    int last = -1; // the stage of the queries whose sums are under way
    auto release = [&](Barrier &b) {
        if (lane == 0) arrive(b);
    };
    for (int n = 0; turn<true>(c, list, tiles, samples, n, keyHeads * splits, t, part); n++, tileRing.next()) {
        Range range = rangeOf<true>(c, t, t.first, t.end - 1), own = NOTHING, whole = NOTHING, seen[2];
        int first = t.first + half * 64, final = min(first + 63, t.end - 1), row = first + (threadIdx.x >> 5 & 3) * 16 + (lane >> 2);
        if (first < t.end) own = rangeOf<true>(c, t, first, final);
        if (first + 63 < t.end && !special(c, t)) whole = wholeOf<true>(c, t, first, final);
#pragma unroll
        for (int y = 0; y < 2; y++) {
            int j = row + y * 8;
            bool there = j < t.end && !(MASKS && c.keyMask && c.keyMask[(i64)t.sample * S + j] == 0);
            seen[y] = there ? rangeOf<true>(c, t, j, j) : Range NOTHING;
        }
        float s[STRIP / 8][4], g[STRIP / 8][4], outK[HEAD / 8][4], outV[HEAD / 8][4];
        u32 p[STRIP / 16][4], d[STRIP / 16][4];
        float by = drops(c) ? c.keep : 1.0f;
        zero(outK);
        zero(outV);
        int h = part * group, i0 = range.from - STRIP;
        auto sumsDone = [&]() {
            finish<0>();
            held(outK);
            held(outV);
            if (last >= 0) release(queriesFree[last]);
            last = -1;
        };
        // next goes to the next queries that see a row of ours. Whoever passes over others holds none, so
        // that they can be fetched.
        auto next = [&]() {
            for (;; ring.next()) {
                if ((i0 += STRIP) > range.to) {
                    i0 = range.from;
                    if (++h == (part + 1) * group) return false;
                }
                bool ours = i0 <= own.to && i0 + STRIP > own.from;
                if (!ours) sumsDone();
                waitFor(queriesHere[ring.at], ring.phase);
                if (ours) return true;
                release(queriesFree[ring.at]);
            }
        };
        auto scores = [&](float(&x)[STRIP / 8][4], u32 rows, u32 columns) {
            seeFetched();
            held(x);
            begin();
            rowsByRows<ROWS>(x, rows + tileRing.at * ROWS_BYTES, half * 64, columns + ring.at * STRIP_BYTES);
            submit();
        };
        auto sums = [&]() {
            held(outK);
            held(outV);
            begin();
            byColumns(outV, p, gs + last * STRIP_BYTES);
            byColumns(outK, d, qs + last * STRIP_BYTES);
            submit();
        };
        u32 drop = 0; // bit 4i+x: of s[i][x]
        auto chances = [&]() { // while scores are made
            if (!drops(c)) return;
            drop = 0;
#pragma unroll 2 // registers are short
            for (int i = 0; i < STRIP / 4; i++) {
                Line line;
                asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(line.start), "=r"(line.turn) : "r"(sharedAt(&linesHere[ring.at][(lane & 3) * 2]) + ((i >> 1) * 8 + (i & 1)) * (int)sizeof(Line)));
                u32 from = line.start + row * LINE_STEP;
#pragma unroll
                for (int y = 0; y < 2; y++) drop |= (lineBits(from + y * 8 * LINE_STEP, line.turn) < limit ? 1u : 0u) << ((i >> 1) * 4 + 2 * y + (i & 1));
                asm volatile("" : "+r"(drop));
            }
        };
        // weights and gradients of the scores in s, while those in g are still made
        auto gradients = [&]() {
            int column = i0 + (lane & 3) * 2;
            if (i0 < whole.from || i0 + STRIP - 1 > whole.to) hide<STRIP / 8, true>(c, t, s, row, column, seen);
#pragma unroll
            for (int i = 0; i < STRIP / 8; i++) {
                float2 total = *(const float2 *)&totalsHere[ring.at][i * 8 + (lane & 3) * 2];
#pragma unroll
                for (int x = 0; x < 4; x++) s[i][x] = power2(s[i][x] * unit - (x & 1 ? total.y : total.x));
            }
            auto kept = [&](int i, int x, float w) { return drops(c) && drop >> (4 * i + x) & 1 ? 0 : w; };
#pragma unroll
            for (int n = 0; n < STRIP / 16; n++)
#pragma unroll
                for (int x = 0; x < 4; x++) {
                    int i = 2 * n + (x >> 1), y = (x & 1) * 2;
                    p[n][x] = two(kept(i, y, s[i][y]), kept(i, y + 1, s[i][y + 1])); // dv is scaled at the end
                }
            finish<0>();
            held(g);
#pragma unroll
            for (int i = 0; i < STRIP / 8; i++) {
                float2 inner = *(const float2 *)&deltasHere[ring.at][i * 8 + (lane & 3) * 2];
#pragma unroll
                for (int x = 0; x < 4; x++) g[i][x] = s[i][x] * (kept(i, x, g[i][x] * by) - (x & 1 ? inner.y : inner.x));
            }
            asFactor(d, g);
            last = ring.at;
            ring.next();
        };
        waitFor(keysHere[tileRing.at], tileRing.phase);
        if (next()) {
            scores(s, ks, qs);
            chances();
            finish<0>();
            held(s);
            scores(g, vs, gs);
            gradients();
            while (true) {
                sums();
                if (!next()) break;
                scores(s, ks, qs);
                chances();
                sumsDone();
                held(s);
                scores(g, vs, gs);
                gradients();
            }
        }
        sumsDone();
        release(keysFree[tileRing.at]);
        i64 keysAt = (i64)t.sample * S * keyStep + (i64)(part / splits) * HEAD;
        if (splits > 1) {
            i64 size = (i64)samples * S * keyStep;
            float *partK = parts + part % splits * size + keysAt, *partV = partK + splits * size;
            putParts(partK, keyStep, row, t.end, outK, scale);
            putParts(partV, keyStep, row, t.end, outV, by);
        } else {
            putRows(dk + keysAt, keyStep, row, t.end, outK, scale, scale);
            putRows(dv + keysAt, keyStep, row, t.end, outV, by, by);
        }
    }
}
