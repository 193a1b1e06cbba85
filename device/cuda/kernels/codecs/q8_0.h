#include "codecs/gguf.h"

struct Code {
    static const int block = 32, bytes = 34;

    __device__ __forceinline__ static float at(const u8 *b, int i) {
        return times(anyHalf(b), (signed char)b[2 + i]);
    }
};

using Weight = BlockWeight<Code>;
