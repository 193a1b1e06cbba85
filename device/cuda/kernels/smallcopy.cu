#include "decode.h"

// Few bytes go between the GPU and page-locked memory of the host by a kernel: a copy would wait behind those of weights, which
// have the copy engine for milliseconds, and the kernels around it for the copy engine.

// smallCopy copies so many bytes: a thread 16, and behind those single ones.
extern "C" __global__ void __launch_bounds__(256) smallCopy(u8 *to, const u8 *from, i64 bytes) {
    const i64 i = position(), packs = bytes / 16, rest = packs * 16 + (i - packs);
    releaseNext();
    awaitPrevious();
    if (i < packs) ((uint4 *)to)[i] = ((const uint4 *)from)[i];
    else if (rest < bytes) to[rest] = from[rest];
}
