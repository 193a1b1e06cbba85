#include "functions.h"

// Forms of matmuls of a few rows: which rows of which matrices a tile of 16 is, and what is
// done with its sums. tiles() is how many there are, place(tile, i) says where row i of 16 is, and
// put(tile, g, n, low, high) takes what row n of x times rows g and g+8 is. warm() reads what put will
// need, while there is time.

// Place is a row of one of the matrices of a form; row -1: there is none.
struct Place { int matrix, row; };

__device__ __forceinline__ float rounded(float x) {
    Element e;
    narrow(x, &e);
    return wide(e);
}

// Plain is y = x·Wᵀ (+ bias) (+ plus), W [N K].
struct Plain {
    const Element *bias, *plus;
    Element *y;
    int n;
    __device__ int tiles() const { return (n + 15) / 16; }
    __device__ void warm() const {}
    __device__ Place place(int tile, int i) const { return {0, tile * 16 + i < n ? tile * 16 + i : -1}; }
    __device__ void put(int tile, int g, int x, float low, float high) const {
        one(tile * 16 + g, x, low);
        one(tile * 16 + g + 8, x, high);
    }
    __device__ void one(int row, int x, float sum) const {
        if (row >= n) return;
        if (bias) sum += wide(bias[row]);
        if (plus) sum += wide(plus[(i64)x * n + row]);
        narrow(sum, y + (i64)x * n + row);
    }
};

// GatedRows is f(x·gateᵀ)·(x·upᵀ), both [N K]: a tile is eight rows of each. Sums are rounded
// as by the ops by themselves.
struct GatedRows {
    Element *y;
    int n, function;
    __device__ int tiles() const { return (n + 7) / 8; }
    __device__ void warm() const {}
    __device__ Place place(int tile, int i) const { return {i >> 3, tile * 8 + (i & 7) < n ? tile * 8 + (i & 7) : -1}; }
    __device__ void put(int tile, int g, int x, float low, float high) const {
        int at = tile * 8 + g;
        if (at >= n) return;
        float value = 0, slope;
        low = rounded(low);
        if (function == SiLU) both<SiLU>(low, value, slope);
        if (function == GELUTanh) both<GELUTanh>(low, value, slope);
        if (function == GELU) both<GELU>(low, value, slope);
        if (function == ReLU) both<ReLU>(low, value, slope);
        narrow(rounded(high) * value, y + (i64)x * n + at);
    }
};

// Heads are the matmuls with q, k and v of attention. Those with q and k are rotated: a tile
// has eight elements of a head and the eight they are paired with. Those with k and v go to
// the cache, or where there is no table of pages to rows [R keyHeads size]. Sums are rounded as by the
// ops by themselves.
struct Heads {
    const Element *biasQ, *biasK, *biasV;
    const float *freq;
    const int *positions, *sequences, *pages;
    Element *cacheK, *cacheV, *y;
    int heads, keyHeads, size, half;
    float scale;
    int page, streams, table, count;
    __device__ int tiles() const { return (heads + 2 * keyHeads) * (size / 16); }
    __device__ void warm() const {
        if (!pages) return;
        int sequence = *(const volatile int *)sequences, position = *(const volatile int *)positions;
        if (sequence >= 0 && sequence < streams && position >= 0) (void)*(const volatile int *)(pages + (i64)sequence * table + position / page % table);
        if ((threadIdx.x & 31) < half) (void)*(const volatile float *)(freq + (threadIdx.x & 31) * (half / 32 > 0 ? half / 32 : 1));
    }
    // element is the place of row i of a tile in its head.
    __device__ int element(int tile, int i) const {
        int j = tile % (size / 16), head = tile / (size / 16);
        if (head >= heads + keyHeads) return j * 16 + i; // of v
        if (j * 8 < half) return (i < 8 ? 0 : half) + j * 8 + (i & 7);
        return 2 * half + (j - half / 8) * 16 + i;
    }
    __device__ Place place(int tile, int i) const {
        int head = tile / (size / 16), at = element(tile, i);
        if (head < heads) return {0, head * size + at};
        if (head < heads + keyHeads) return {1, (head - heads) * size + at};
        return {2, (head - heads - keyHeads) * size + at};
    }
    __device__ void put(int tile, int g, int x, float low, float high) const {
        int head = tile / (size / 16), a = element(tile, g), b = element(tile, g + 8), position = positions[x];
        const Element *bias = biasQ;
        Element *to = y + ((i64)x * heads + head) * size;
        if (head >= heads) {
            head -= heads;
            bool value = head >= keyHeads;
            if (value) head -= keyHeads;
            bias = value ? biasV : biasK;
            int sequence = sequences[x];
            if (position < 0 || sequence < 0 || sequence >= streams) return;
            i64 row = (i64)x * keyHeads + head;
            if (pages) {
                int n = pages[(i64)sequence * table + position / page % table];
                n = min(max(n, 0), count - 1);
                row = ((i64)n * keyHeads + head) * page + position % page;
            }
            to = (value ? cacheV : cacheK) + row * size;
        }
        if (bias) {
            low += wide(bias[head * size + a]);
            high += wide(bias[head * size + b]);
        }
        if (tile < (heads + keyHeads) * (size / 16) && a < half) {
            float s, c;
            sincosf((float)position * freq[a], &s, &c);
            s *= scale;
            c *= scale;
            low = rounded(low);
            high = rounded(high);
            float turned = low * c - high * s;
            high = high * c + low * s;
            low = turned;
        }
        narrow(low, to + a);
        narrow(high, to + b);
    }
};
