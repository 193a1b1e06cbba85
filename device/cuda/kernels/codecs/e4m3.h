// Weight is n floats of 8 bits, a byte each.
struct Weight {
    const u8 *in;
    i64 n, cols;

    __device__ __forceinline__ float at(i64 i) const { return float8(in[i]); }
};
