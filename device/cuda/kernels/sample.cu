#include "cluster.h"
#include "decode.h"

// A token of each row of logits, drawn as op.Sample says. A row is cut into PARTS parts of as many neighbouring ids, and a
// part among the THREADS threads of a block, chunk neighbouring ids for each. Where GPUs have clusters some blocks share
// a row, as many as leave a multiprocessor for each; else a block has all of it. Whoever has which parts, sums
// are made in one order: a thread adds its ids in their order, a block its threads by a tree, and then parts are added in their
// order; integers are added in any. So a row always gives the same token; the one that the sampler of the host gives, but for
// the last bit of a sum.

#define THREADS 1024
#define PARTS 8
#define UNIT 4503599627370496.0 // 2^52: probabilities are added as multiples of its inverse
#define BINS 256
#define PASSES 5

// keyOf orders numbers as integers, and ofKey is the number of a key.
__device__ __forceinline__ u32 keyOf(float x) {
    u32 b = __float_as_uint(x);
    return b & 0x80000000u ? ~b : b | 0x80000000u;
}
__device__ __forceinline__ float ofKey(u32 k) { return __uint_as_float(k & 0x80000000u ? k & 0x7fffffffu : ~k); }

// Row is the logits of a row, and which of them a block has.
struct Row {
    const Element *x, *held; // all of them; those of the block in shared memory, or null
    int count, chunk, first, parts; // first: id of the block; parts: of the block
    float temperature;
    __device__ __forceinline__ float scored(Element l) const {
        float s = wide(l);
        if (temperature > 0 && temperature != 1) s = __fdiv_rn(s, temperature);
        return s + 0.0f; // the two zeros are equal
    }
    // logits of LANES neighbours; -INFINITE behind the last.
    __device__ __forceinline__ Lane logits(int i) const {
        if (count % LANES == 0 && i < count) return *(const Lane *)(x + i);
        Lane v;
#pragma unroll
        for (int e = 0; e < LANES; e++)
            if (i + e < count) v.x[e] = x[i + e];
            else narrow(-INFINITE, &v.x[e]);
        return v;
    }
    __device__ __forceinline__ float score(int i) const {
        if (held) return scored(held[i - first]);
        return i < count ? scored(x[i]) : -INFINITE;
    }
    // of calls f for the score and the id of each of a thread's tokens of a part.
    template <class F> __device__ __forceinline__ void of(int part, F f) const {
        const int from = first + (part * THREADS + threadIdx.x) * chunk;
#pragma unroll 1
        for (int j = 0; j < chunk; j += LANES) {
            Lane v = held ? *(const Lane *)(held + (from + j - first)) : logits(from + j);
#pragma unroll
            for (int e = 0; e < LANES; e++) f(scored(v.x[e]), from + j + e);
        }
    }
    template <class F> __device__ __forceinline__ void each(F f) const {
        for (int k = 0; k < parts; k++) of(k, f);
    }
};

// Team is a block among those of its row.
struct Team {
    int blocks, rank;
    __device__ __forceinline__ void together() const {
        if (blocks > 1) clusterSync();
        else __syncthreads();
    }
    // send writes a number into the memory of all blocks: it is there behind together.
    __device__ __forceinline__ void send(u64 *at, u64 x) const {
        if (blocks == 1 && threadIdx.x == 0) *at = x;
        else if (threadIdx.x < blocks) putIn(at, threadIdx.x, x);
    }
};

// Left are the tokens that may still be drawn: those with a key above least, and of those with it the ids from first on.
struct Left {
    u32 least;
    int first;
    __device__ __forceinline__ bool has(float s, int i) const {
        u32 k = keyOf(s);
        return s != -INFINITE && (k > least || k == least && i >= first);
    }
};

__device__ __forceinline__ u64 bitsOf(double x) { return (u64)__double_as_longlong(x); }
__device__ __forceinline__ u64 bitsOf(int x) { return (u64)(u32)x; }
__device__ __forceinline__ void ofBits(u64 b, double *x) { *x = __longlong_as_double((i64)b); }
__device__ __forceinline__ void ofBits(u64 b, int *x) { *x = (int)(u32)b; }

// treeOf combines a number of each thread of a block by one tree; all threads get the result.
template <class F, class Combine> __device__ __forceinline__ F treeOf(F x, Combine combine) {
    __shared__ F part[32];
    __syncthreads();
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) x = combine(x, __shfl_xor_sync(0xffffffffu, x, d));
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = x;
    __syncthreads();
    x = part[threadIdx.x & 31];
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) x = combine(x, __shfl_xor_sync(0xffffffffu, x, d));
    return x;
}
template <class F> __device__ __forceinline__ F sumOf(F x) {
    return treeOf(x, [](F a, F b) { return a + b; });
}

// uptoOf is the sum of a number of the lanes of a warp up to one's own.
template <class F> __device__ __forceinline__ F uptoOf(F x) {
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
        F before = __shfl_up_sync(0xffffffffu, x, d);
        if ((threadIdx.x & 31) >= d) x += before;
    }
    return x;
}

// totalOf sums the amounts of all tokens, by way of slots.
template <class Amount> __device__ __forceinline__ double totalOf(const Row &row, const Team &team, u64 *slots, Amount amount) {
    for (int k = 0; k < row.parts; k++) {
        double own = 0;
        row.of(k, [&](float s, int i) { own += amount(s, i); });
        own = sumOf(own);
        team.send(slots + team.rank * row.parts + k, bitsOf(own));
    }
    team.together();
    double sum = 0, part;
    for (int p = 0; p < PARTS; p++) {
        ofBits(slots[p], &part);
        sum += part;
    }
    return sum;
}

// find is the first of all tokens, in the order of ids, up to which their amounts sum to more than some, or than that
// share of all of them (SHARE): by rounding there may be none, then the last with an amount, or none. Blocks that do not
// have it get -1.
template <bool SHARE, class F, class Amount> __device__ __forceinline__ int find(const Row &row, const Team &team, u64 *slots, F some, int none, Amount amount) {
    __shared__ F warps[32];
    __shared__ int found, over, any;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    F own = 0;
    for (int k = 0; k < row.parts; k++) {
        own = 0;
        row.of(k, [&](float s, int i) { own += amount(s, i); });
        F sum = sumOf(own);
        team.send(slots + team.rank * row.parts + k, bitsOf(sum));
    }
    if (threadIdx.x == 0) found = none, over = THREADS, any = -1;
    team.together();

    // its part, and what those before come to
    F total, before = 0, sum = 0;
    if (SHARE) {
        F all = 0;
        for (int p = 0; p < PARTS; p++) {
            ofBits(slots[p], &total);
            all += total;
        }
        some *= all;
    }
    int part = 0;
    for (int p = 0; p < PARTS; p++) {
        ofBits(slots[p], &total);
        if (total > 0) part = p, before = sum;
        if ((sum += total) > some) break;
    }
    part -= team.rank * row.parts;
    if (part < 0 || part >= row.parts) return -1;

    // its thread
    if (part != row.parts - 1) { // own is of the last
        own = 0;
        row.of(part, [&](float s, int i) { own += amount(s, i); });
    }
    F upto = uptoOf(own), left = __shfl_up_sync(0xffffffffu, upto, 1);
    if (lane == 0) left = 0;
    if (lane == 31) warps[warp] = upto;
    __syncthreads();
    F ahead = uptoOf(warps[lane]);
    ahead = __shfl_sync(0xffffffffu, ahead, max(warp - 1, 0));
    left = before + ((warp > 0 ? ahead : 0) + left);
    u32 more = __ballot_sync(0xffffffffu, own > 0 && left + own > some), with = __ballot_sync(0xffffffffu, own > 0);
    if (lane == 0 && more) atomicMin(&over, warp * 32 + __ffs(more) - 1);
    if (lane == 0 && with) atomicMax(&any, warp * 32 + 31 - __clz(with));
    __syncthreads();
    const int thread = over < THREADS ? over : any;

    // its token
    if (thread >= 0 && warp == thread >> 5) {
        left = __shfl_sync(0xffffffffu, left, thread & 31);
        const int from = row.first + (part * THREADS + thread) * row.chunk;
        int token = none;
        for (int j = 0; j < row.chunk; j += 32) {
            F a = 0;
            if (j + lane < row.chunk) a = amount(row.score(from + j + lane), from + j + lane);
            F upto = uptoOf(a);
            more = __ballot_sync(0xffffffffu, a > 0 && left + upto > some);
            with = __ballot_sync(0xffffffffu, a > 0);
            if (with) token = from + j + 31 - __clz(with);
            if (more) {
                token = from + j + __ffs(more) - 1;
                break;
            }
            left += __shfl_sync(0xffffffffu, upto, 31);
        }
        if (lane == 0) found = token;
    }
    __syncthreads();
    return found;
}

// Histogram has how many tokens are in a bin, and what their values sum to.
struct Histogram { u32 count[BINS], low[BINS], high[BINS]; };

// Bins cut the scores from the top to the lowest into BINS spans of one width, so that many tokens of one span,
// which threads would wait for one another to count, are rare.
struct Bins {
    float top, scale;
    __device__ __forceinline__ int of(float s) const { return min((int)((top - s) * scale), BINS - 1); }
};

// Border is a key, of how many tokens it is, and what the values of those that come before them sum to.
struct Border {
    u32 key, count;
    u64 before;
};

// borderOf walks over the tokens that are left, from the most likely (TOP) or from the least likely, until over(sum of
// their values); where it never is, to the last. It finds the bin first and then eight bits of the key at a time.
// Histograms are zeros.
template <bool TOP, class Value, class Over> __device__ __forceinline__ Border borderOf(const Row &row, const Team &team, Histogram *histograms, Left left, Bins bins, Value value, Over over) {
    __shared__ u64 sums[BINS];
    __shared__ u32 counts[BINS];
    __shared__ int chosen;
    __shared__ Border border;
    int bin = 0;
    Border b = {0, 0, 0};
    for (int pass = 0; pass < PASSES; pass++) {
        Histogram &h = histograms[pass];
        const int shift = max(32 - 8 * pass, 0) & 31; // of the bits, from the second pass on
        row.each([&](float s, int i) {
            if (!left.has(s, i)) return;
            const u32 key = keyOf(s);
            int d = bins.of(s);
            if (pass > 0) {
                if (d != bin || pass > 1 && (key ^ b.key) >> (shift + 8)) return;
                d = key >> shift & 255;
            }
            atomicAdd(h.count + d, 1u);
            if (!TOP) { // 64 bits by two additions that GPUs have
                const u64 v = value(s);
                const u32 low = (u32)v, sum = atomicAdd(h.low + d, low) + low;
                const u32 high = (u32)(v >> 32) + (sum < low);
                if (high) atomicAdd(h.high + d, high);
            }
        });
        team.together();
        if (threadIdx.x < BINS) {
            const int t = threadIdx.x;
            u32 count = 0;
            u64 sum = 0;
            for (int o = 0; o < team.blocks; o++)
                if (team.blocks == 1) {
                    count = h.count[t], sum = (u64)h.low[t] + ((u64)h.high[t] << 32);
                } else {
                    count += takeFrom(h.count + t, o);
                    if (!TOP) sum += (u64)takeFrom(h.low + t, o) + ((u64)takeFrom(h.high + t, o) << 32);
                }
            counts[t] = count;
            sums[t] = TOP ? (u64)count : sum;
        }
        __syncthreads();
        if (threadIdx.x < 32) {
            const int lane = threadIdx.x;
            const bool down = TOP == (pass > 0); // the first bin has the most likely, the first key the least likely
            u64 own = 0;
            for (int n = lane * (BINS / 32); n < (lane + 1) * (BINS / 32); n++) own += sums[down ? BINS - 1 - n : n];
            u64 sum = b.before + (uptoOf(own) - own), before = 0;
            int at = -1;
            bool here = false;
            for (int n = lane * (BINS / 32); n < (lane + 1) * (BINS / 32) && !here; n++) {
                const int d = down ? BINS - 1 - n : n;
                if (counts[d] == 0) continue;
                at = d;
                before = sum;
                sum += sums[d];
                here = over(sum);
            }
            const u32 those = __ballot_sync(0xffffffffu, here), any = __ballot_sync(0xffffffffu, at >= 0);
            if (lane == (those ? __ffs(those) - 1 : 31 - __clz(any))) {
                chosen = at;
                border.count = counts[at];
                border.before = before;
            }
        }
        __syncthreads();
        if (pass == 0) bin = chosen;
        else b.key |= (u32)chosen << shift;
        b.count = border.count;
        b.before = border.before;
    }
    return b;
}

// weightOf is not expanded where it is called: a step runs this code once, and finds none of it in caches.
__device__ __noinline__ double weightOf(float s, float top) { return exp((double)s - (double)top); }

// What blocks send each other, a number of each part at a time.
enum { BEST, SPREAD, KEPT, TIES, TIE, LIKELY, DRAWN, SENT };

extern "C" __global__ void __launch_bounds__(THREADS) sample(const Element *logits, const int *settings, int *tokens, int count, int chunk, int blocks, int holds) {
    extern __shared__ uint4 pool[]; // histograms, and behind them the logits of the block where it holds them
    __shared__ u64 sent[SENT][PARTS];
    Histogram *histograms = (Histogram *)pool;
    const Team team = {blocks, (int)(blockIdx.x % blocks)};
    const int r = blockIdx.x / blocks, parts = PARTS / blocks;
    for (int i = threadIdx.x; i < PASSES * 3 * BINS; i += THREADS) ((u32 *)histograms)[i] = 0;
    team.together(); // all have begun
    awaitPrevious();
    releaseNext();
    const int *set = settings + r * 8;
    const int topK = set[1];
    const float drop = __int_as_float(set[2]), minP = __int_as_float(set[3]);
    Row row = {logits + (i64)r * count, nullptr, count, chunk, team.rank * parts * THREADS * chunk, parts, __int_as_float(set[0])};
    const bool draws = row.temperature > 0;
    if (draws && holds) {
        Lane *held = (Lane *)(histograms + PASSES);
#pragma unroll 4
        for (int i = threadIdx.x; i < parts * THREADS * chunk / LANES; i += THREADS) held[i] = row.logits(row.first + i * LANES);
        row.held = (const Element *)held;
        __syncthreads();
    }

    // the largest, of equal ones that of the lowest id; how many may be drawn, and the smallest of them
    for (int k = 0; k < parts; k++) {
        float top = -INFINITE, low = INFINITE;
        int best = count, real = 0;
        bool bad = false;
        row.of(k, [&](float s, int i) {
            bad |= s != s;
            if (s > top) top = s, best = i;
            if (s != -INFINITE) real++, low = fminf(low, s);
        });
        u64 largest = bad ? ~0ull : (u64)keyOf(top) << 32 | (u32)~best;
        largest = treeOf(largest, [](u64 a, u64 b) { return a > b ? a : b; });
        team.send(sent[BEST] + team.rank * parts + k, largest);
        if (!draws) continue;
        real = sumOf(real);
        low = treeOf(low, [](float a, float b) { return fminf(a, b); });
        team.send(sent[SPREAD] + team.rank * parts + k, (u64)real << 32 | __float_as_uint(low));
    }
    team.together();
    u64 largest = 0;
    for (int p = 0; p < PARTS; p++) largest = max(largest, sent[BEST][p]);
    const float top = ofKey((u32)(largest >> 32));
    const int best = (int)~(u32)largest;
    const bool bad = largest == ~0ull || top == INFINITE || top == -INFINITE;
    if (bad || !draws) {
        if (team.rank == 0 && threadIdx.x == 0) tokens[r] = bad ? -1 : best;
        return;
    }
    int real = 0;
    float low = INFINITE;
    for (int p = 0; p < PARTS; p++) {
        real += (int)(sent[SPREAD][p] >> 32);
        low = fminf(low, __uint_as_float((u32)sent[SPREAD][p]));
    }
    const Bins bins = {top, top > low ? (BINS - 1) / (top - low) : 0};
    Left left = {0, 0};
    auto weight = [&](float s) { return weightOf(s, top); };
    auto weightIfLeft = [&](float s, int i) { return left.has(s, i) ? weight(s) : 0.0; };

    const bool cut = topK > 0 && topK < real;
    if (cut) left.least = borderOf<true>(row, team, histograms, left, bins, [](float) { return (u64)1; }, [&](u64 sum) { return sum >= (u64)topK; }).key;
    if (drop > 0) { // the border is the key up to which more than drop would go
        const double total = totalOf(row, team, sent[KEPT], weightIfLeft);
        if (cut) { // others have read the histograms, since all are here
            for (int i = threadIdx.x; i < PASSES * 3 * BINS; i += THREADS) ((u32 *)histograms)[i] = 0;
            __syncthreads();
        }
        auto chance = [&](float s) { return (float)((double)(float)weight(s) / total); };
        const Border border = borderOf<false>(row, team, histograms, left, bins, [&](float s) { return (u64)((double)chance(s) * UNIT); }, [&](u64 sum) { return (float)((double)sum / UNIT) > drop; });
        // of those at the border the lowest ids go, as many as may
        const double each = (double)chance(ofKey(border.key)), before = (double)border.before / UNIT;
        const int many = (int)border.count;
        left.least = border.key;
        int goes = 0;
        if (many > 1) {
            double most = each > 0 ? ((double)drop - before) / each : (double)many;
            goes = (int)fmin(fmax(most, 0.0), (double)(many - 1));
            while (goes < many - 1 && (float)(before + (goes + 1) * each) <= drop) goes++;
            while (goes > 0 && (float)(before + goes * each) > drop) goes--;
        }
        if (goes > 0) {
            const int first = find<false>(row, team, sent[TIES], goes, 0, [&](float s, int) { return (int)(s != -INFINITE && keyOf(s) == border.key); });
            if (first >= 0) team.send(sent[TIE], (u64)first);
            team.together();
            left.first = (int)sent[TIE][0];
        }
    }
    double share = 0;
    float least = 0;
    if (minP > 0) {
        share = totalOf(row, team, sent[LIKELY], weightIfLeft);
        least = minP * (float)(1 / share);
    }
    auto amount = [&](float s, int i) {
        if (!left.has(s, i)) return 0.0;
        double w = weight(s);
        return minP > 0 && s != top && (float)(w / share) < least ? 0.0 : w;
    };
    const u64 stream = (u64)(u32)set[4] | (u64)(u32)set[5] << 32, position = (u64)(u32)set[6] | (u64)(u32)set[7] << 32;
    const float u = (float)(u32)(mix(stream + position) >> 40) * (1.0f / (1 << 24));
    const int token = find<true>(row, team, sent[DRAWN], (double)u, best, amount);
    if (token >= 0 && threadIdx.x == 0) tokens[r] = token;
}
