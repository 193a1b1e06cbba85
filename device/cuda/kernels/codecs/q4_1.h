#include "codecs/gguf.h"

struct Code : Singly<Code> {
    static const int block = 32, bytes = 20;

    __device__ __forceinline__ static float at(const u8 *b, int i) {
        return __fadd_rn(times(anyHalf(b), nibble(b + 4, i)), anyHalf(b + 2));
    }
};

using Weight = BlockWeight<Code>;
