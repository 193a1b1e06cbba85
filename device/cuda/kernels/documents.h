// Which rows a block works on. Documents are packed one after the other, so the rows of a
// sample are divided into tiles of at most ROWS, which begin where a long document begins and
// hold several whole ones where they are short: no tile crosses into the next document.
// documentTiles makes lists of them, longest work first.
//
// Segments that are not in order (as unsigned numbers, so that padding, -1, comes last) are
// one document whose pairs are looked at one by one: mixed.

#define ROWS 128

struct Tile {
    int sample, first, end; // rows first..end-1
    int mixed;
    int start, stop; // of the first row's document, one behind that of the last
    int unused[2];
    u32 marks[4]; // bit i: row first+i begins a document, i > 0
};

// documentStart and documentStop bound the document of row i of a tile.
__device__ __forceinline__ int documentStart(const Tile &t, int i) {
    int at = t.start, x = i - t.first;
    if (!(t.marks[0] | t.marks[1] | t.marks[2] | t.marks[3])) return at;
#pragma unroll
    for (int w = 0; w < 4; w++) {
        u32 m = x >= 32 * w + 31 ? t.marks[w] : x >= 32 * w ? t.marks[w] & (2u << (x - 32 * w)) - 1 : 0;
        if (m) at = t.first + 32 * w + 31 - __clz(m);
    }
    return at;
}
__device__ __forceinline__ int documentStop(const Tile &t, int i) {
    int at = t.stop, x = i - t.first + 1; // the first that may be the next one's
    if (!(t.marks[0] | t.marks[1] | t.marks[2] | t.marks[3])) return at;
#pragma unroll
    for (int w = 3; w >= 0; w--) {
        u32 m = x <= 32 * w ? t.marks[w] : x < 32 * w + 32 ? t.marks[w] & ~0u << (x - 32 * w) : 0;
        if (m) at = t.first + 32 * w + __ffs(m) - 1;
    }
    return at;
}

// Row i of a tile sees keys firstOf(i)..lastOf(i), and as a key is seen by queries
// firstBy(i)..lastBy(i), masks of numbers left aside. None of them decreases with i.
__device__ __forceinline__ int firstOf(const Mask &c, const Tile &t, int i) { return max(documentStart(t, i), c.window > 0 ? i - c.window + 1 : 0); }
__device__ __forceinline__ int lastOf(const Mask &c, const Tile &t, int i) { return c.causal ? i : documentStop(t, i) - 1; }
__device__ __forceinline__ int firstBy(const Mask &c, const Tile &t, int i) { return c.causal ? i : documentStart(t, i); }
__device__ __forceinline__ int lastBy(const Mask &c, const Tile &t, int i) {
    int stop = documentStop(t, i) - 1;
    return c.window > 0 ? min(stop, i + c.window - 1) : stop;
}

// Range is from..to, of which there are none if from > to.
struct Range { int from, to; };
#define NOTHING {1 << 30, -1}

// rangeOf is what any of rows first..last of a tile has to do with: the keys they see, or the
// queries that see them.
template <bool BYKEYS> __device__ __forceinline__ Range rangeOf(const Mask &c, const Tile &t, int first, int last) {
    if (BYKEYS) return {firstBy(c, t, first), lastBy(c, t, last)};
    return {firstOf(c, t, first), lastOf(c, t, last)};
}
// wholeOf is what all of the rows have to do with.
template <bool BYKEYS> __device__ __forceinline__ Range wholeOf(const Mask &c, const Tile &t, int first, int last) {
    if (BYKEYS) return {firstBy(c, t, last), lastBy(c, t, first)};
    return {firstOf(c, t, last), lastOf(c, t, first)};
}

// Bits of a row of a tile: of the columns from column on a lane holds two of every eight, and bit
// 2i+x is about column+8i+x.
//
// within says which columns are in a range. special says that pairs must be looked at one by one as well;
// pairsOf does so for COLUMNS / 4 of them: whether the row sees the column, or is seen by it if rows are
// keys. Whether a key is hidden from all is in the bits where columns are keys.
__device__ __forceinline__ u32 firstBits(int h) { // of the columns up to column+h
    int n = h < 0 ? 0 : 2 * (h >> 3) + min(h & 7, 1) + 1;
    return n >= 32 ? ~0u : (1u << n) - 1;
}
__device__ __forceinline__ u32 within(Range r, int column) { return firstBits(r.to - column) & ~firstBits(r.from - 1 - column); }
__device__ __forceinline__ bool special(const Mask &c, const Tile &t) { return MASKS && (t.mixed || c.keyMask); }
template <int COLUMNS, bool BYKEYS> __device__ __forceinline__ u32 pairsOf(const Mask &c, const Tile &t, int row, int column) {
    u32 bits = 0;
    const int *ids = c.segments + (i64)t.sample * c.S, *shown = c.keyMask + (i64)t.sample * c.S;
#pragma unroll 4
    for (int i = 0; i < COLUMNS / 4; i++) {
        int j = min(column + (i >> 1) * 8 + (i & 1), c.S - 1);
        bool sees = (!t.mixed || ids[min(row, c.S - 1)] == ids[j]) && (BYKEYS || !c.keyMask || shown[j] != 0);
        bits |= (u32)sees << i;
    }
    return bits;
}
// hide makes scores of a tile's row, and of the one eight below, -inf where they are not to be seen.
template <int N, bool BYKEYS> __device__ __forceinline__ void hide(const Mask &c, const Tile &t, float (&s)[N][4], int row, int column, const Range (&seen)[2]) {
#pragma unroll
    for (int y = 0; y < 2; y++) {
        u32 bits = within(seen[y], column);
        if (special(c, t)) bits &= pairsOf<8 * N, BYKEYS>(c, t, row + 8 * y, column);
#pragma unroll
        for (int i = 0; i < 2 * N; i++)
            if (!(bits >> i & 1)) s[i >> 1][2 * y + (i & 1)] = -INFINITE;
    }
}

// A list is the number of tiles, and from LIST ints on the tiles. Blocks take turns at them, each
// head a turn of its own, back and forth, so that the longest are spread evenly. Samples without
// documents need no list: their tiles are cut as they come, BYKEYS or by queries.
#define LIST 16
__device__ __forceinline__ int tilesOf(const Mask &c, const int *list, int samples) { return list ? list[0] : (c.T + ROWS - 1) / ROWS * samples; }
template <bool BYKEYS> __device__ __forceinline__ bool turn(const Mask &c, const int *list, int tiles, int samples, int n, int heads, Tile &t, int &head) {
    int k = n * gridDim.x + (n & 1 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
    head = k % heads;
    k /= heads;
    if (k >= tiles) return false;
    if (!list) {
        int first = (BYKEYS ? k / samples : tiles / samples - 1 - k / samples) * ROWS;
        t = {k % samples, first, min(first + ROWS, c.T), 0, 0, c.T};
        return true;
    }
    const int4 *from = (const int4 *)(list + LIST) + 3 * k;
    int4 *to = (int4 *)&t;
    to[0] = from[0];
    to[1] = from[1];
    to[2] = from[2];
    return true;
}
