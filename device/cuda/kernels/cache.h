// The cache of keys and values that attention of a step reads: pages [count keyHeads page d]
// of each, and which rows of the step are where. A row of the cache is one head of one position.

// Types of a cache: the element types as common.h numbers them, then those of 8 bits, whose codes
// come first and behind all of them the scales of the rows, and that of 4 bits, which has an f16
// for every GROUP numbers of a row.
enum { F32, BF16, F16, I8ROW, F8ROW, I4ROW };
#define GROUP 32

#define CACHE_PARAMS                                                                                                                        \
    const int *positions, const int *sequences, const int *pages, int rows, int heads, int keyHeads, int page, int streams, int table, \
        int count, int window, float scale
#define CACHE {positions, sequences, pages, rows, heads, keyHeads, page, streams, table, count, window, scale}

struct Cache {
    const int *positions, *sequences, *pages;
    int rows, heads, keyHeads, page, streams, table, count, window;
    float scale;

    // position of a row of the step, -1 where it is idle.
    __device__ __forceinline__ int position(int row) const {
        int s = sequences[row], p = positions[row];
        return s < 0 || s >= streams || p < 0 ? -1 : p;
    }
    // first is the first position that a query at p sees.
    __device__ __forceinline__ int first(int p) const { return window > 0 && p >= window ? p - window + 1 : 0; }
    // row of the cache that holds a head of a position.
    __device__ __forceinline__ i64 row(int sequence, int p, int head) const {
        int logical = page == 64 ? p >> 6 : p / page, at = p - logical * page; // usual pages are of 64 positions
        if (logical >= table) logical %= table;
        int n = pages[(i64)sequence * table + logical];
        n = min(max(n, 0), count - 1);
        return ((i64)n * keyHeads + head) * page + at;
    }
};
