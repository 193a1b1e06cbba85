// The plain matmul: for shapes cuBLASLt has no kernel for, and to compare with.
// c[i·c0 + j] = sum of a[i·a0 + l·a1]·b[l·b0 + j·b1] (+ bias[j]) (+ plus[i·c0 + j]);
// blocks of 16 × 16 elements, the sum over l in order.
template <class C> __device__ __forceinline__ void multiply(const Element *a, const Element *b, const C *bias, C *c, i64 m, i64 n, i64 k, i64 a0, i64 a1, i64 b0, i64 b1, i64 c0, const C *plus) {
    __shared__ float left[16][17], right[16][17];
    i64 i = (i64)blockIdx.y * 16 + threadIdx.y, j = (i64)blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (i64 l = 0; l < k; l += 16) {
        i64 la = l + threadIdx.x, lb = l + threadIdx.y;
        left[threadIdx.y][threadIdx.x] = i < m && la < k ? wide(a[i * a0 + la * a1]) : 0.0f;
        right[threadIdx.y][threadIdx.x] = j < n && lb < k ? wide(b[lb * b0 + j * b1]) : 0.0f;
        __syncthreads();
        for (int x = 0; x < 16; x++) sum += left[threadIdx.y][x] * right[x][threadIdx.x];
        __syncthreads();
    }
    if (i >= m || j >= n) return;
    if (bias) sum += wide(bias[j]);
    if (plus) sum += wide(plus[i * c0 + j]);
    narrow(sum, &c[i * c0 + j]);
}
extern "C" __global__ void product(const Element *a, const Element *b, const Element *bias, Element *c, i64 m, i64 n, i64 k, i64 a0, i64 a1, i64 b0, i64 b1, i64 c0, const Element *plus) {
    multiply(a, b, bias, c, m, n, k, a0, a1, b0, b1, c0, plus);
}
extern "C" __global__ void productWide(const Element *a, const Element *b, const float *bias, float *c, i64 m, i64 n, i64 k, i64 a0, i64 a1, i64 b0, i64 b1, i64 c0, const float *plus) {
    multiply(a, b, bias, c, m, n, k, a0, a1, b0, b1, c0, plus);
}
// productBatch is the product of count pairs of matrices, which lie so many elements apart.
extern "C" __global__ void productBatch(const Element *a, const Element *b, Element *c, i64 count, i64 m, i64 n, i64 k, i64 a0, i64 a1, i64 b0, i64 b1, i64 stepA, i64 stepB, i64 stepC) {
    for (i64 z = blockIdx.z; z < count; z += gridDim.z) multiply(a + z * stepA, b + z * stepB, (const Element *)0, c + z * stepC, m, n, k, a0, a1, b0, b1, n, (const Element *)0);
}
