// Products of tiles by tensor cores: c += a·b with a of 16 × 16 and b of 16 × 8 elements,
// by one mma.sync for 16-bit elements and by two for f32, which are rounded to tf32 as
// they are loaded. Of the 16 × 8 sums a lane holds (row, column): (g, 2t), (g, 2t+1),
// (g+8, 2t), (g+8, 2t+1) with g = lane/4, t = lane%4.
//
// Tiles in shared memory are rows of PITCH elements: 16 bytes more than a row needs puts
// the rows that a load touches into different banks.

#define PITCH (HEAD + LANES)
#define CHUNKS (HEAD / LANES) // of 16 bytes in a row

// Left is a left factor. Right is two right factors, of eight columns each.
//
// left:   rows r..r+15, elements c..c+15 of a tile
// right:  the columns are rows n..n+15 of a tile, of which elements c..c+15 count
// down:   the columns are elements c..c+15 of a tile, of which rows k..k+15 count
// asLeft: sums of two neighbouring tiles become a left factor, to meet one made by down
// mma:    c += a·b for columns half of b

#if ELEMENT != 0

struct Left { u32 x[4]; };
struct Right { u32 x[4]; };

// Four 8 × 8 matrices, the rows of the first eight lanes first; turned: transposed.
__device__ __forceinline__ void matrices(u32 (&r)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row));
}
__device__ __forceinline__ void matricesTurned(u32 (&r)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row));
}

__device__ __forceinline__ void left(Left &a, const Element *tile, int r, int c) {
    int lane = threadIdx.x & 31;
    matrices(a.x, sharedAt(tile + (r + (lane & 15)) * PITCH + c + (lane >> 4) * 8));
}
__device__ __forceinline__ void right(Right &b, const Element *tile, int n, int c) {
    int lane = threadIdx.x & 31;
    matrices(b.x, sharedAt(tile + (n + (lane >> 4) * 8 + (lane & 7)) * PITCH + c + ((lane >> 3) & 1) * 8));
}
__device__ __forceinline__ void down(Right &b, const Element *tile, int k, int c) {
    int lane = threadIdx.x & 31;
    matricesTurned(b.x, sharedAt(tile + (k + (lane & 15)) * PITCH + c + (lane >> 4) * 8));
}

__device__ __forceinline__ void mma(float (&c)[4], const Left &a, const Right &b, int half) {
#if ELEMENT == 2
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#endif
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[2 * half]), "r"(b.x[2 * half + 1]));
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
__device__ __forceinline__ void asLeft(Left &a, const float (&x)[4], const float (&y)[4]) {
    a.x[0] = two(x[0], x[1]);
    a.x[1] = two(x[2], x[3]);
    a.x[2] = two(y[0], y[1]);
    a.x[3] = two(y[2], y[3]);
}

#else

// Each in two steps of eight products: Left by step, Right by column half and step.
struct Left { u32 x[2][4]; };
struct Right { u32 x[2][2][2]; };

__device__ __forceinline__ u32 tf32(float x) {
    u32 r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
}

__device__ __forceinline__ void left(Left &a, const Element *tile, int r, int c) {
    const Element *p = tile + (r + ((threadIdx.x & 31) >> 2)) * PITCH + c + (threadIdx.x & 3);
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
        for (int i = 0; i < 4; i++) a.x[s][i] = tf32(p[(i & 1) * 8 * PITCH + s * 8 + (i >> 1) * 4]);
}
__device__ __forceinline__ void right(Right &b, const Element *tile, int n, int c) {
    const Element *p = tile + (n + ((threadIdx.x & 31) >> 2)) * PITCH + c + (threadIdx.x & 3);
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int s = 0; s < 2; s++)
#pragma unroll
            for (int i = 0; i < 2; i++) b.x[half][s][i] = tf32(p[half * 8 * PITCH + s * 8 + i * 4]);
}
// The sums asLeft takes lie at columns 2t and 2t+1, where a left factor has t and t+4.
// The products of a row may be summed in any order, so rows of the tile are taken in
// the same one.
__device__ __forceinline__ void down(Right &b, const Element *tile, int k, int c) {
    const Element *p = tile + (k + (threadIdx.x & 3) * 2) * PITCH + c + ((threadIdx.x & 31) >> 2);
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int s = 0; s < 2; s++)
#pragma unroll
            for (int i = 0; i < 2; i++) b.x[half][s][i] = tf32(p[(s * 8 + i) * PITCH + half * 8]);
}

__device__ __forceinline__ void mma(float (&c)[4], const Left &a, const Right &b, int half) {
#pragma unroll
    for (int s = 0; s < 2; s++)
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a.x[s][0]), "r"(a.x[s][1]), "r"(a.x[s][2]), "r"(a.x[s][3]), "r"(b.x[half][s][0]), "r"(b.x[half][s][1]));
}

__device__ __forceinline__ void asLeft(Left &a, const float (&x)[4], const float (&y)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) { // rows g and g+8 of column 2t, then of 2t+1
        a.x[0][i] = tf32(x[(i & 1) * 2 + (i >> 1)]);
        a.x[1][i] = tf32(y[(i & 1) * 2 + (i >> 1)]);
    }
}

#endif

#define LOG2E 1.4426950408889634f

__device__ __forceinline__ float power2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

template <int N> __device__ __forceinline__ void zero(float (&x)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++) x[n][0] = x[n][1] = x[n][2] = x[n][3] = 0;
}

// putRows writes two rows of sums, r and r + 8, of which those below limit exist. The four
// lanes that hold a row exchange what they have, so that each writes 16 bytes.
template <int N> __device__ __forceinline__ void putRows(Element *x, i64 step, int r, int limit, const float (&sum)[N][4], float by0, float by1) {
    int t = threadIdx.x & 3;
#if ELEMENT != 0
#pragma unroll
    for (int n = 0; n + 4 <= N; n += 4)
#pragma unroll
        for (int y = 0; y < 2; y++) {
            u32 w[4];
#pragma unroll
            for (int m = 0; m < 4; m++) w[m] = two(sum[n + m][2 * y] * (y ? by1 : by0), sum[n + m][2 * y + 1] * (y ? by1 : by0));
#pragma unroll
            for (int m = 0; m < 4; m += 2) {
                u32 other = __shfl_xor_sync(0xffffffffu, t & 1 ? w[m] : w[m + 1], 1);
                if (t & 1) w[m] = other;
                else w[m + 1] = other;
            }
#pragma unroll
            for (int m = 0; m < 2; m++) {
                u32 other = __shfl_xor_sync(0xffffffffu, t & 2 ? w[m] : w[m + 2], 2);
                if (t & 2) w[m] = other;
                else w[m + 2] = other;
            }
            if (r + y * 8 < limit) *(uint4 *)(x + (r + y * 8) * step + (n + t) * 8) = {w[0], w[1], w[2], w[3]};
        }
    const int done = N / 4 * 4;
#else
    const int done = 0;
#endif
#pragma unroll
    for (int n = done; n < N; n++) {
        if (r < limit) store(x + r * step + n * 8 + 2 * t, {sum[n][0] * by0, sum[n][1] * by0});
        if (r + 8 < limit) store(x + (r + 8) * step + n * 8 + 2 * t, {sum[n][2] * by1, sum[n][3] * by1});
    }
}

// putParts writes two rows of sums in f32.
template <int N> __device__ __forceinline__ void putParts(float *x, i64 step, int r, int limit, const float (&sum)[N][4], float by) {
    int t = (threadIdx.x & 3) * 2;
#pragma unroll
    for (int n = 0; n < N; n++) {
        if (r < limit) store(x + r * step + n * 8 + t, {sum[n][0] * by, sum[n][1] * by});
        if (r + 8 < limit) store(x + (r + 8) * step + n * 8 + t, {sum[n][2] * by, sum[n][3] * by});
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
