#include "codecs/gguf.h"

struct Code : Singly<Code> {
    static const int block = 256, bytes = 136;

    __device__ __forceinline__ static float at(const u8 *b, int i) {
        int k = i >> 5, s = (b[4 + (k >> 1)] >> ((k & 1) << 2) & 15) | (b[2 + (k >> 2)] >> ((k & 3) << 1) & 3) << 4;
        return times(times(anyHalf(b), s - 32), uneven[nibble(b + 8 + 16 * k, i & 31)]);
    }
};

using Weight = BlockWeight<Code>;
