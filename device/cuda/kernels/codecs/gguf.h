// The block types of GGUF files: the scales and codes of a block lie together.

// anyHalf is an f16 at any address.
__device__ __forceinline__ float anyHalf(const u8 *p) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((unsigned short)(p[0] | p[1] << 8)));
    return f;
}

// nibble is number i of 32 whose codes are those of i and i+16 in one byte.
__device__ __forceinline__ int nibble(const u8 *codes, int i) { return codes[i & 15] >> (i >> 4 << 2) & 15; }

// nibbleK is number i of 256, and twoBits the same with two bits: numbers 32 apart share a byte.
__device__ __forceinline__ int nibbleK(const u8 *codes, int i) { return codes[(i >> 6 << 5) + (i & 31)] >> ((i >> 5 & 1) << 2) & 15; }
__device__ __forceinline__ int twoBits(const u8 *codes, int i) { return codes[(i >> 7 << 5) + (i & 31)] >> ((i >> 5 & 3) << 1) & 3; }

// bit is bit i of 32.
__device__ __forceinline__ int bit(const u8 *word, int i) { return word[i >> 3] >> (i & 7) & 1; }

// pairK is the j-th of eight pairs of 6-bit numbers in 12 bytes: a scale and a minimum.
__device__ __forceinline__ void pairK(const u8 *b, int j, int &scale, int &least) {
    if (j < 4) {
        scale = b[j] & 63;
        least = b[j + 4] & 63;
    } else {
        scale = (b[j + 4] & 15) | (b[j - 4] >> 6) << 4;
        least = b[j + 4] >> 4 | (b[j] >> 6) << 4;
    }
}

// uneven are the values of the iq4 types, e2m1 those of mxfp4, doubled.
__device__ const signed char uneven[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
__device__ const signed char e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// times is a product, minus a difference of two: each rounded, as on the CPU.
__device__ __forceinline__ float times(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float affine(float d, int scale, int q, float dmin, int least) {
    return __fsub_rn(times(times(d, scale), q), times(dmin, least));
}

// Singly decodes eight numbers of a block by one after the other, for codes without a faster way.
template <class Code> struct Singly {
    __device__ __forceinline__ static void eight(const u8 *b, int i, float (&x)[8]) {
#pragma unroll
        for (int k = 0; k < 8; k++) x[k] = Code::at(b, i + k);
    }
};

// evenBytes are eight bytes at an even address.
__device__ __forceinline__ u64 evenBytes(const u8 *p) {
    const u16 *q = (const u16 *)p;
    return (u64)q[0] | (u64)q[1] << 16 | (u64)q[2] << 32 | (u64)q[3] << 48;
}

// BlockWeight is n numbers in blocks, each of which a Code knows to decode by itself.
template <class Code> struct BlockWeight {
    const u8 *in;
    i64 n, cols;

    __device__ __forceinline__ float at(i64 i) const { return Code::at(in + i / Code::block * Code::bytes, i % Code::block); }
    // eight numbers from a multiple of eight on.
    __device__ __forceinline__ void eight(i64 i, float (&x)[8]) const { Code::eight(in + i / Code::block * Code::bytes, i % Code::block, x); }
};
