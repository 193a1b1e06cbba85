// What the formats of packed.cu share. A format is a struct:
//
//   id                     a number of its own
//   bytes                  of a unit of 256 elements of a row, where these lie together
//   bank                   where rows begin in shared memory, in bytes past a multiple of 128
//   integer                whether codes are multiplied as integers, by digits of x; else as numbers
//   sums, table            whether it needs the sums of x, or a table, in shared memory
//   ahead(rows, K, unit, t), take()   begin to fetch scales of a unit that lie apart, of which the lane is the t-th of
//                          four, and use what was fetched
//   multiply(space, low, high, x, acc)   a unit of both rows, which begin at offsets of shared memory
//   scaled, rowScale(m, row)   whether a row has a scale besides, and which
//
// A warp multiplies 16 rows at once: lane 4g+t has the t-th part of rows g and g+8, and of column g of x.
//
// Integers: every 32 elements of x become integers of 15 bits, in units of a power of two that the
// largest of them decides, so that elements within 1/64 of it lose nothing; their two digits of eight
// bits are columns of their own, 2s and 2s+1 for part s of four. Sums are whole numbers, without rounding.

#if ELEMENT != 0

#define UNIT 256 // elements

// Words of the table, for every lane those of all pairs of 4-bit codes, and 256 scales.
#define TABLE (256 * 32 + 256)

struct Matrix {
    const u8 *in;
    i64 n; // elements
};

// TwoRows are the rows of a tile that a lane has, of one matrix of n elements or of two.
struct TwoRows {
    const u8 *in[2];
    i64 n;
    int row[2];
};

// Columns is a unit of x: its elements, or the two digits of each; the sums of 16 elements; and the units of
// every 32.
struct Columns {
    const Element *x;
    const u8 *digits;
    const float *sums, *units;
    const u32 *table;
    int width, lane;
    // digitsAt is the t-th lane's four or eight bytes of a column: its digit of elements from the i-th on.
    __device__ __forceinline__ const u8 *digitsAt(int r, int i) const { return digits + (2 * r + (lane >> 2 & 1)) * width + i; }
    // lower and upper: elements 0 and 2, and 1 and 3, of four, as bytes of a word of codes are taken.
    __device__ __forceinline__ static u32 lower(uint2 v) { return __byte_perm(v.x, v.y, 0x5410); }
    __device__ __forceinline__ static u32 upper(uint2 v) { return __byte_perm(v.x, v.y, 0x7632); }
    // eight elements from the i-th on, four from it on and four from the j-th on, and so in order.
    __device__ __forceinline__ void fours(int r, int i, int j, u32 (&b)[4]) const {
        uint2 v = *(const uint2 *)(x + r * width + i), w = *(const uint2 *)(x + r * width + j);
        b[0] = lower(v), b[1] = upper(v), b[2] = lower(w), b[3] = upper(w);
    }
    __device__ __forceinline__ void eight(int r, int i, u32 (&b)[4]) const {
        uint4 v = *(const uint4 *)(x + r * width + i);
        b[0] = lower({v.x, v.y}), b[1] = upper({v.x, v.y}), b[2] = lower({v.z, v.w}), b[3] = upper({v.z, v.w});
    }
    __device__ __forceinline__ void ordered(int r, int i, u32 (&b)[4]) const {
        uint4 v = *(const uint4 *)(x + r * width + i);
        b[0] = v.x, b[1] = v.y, b[2] = v.z, b[3] = v.w;
    }
    // sum and unit are of the j-th 32 elements.
    __device__ __forceinline__ float sum(int r, int j) const {
        float2 v = *(const float2 *)(sums + r * width / 16 + 2 * j);
        return v.x + v.y;
    }
    __device__ __forceinline__ float unit(int r, int j) const { return units[r * width / 32 + j]; }
};

// Shared is all of x.
struct Shared {
    const Element *x; // or digits: for every row those in front, then the others
    const float *sums, *units;
    const u32 *table;
    int width, lane;
    __device__ __forceinline__ Columns of(int unit) const {
        return {x + unit * UNIT, (const u8 *)x + unit * UNIT, sums + unit * (UNIT / 16), units + unit * (UNIT / 32), table, width, lane};
    }
};

// product is a·b + c of a warp.
__device__ __forceinline__ void product(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, float c0, float c1, float c2, float c3) {
#if ELEMENT == 2
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
#else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
#endif
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c0), "f"(c1), "f"(c2), "f"(c3));
}

// column multiplies part j by column j, 16 elements or 32, and adds it with its scales: f[0] of
// row g and f[1] of row g+8, of columns 2t and 2t+1.
template <int STEPS> __device__ __forceinline__ void column(int j, const u32 (&a)[STEPS][4], const u32 (&b)[ROWS][4], const float (&f)[2][2], int t, float (&acc)[ROWS][2]) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float c[4];
        product(c, a[0], b[r][0], b[r][1], 0, 0, 0, 0);
        if (STEPS > 1) product(c, a[STEPS - 1], b[r][2], b[r][3], c[0], c[1], c[2], c[3]);
        if (t == j >> 1) {
            acc[r][0] = __fmaf_rn(c[j & 1], f[0][j & 1], acc[r][0]);
            acc[r][1] = __fmaf_rn(c[2 + (j & 1)], f[1][j & 1], acc[r][1]);
        }
    }
}

// nibbles is the lower halves of the bytes of v and the upper ones of h.
__device__ __forceinline__ u32 nibbles(u32 v, u32 h) {
    u32 y;
    asm("lop3.b32 %0, %1, %2, %3, 0xe2;" : "=r"(y) : "r"(v), "r"(0x0f0f0f0fu), "r"(h));
    return y;
}

// byteAt is a byte as a float: which is 0x7540 and its number.
__device__ __forceinline__ float byteAt(u32 word, u32 which) { return __uint_as_float(__byte_perm(word, 0x4b000000u, which)) - 8388608.0f; }

__device__ __forceinline__ float halfBits(u32 bits) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((unsigned short)bits));
    return f;
}
__device__ __forceinline__ float halfAt(const u8 *space, int at) { return halfBits(*(const u16 *)(space + at)); }

// Even is words at multiples of four from an even offset on.
struct Even {
    const u8 *p;
    u32 which;
    __device__ __forceinline__ Even(const u8 *space, int at) : p(space + (at & ~3)), which(at & 2 ? 0x5432 : 0x3210) {}
    __device__ __forceinline__ u32 word(int i) const { return __byte_perm(*(const u32 *)(p + i), *(const u32 *)(p + i + 4), which); }
};

// wordAt is four bytes at an even offset from a multiple of four, known to the compiler.
__device__ __forceinline__ u32 wordAt(const u8 *space, int base, int at) {
    const u8 *p = space + base;
    if (at & 2) return __byte_perm(*(const u32 *)(p + at - 2), *(const u32 *)(p + at + 2), 0x5432);
    return *(const u32 *)(p + at);
}

// oddAt is four bytes at any offset from a multiple of four, known to the compiler.
__device__ __forceinline__ u32 oddAt(const u8 *space, int base, int at) {
    const u8 *p = space + base + (at & ~3);
    if (at % 4 == 0) return *(const u32 *)p;
    return __byte_perm(*(const u32 *)p, *(const u32 *)(p + 4), 0x3210 + 0x1111 * (at & 3));
}

// Whole is integer sums: of row g and of row g+8, each digit by itself.
__device__ __forceinline__ void whole32(int (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, uint2 b) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b.x), "r"(b.y), "r"(0));
}
__device__ __forceinline__ void whole16(int (&d)[4], u32 a0, u32 a1, u32 b) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%7,%7,%7};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a0), "r"(a1), "r"(b), "r"(0));
}

// keepPart takes the sums of part s of four into the lane that has its scales.
__device__ __forceinline__ void keepPart(int s, const int (&c)[4], int t, int (&sum)[2]) {
    if (t == s) {
        sum[0] = c[0] * 256 + c[1];
        sum[1] = c[2] * 256 + c[3];
    }
}

// Together is for formats whose scales are all in a unit.
struct Together {
    static const bool scaled = false;
    __device__ __forceinline__ static float rowScale(const Matrix &, int) { return 1; }
    int t;
    __device__ __forceinline__ void ahead(const TwoRows &, int, int, int which) { t = which; }
    __device__ __forceinline__ void take() {}
    __device__ __forceinline__ static void fill(u32 *) {}
};

#endif
