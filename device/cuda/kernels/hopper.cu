#include "mask.h"
#include "fragments.h"
#include "wgmma.h"
#include "documents.h"

// Attention forward on tensor cores of the Hopper generation, as many queries as keys. A
// block stays and takes turns at tiles of queries (documents.h). One of its warpgroups fetches
// queries, keys and values into shared memory, KEYS keys at a time; each of the other two
// computes 64 rows. While it makes weights of the scores with some keys, tensor cores
// multiply the weights of the keys before by their values. The two take turns at giving tensor
// cores work, so that one makes weights during the matmuls of the other.

#define STAGES 2 // of queries, keys and values: those of the next tile are fetched ahead

extern "C" __global__ void __launch_bounds__(384, 1) attention(const Element *q, const Element *k, const Element *v, Element *o, float *lse, i64 queryStep, i64 keyStep, int samples, const int *list, MASK_PARAMS) {
    Mask c = MASK;
    extern __shared__ char memory[];
    u32 qs = sharedAt(memory) + 1023 & ~1023u, ks = qs + 2 * PANELS * ROWS * 128, vs = ks + STAGES * PANELS * KEYS * 128;
    __shared__ Barrier queriesHere[2], queriesFree[2], keysHere[STAGES], keysFree[STAGES], valuesHere[STAGES], valuesFree[STAGES];
    if (threadIdx.x == 0) {
        for (int n = 0; n < STAGES; n++) {
            reset(queriesHere[n], 128);
            reset(queriesFree[n], 8);
            reset(keysHere[n], 128);
            reset(keysFree[n], 8);
            reset(valuesHere[n], 128);
            reset(valuesFree[n], 8);
        }
    }
    __syncthreads();
    i64 rowStep = (i64)heads * HEAD; // of o; those of q, k and v are given
    Tile t;
    int h, tiles = tilesOf(c, list, samples);
    if (threadIdx.x < 128) {
        FETCHING_REGISTERS(40);
        Ring<STAGES> ring = {0, 1}, queryRing = {0, 1};
        for (int n = 0; turn<false>(c, list, tiles, samples, n, heads, t, h); n++, queryRing.next()) {
            Range range = rangeOf<false>(c, t, t.first, t.end - 1);
            const Element *keysAt = k + (i64)t.sample * S * keyStep + (i64)(h * keyHeads / heads) * HEAD, *valuesAt = v + (keysAt - k);
            for (int j = range.from; j <= range.to; j += KEYS, ring.next()) {
                waitFor(keysFree[ring.at], ring.phase);
                fetchRows<KEYS>(ks + ring.at * PANELS * KEYS * 128, keysAt, keyStep, j, range.to + 1);
                arriveFetched(keysHere[ring.at]);
                if (j == range.from) {
                    waitFor(queriesFree[queryRing.at], queryRing.phase);
                    fetchRows<ROWS>(qs + queryRing.at * PANELS * ROWS * 128, q + (i64)t.sample * T * queryStep + (i64)h * HEAD, queryStep, t.first, t.end);
                    arriveFetched(queriesHere[queryRing.at]);
                }
                waitFor(valuesFree[ring.at], ring.phase);
                fetchRows<KEYS>(vs + ring.at * PANELS * KEYS * 128, valuesAt, keyStep, j, range.to + 1);
                arriveFetched(valuesHere[ring.at]);
            }
        }
        asm volatile("cp.async.wait_all;"); // nothing is under way when the block ends
        return;
    }
    COMPUTING_REGISTERS(232);
    int lane = threadIdx.x & 31, half = (threadIdx.x >> 7) - 1; // which 64 rows
    u32 limit = limitOf(c);
    float unit = scale * LOG2E;
    Ring<STAGES> queryRing = {0, 0}, keyRing = {0, 0}, valueRing = {0, 0};
    auto release = [&](Barrier &b) {
        if (lane == 0) arrive(b);
    };
    if (half == 1) endTurn(1); // the first half begins
    bool more = turn<false>(c, list, tiles, samples, 0, heads, t, h);
    for (int n = 1; more; n++, queryRing.next()) {
        Range range = rangeOf<false>(c, t, t.first, t.end - 1), own = NOTHING, whole = NOTHING;
        int first = t.first + half * 64, last = min(first + 63, t.end - 1), row = first + (threadIdx.x >> 5 & 3) * 16 + (lane >> 2);
        if (first < t.end) own = rangeOf<false>(c, t, first, last);
        if (first + 63 < t.end && !special(c, t)) whole = wholeOf<false>(c, t, first, last);
        Range seen[2];
        Line line[2];
#pragma unroll
        for (int y = 0; y < 2; y++) {
            seen[y] = row + y * 8 < t.end ? rangeOf<false>(c, t, row + y * 8, row + y * 8) : Range NOTHING;
            if (drops(c)) line[y] = lineOf(c, streamBase(key, stream), t.sample, h, row + y * 8);
        }
        float s[KEYS / 8][4], out[HEAD / 8][4], top[2] = {-INFINITE, -INFINITE}, sum[2] = {0, 0}, shrink[2];
        u32 p[KEYS / 16][4];
        zero(out);
        auto scores = [&]() {
            waitFor(keysHere[keyRing.at], keyRing.phase);
            seeFetched();
            awaitTurn(half);
            held(s);
            begin();
            rowsByRows<ROWS>(s, qs + queryRing.at * PANELS * ROWS * 128, half * 64, ks + keyRing.at * PANELS * KEYS * 128);
            submit();
        };
        auto values = [&]() {
            waitFor(valuesHere[valueRing.at], valueRing.phase);
            seeFetched();
            held(out);
            begin();
            byColumns(out, p, vs + valueRing.at * PANELS * KEYS * 128);
            submit();
        };
        auto keysDone = [&]() {
            release(keysFree[keyRing.at]);
            keyRing.next();
        };
        auto valuesDone = [&]() {
            release(valuesFree[valueRing.at]);
            valueRing.next();
        };
        auto pass = [&]() { // keys that no row of ours sees
            awaitTurn(half);
            endTurn(half);
            waitFor(keysHere[keyRing.at], keyRing.phase);
            keysDone();
            waitFor(valuesHere[valueRing.at], valueRing.phase);
            valuesDone();
        };
        u32 drop[2];
        auto chances = [&](int j0) { // while scores are made
            if (drops(c))
#pragma unroll
                for (int y = 0; y < 2; y++) drop[y] = dropBits<KEYS / 4>(line[y], j0 + (lane & 3) * 2, limit);
        };
        // weights of the scores with keys from j0 on
        auto weights = [&](int j0) {
            int column = j0 + (lane & 3) * 2;
            if (j0 < whole.from || j0 + KEYS - 1 > whole.to) hide<KEYS / 8, false>(c, t, s, row, column, seen);
#pragma unroll
            for (int y = 0; y < 2; y++) {
                float most = top[y], part = 0;
#pragma unroll
                for (int i = 0; i < KEYS / 8; i++) most = fmaxf(most, fmaxf(s[i][2 * y], s[i][2 * y + 1]));
                most = lineMax(most);
                float from = most == -INFINITE ? 0 : most * unit;
                shrink[y] = power2(top[y] * unit - from);
                top[y] = most;
#pragma unroll
                for (int i = 0; i < KEYS / 8; i++)
#pragma unroll
                    for (int x = 0; x < 2; x++) {
                        float w = power2(s[i][2 * y + x] * unit - from);
                        part += w;
                        if (drops(c) && drop[y] >> (2 * i + x) & 1) w = 0;
                        s[i][2 * y + x] = w;
                    }
                sum[y] = sum[y] * shrink[y] + part; // each lane's own share
            }
        };
        Tile after; // looked up while values are multiplied
        int headAfter;
        auto look = [&]() {
            release(queriesFree[queryRing.at]);
            more = turn<false>(c, list, tiles, samples, n, heads, after, headAfter);
        };
        waitFor(queriesHere[queryRing.at], queryRing.phase);
        int j = range.from;
        for (; j <= range.to && (own.from > own.to || j + KEYS <= own.from); j += KEYS) pass();
        if (j <= own.to) {
            scores();
            endTurn(half);
            chances(j);
            finish<0>();
            held(s);
            keysDone();
            weights(j);
            asFactor(p, s);
            for (j += KEYS; j <= own.to; j += KEYS) {
                scores();
                values();
                endTurn(half);
                chances(j);
                finish<1>();
                held(s);
                keysDone();
                weights(j);
                finish<0>();
                held(out);
                valuesDone();
#pragma unroll
                for (int i = 0; i < HEAD / 8; i++)
#pragma unroll
                    for (int x = 0; x < 4; x++) out[i][x] *= shrink[x >> 1];
                asFactor(p, s);
            }
            values();
            look();
            finish<0>();
            held(out);
            valuesDone();
        } else {
            look();
        }
        for (; j <= range.to; j += KEYS) pass();
        sum[0] = lineSum(sum[0]);
        sum[1] = lineSum(sum[1]);
        float by = drops(c) ? c.keep : 1.0f;
        putRows(o + (i64)t.sample * T * rowStep + (i64)h * HEAD, rowStep, row, t.end, out, sum[0] > 0 ? by / sum[0] : 0.0f, sum[1] > 0 ? by / sum[1] : 0.0f);
#pragma unroll
        for (int y = 0; y < 2; y++)
            if ((lane & 3) == 0 && row + y * 8 < t.end)
                lse[((i64)t.sample * heads + h) * T + row + y * 8] = sum[y] > 0 ? top[y] * scale + logf(sum[y]) : -INFINITE;
        t = after;
        h = headAfter;
    }
}
