// Decoding of 4-bit tensors: codes, two to a byte; a byte of scale per 64 elements; an
// f32 per 256 scales; one f32 for all.

#define GROUP 16384 // elements whose scales share a factor
#define PART 8192   // elements a block decodes at a time
#define EIGHTS (PART / (8 * 256))

__device__ __forceinline__ void decode(u32 codes, float absmax, const float *values, float (&x)[8]) {
#pragma unroll
    for (int k = 0; k < 8; k++) x[k] = __fmul_rn(values[codes >> (k / 2 * 8 + (k % 2 ? 0 : 4)) & 15], absmax);
}

__device__ __forceinline__ void put(Element *out, const float (&x)[8]) {
#pragma unroll
    for (int k = 0; k < 8; k += LANES) {
        float part[LANES];
#pragma unroll
        for (int j = 0; j < LANES; j++) part[j] = x[k + j];
        store(out + k, part);
    }
}

// kind is 0 for NF4, 1 for FP4. A thread decodes eight elements at a time: neighbours
// read and write beside each other. 256 threads.
extern "C" __global__ void __launch_bounds__(256) dequantize(const u8 *in, Element *out, i64 n, int kind) {
    __shared__ float values[16], scaleValues[256];
    if (threadIdx.x < 16) values[threadIdx.x] = fourBitValues[kind][threadIdx.x];
    scaleValues[threadIdx.x] = dynamicValues[0][threadIdx.x];
    __syncthreads();
    i64 blocks = (n + 63) / 64;
    const u8 *scales = in + (n + 1) / 2, *groups = scales + blocks;
    float offset = anyFloat(groups + 4 * ((blocks + 255) / 256));
    for (i64 part = (i64)blockIdx.x * PART; part < n; part += (i64)gridDim.x * PART) {
        float group = anyFloat(groups + 4 * (part / GROUP)), x[8];
        i64 first = part + 8 * threadIdx.x;
        if (part + PART <= n) {
            u32 codes[EIGHTS];
            u8 scale[EIGHTS];
#pragma unroll
            for (int e = 0; e < EIGHTS; e++) {
                codes[e] = *(const u32 *)(in + (first + e * 2048) / 2);
                scale[e] = scales[(first + e * 2048) / 64];
            }
#pragma unroll
            for (int e = 0; e < EIGHTS; e++) {
                decode(codes[e], __fadd_rn(__fmul_rn(scaleValues[scale[e]], group), offset), values, x);
                put(out + first + e * 2048, x);
            }
            continue;
        }
        for (i64 i = part + threadIdx.x; i < n; i += blockDim.x) {
            float absmax = __fadd_rn(__fmul_rn(scaleValues[scales[i / 64]], group), offset);
            narrow(__fmul_rn(values[in[i / 2] >> (i % 2 ? 0 : 4) & 15], absmax), out + i);
        }
    }
}

// Codes of 8 bits, then an f32 for each row of cols: whole 127ths of it, or with floats
// multiples. Each product is rounded. Neighbours decode neighbours.
extern "C" __global__ void dequantizeRows(const u8 *in, Element *out, i64 n, i64 cols, int floats) {
    for (i64 i = position(); i < n; i += (i64)gridDim.x * blockDim.x) {
        float scale = anyFloat(in + n + 4 * (i / cols));
        float x = floats ? __fmul_rn(float8(in[i]), scale) : __fmul_rn(__fmul_rn((float)(signed char)in[i], scale), 7.874015718698502e-3f);
        narrow(x, out + i);
    }
}
