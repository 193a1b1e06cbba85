// Weight is n integers of 8 bits in rows of cols: a byte each, then an f32 per row, of which
// they count 127ths.
struct Weight {
    const u8 *in;
    i64 n, cols;

    __device__ __forceinline__ float at(i64 i) const {
        return __fmul_rn(__fmul_rn((float)(signed char)in[i], anyFloat(in + n + 4 * (i / cols))), 7.874015718698502e-3f);
    }
};
