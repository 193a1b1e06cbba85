// Attention on tensor cores, for bf16 and f16 and heads of HEAD elements, a multiple of
// 16. Products are mma.sync of 16 × 8 tiles with sums in f32; weights are rounded to
// Element before they meet values. A block has four warps; each works on its own rows
// (queries, or keys in attentionGradKeys), so no sum is shared and every order is fixed.
//
// Tiles in shared memory are rows of PITCH elements: 16 bytes more than a row needs puts
// the eight rows that a matrix load touches into different banks.

#define WARPS 4
#define PITCH (HEAD + 8)
#define CHUNKS (HEAD / 8) // of 16 bytes in a row
#define SLABS (HEAD / 16) // steps of a product over the elements of a head
#define LOG2E 1.4426950408889634f

__device__ __forceinline__ u32 sharedAt(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// fetchRow copies 16 bytes to shared memory in the background; zeros where there is no row.
__device__ __forceinline__ void fetch16(Element *to, const Element *from, bool there) {
    int n = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(sharedAt(to)), "l"(from), "r"(n));
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;"); }
template <int N> __device__ __forceinline__ void await() { asm volatile("cp.async.wait_group %0;" ::"n"(N)); }

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

// ---- forward: 128 queries of a head per block, 32 per warp; 64 keys at a time.

#define QUERIES 128
#define KEYS 64

extern "C" __global__ void __launch_bounds__(128) attention(const Element *q, const Element *k, const Element *v, Element *o, float *lse, SIGHT_PARAMS) {
    Sight c = SIGHT;
    extern __shared__ Element tiles[];
    Element *qs = tiles, *ks = qs + QUERIES * PITCH, *vs = ks + 2 * KEYS * PITCH;
    int i0 = (gridDim.x - 1 - blockIdx.x) * QUERIES, h = blockIdx.y, b = blockIdx.z, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    i64 queryStep = (i64)heads * HEAD, keyStep = (i64)keyHeads * HEAD;
    q += (i64)b * T * queryStep + (i64)h * HEAD;
    o += (i64)b * T * queryStep + (i64)h * HEAD;
    i64 shared = (i64)b * S * keyStep + (i64)(h * keyHeads / heads) * HEAD;
    k += shared;
    v += shared;
    u64 base = streamBase(key, stream);
    int first = firstKey(c, i0) / KEYS * KEYS, end = endKey(c, i0 + QUERIES - 1), row = i0 + warp * 32 + (lane >> 2);
    float out[2][HEAD / 8][4], top[4], sum[4], unit = scale * LOG2E;
    zero(out[0]);
    zero(out[1]);
#pragma unroll
    for (int x = 0; x < 4; x++) {
        top[x] = -INFINITE;
        sum[x] = 0;
    }
    fetchTile<QUERIES>(qs, q, queryStep, i0, T);
    fetchTile<KEYS>(ks, k, keyStep, first, S);
    commit();
    fetchTile<KEYS>(vs, v, keyStep, first, S);
    commit();
    for (int j0 = first, stage = 0; j0 < end; j0 += KEYS, stage ^= 1) {
        Element *kt = ks + stage * KEYS * PITCH, *vt = vs + stage * KEYS * PITCH;
        await<1>();
        __syncthreads(); // these keys are here, and the other stage is no longer read
        if (j0 + KEYS < end) fetchTile<KEYS>(ks + (stage ^ 1) * KEYS * PITCH, k, keyStep, j0 + KEYS, S);
        commit();
        float s[2][KEYS / 8][4];
        zero(s[0]);
        zero(s[1]);
#pragma unroll
        for (int d = 0; d < SLABS; d++) {
            u32 a[2][4], f[4];
            left(a[0], qs, warp * 32, d * 16);
            left(a[1], qs, warp * 32 + 16, d * 16);
#pragma unroll
            for (int n = 0; n < KEYS / 16; n++) {
                right(f, kt, n * 16, d * 16);
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    mma(s[m][2 * n], a[m], f[0], f[1]);
                    mma(s[m][2 * n + 1], a[m], f[2], f[3]);
                }
            }
        }
        if (!whole(c, i0 + warp * 32, i0 + warp * 32 + 31, j0, j0 + KEYS - 1))
#pragma unroll
            for (int m = 0; m < 2; m++)
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                    for (int x = 0; x < 4; x++) s[m][n][x] = product(c, b, row + m * 16 + (x >> 1) * 8, j0 + n * 8 + (lane & 3) * 2 + (x & 1), s[m][n][x]);
#pragma unroll
        for (int y = 0; y < 4; y++) { // the four rows of a lane: 0, 8, 16, 24 below row
            float most = top[y], part = 0;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) most = fmaxf(most, fmaxf(s[y >> 1][n][(y & 1) * 2], s[y >> 1][n][(y & 1) * 2 + 1]));
            most = lineMax(most);
            float from = most == -INFINITE ? 0 : most * unit, shrink = power2(top[y] * unit - from);
            top[y] = most;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int x = 0; x < 2; x++) {
                    float p = power2(s[y >> 1][n][(y & 1) * 2 + x] * unit - from);
                    part += p;
                    if (drops(c)) p *= dropped(c, base, b, h, row + y * 8, j0 + n * 8 + (lane & 3) * 2 + x);
                    s[y >> 1][n][(y & 1) * 2 + x] = p;
                }
            sum[y] = sum[y] * shrink + part; // each lane's own share
#pragma unroll
            for (int n = 0; n < HEAD / 8; n++) {
                out[y >> 1][n][(y & 1) * 2] *= shrink;
                out[y >> 1][n][(y & 1) * 2 + 1] *= shrink;
            }
        }
        await<1>();
        __syncthreads(); // these values are here
        if (j0 + KEYS < end) fetchTile<KEYS>(vs + (stage ^ 1) * KEYS * PITCH, v, keyStep, j0 + KEYS, S);
        commit();
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) {
            u32 p[2][4], f[4];
            asLeft(p[0], s[0][2 * n], s[0][2 * n + 1]);
            asLeft(p[1], s[1][2 * n], s[1][2 * n + 1]);
#pragma unroll
            for (int d = 0; d < SLABS; d++) {
                down(f, vt, n * 16, d * 16);
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    mma(out[m][2 * d], p[m], f[0], f[1]);
                    mma(out[m][2 * d + 1], p[m], f[2], f[3]);
                }
            }
        }
    }
    await<0>();
#pragma unroll
    for (int y = 0; y < 4; y++) sum[y] = lineSum(sum[y]);
#pragma unroll
    for (int m = 0; m < 2; m++)
        putRows(o, queryStep, row + m * 16, T, out[m], sum[2 * m] > 0 ? 1.0f / sum[2 * m] : 0.0f, sum[2 * m + 1] > 0 ? 1.0f / sum[2 * m + 1] : 0.0f);
#pragma unroll
    for (int y = 0; y < 4; y++)
        if ((lane & 3) == 0 && row + y * 8 < T) lse[((i64)b * heads + h) * T + row + y * 8] = sum[y] > 0 ? top[y] * scale + logf(sum[y]) : -INFINITE;
}

// ---- backward

// Rows a warp works on, in tiles of 16: more of them share a right factor once it is
// loaded, as far as there are registers for their sums.
#define TILES (HEAD <= 64 ? 2 : 1)
#define ROWS (WARPS * TILES * 16) // of a block

// delta = the products of o and do, laid out like lse. Eight or sixteen lanes work on a
// row, 16 bytes each; 256 threads.
extern "C" __global__ void attentionDelta(const Element *o, const Element *grad, float *delta, i64 n, int T, int heads, int width) {
    const int lanes = HEAD <= 64 ? 8 : 16;
    int i = threadIdx.y * 32 + threadIdx.x, lane = i % lanes;
    i64 row = (i64)blockIdx.x * (256 / lanes) + i / lanes; // over samples, queries, heads
    float sum = 0;
    if (row < n && lane < CHUNKS) {
        float x[LANES], y[LANES];
        load(o + row * HEAD + lane * LANES, x);
        load(grad + row * HEAD + lane * LANES, y);
#pragma unroll
        for (int k = 0; k < LANES; k++) sum += x[k] * y[k];
    }
#pragma unroll
    for (int d = lanes / 2; d > 0; d >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (row >= n || lane != 0) return;
    i64 b = row / ((i64)T * heads), t = row / heads % T, h = row % heads;
    delta[(b * heads + h) * T + t] = sum;
}

// dq of ROWS queries of a head per block; 64 keys at a time.
extern "C" __global__ void __launch_bounds__(128) attentionGradQueries(const Element *q, const Element *k, const Element *v, const float *lse, const Element *grad, const float *delta, Element *dq, SIGHT_PARAMS) {
    Sight c = SIGHT;
    extern __shared__ Element tiles[];
    Element *qs = tiles, *gs = qs + ROWS * PITCH, *ks = gs + ROWS * PITCH, *vs = ks + 2 * KEYS * PITCH;
    int i0 = (gridDim.x - 1 - blockIdx.x) * ROWS, h = blockIdx.y, b = blockIdx.z, lane = threadIdx.x & 31, mine = (threadIdx.x >> 5) * TILES * 16;
    i64 queryStep = (i64)heads * HEAD, keyStep = (i64)keyHeads * HEAD, queryAt = (i64)b * T * queryStep + (i64)h * HEAD;
    i64 keyAt = (i64)b * S * keyStep + (i64)(h * keyHeads / heads) * HEAD, line = ((i64)b * heads + h) * T;
    k += keyAt;
    v += keyAt;
    u64 base = streamBase(key, stream);
    int first = firstKey(c, i0) / KEYS * KEYS, end = endKey(c, i0 + ROWS - 1), row = i0 + mine + (lane >> 2);
    float out[TILES][HEAD / 8][4], total[2 * TILES], inner[2 * TILES], unit = scale * LOG2E;
#pragma unroll
    for (int m = 0; m < TILES; m++) zero(out[m]);
#pragma unroll
    for (int y = 0; y < 2 * TILES; y++) {
        total[y] = row + y * 8 < T ? lse[line + row + y * 8] * LOG2E : 0;
        inner[y] = row + y * 8 < T ? delta[line + row + y * 8] : 0;
    }
    fetchTile<ROWS>(qs, q + queryAt, queryStep, i0, T);
    fetchTile<ROWS>(gs, grad + queryAt, queryStep, i0, T);
    fetchTile<KEYS>(ks, k, keyStep, first, S);
    fetchTile<KEYS>(vs, v, keyStep, first, S);
    commit();
    for (int j0 = first, stage = 0; j0 < end; j0 += KEYS, stage ^= 1) {
        Element *kt = ks + stage * KEYS * PITCH, *vt = vs + stage * KEYS * PITCH;
        await<0>();
        __syncthreads();
        if (j0 + KEYS < end) {
            fetchTile<KEYS>(ks + (stage ^ 1) * KEYS * PITCH, k, keyStep, j0 + KEYS, S);
            fetchTile<KEYS>(vs + (stage ^ 1) * KEYS * PITCH, v, keyStep, j0 + KEYS, S);
        }
        commit();
        bool all = whole(c, i0 + mine, i0 + mine + TILES * 16 - 1, j0, j0 + KEYS - 1);
#pragma unroll
        for (int half = 0; half < 2; half++) { // of the keys, so that the sums fit into registers
            float s[TILES][KEYS / 16][4], g[TILES][KEYS / 16][4];
#pragma unroll
            for (int m = 0; m < TILES; m++) {
                zero(s[m]);
                zero(g[m]);
            }
#pragma unroll
            for (int d = 0; d < SLABS; d++) {
                u32 a[TILES][4], e[TILES][4], f[4];
#pragma unroll
                for (int m = 0; m < TILES; m++) {
                    left(a[m], qs, mine + m * 16, d * 16);
                    left(e[m], gs, mine + m * 16, d * 16);
                }
#pragma unroll
                for (int n = 0; n < KEYS / 32; n++) {
                    right(f, kt, half * 32 + n * 16, d * 16);
#pragma unroll
                    for (int m = 0; m < TILES; m++) {
                        mma(s[m][2 * n], a[m], f[0], f[1]);
                        mma(s[m][2 * n + 1], a[m], f[2], f[3]);
                    }
                    right(f, vt, half * 32 + n * 16, d * 16);
#pragma unroll
                    for (int m = 0; m < TILES; m++) {
                        mma(g[m][2 * n], e[m], f[0], f[1]);
                        mma(g[m][2 * n + 1], e[m], f[2], f[3]);
                    }
                }
            }
            int from = j0 + half * 32 + (lane & 3) * 2;
            if (!all)
#pragma unroll
                for (int m = 0; m < TILES; m++)
#pragma unroll
                    for (int n = 0; n < KEYS / 16; n++)
#pragma unroll
                        for (int x = 0; x < 4; x++) s[m][n][x] = product(c, b, row + m * 16 + (x >> 1) * 8, from + n * 8 + (x & 1), s[m][n][x]);
#pragma unroll
            for (int m = 0; m < TILES; m++)
#pragma unroll
                for (int n = 0; n < KEYS / 16; n++)
#pragma unroll
                    for (int x = 0; x < 4; x++) {
                        int y = 2 * m + (x >> 1);
                        float p = s[m][n][x] == -INFINITE ? 0.0f : power2(s[m][n][x] * unit - total[y]);
                        if (drops(c)) g[m][n][x] *= dropped(c, base, b, h, row + y * 8, from + n * 8 + (x & 1));
                        s[m][n][x] = p * (g[m][n][x] - inner[y]);
                    }
#pragma unroll
            for (int n = 0; n < KEYS / 32; n++) {
                u32 a[TILES][4], f[4];
#pragma unroll
                for (int m = 0; m < TILES; m++) asLeft(a[m], s[m][2 * n], s[m][2 * n + 1]);
#pragma unroll
                for (int d = 0; d < SLABS; d++) {
                    down(f, kt, half * 32 + n * 16, d * 16);
#pragma unroll
                    for (int m = 0; m < TILES; m++) {
                        mma(out[m][2 * d], a[m], f[0], f[1]);
                        mma(out[m][2 * d + 1], a[m], f[2], f[3]);
                    }
                }
            }
        }
    }
    await<0>();
#pragma unroll
    for (int m = 0; m < TILES; m++) putRows(dq + queryAt, queryStep, row + m * 16, T, out[m], scale, scale);
}

// dk and dv of ROWS keys of a key head per block, over the queries of the heads that
// share it, STRIP queries at a time. Tiles are turned: rows are keys. Where there are
// too few blocks to fill the card, those heads are dealt to several blocks, which write
// their sums to parts, split by split, first all of dk and then of dv (see foldParts).
#define STRIP 32

// putParts writes two rows of sums in f32.
template <int N> __device__ __forceinline__ void putParts(float *x, i64 step, int r, int limit, const float (&sum)[N][4], float by) {
    int t = (threadIdx.x & 3) * 2;
#pragma unroll
    for (int n = 0; n < N; n++) {
        if (r < limit) store(x + r * step + n * 8 + t, {sum[n][0] * by, sum[n][1] * by});
        if (r + 8 < limit) store(x + (r + 8) * step + n * 8 + t, {sum[n][2] * by, sum[n][3] * by});
    }
}

extern "C" __global__ void __launch_bounds__(128) attentionGradKeys(const Element *q, const Element *k, const Element *v, const float *lse, const Element *grad, const float *delta, Element *dk, Element *dv, float *parts, int splits, SIGHT_PARAMS) {
    Sight c = SIGHT;
    extern __shared__ Element tiles[];
    Element *ks = tiles, *vs = ks + ROWS * PITCH, *qs = vs + ROWS * PITCH, *gs = qs + 2 * STRIP * PITCH;
    __shared__ float totals[2][STRIP], inners[2][STRIP];
    int j0 = blockIdx.x * ROWS, kh = blockIdx.y / splits, split = blockIdx.y % splits, b = blockIdx.z, lane = threadIdx.x & 31, mine = (threadIdx.x >> 5) * TILES * 16;
    i64 queryStep = (i64)heads * HEAD, keyStep = (i64)keyHeads * HEAD, keyAt = (i64)b * S * keyStep + (i64)kh * HEAD;
    u64 base = streamBase(key, stream);
    int group = heads / keyHeads / splits, head = kh * group * splits + split * group, first = firstQuery(c, j0) / STRIP * STRIP, end = endQuery(c, j0 + ROWS - 1), row = j0 + mine + (lane >> 2);
    int strips = end > first ? (end - first + STRIP - 1) / STRIP : 0, rounds = group * strips;
    float outK[TILES][HEAD / 8][4], outV[TILES][HEAD / 8][4], unit = scale * LOG2E;
#pragma unroll
    for (int m = 0; m < TILES; m++) {
        zero(outK[m]);
        zero(outV[m]);
    }
    // round n is strip n % strips of the block's head n / strips
    auto fetch = [&](int n, int stage) {
        int h = head + n / strips, i0 = first + n % strips * STRIP;
        i64 queryAt = (i64)b * T * queryStep + (i64)h * HEAD, line = ((i64)b * heads + h) * T;
        fetchTile<STRIP>(qs + stage * STRIP * PITCH, q + queryAt, queryStep, i0, T);
        fetchTile<STRIP>(gs + stage * STRIP * PITCH, grad + queryAt, queryStep, i0, T);
        if (threadIdx.x < STRIP) {
            bool there = i0 + threadIdx.x < T;
            totals[stage][threadIdx.x] = there ? lse[line + i0 + threadIdx.x] * LOG2E : 0;
            inners[stage][threadIdx.x] = there ? delta[line + i0 + threadIdx.x] : 0;
        }
    };
    fetchTile<ROWS>(ks, k + keyAt, keyStep, j0, S);
    fetchTile<ROWS>(vs, v + keyAt, keyStep, j0, S);
    if (rounds > 0) fetch(0, 0);
    commit();
    for (int n = 0, stage = 0; n < rounds; n++, stage ^= 1) {
        Element *qt = qs + stage * STRIP * PITCH, *gt = gs + stage * STRIP * PITCH;
        await<0>();
        __syncthreads();
        if (n + 1 < rounds) fetch(n + 1, stage ^ 1);
        commit();
        int h = head + n / strips, i0 = first + n % strips * STRIP, in = (lane & 3) * 2;
        float s[TILES][STRIP / 8][4], g[TILES][STRIP / 8][4];
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            zero(s[t]);
            zero(g[t]);
        }
#pragma unroll
        for (int d = 0; d < SLABS; d++) {
            u32 a[TILES][4], e[TILES][4], f[4];
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                left(a[t], ks, mine + t * 16, d * 16);
                left(e[t], vs, mine + t * 16, d * 16);
            }
#pragma unroll
            for (int m = 0; m < STRIP / 16; m++) {
                right(f, qt, m * 16, d * 16);
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                    mma(s[t][2 * m], a[t], f[0], f[1]);
                    mma(s[t][2 * m + 1], a[t], f[2], f[3]);
                }
                right(f, gt, m * 16, d * 16);
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                    mma(g[t][2 * m], e[t], f[0], f[1]);
                    mma(g[t][2 * m + 1], e[t], f[2], f[3]);
                }
            }
        }
        if (!whole(c, i0, i0 + STRIP - 1, j0 + mine, j0 + mine + TILES * 16 - 1))
#pragma unroll
            for (int t = 0; t < TILES; t++)
#pragma unroll
                for (int m = 0; m < STRIP / 8; m++)
#pragma unroll
                    for (int x = 0; x < 4; x++) s[t][m][x] = product(c, b, i0 + in + m * 8 + (x & 1), row + t * 16 + (x >> 1) * 8, s[t][m][x]);
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int m = 0; m < STRIP / 8; m++)
#pragma unroll
                for (int x = 0; x < 4; x++) {
                    int i = in + m * 8 + (x & 1);
                    float p = s[t][m][x] == -INFINITE ? 0.0f : power2(s[t][m][x] * unit - totals[stage][i]), w = p;
                    if (drops(c)) {
                        float drop = dropped(c, base, b, h, i0 + i, row + t * 16 + (x >> 1) * 8);
                        w *= drop;
                        g[t][m][x] *= drop;
                    }
                    s[t][m][x] = w;
                    g[t][m][x] = p * (g[t][m][x] - inners[stage][i]);
                }
#pragma unroll
        for (int m = 0; m < STRIP / 16; m++) {
            u32 a[TILES][4], e[TILES][4], f[4];
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                asLeft(a[t], s[t][2 * m], s[t][2 * m + 1]);
                asLeft(e[t], g[t][2 * m], g[t][2 * m + 1]);
            }
#pragma unroll
            for (int d = 0; d < SLABS; d++) {
                down(f, gt, m * 16, d * 16);
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                    mma(outV[t][2 * d], a[t], f[0], f[1]);
                    mma(outV[t][2 * d + 1], a[t], f[2], f[3]);
                }
                down(f, qt, m * 16, d * 16);
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                    mma(outK[t][2 * d], e[t], f[0], f[1]);
                    mma(outK[t][2 * d + 1], e[t], f[2], f[3]);
                }
            }
        }
    }
    await<0>();
    if (splits > 1) {
        i64 size = (i64)gridDim.z * S * keyStep;
        float *partK = parts + split * size + keyAt, *partV = partK + splits * size;
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            putParts(partK, keyStep, row + t * 16, S, outK[t], scale);
            putParts(partV, keyStep, row + t * 16, S, outV[t], 1.0f);
        }
        return;
    }
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        putRows(dk + keyAt, keyStep, row + t * 16, S, outK[t], scale, scale);
        putRows(dv + keyAt, keyStep, row + t * 16, S, outV[t], 1.0f, 1.0f);
    }
}
