#include "tiles/scalesk.h"

#if ELEMENT != 0

struct Tile_q5_k : Together {
    static const int id = 2, bytes = 176, bank = 32;
    static const bool integer = true, sums = true, table = false;

    // part is four codes of part j, whose fifth bits are bits j of bytes of h.
    __device__ __forceinline__ static u32 part(u32 v, u32 h, int j) {
        v >>= 4 * (j & 1);
        h = j < 4 ? h << (4 - j) : h >> (j - 4);
        return (v & 0x0f0f0f0fu) | (h & 0x10101010u);
    }

    __device__ __forceinline__ void multiply(const u8 *space, int low, int high, const Columns &x, float (&acc)[ROWS][2]) {
        float f[2][2], least[2][2];
        scalesK(space + low, t, f[0], least[0]);
        scalesK(space + high, t, f[1], least[1]);
        const uint2 hv = *(const uint2 *)(space + low + 16 + 8 * t), hw = *(const uint2 *)(space + high + 16 + 8 * t);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint2 b[ROWS];
            int sum[ROWS][2];
#pragma unroll
            for (int r = 0; r < ROWS; r++) b[r] = *(const uint2 *)x.digitsAt(r, 128 * half + 32 * (x.lane >> 3) + 8 * t);
#pragma unroll
            for (int j = 4 * half; j < 4 * half + 4; j++) {
                const int at = 48 + 32 * (j >> 1) + 8 * t;
                const uint2 v = *(const uint2 *)(space + low + at), w = *(const uint2 *)(space + high + at);
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    int c[4];
                    whole32(c, part(v.x, hv.x, j), part(w.x, hw.x, j), part(v.y, hv.y, j), part(w.y, hw.y, j), b[r]);
                    keepPart(j & 3, c, t, sum[r]);
                }
            }
            addK(x, half, t, sum, f, least, acc);
        }
    }
};

#endif
