#include "cache.h"
#include "fragments.h"

// Rows of keys and values that a cache stores in 8 or 4 bits, for tensor cores. Codes become f16: all of them
// are exact there, and what scales a row of 8 bits is multiplied into scores and weights. Numbers of 4 bits are
// multiplied by their scale as they are widened.
//
// KEY_CODE and VALUE_CODE are types of cache.h, HEAD is 64 or 128. FETCH_SCALES: attend copies scales as it does codes.
#ifndef FETCH_SCALES
#define FETCH_SCALES 0
#endif

#if HEAD && ELEMENT && KEY_CODE

#define HALVES(x) ((u32)(x) << 16 | (x))

// halves widens four codes of 8 bits: the numbers of bytes 0 and 2, then of 1 and 3. Integers are Coded::more, 1152 in
// f16, too large: 1024 and a code without sign in the last bits. It is cheaper to take that from sums.
template <int CODE> __device__ __forceinline__ void halves(u32 w, u32 &even, u32 &odd) {
    if (CODE == I8ROW) {
        w ^= 0x80808080u;
        even = __byte_perm(w, 0x64646464u, 0x4240);
        odd = __byte_perm(w, 0x64646464u, 0x4341);
    } else { // the exponent is one of f16 that is 8 too small: see factor
        even = w << 8 & 0x80008000u | w << 7 & 0x3f803f80u;
        odd = w & 0x80008000u | w >> 1 & 0x3f803f80u;
    }
}
// nibbles widens the n-th 4 bits of both halves of a word, times the scales of each: 1024 and a code in the last bits, or 64 and a
// code in those before.
__device__ __forceinline__ u32 nibbles(u32 w, int n, u32 scales) {
    if (n & 2) w >>= 8;
    u32 x = n & 1 ? w & 0x00f000f0u | 0x54005400u : w & 0x000f000fu | 0x64006400u;
    asm("sub.f16x2 %0, %0, %1;" : "+r"(x) : "r"(n & 1 ? 0x54805480u : 0x64086408u));
    asm("mul.f16x2 %0, %0, %1;" : "+r"(x) : "r"(scales));
    return x;
}
__device__ __forceinline__ u32 twoHalves(float low, float high) {
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
__device__ __forceinline__ float2 widened(u32 x) {
    float2 r;
    asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.f32.f16 %0, l;\ncvt.f32.f16 %1, h;\n}" : "=f"(r.x), "=f"(r.y) : "r"(x));
    return r;
}
__device__ __forceinline__ u32 chosen(u32 a, u32 b, bool high) { return high ? a >> 16 | b & 0xffff0000u : a & 0xffffu | b << 16; }
__device__ __forceinline__ void mmaHalves(float (&c)[4], const Left &a, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b0), "r"(b1));
}

// mmaIntegers is mma of integers of 8 bits, 32 of a row at a time.
__device__ __forceinline__ void mmaIntegers(int (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ u32 word(const uint4 &x, int n) { return n == 0 ? x.x : n == 1 ? x.y : n == 2 ? x.z : x.w; }
// largerOf is NaN where one of both is.
__device__ __forceinline__ float largerOf(float x, float y) {
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
    return r;
}

// Queries that meet integers are integers too, of 15 bits: UPPER times one of 8 bits and a rest, each with
// matmuls of its own. MOST is the largest.
#define UPPER 128
#define MOST (127 * UPPER)

// Coded is rows of a code.
template <int CODE> struct Coded {
    enum { bytes = CODE == I4ROW ? HEAD / 2 : HEAD, chunks = bytes / 16, more = CODE == I8ROW ? 0x6480 : 0 };

    // place of 16 bytes of a row in a tile: in another order in rows that are loaded together, so that loads
    // touch different banks.
    static __device__ __forceinline__ u8 *place(u8 *tile, int row, int chunk) {
        int by = bytes == 128 ? (row & 1) << 2 | row >> 1 & 3 : bytes == 64 ? row >> 1 & 3 : row >> 2 & 1;
        return tile + row * bytes + (chunk ^ by) * 16;
    }
    // factor is what numbers of codes are multiplied with, next to the scale.
    static __device__ __forceinline__ float factor() { return CODE == I8ROW ? 7.874015718698502e-3f : CODE == F8ROW ? 256.0f : 1.0f; }

    // scales of a row of a cache of so many numbers: an f32, or two words of f16.
    static __device__ __forceinline__ uint2 scales(const u8 *codes, i64 numbers, i64 row) {
        if (row < 0) return {};
        if (CODE != I4ROW) return {__ldcg((const u32 *)(codes + numbers) + row), 0};
        if (HEAD == 64) return {__ldcg((const u32 *)(codes + numbers / 2) + row), 0};
        return __ldcg((const uint2 *)(codes + numbers / 2) + row);
    }

    // scaleBytes of a row. fetchScales starts copying those of 32 rows, of which lane i has the number of row i, or -1. behind: the rows lie one
    // behind the other, at a multiple of 32, and all may be read. scaleAt is what the lane has of them.
    enum { scaleBytes = CODE == I4ROW ? HEAD / 16 : 4 };
    static __device__ __forceinline__ void fetchScales(u8 *to, const u8 *codes, i64 numbers, int row, bool behind) {
        const int lane = threadIdx.x & 31;
        const u32 some = __ballot_sync(0xffffffffu, row >= 0);
        if (some == 0) return;
        if (behind) {
            const int one = __ffs(some) - 1;
            const u8 *from = codes + (CODE == I4ROW ? numbers / 2 : numbers) + ((i64)__shfl_sync(0xffffffffu, row, one) - one) * scaleBytes;
            if (lane < 2 * scaleBytes) fetch16((Element *)(to + lane * 16), (const Element *)(from + lane * 16), true);
            return;
        }
        const uint2 mine = scales(codes, numbers, row);
        if (scaleBytes == 8) ((uint2 *)to)[lane] = mine;
        else ((u32 *)to)[lane] = mine.x;
    }
    static __device__ __forceinline__ uint2 scaleAt(const u8 *scales) {
        const int lane = threadIdx.x & 31;
        if (scaleBytes == 8) return ((const uint2 *)scales)[lane];
        return {((const u32 *)scales)[lane], 0};
    }

    // fetch starts copying 32 rows to a tile: lane i has the number of row i, and whether it is wanted. behind: the rows lie one
    // behind the other, and others of them may be copied too where scales are.
    static __device__ __forceinline__ void fetch(u8 *tile, const u8 *codes, int row, bool wanted, bool behind) {
        const int lane = threadIdx.x & 31;
        const u32 some = __ballot_sync(0xffffffffu, wanted);
        if (some == 0) return;
        if (behind && (FETCH_SCALES || some == 0xffffffffu)) {
            const int one = FETCH_SCALES ? __ffs(some) - 1 : 0;
            const u8 *from = codes + ((i64)__shfl_sync(0xffffffffu, row, one) - one) * bytes + lane * 16;
            u8 *to = place(tile, lane / chunks, lane % chunks), *other = bytes == 128 ? place(tile, lane / chunks, lane % chunks ^ 2) : to; // as rows 4 on have it
#pragma unroll
            for (int n = 0; n < chunks; n++) fetch16((Element *)((n & 1 ? other : to) + n * 512), (const Element *)(from + n * 512), true);
            return;
        }
#if FETCH_SCALES
#pragma unroll 1 // pages are rarely so small
#else
#pragma unroll
#endif
        for (int n = 0; n < 32 * chunks; n += 32) {
            const int r = (n + lane) / chunks, c = (n + lane) % chunks;
            const int from = __shfl_sync(0xffffffffu, row, r);
            if (some >> r & 1) fetch16((Element *)place(tile, r, c), (const Element *)(codes + (i64)from * bytes + c * 16), true);
        }
    }

    // putQuery writes eight numbers of a query to a row of q, times by: in f16, or in two parts of 8 bits.
    static __device__ __forceinline__ void putQuery(u8 *q, int chunk, const float (&x)[8], float by) {
        if (CODE != I8ROW) {
            *(uint4 *)(q + chunk * 16) = {twoHalves(x[0] * by, x[1] * by), twoHalves(x[2] * by, x[3] * by), twoHalves(x[4] * by, x[5] * by), twoHalves(x[6] * by, x[7] * by)};
            return;
        }
        u32 upper[2] = {}, rest[2] = {};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int v = __float2int_rn(x[i] * by), u = v + UPPER / 2 >> 7;
            upper[i / 4] |= (u & 0xff) << i % 4 * 8;
            rest[i / 4] |= (v - u * UPPER & 0xff) << i % 4 * 8;
        }
        *(uint2 *)(q + chunk * 8) = {upper[0], upper[1]};
        *(uint2 *)(q + HEAD + chunk * 8) = {rest[0], rest[1]};
    }
    // sizeOf is what a query is divided by whose greatest number is given, so that it fits: a power of two, but for integers.
    static __device__ __forceinline__ float sizeOf(float greatest) {
        if (CODE == I8ROW) return greatest < 1e-30f ? 1.0f : greatest * (1.0f / MOST);
        u32 size = __float_as_uint(greatest) & 0x7f800000u;
        return __uint_as_float(size == 0 ? 0x3f800000u : size);
    }

    // query puts a head of queries into the order in which codes are widened: b[i] meets the i-th words that
    // addScores multiplies with.
    static __device__ __forceinline__ void query(u32 (&b)[HEAD / 16][2], const u16 *q) {
        const int t = threadIdx.x & 3;
        if (CODE == I8ROW)
#pragma unroll
            for (int i = 0; i < HEAD / 16; i++) // upper parts, then rests
#pragma unroll
                for (int n = 0; n < 2; n++) b[i][n] = *(const u32 *)((const u8 *)q + i * 32 + n * 16 + 4 * t);
        else if (CODE != I4ROW)
#pragma unroll
            for (int i = 0; i < HEAD / 16; i++) {
                const uint2 e = *(const uint2 *)(q + i / 4 * 64 + 16 * t + i % 4 * 4);
                b[i][0] = chosen(e.x, e.y, false);
                b[i][1] = chosen(e.x, e.y, true);
            }
        else
#pragma unroll
            for (int w = 0; w < HEAD / 32; w++) {
                const uint4 e = *(const uint4 *)(q + HEAD / 4 * t + 8 * w);
                b[2 * w][0] = chosen(e.x, e.z, false);
                b[2 * w][1] = chosen(e.x, e.z, true);
                b[2 * w + 1][0] = chosen(e.y, e.w, false);
                b[2 * w + 1][1] = chosen(e.y, e.w, true);
            }
    }

    // addScores adds the products of 32 rows of keys, 16 at a time, with eight heads of queries: in two parts, so that
    // one matmul waits for another less often. Integers are multiplied as they are, and all is in s.
    static __device__ __forceinline__ void addScores(float (&s)[2][4], float (&more)[2][4], const u32 (&b)[HEAD / 16][2], u8 *tile, uint2 scale) {
        const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
        if (CODE == I8ROW) {
            int upper[2][4] = {}, rest[2][4] = {};
#pragma unroll
            for (int i = 0; i < HEAD / 32; i++)
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    u32 a[4];
                    matrices(a, sharedAt(place(tile, m * 16 + (lane & 15), 2 * i + (lane >> 4))));
                    mmaIntegers(upper[m], a, b[i][0], b[i][1]);
                    mmaIntegers(rest[m], a, b[HEAD / 32 + i][0], b[HEAD / 32 + i][1]);
                }
#pragma unroll
            for (int m = 0; m < 2; m++)
#pragma unroll
                for (int x = 0; x < 4; x++) s[m][x] = (float)(upper[m][x] * UPPER + rest[m][x]);
            return;
        }
        if (CODE != I4ROW) {
#pragma unroll
            for (int h = 0; h < HEAD / 64; h++) {
                uint4 w[2][2];
#pragma unroll
                for (int m = 0; m < 4; m++) w[m >> 1][m & 1] = *(const uint4 *)place(tile, m * 8 + g, h * 4 + t);
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int m = 0; m < 2; m++) {
                        Left a;
#pragma unroll
                        for (int y = 0; y < 2; y++) halves<CODE>(word(w[m][y], i), a.x[y], a.x[2 + y]);
                        mmaHalves(i & 1 ? more[m] : s[m], a, b[h * 4 + i][0], b[h * 4 + i][1]);
                    }
            }
            return;
        }
        u32 by[2][2];
        uint4 w[2][2];
#pragma unroll
        for (int m = 0; m < 4; m++) { // the lane has numbers of one scale of a row
            const int row = m * 8 + g;
            const u32 x = __shfl_sync(0xffffffffu, scale.x, row);
            u32 of = x;
            if (HEAD == 128) {
                const u32 y = __shfl_sync(0xffffffffu, scale.y, row);
                of = t >= 2 ? y : x;
            }
            by[m >> 1][m & 1] = chosen(of, of, HEAD == 128 ? t & 1 : t >> 1);
            if (HEAD == 128) w[m >> 1][m & 1] = *(const uint4 *)place(tile, row, t);
            else {
                const uint2 v = *(const uint2 *)(place(tile, row, t >> 1) + (t & 1) * 8);
                w[m >> 1][m & 1] = {v.x, v.y, 0, 0};
            }
        }
#pragma unroll
        for (int i = 0; i < HEAD / 32; i++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    Left a;
#pragma unroll
                    for (int y = 0; y < 2; y++) {
                        const u32 x = word(w[m][y], i);
                        a.x[y] = nibbles(x, 2 * h, by[m][y]);
                        a.x[2 + y] = nibbles(x, 2 * h + 1, by[m][y]);
                    }
                    mmaHalves(h ? more[m] : s[m], a, b[2 * i + h][0], b[2 * i + h][1]);
                }
    }

    // addValues adds 32 rows of values times weights of eight heads, 16 numbers of a row at a time; p are the weights.
    static __device__ __forceinline__ void addValues(float (&out)[HEAD / 16][4], const u32 (&p)[2][2], u8 *tile, uint2 scale) {
        const int lane = threadIdx.x & 31, t = lane & 3;
#pragma unroll
        for (int k = 0; k < 2; k++) {
            u32 by[2][HEAD / 32]; // of rows 2t and 2t+1, then those 8 behind, for each 32 numbers
            if (CODE == I4ROW)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int row = k * 16 + h * 8 + 2 * t;
#pragma unroll
                    for (int i = 0; i < HEAD / 64; i++) {
                        const u32 x = __shfl_sync(0xffffffffu, i ? scale.y : scale.x, row), y = __shfl_sync(0xffffffffu, i ? scale.y : scale.x, row + 1);
                        by[h][2 * i] = chosen(x, y, false);
                        by[h][2 * i + 1] = chosen(x, y, true);
                    }
                }
#pragma unroll
            for (int c = 0; c < chunks; c += 2) {
                u32 r[4];
                matricesTurned(r, sharedAt(place(tile, k * 16 + (lane & 15), c + (lane >> 4))));
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    Left a;
                    if (CODE == I4ROW)
#pragma unroll
                        for (int u = 0; u < 2; u++) {
#pragma unroll
                            for (int y = 0; y < 2; y++) {
                                a.x[y] = nibbles(r[2 * h], 2 * u + y, by[0][c + h]);
                                a.x[2 + y] = nibbles(r[2 * h + 1], 2 * u + y, by[1][c + h]);
                            }
                            mmaHalves(out[(c + h) * 2 + u], a, p[k][0], p[k][1]);
                        }
                    else {
                        halves<CODE>(r[2 * h], a.x[0], a.x[1]);
                        halves<CODE>(r[2 * h + 1], a.x[2], a.x[3]);
                        mmaHalves(out[c + h], a, p[k][0], p[k][1]);
                    }
                }
            }
        }
    }

    // put writes the sums that a lane holds of a head, x of two, less what they are too large by, times a factor.
    static __device__ __forceinline__ void put(float *to, const float (&out)[HEAD / 16][4], int x, float less, float by) {
        const int g = (threadIdx.x & 31) >> 2;
#pragma unroll
        for (int n = 0; n < HEAD / 16; n += CODE == I4ROW ? 2 : 1) {
            if (CODE == I4ROW) *(float4 *)(to + n * 16 + 4 * g) = {out[n][x] * by, out[n][2 + x] * by, out[n + 1][x] * by, out[n + 1][2 + x] * by};
            else *(float2 *)(to + n * 16 + 2 * g) = {(out[n][x] - less) * by, (out[n][2 + x] - less) * by};
        }
    }

    // widen writes the numbers of 16 bytes as Elements; scaleOf is the scale of a chunk of a row.
    static __device__ __forceinline__ float scaleOf(const u8 *codes, i64 numbers, i64 row, int chunk) {
        if (row < 0) return 0;
        if (CODE != I4ROW) return __ldcg((const float *)(codes + numbers) + row) * factor();
        u16 bits = __ldcg((const u16 *)(codes + numbers / 2) + row * (HEAD / 32) + chunk);
        return widened(bits).x;
    }
    static __device__ __forceinline__ void widen(Element *to, uint4 raw, float scale) {
        const u32 w[4] = {raw.x, raw.y, raw.z, raw.w};
        if (CODE != I4ROW) {
            u32 e[8];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                u32 even, odd;
                halves<CODE>(w[i], even, odd);
                float2 x = widened(even), y = widened(odd);
                if (more > 0) {
                    x = {x.x - 1152.0f, x.y - 1152.0f};
                    y = {y.x - 1152.0f, y.y - 1152.0f};
                }
                e[2 * i] = two(x.x * scale, y.x * scale);
                e[2 * i + 1] = two(x.y * scale, y.y * scale);
            }
            *(uint4 *)to = {e[0], e[1], e[2], e[3]};
            *(uint4 *)(to + 8) = {e[4], e[5], e[6], e[7]};
            return;
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 x[4];
#pragma unroll
            for (int n = 0; n < 4; n++) x[n] = widened(nibbles(w[i], n, 0x3c003c00u)); // times 1
            *(uint4 *)(to + 8 * i) = {two(x[0].x * scale, x[1].x * scale), two(x[2].x * scale, x[3].x * scale), two(x[0].y * scale, x[1].y * scale), two(x[2].y * scale, x[3].y * scale)};
        }
    }
};

#endif
