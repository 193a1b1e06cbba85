// Block formats, as package quant lays them out. Their fixed values are written before
// this text: fourBitValues, dynamicValues, dynamicRungs (the middles between those) and
// dynamicCells.

// Dynamic codes in shared memory: 0 is the code with a sign, 1 that without.
struct Dynamic {
    float values[2][256];
    float rungs[2][256];
    u8 cells[3][CELLS]; // positive and negative numbers with a sign, numbers without

    // take copies the tables; all threads of the block call it.
    __device__ void take() {
        for (int kind = 0; kind < 2; kind++)
            for (int i = threadIdx.x; i < 256; i += blockDim.x) {
                values[kind][i] = dynamicValues[kind][i];
                rungs[kind][i] = dynamicRungs[kind][i];
            }
        for (int sign = 0; sign < 3; sign++)
            for (int i = threadIdx.x; i < CELLS; i += blockDim.x) cells[sign][i] = dynamicCells[sign][i];
        __syncthreads();
    }

    // code of x, which is at most 1 and a little more. A cell is the sign, the exponent
    // and seven bits of the fraction; at most one rung lies in it.
    __device__ __forceinline__ u32 code(int kind, float x) const {
        u32 bits = __float_as_uint(x);
        int cell = max(0, min((int)(bits >> 16 & 0x7fff) - FIRST_CELL, CELLS - 1));
        u32 base = cells[kind ? 2 : bits >> 31][cell];
        return base + (x > rungs[kind][base] ? 1 : 0);
    }

    // stateCode is code for what optimizers keep: no number but zero, of which the
    // scaled x may be one, has the code of zero.
    __device__ __forceinline__ u32 stateCode(int kind, float x, float r) const {
        u32 zero = kind ? 0 : ZERO_CODE, c = code(kind, x * r);
        if (c != zero) return c;
        return x > 0 ? zero + 1 : x < 0 && zero > 0 ? zero - 1 : zero;
    }
};

// reciprocal is the factor that brings a block to [-1, 1].
__device__ __forceinline__ float reciprocal(float absmax) { return 1.0f / fmaxf(absmax, 1e-38f); }

// anyFloat is a number at any address.
__device__ __forceinline__ float anyFloat(const u8 *p) {
    if ((u64)p % 4 == 0) return *(const float *)p;
    return __uint_as_float((u32)p[0] | (u32)p[1] << 8 | (u32)p[2] << 16 | (u32)p[3] << 24);
}

// float8 is the number of a code of four bits of exponent and three of fraction.
__device__ __forceinline__ float float8(u32 code) {
    u32 exponent = code >> 3 & 15, fraction = code & 7;
    if ((code & 0x7f) == 0x7f) return __int_as_float(0x7fffffff);
    float size = exponent ? __uint_as_float(exponent + 120 << 23 | fraction << 20) : (float)fraction * 0.001953125f;
    return code & 0x80 ? -size : size;
}
