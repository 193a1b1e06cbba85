#include "mask.h"
#include "fragments.h"
#include "panels.h"
#include "documents.h"

// Attention on tensor cores by warps, for GPUs of the Ampere and Ada generations and for heads
// too wide for hopper.cu, as many queries as keys. A block has four warps, each with TILES × 16
// rows of a tile (documents.h): queries, or keys in attentionGradKeys. So no sum is shared and
// every order is fixed. KEYS keys, or queries, are fetched at a time. Multiprocessors have room
// for two blocks: one computes while the other waits.

#define SLABS (HEAD / 16)       // steps of a product over the elements of a head
#define HEIGHT (TILES * 64)     // rows of a block
#define PIECES (ROWS / HEIGHT)  // of a tile of the list
#define BYTES(rows) (PANELS * (rows) * 128)

// leftOf, rightOf and downOf are left, right and down of fragments.h in a tile of N rows: slab d
// is elements 16d..16d+15. Rows begin at multiples of eight, so that the exchange of chunks is
// that of the lane.
template <int N> __device__ __forceinline__ u32 placeOf(u32 tile, int row, int laneRow, int d, int laneChunk) {
    return tile + d / 4 * (N * 128) + (row + laneRow) * 128 + ((d % 4 * 2 ^ laneChunk ^ laneRow & 7) << 4);
}
template <int N> __device__ __forceinline__ void leftOf(Left &a, u32 tile, int row, int d) {
    int lane = threadIdx.x & 31;
    matrices(a.x, placeOf<N>(tile, row, lane & 15, d, lane >> 4));
}
template <int N> __device__ __forceinline__ void rightOf(Right &b, u32 tile, int row, int d) {
    int lane = threadIdx.x & 31;
    matrices(b.x, placeOf<N>(tile, row, (lane >> 4) * 8 + (lane & 7), d, lane >> 3 & 1));
}
template <int N> __device__ __forceinline__ void downOf(Right &b, u32 tile, int row, int d) {
    int lane = threadIdx.x & 31;
    matricesTurned(b.x, placeOf<N>(tile, row, lane & 15, d, lane >> 4));
}

// rowsByRows is c = a·bᵀ over the elements of a head: TILES × 16 rows of a from row on, a tile of
// HEIGHT, and all N × 8 of b.
template <int N> __device__ __forceinline__ void rowsByRows(float (&c)[TILES][N][4], u32 a, int row, u32 b) {
#pragma unroll
    for (int m = 0; m < TILES; m++) zero(c[m]);
#pragma unroll
    for (int d = 0; d < SLABS; d++) {
        Left x[TILES];
        Right y;
#pragma unroll
        for (int m = 0; m < TILES; m++) leftOf<HEIGHT>(x[m], a, row + m * 16, d);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            rightOf<N * 8>(y, b, n * 8, d);
#pragma unroll
            for (int m = 0; m < TILES; m++) {
                mma(c[m][n], x[m], y, 0);
                mma(c[m][n + 1], x[m], y, 1);
            }
        }
    }
}

// byColumns is c += a·b with sums of N × 8 columns as a and as many rows of b, of which the
// elements from slab on count.
template <int N, int M> __device__ __forceinline__ void byColumns(float (&c)[TILES][M][4], const float (&a)[TILES][N][4], u32 b, int slab) {
#pragma unroll
    for (int n = 0; n < N; n += 2) {
        Left x[TILES];
        Right y;
#pragma unroll
        for (int m = 0; m < TILES; m++) asLeft(x[m], a[m][n], a[m][n + 1]);
#pragma unroll
        for (int d = 0; d < M / 2; d++) {
            downOf<N * 8>(y, b, n * 8, slab + d);
#pragma unroll
            for (int m = 0; m < TILES; m++) {
                mma(c[m][2 * d], x[m], y, 0);
                mma(c[m][2 * d + 1], x[m], y, 1);
            }
        }
    }
}

// Item is what a block works on: rows first..end-1 of a tile and a line, a head or what stands for one.
struct Item {
    Tile tile;
    int line, first, end;
};
template <bool BYKEYS> __device__ __forceinline__ bool itemOf(const Mask &c, const int *list, int samples, int lines, Item &x) {
    int k;
    if (!turn<BYKEYS>(c, list, tilesOf(c, list, samples), samples, 0, lines * PIECES, x.tile, k)) return false;
    x.line = k % lines;
    x.first = x.tile.first + k / lines * HEIGHT;
    x.end = min(x.first + HEIGHT, x.tile.end);
    return x.first < x.end;
}

// hideRows makes scores of the TILES × 16 rows from mine on -inf where they are not to be seen. seen
// has the ranges of the block's rows.
template <bool BYKEYS, int N> __device__ __forceinline__ void hideRows(const Mask &c, const Item &x, float (&s)[TILES][N][4], int mine, int column, const Range *seen) {
#pragma unroll
    for (int m = 0; m < TILES; m++) {
        int row = mine + m * 16 + ((threadIdx.x & 31) >> 2);
        Range own[2] = {seen[row - x.first], seen[row - x.first + 8]};
        hide<N, BYKEYS>(c, x.tile, s[m], row, column, own);
    }
}
