// A 4-bit weight of n elements: codes, two to a byte; a byte of scale per 64 elements; an
// f32 per 256 scales; one f32 for all. VALUES is its row of fourBitValues.
template <int VALUES> struct FourBitWeight {
    const u8 *in;
    i64 n, cols;

    __device__ __forceinline__ float at(i64 i) const {
        i64 blocks = (n + 63) / 64;
        const u8 *scales = in + (n + 1) / 2, *groups = scales + blocks;
        float offset = anyFloat(groups + 4 * ((blocks + 255) / 256));
        float absmax = __fadd_rn(__fmul_rn(dynamicValues[0][scales[i / 64]], anyFloat(groups + 4 * (i / 16384))), offset);
        return __fmul_rn(fourBitValues[VALUES][in[i / 2] >> (i % 2 ? 0 : 4) & 15], absmax);
    }
};
