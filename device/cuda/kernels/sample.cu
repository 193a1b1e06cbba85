#include "decode.h"

// A token of each row of logits, drawn as op.Sample says: a block for each row. Sums are f64, or integers where
// threads add in any order, so that a row always gives the same token; the one that the sampler of the host
// gives, but for the last bit of a sum.

#define THREADS 1024
#define SPAN (THREADS * LANES) // ids that are looked at together: LANES neighbours of a thread
#define SPANS 1024             // at most, of a row
#define UNIT 4503599627370496.0 // 2^52: probabilities are added as multiples of its inverse

// keyOf orders numbers as integers.
__device__ __forceinline__ u32 keyOf(float x) {
    u32 b = __float_as_uint(x);
    return b & 0x80000000u ? ~b : b | 0x80000000u;
}

struct Row {
    const Element *x;
    int count;
    float temperature;
    // score of a token; -INFINITE behind the last.
    __device__ __forceinline__ float score(int i) const {
        if (i >= count) return -INFINITE;
        float l = wide(x[i]);
        return temperature > 0 && temperature != 1 ? __fdiv_rn(l, temperature) : l;
    }
    // scores of LANES neighbours from i on.
    __device__ __forceinline__ void scores(int i, float (&s)[LANES]) const {
        if (count % LANES == 0 && i < count) {
            Lane v = *(const Lane *)(x + i);
#pragma unroll
            for (int e = 0; e < LANES; e++) {
                s[e] = wide(v.x[e]);
                if (temperature > 0 && temperature != 1) s[e] = __fdiv_rn(s[e], temperature);
            }
            return;
        }
#pragma unroll
        for (int e = 0; e < LANES; e++) s[e] = score(i + e);
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

// sumOf sums over the block in one order; all threads get the sum.
template <class F> __device__ __forceinline__ F sumOf(F x) {
    __shared__ F part[32];
    __syncthreads();
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = x;
    __syncthreads();
    F sum = 0;
    for (int i = 0; i < THREADS / 32; i++) sum += part[i];
    return sum;
}

// find is the place of the first of all tokens, in the order of ids, up to which the amounts of a function sum to more
// than some, or than that share of all of them (SHARE): the last with an amount where there is none.
template <bool SHARE, class F, class Amount> __device__ __forceinline__ int find(int count, F total[], F some, Amount amount) {
    __shared__ F before[THREADS];
    __shared__ int found, any;
    const int spans = (count + SPAN - 1) / SPAN;
    for (int s = 0; s < spans; s++) {
        F sum = 0;
        for (int e = 0; e < LANES; e++) sum += amount(s * SPAN + threadIdx.x * LANES + e);
        sum = sumOf(sum);
        if (threadIdx.x == 0) total[s] = sum;
    }
    __syncthreads();
    if (SHARE) {
        F all = 0;
        for (int s = 0; s < spans; s++) all += total[s];
        some *= all;
    }
    int s = 0;
    F passed = 0;
    for (int last = -1;; s++) {
        if (s == spans) { // by rounding: in the last span with anything
            s = last;
            passed = 0;
            for (int i = 0; i < s; i++) passed += total[i];
            break;
        }
        if (passed + total[s] > some) break;
        if (total[s] > 0) last = s;
        passed += total[s];
    }
    F own = 0;
    for (int e = 0; e < LANES; e++) own += amount(s * SPAN + threadIdx.x * LANES + e);
    before[threadIdx.x] = own;
    if (threadIdx.x == 0) found = any = -1;
    __syncthreads();
    if (threadIdx.x == 0) {
        F sum = passed;
        for (int t = 0; t < THREADS; t++) {
            if (before[t] > 0) any = t;
            if (sum + before[t] > some) break;
            sum += before[t];
        }
        F left = sum;
        if (any >= 0)
            for (int e = 0; e < LANES; e++) {
                int i = s * SPAN + any * LANES + e;
                F a = amount(i);
                if (a > 0) found = i;
                if (left + a > some && a > 0) break;
                left += a;
            }
    }
    __syncthreads();
    return found;
}

extern "C" __global__ void __launch_bounds__(THREADS) sample(const Element *logits, const int *settings, int *tokens, float *chances, int count) {
    __shared__ int counts[256];
    __shared__ u64 sums[256];
    __shared__ double totals[SPANS];
    __shared__ u32 prefix;
    __shared__ int wanted;
    __shared__ u64 gone;
    awaitPrevious();
    releaseNext();
    const int *set = settings + blockIdx.x * 8;
    Row row = {logits + (i64)blockIdx.x * count, count, __int_as_float(set[0])};
    const int topK = set[1];
    const float drop = __int_as_float(set[2]), minP = __int_as_float(set[3]);
    float *chance = chances + (i64)blockIdx.x * count;

    // the largest, of equal ones that of the lowest id
    float top = -INFINITE;
    int best = count, bad = 0, real = 0;
    for (int i = threadIdx.x * LANES; i < count; i += SPAN) {
        float s[LANES];
        row.scores(i, s);
#pragma unroll
        for (int e = 0; e < LANES; e++) {
            bad |= s[e] != s[e];
            real += s[e] != -INFINITE;
            if (s[e] > top) top = s[e], best = i + e;
        }
    }
    __shared__ float tops[32];
    float greatest = warpMax(top);
    if ((threadIdx.x & 31) == 0) tops[threadIdx.x >> 5] = greatest;
    __syncthreads();
    greatest = warpMax(tops[threadIdx.x & 31]);
    best = top == greatest ? best : count;
    best = __reduce_min_sync(0xffffffffu, best);
    __shared__ int bests[32];
    if ((threadIdx.x & 31) == 0) bests[threadIdx.x >> 5] = best;
    __syncthreads();
    best = __reduce_min_sync(0xffffffffu, bests[threadIdx.x & 31]);
    top = greatest;
    bad = __syncthreads_or(bad) || top == -INFINITE || top == INFINITE;
    if (bad || !(row.temperature > 0)) {
        if (threadIdx.x == 0) tokens[blockIdx.x] = bad ? -1 : best;
        return;
    }
    Left left = {0, 0};
    real = sumOf(real);
    auto weight = [&](float s) { return exp((double)s - (double)top); };

    if (topK > 0 && topK < real) { // the key of the topK-th, eight bits at a time
        if (threadIdx.x == 0) prefix = 0, wanted = topK;
        for (int shift = 24; shift >= 0; shift -= 8) {
            if (threadIdx.x < 256) counts[threadIdx.x] = 0;
            __syncthreads();
            for (int i = threadIdx.x * LANES; i < count; i += SPAN) {
                float s[LANES];
                row.scores(i, s);
#pragma unroll
                for (int e = 0; e < LANES; e++) {
                    u32 k = keyOf(s[e]);
                    if (s[e] != -INFINITE && (shift == 24 || k >> shift + 8 == prefix >> shift + 8)) atomicAdd(counts + (k >> shift & 255), 1);
                }
            }
            __syncthreads();
            if (threadIdx.x == 0) {
                int d = 255;
                for (; d > 0 && counts[d] < wanted; d--) wanted -= counts[d];
                prefix |= (u32)d << shift;
            }
            __syncthreads();
        }
        left.least = prefix;
    }
    auto totalOf = [&]() { // of the weights of all that are left
        double sum = 0;
        for (int i = threadIdx.x * LANES; i < count; i += SPAN) {
            float s[LANES];
            row.scores(i, s);
#pragma unroll
            for (int e = 0; e < LANES; e++)
                if (left.has(s[e], i + e)) sum += weight(s[e]);
        }
        return sumOf(sum);
    };

    if (drop > 0) { // the border is the key up to which more than drop would go
        double total = totalOf();
        for (int i = threadIdx.x * LANES; i < count; i += SPAN) {
            float s[LANES];
            row.scores(i, s);
#pragma unroll
            for (int e = 0; e < LANES; e++)
                if (i + e < count) chance[i + e] = left.has(s[e], i + e) ? (float)((double)(float)weight(s[e]) / total) : 0.0f;
        }
        if (threadIdx.x == 0) prefix = 0, gone = 0;
        for (int shift = 24; shift >= 0; shift -= 8) {
            if (threadIdx.x < 256) sums[threadIdx.x] = 0, counts[threadIdx.x] = 0;
            __syncthreads();
            for (int i = threadIdx.x * LANES; i < count; i += SPAN) {
                float s[LANES];
                row.scores(i, s);
#pragma unroll
                for (int e = 0; e < LANES; e++) {
                    u32 k = keyOf(s[e]);
                    if (left.has(s[e], i + e) && (shift == 24 || k >> shift + 8 == prefix >> shift + 8)) {
                        atomicAdd(sums + (k >> shift & 255), (u64)((double)chance[i + e] * UNIT));
                        atomicAdd(counts + (k >> shift & 255), 1);
                    }
                }
            }
            __syncthreads();
            if (threadIdx.x == 0) {
                int d = 0, last = -1;
                u64 sum = gone;
                for (; d < 256; d++) {
                    if (counts[d] == 0) continue;
                    if ((float)((double)(sum + sums[d]) / UNIT) > drop) break;
                    last = d;
                    sum += sums[d];
                }
                if (d == 256) { // all may go: the most likely stays
                    d = last;
                    sum -= sums[d];
                }
                gone = sum;
                wanted = counts[d];
                prefix |= (u32)d << shift;
            }
            __syncthreads();
        }
        // of those at the border the lowest ids go, as many as may
        left.least = prefix;
        const float border = __uint_as_float(prefix & 0x80000000u ? prefix & 0x7fffffffu : ~prefix);
        const double each = (double)(float)((double)(float)weight(border) / total), before = (double)gone / UNIT;
        int goes = 0;
        if (wanted > 1) {
            double most = each > 0 ? ((double)drop - before) / each : (double)wanted;
            goes = (int)fmin(fmax(most, 0.0), (double)(wanted - 1));
            while (goes < wanted - 1 && (float)(before + (goes + 1) * each) <= drop) goes++;
            while (goes > 0 && (float)(before + goes * each) > drop) goes--;
        }
        if (goes > 0) {
            __shared__ int places[SPANS];
            left.first = find<false>(count, places, goes, [&](int i) { return (int)(i < count && keyOf(row.score(i)) == left.least); });
        }
    }
    double share = 0;
    float least = 0;
    if (minP > 0) {
        share = totalOf();
        least = minP * (float)(1 / share);
    }
    auto amount = [&](int i) {
        float s = row.score(i);
        if (!left.has(s, i)) return 0.0;
        double w = weight(s);
        return minP > 0 && s != top && (float)(w / share) < least ? 0.0 : w;
    };
    const u64 stream = (u64)(u32)set[4] | (u64)(u32)set[5] << 32, position = (u64)(u32)set[6] | (u64)(u32)set[7] << 32;
    const float u = (float)(u32)(mix(stream + position) >> 40) * (1.0f / (1 << 24));
    int token = find<true>(count, totals, (double)u, amount);
    if (threadIdx.x == 0) tokens[blockIdx.x] = token < 0 ? best : token;
}
