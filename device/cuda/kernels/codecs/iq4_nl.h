#include "codecs/gguf.h"

struct Code : Singly<Code> {
    static const int block = 32, bytes = 18;

    __device__ __forceinline__ static float at(const u8 *b, int i) {
        return times(anyHalf(b), uneven[nibble(b + 2, i)]);
    }
};

using Weight = BlockWeight<Code>;
