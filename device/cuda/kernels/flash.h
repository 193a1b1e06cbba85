// Attention on tensor cores, for bf16 and f16 and heads of HEAD elements, a multiple of
// 16. Products are mma.sync of 16 × 8 tiles with sums in f32; weights are rounded to
// Element before they meet values. A block has four warps; each works on its own rows
// (queries, or keys in attentionGradKeys), so no sum is shared and every order is fixed.
// flash.cu has the forward pass, flashGrad.cu the backward one.
//
// Tiles in shared memory are rows of PITCH elements: 16 bytes more than a row needs puts
// the eight rows that a matrix load touches into different banks.

#define WARPS 4
#define PITCH (HEAD + 8)
#define CHUNKS (HEAD / 8) // of 16 bytes in a row
#define SLABS (HEAD / 16) // steps of a product over the elements of a head
#define KEYS 64             // taken at a time
#define LOG2E 1.4426950408889634f

// fetchTile starts copying ROWS rows of a head, from row from on of limit.
template <int ROWS> __device__ __forceinline__ void fetchTile(Element *to, const Element *x, i64 step, int from, int limit) {
#pragma unroll
    for (int n = threadIdx.x; n < ROWS * CHUNKS; n += WARPS * 32) {
        int r = n / CHUNKS, c = n % CHUNKS * 8;
        bool there = from + r < limit;
        fetch16(to + r * PITCH + c, x + (i64)(there ? from + r : 0) * step + c, there);
    }
}

// Four 8 × 8 matrices, the rows of the first eight lanes first; turned: transposed.
__device__ __forceinline__ void matrices(u32 (&r)[4], const Element *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(sharedAt(row)));
}
__device__ __forceinline__ void matricesTurned(u32 (&r)[4], const Element *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(sharedAt(row)));
}

// left: rows r..r+15, elements c..c+15 of a tile, as the left factor.
__device__ __forceinline__ void left(u32 (&a)[4], const Element *tile, int r, int c) {
    int lane = threadIdx.x & 31;
    matrices(a, tile + (r + (lane & 15)) * PITCH + c + (lane >> 4) * 8);
}
// right: of rows n..n+15 of a tile, elements c..c+15, as two right factors whose columns
// are rows of the tile: (b[0], b[1]) for the first eight, (b[2], b[3]) for the others.
__device__ __forceinline__ void right(u32 (&b)[4], const Element *tile, int n, int c) {
    int lane = threadIdx.x & 31;
    matrices(b, tile + (n + (lane >> 4) * 8 + (lane & 7)) * PITCH + c + ((lane >> 3) & 1) * 8);
}
// down: of rows k..k+15 of a tile, elements c..c+15, as two right factors whose columns
// are elements.
__device__ __forceinline__ void down(u32 (&b)[4], const Element *tile, int k, int c) {
    int lane = threadIdx.x & 31;
    matricesTurned(b, tile + (k + (lane & 15)) * PITCH + c + (lane >> 4) * 8);
}

// c += a·b. Of the 16 × 8 sums a lane holds (row, column): (g, t), (g, t+1), (g+8, t),
// (g+8, t+1) with g = lane/4, t = 2·(lane%4).
__device__ __forceinline__ void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if ELEMENT == 2
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#endif
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// two numbers as Elements, the first in the low half.
__device__ __forceinline__ u32 two(float low, float high) {
    u32 r;
#if ELEMENT == 2
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
#else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
#endif
    return r;
}
// sums of two neighbouring tiles as a left factor.
__device__ __forceinline__ void asLeft(u32 (&a)[4], const float (&x)[4], const float (&y)[4]) {
    a[0] = two(x[0], x[1]);
    a[1] = two(x[2], x[3]);
    a[2] = two(y[0], y[1]);
    a[3] = two(y[2], y[3]);
}

__device__ __forceinline__ float power2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

template <int N> __device__ __forceinline__ void zero(float (&x)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++) x[n][0] = x[n][1] = x[n][2] = x[n][3] = 0;
}

// whole says that all pairs of queries i0..i1 and keys j0..j1 are seen and exist.
__device__ __forceinline__ bool whole(const Sight &c, int i0, int i1, int j0, int j1) {
    if (EXTRAS && (c.segments || c.keyMask || c.mask) || i1 >= c.T || j1 >= c.S) return false;
    int shift = c.S - c.T;
    if (c.causal && j1 > i0 + shift) return false;
    return c.window == 0 || j0 > i1 + shift - c.window;
}

// Products in f32 become exponents of 2 with one multiplication: c.scale·log2(e). A pair
// that is not seen has the product -inf; a mask is added in the products' unit.
__device__ __forceinline__ float product(const Sight &c, int b, int i, int j, float x) {
    return visible(c, b, i, j) ? x + added(c, i, j) / c.scale : -INFINITE;
}

// putRows writes two rows of sums, r and r + 8, of which those below limit exist.
template <int N> __device__ __forceinline__ void putRows(Element *x, i64 step, int r, int limit, const float (&sum)[N][4], float by0, float by1) {
    int t = (threadIdx.x & 3) * 2;
#pragma unroll
    for (int n = 0; n < N; n++) {
        if (r < limit) *(u32 *)(x + r * step + n * 8 + t) = two(sum[n][0] * by0, sum[n][1] * by0);
        if (r + 8 < limit) *(u32 *)(x + (r + 8) * step + n * 8 + t) = two(sum[n][2] * by1, sum[n][3] * by1);
    }
}

// Reductions over the four lanes that hold a row.
__device__ __forceinline__ float lineSum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
__device__ __forceinline__ float lineMax(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
