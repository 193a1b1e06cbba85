// Block formats, as package quant lays them out. Their fixed values are written before
// this text: fourBitValues, dynamicValues and dynamicCells.

// Dynamic codes in shared memory: 0 is the code with a sign, 1 that without.
struct Dynamic {
    float values[2][256];
    u32 cells[2][CELLS]; // of magnitudes

    // take copies the tables; all threads of the block call it.
    __device__ void take() {
        for (int kind = 0; kind < 2; kind++) {
            for (int i = threadIdx.x; i < 256; i += blockDim.x) values[kind][i] = dynamicValues[kind][i];
            for (int i = threadIdx.x; i < CELLS; i += blockDim.x) cells[kind][i] = dynamicCells[kind][i];
        }
        __syncthreads();
    }

    // stateCode is the code of x·r, a number up to 1 and a little more: how many of the
    // midpoints between values are below it. The exponent and seven bits of the fraction
    // choose a cell. Adding the lower bits of the number to the cell's word carries into the
    // next code where the number is above the one midpoint in the cell. Codes of negative
    // numbers mirror those of positive ones, and a number on a midpoint goes down in both
    // cases. No number but zero gets the code of zero.
    template <int KIND> __device__ __forceinline__ u32 stateCode(float x, float r) const {
        u32 bits = __float_as_uint(x * r), zero = KIND ? 0 : ZERO_CODE, negative = KIND ? 0 : bits >> 31;
        int cell = max(0, min((int)(bits >> 16 & 0x7fff) - FIRST_CELL, CELLS - 1));
        u32 code = cells[KIND][cell] + (bits & 0xffff) + negative >> 17;
        if (x != 0) code = max(code, zero + 1);
        return negative ? 2 * ZERO_CODE - min(code, 2 * ZERO_CODE) : code;
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
