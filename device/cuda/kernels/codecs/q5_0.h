#include "codecs/gguf.h"

struct Code : Singly<Code> {
    static const int block = 32, bytes = 22;

    __device__ __forceinline__ static float at(const u8 *b, int i) {
        return times(anyHalf(b), (nibble(b + 6, i) | bit(b + 2, i) << 4) - 16);
    }
};

using Weight = BlockWeight<Code>;
