#include "mask.h"
#include "fragments.h"

// Attention on tensor cores, for heads of HEAD elements, a multiple of 16. Products are of
// 16 × 8 tiles with sums in f32 (fragments.h); weights are rounded like operands before
// they meet values. A block has four warps; each works on its own rows (queries, or keys
// in attentionGradKeys), so no sum is shared and every order is fixed. KEYS, 64 or 32 as
// shared memory allows, are taken at a time. flash.cu has the forward pass, flashGrad.cu
// the backward one.
//
#define WARPS 4
#define SLABS (HEAD / 16)     // steps of a product over the elements of a head

// fetchTile starts copying ROWS rows of a head, from row from on of limit.
template <int ROWS> __device__ __forceinline__ void fetchTile(Element *to, const Element *x, i64 step, int from, int limit) {
#pragma unroll
    for (int n = threadIdx.x; n < ROWS * CHUNKS; n += WARPS * 32) {
        int r = n / CHUNKS, c = n % CHUNKS * LANES;
        bool there = from + r < limit;
        fetch16(to + r * PITCH + c, x + (i64)(there ? from + r : 0) * step + c, there);
    }
}

// Documents of a packed sample are mostly runs of one number. spans holds the least and
// the greatest number of each SPAN positions, so that a tile of queries and keys whose
// numbers cannot be the same is left out, and one of a single document needs no mask.
#define SPAN 32
struct Span { int least, most; };

// documentSpans: a warp for each SPAN positions of a sample; grid (warps / 8, samples).
#if MASKS
extern "C" __global__ void documentSpans(const int *segments, int *spans, int S) {
    int span = blockIdx.x * 8 + (threadIdx.x >> 5), count = (S + SPAN - 1) / SPAN, at = span * SPAN + (threadIdx.x & 31);
    if (span >= count) return;
    int id = segments[(i64)blockIdx.y * S + (at < S ? at : S - 1)];
    int least = __reduce_min_sync(0xffffffffu, id), most = __reduce_max_sync(0xffffffffu, id);
    if ((threadIdx.x & 31) == 0) *(Span *)(spans + ((i64)blockIdx.y * count + span) * 2) = {least, most};
}
#endif

// spanOf bounds the numbers of positions from..to, those beyond the last left out. All is
// one document where there are none.
__device__ __forceinline__ Span spanOf(const Mask &c, int b, int from, int to) {
    if (!MASKS || !c.segments) return {0, 0};
    int count = (c.S + SPAN - 1) / SPAN, last = to / SPAN < count ? to / SPAN : count - 1;
    const Span *p = (const Span *)c.spans + (i64)b * count;
    Span s = p[from / SPAN];
    for (int n = from / SPAN + 1; n <= last; n++) {
        Span more = p[n];
        s.least = min(s.least, more.least);
        s.most = max(s.most, more.most);
    }
    return s;
}
// queriesSpan is that of queries i0..i1.
__device__ __forceinline__ Span queriesSpan(const Mask &c, int b, int i0, int i1) {
    return spanOf(c, b, i0 + c.S - c.T, i1 + c.S - c.T);
}

// apart says that no document is in both, mixed that there may be more than one.
__device__ __forceinline__ bool apart(Span x, Span y) { return MASKS && (x.most < y.least || y.most < x.least); }
__device__ __forceinline__ bool mixed(Span x, Span y) { return MASKS && min(x.least, y.least) != max(x.most, y.most); }

// whole says that all pairs of queries i0..i1 and keys j0..j1 are seen and exist, their
// documents left aside.
__device__ __forceinline__ bool whole(const Mask &c, int i0, int i1, int j0, int j1) {
    if (MASKS && (c.keyMask || c.mask) || i1 >= c.T || j1 >= c.S) return false;
    int shift = c.S - c.T;
    if (c.causal && j1 > i0 + shift) return false;
    return c.window == 0 || j0 > i1 + shift - c.window;
}

// Products in f32 become exponents of 2 with one multiplication: c.scale·log2(e). A pair
// that is not seen has the product -inf; a mask is added in the products' unit.
__device__ __forceinline__ float product(const Mask &c, int b, int i, int j, float x) {
    return visible(c, b, i, j) ? x + added(c, i, j) / c.scale : -INFINITE;
}
