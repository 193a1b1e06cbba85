// Weight is n floats of 8 bits in rows of cols: a byte each, then an f32 of scale per row.
struct Weight {
    const u8 *in;
    i64 n, cols;

    __device__ __forceinline__ float at(i64 i) const { return __fmul_rn(float8(in[i]), anyFloat(in + n + 4 * (i / cols))); }
};
