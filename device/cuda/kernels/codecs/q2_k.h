#include "codecs/gguf.h"

struct Code : Singly<Code> {
    static const int block = 256, bytes = 84;

    __device__ __forceinline__ static float at(const u8 *b, int i) {
        int s = b[i >> 4];
        return affine(anyHalf(b + 80), s & 15, twoBits(b + 16, i), anyHalf(b + 82), s >> 4);
    }
};

using Weight = BlockWeight<Code>;
