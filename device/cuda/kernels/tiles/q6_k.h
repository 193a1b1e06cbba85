#include "tiles/tile.h"

#if ELEMENT != 0

struct Tile_q6_k : Together {
    static const int id = 3, bytes = 210, bank = 16;
    static const bool integer = true, sums = true, table = false;

    // part is four codes of 32-part s of a half: its lower bits in v, its upper in h.
    __device__ __forceinline__ static u32 part(u32 v, u32 h, int s) {
        if (s >= 2) v >>= 4;
        h = s < 2 ? h << (4 - 2 * s) : h >> (2 * s - 4);
        return nibbles(v, h) & 0x3f3f3f3fu;
    }

    // A scale is for 16 elements: parts are 16 of the eight in a half of the unit, four of them at a time.
    __device__ __forceinline__ void multiply(const u8 *space, int low, int high, const Columns &x, float (&acc)[ROWS][2]) {
        const int row[2] = {low, high};
        const Even v(space, low + 4 * t), w(space, high + 4 * t);
        const float d[2] = {halfAt(space, low + 208), halfAt(space, high + 208)};
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 b[2][ROWS];
            int sum[2][ROWS][2];
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int q = 0; q < 2; q++) b[q][r] = *(const u32 *)x.digitsAt(r, 128 * half + 64 * q + 16 * (x.lane >> 3) + 4 * t);
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const int at = 64 * half + 16 * c, top = 128 + 32 * half + 16 * c;
                const u32 codes[2][2] = {{v.word(at), w.word(at)}, {v.word(at + 32), w.word(at + 32)}}, above[2] = {v.word(top), w.word(top)};
#pragma unroll
                for (int s = 0; s < 4; s++) {
                    u32 a0 = part(codes[s & 1][0], above[0], s), a1 = part(codes[s & 1][1], above[1], s);
#pragma unroll
                    for (int r = 0; r < ROWS; r++) {
                        int made[4];
                        whole16(made, a0, a1, b[s >> 1][r]);
                        keepPart(2 * s + c & 3, made, t, sum[s >> 1][r]);
                    }
                }
            }
#pragma unroll
            for (int q = 0; q < 2; q++)
#pragma unroll
                for (int y = 0; y < 2; y++) {
                    const float f = d[y] * (float)*(const signed char *)(space + row[y] + 192 + 8 * half + 4 * q + t);
#pragma unroll
                    for (int r = 0; r < ROWS; r++)
                        acc[r][y] += f * __fmaf_rn(x.unit(r, 4 * half + 2 * q + (t >> 1)), (float)sum[q][r][y], -32 * x.sums[r * x.width / 16 + 8 * half + 4 * q + t]);
                }
        }
    }
};

#endif
