#include "cache.h"
#include "fragments.h"

// Rows of keys and values that a cache stores in 8 or 4 bits, for tensor cores. Codes become f16: all of them
// are exact there, and what scales a row of 8 bits is multiplied into scores and weights. Numbers of 4 bits are
// multiplied by their scale as they are widened.
//
// KEY_CODE and VALUE_CODE are types of cache.h, HEAD is 64 or 128.

#if HEAD && ELEMENT && KEY_CODE

// halves widens four codes of 8 bits: the numbers of bytes 0 and 2, then of 1 and 3.
template <int CODE> __device__ __forceinline__ void halves(u32 w, u32 &even, u32 &odd) {
    if (CODE == I8ROW) {
        w ^= 0x80808080u;
        even = w & 0x00ff00ffu | 0x64006400u; // 1024 and the code in the last bits
        asm("prmt.b32 %0, %1, %2, 0x4341;" : "=r"(odd) : "r"(w), "r"(0x64646464u));
        asm("sub.f16x2 %0, %0, %1;" : "+r"(even) : "r"(0x64806480u));
        asm("sub.f16x2 %0, %0, %1;" : "+r"(odd) : "r"(0x64806480u));
    } else { // the exponent is one of f16 that is 8 too small: see factor
        even = w << 8 & 0x80008000u | w << 7 & 0x3f803f80u;
        odd = w & 0x80008000u | w >> 1 & 0x3f803f80u;
    }
}
// nibbles widens the n-th 4 bits of both halves of a word, times the scales of each.
__device__ __forceinline__ u32 nibbles(u32 w, int n, u32 scales) {
    u32 x = w >> 4 * n & 0x000f000fu | 0x64006400u;
    asm("sub.f16x2 %0, %0, %1;" : "+r"(x) : "r"(0x64086408u));
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

// Coded is rows of a code.
template <int CODE> struct Coded {
    enum { bytes = CODE == I4ROW ? HEAD / 2 : HEAD, chunks = bytes / 16 };

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

    // fetch starts copying 32 rows to a tile: lane i has the number of row i, and whether it is wanted.
    static __device__ __forceinline__ void fetch(u8 *tile, const u8 *codes, i64 row, bool wanted) {
        const int lane = threadIdx.x & 31;
        const u32 some = __ballot_sync(0xffffffffu, wanted);
#pragma unroll
        for (int n = 0; n < 32 * chunks; n += 32) {
            const int r = (n + lane) / chunks, c = (n + lane) % chunks;
            const i64 from = __shfl_sync(0xffffffffu, row, r);
            if (some >> r & 1) fetch16((Element *)place(tile, r, c), (const Element *)(codes + from * bytes + c * 16), true);
        }
    }

    // query puts a row of queries into the order in which codes are widened: a[i] meets the i-th two words that
    // addScores multiplies with.
    static __device__ __forceinline__ void query(Left (&a)[HEAD / 16], const u16 *upper, const u16 *lower) {
        const int t = threadIdx.x & 3;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const u16 *q = half ? lower : upper;
            if (CODE != I4ROW)
#pragma unroll
                for (int i = 0; i < HEAD / 16; i++) {
                    const uint2 e = *(const uint2 *)(q + i / 4 * 64 + 16 * t + i % 4 * 4);
                    a[i].x[half] = chosen(e.x, e.y, false);
                    a[i].x[2 + half] = chosen(e.x, e.y, true);
                }
            else
#pragma unroll
                for (int w = 0; w < HEAD / 32; w++) {
                    const uint4 e = *(const uint4 *)(q + HEAD / 4 * t + 8 * w);
                    a[2 * w].x[half] = chosen(e.x, e.z, false);
                    a[2 * w].x[2 + half] = chosen(e.x, e.z, true);
                    a[2 * w + 1].x[half] = chosen(e.y, e.w, false);
                    a[2 * w + 1].x[2 + half] = chosen(e.y, e.w, true);
                }
        }
    }

    // addScores adds the products of queries and 32 rows of keys to sums by column.
    static __device__ __forceinline__ void addScores(float (&s)[4][4], const Left (&a)[HEAD / 16], u8 *tile, uint2 scale) {
        const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
        if (CODE != I4ROW) {
#pragma unroll
            for (int h = 0; h < HEAD / 64; h++) {
                uint4 w[4];
#pragma unroll
                for (int j = 0; j < 4; j++) w[j] = *(const uint4 *)place(tile, j * 8 + g, h * 4 + t);
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        u32 even, odd;
                        halves<CODE>(i == 0 ? w[j].x : i == 1 ? w[j].y : i == 2 ? w[j].z : w[j].w, even, odd);
                        mmaHalves(s[j], a[h * 4 + i], even, odd);
                    }
            }
            return;
        }
        u32 by[4];
        uint4 w[4];
#pragma unroll
        for (int j = 0; j < 4; j++) { // the lane has numbers of one scale
            u32 x = __shfl_sync(0xffffffffu, scale.x, j * 8 + g), y = 0;
            if (HEAD == 128) y = __shfl_sync(0xffffffffu, scale.y, j * 8 + g);
            const u32 of = HEAD == 128 && t >= 2 ? y : x;
            const bool high = HEAD == 128 ? t & 1 : t >> 1;
            by[j] = chosen(of, of, high);
            if (HEAD == 128) w[j] = *(const uint4 *)place(tile, j * 8 + g, t);
            else {
                const uint2 v = *(const uint2 *)(place(tile, j * 8 + g, t >> 1) + (t & 1) * 8);
                w[j] = {v.x, v.y, 0, 0};
            }
        }
#pragma unroll
        for (int i = 0; i < HEAD / 32; i++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const u32 x = i == 0 ? w[j].x : i == 1 ? w[j].y : i == 2 ? w[j].z : w[j].w;
                    mmaHalves(s[j], a[2 * i + h], nibbles(x, 2 * h, by[j]), nibbles(x, 2 * h + 1, by[j]));
                }
    }

    // addValues adds weights times 32 rows of values; p are the weights of 16 rows each.
    static __device__ __forceinline__ void addValues(float (&out)[HEAD / 8][4], const Left (&p)[2], u8 *tile, uint2 scale) {
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
                    if (CODE == I4ROW)
#pragma unroll
                        for (int n = 0; n < 4; n++) mmaHalves(out[(c + h) * 4 + n], p[k], nibbles(r[2 * h], n, by[0][c + h]), nibbles(r[2 * h + 1], n, by[1][c + h]));
                    else {
                        u32 even[2], odd[2];
                        halves<CODE>(r[2 * h], even[0], odd[0]);
                        halves<CODE>(r[2 * h + 1], even[1], odd[1]);
                        mmaHalves(out[(c + h) * 2], p[k], even[0], even[1]);
                        mmaHalves(out[(c + h) * 2 + 1], p[k], odd[0], odd[1]);
                    }
                }
            }
        }
    }

    // put writes a row of such sums, times a factor: the lanes that hold it write four numbers each.
    static __device__ __forceinline__ void put(float *to, const float (&out)[HEAD / 8][4], int y, float by) {
        const int t = threadIdx.x & 3;
#pragma unroll
        for (int n = 0; n < HEAD / 8; n += CODE == I4ROW ? 4 : 2) {
            if (CODE == I4ROW) {
                *(float4 *)(to + n * 8 + 8 * t) = {out[n][2 * y] * by, out[n + 1][2 * y] * by, out[n + 2][2 * y] * by, out[n + 3][2 * y] * by};
                *(float4 *)(to + n * 8 + 8 * t + 4) = {out[n][2 * y + 1] * by, out[n + 1][2 * y + 1] * by, out[n + 2][2 * y + 1] * by, out[n + 3][2 * y + 1] * by};
            } else
                *(float4 *)(to + n * 8 + 4 * t) = {out[n][2 * y] * by, out[n + 1][2 * y] * by, out[n][2 * y + 1] * by, out[n + 1][2 * y + 1] * by};
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
                const float2 x = widened(even), y = widened(odd);
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
