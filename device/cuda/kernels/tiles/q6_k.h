#include "tiles/tile.h"

#if ELEMENT != 0

struct Tile_q6_k : Together {
    static const int id = 3, bytes = 210, bank = 16;
    static const bool sums = true, table = false;

    // part is four codes of 32-part s of a half: its lower bits in v, its upper in h.
    __device__ __forceinline__ static u32 part(u32 v, u32 h, int s) {
        if (s >= 2) v >>= 4;
        h = s < 2 ? h << (4 - 2 * s) : h >> (2 * s - 4);
        return nibbles(v, h);
    }

    // A scale is for 16 elements, so that the eight columns are a half of the unit.
    __device__ __forceinline__ void multiply(const u8 *space, int low, int high, const Columns &x, float (&acc)[ROWS][2]) {
        const int g = x.lane >> 2;
        const float d[2] = {halfAt(space, low + 208), halfAt(space, high + 208)};
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float f[2][2];
            const int row[2] = {low, high};
#pragma unroll
            for (int y = 0; y < 2; y++) {
                u32 scales = *(const u16 *)(space + row[y] + 192 + 8 * half + 2 * t) ^ 0x8080u;
#pragma unroll
                for (int e = 0; e < 2; e++) f[y][e] = d[y] * (byteAt(scales, 0x7540u + e) - 128.0f);
            }
            u32 b[ROWS][4];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                uint2 v = *(const uint2 *)(x.x + r * x.width + 128 * half + 16 * g + 4 * t);
                b[r][0] = Columns::lower(v), b[r][1] = Columns::upper(v);
            }
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const int at = 64 * half + 16 * c + 4 * t, top = 128 + 32 * half + 16 * c + 4 * t;
                const u32 v[2] = {wordAt(space, low + at), wordAt(space, low + at + 32)}, w[2] = {wordAt(space, high + at), wordAt(space, high + at + 32)};
                const u32 hv = wordAt(space, low + top), hw = wordAt(space, high + top);
#pragma unroll
                for (int s = 0; s < 4; s++) {
                    const u32 m = 0x003f003fu;
                    u32 p = part(v[s & 1], hv, s), q = part(w[s & 1], hw, s);
                    u32 a[1][4] = {{integers(p, m), integers(q, m), integers(p >> 8, m), integers(q >> 8, m)}};
                    column<1>(2 * s + c, a, b, f, t, acc);
                }
            }
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                float2 sum = *(const float2 *)(x.sums + r * x.width / 16 + 8 * half + 2 * t);
#pragma unroll
                for (int y = 0; y < 2; y++) {
                    acc[r][y] -= (OFFSET + 32) * f[y][0] * sum.x;
                    acc[r][y] -= (OFFSET + 32) * f[y][1] * sum.y;
                }
            }
        }
    }
};

#endif
