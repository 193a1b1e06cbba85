#include "codecs/gguf.h"

struct Code : Singly<Code> {
    static const int block = 32, bytes = 17;

    __device__ __forceinline__ static float at(const u8 *b, int i) {
        float scale = b[0] > 1 ? __int_as_float((b[0] - 1) << 23) : __int_as_float(b[0] ? 0x400000 : 0x200000);
        return times(scale, e2m1[nibble(b + 1, i)]);
    }
};

using Weight = BlockWeight<Code>;
