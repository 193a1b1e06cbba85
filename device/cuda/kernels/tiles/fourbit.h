#include "codes.h"
#include "tiles/tile.h"

#if ELEMENT != 0

// FourBitTile is for the 4-bit formats of bitsandbytes: codes, two to a byte, the first in the upper half;
// a byte of scale per 64 elements; an f32 per 256 scales; one f32 for all. A table in shared memory
// has the numbers of a byte, for every lane its own, so that no two read the same bank. VALUES is its row of
// fourBitValues. SCALE/65536 times a value is rounded to an element: chosen so that this loses little.
template <int VALUES, int SCALE> struct FourBitTile {
    static const int id = 8 + VALUES, bytes = 128, bank = 32;
    static const bool integer = false, sums = false, table = true;
    static const bool scaled = false;
    __device__ __forceinline__ static float rowScale(const Matrix &, int) { return 1; }
    float offset[2], nextOffset[2], group[2], nextGroup[2];
    u32 code[2], nextCode[2];
    int t;

    __device__ static void fill(u32 *table) {
        for (int i = threadIdx.x; i < 256; i += WARPS * 32) {
            Element a, b;
            narrow(fourBitValues[VALUES][i >> 4] * (SCALE / 65536.0f), &a);
            narrow(fourBitValues[VALUES][i & 15] * (SCALE / 65536.0f), &b);
            u32 pair = (u32)a.bits | (u32)b.bits << 16;
#pragma unroll
            for (int k = 0; k < 8; k++) *(uint4 *)(table + 32 * i + (k + i & 7) * 4) = {pair, pair, pair, pair}; // lanes begin in different banks
            table[256 * 32 + i] = __float_as_uint(dynamicValues[0][i]);
        }
    }

    // Loads stay where they are, and nothing touches what they bring before take: a warp would wait for memory.
    __device__ __forceinline__ void ahead(const TwoRows &rows, int width, int unit, int which) {
        t = which;
#pragma unroll
        for (int y = 0; y < 2; y++) {
            const u8 *scales = rows.in[y] + rows.n / 2, *groups = scales + rows.n / 64;
            const int at = rows.row[y] * (width / 64) + unit * 4 + which;
            asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(nextCode[y]) : "l"(scales + at));
            asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(nextGroup[y]) : "l"(groups + at / 256 * 4));
            asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(nextOffset[y]) : "l"(groups + (rows.n / 64 + 255) / 256 * 4));
        }
    }
    __device__ __forceinline__ void take() {
#pragma unroll
        for (int y = 0; y < 2; y++) code[y] = nextCode[y], group[y] = nextGroup[y], offset[y] = nextOffset[y];
    }

    // pair is the numbers of byte i of a word.
    __device__ __forceinline__ static u32 pair(u32 table, u32 word, u32 i) {
        u32 at, y;
        asm("mad.lo.u32 %0, %1, 128, %2;" : "=r"(at) : "r"(__byte_perm(word, 0, 0x4440 | i)), "r"(table));
        asm("ld.shared.u32 %0, [%1];" : "=r"(y) : "r"(at));
        return y;
    }

    __device__ __forceinline__ void multiply(const u8 *space, int low, int high, const Columns &x, float (&acc)[ROWS][2]) {
        const int g = x.lane >> 2;
        const u32 n = sharedAt(x.table + x.lane);
        float f[2][2];
#pragma unroll
        for (int y = 0; y < 2; y++)
            f[y][0] = f[y][1] = __fadd_rn(__fmul_rn(__uint_as_float(x.table[256 * 32 + code[y]]), group[y]), offset[y]) * (65536.0f / SCALE);
        u32 b[ROWS][4];
#pragma unroll
        for (int r = 0; r < ROWS; r++) x.ordered(r, 64 * (g >> 1) + 16 * t + 8 * (g & 1), b[r]);
#pragma unroll
        for (int p = 0; p < 4; p++) {
            uint2 v = *(const uint2 *)(space + low + 32 * p + 8 * t), w = *(const uint2 *)(space + high + 32 * p + 8 * t);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                u32 c = e ? v.y : v.x, d = e ? w.y : w.x;
                u32 a[2][4] = {{pair(n, c, 0), pair(n, d, 0), pair(n, c, 1), pair(n, d, 1)}, {pair(n, c, 2), pair(n, d, 2), pair(n, c, 3), pair(n, d, 3)}};
                column<2>(2 * p + e, a, b, f, t, acc);
            }
        }
    }
};

#endif
