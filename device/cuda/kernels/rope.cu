// Rotary positions. A block works on one row: positions[row], heads of width elements.

template <int V> __device__ __forceinline__ void rotate(const Element *x, const int *positions, const float *freq, Element *y, int heads, int width, int half, float scale, int inverse) {
    extern __shared__ float turn[]; // half cosines, half sines
    i64 row = blockIdx.x;
    float position = (float)positions[row];
    for (int i = threadIdx.x; i < half; i += blockDim.x) {
        float s, c;
        sincosf(position * freq[i], &s, &c);
        turn[i] = scale * c;
        turn[half + i] = scale * (inverse ? -s : s);
    }
    __syncthreads();
    x += row * heads * width;
    y += row * heads * width;
    int packs = half / V;
    for (int n = threadIdx.x; n < heads * packs; n += blockDim.x) {
        int head = n / packs, i = n % packs * V;
        i64 at = (i64)head * width + i;
        float a[V], b[V], p[V], q[V];
        load(x + at, a);
        load(x + at + half, b);
        for (int k = 0; k < V; k++) {
            float c = turn[i + k], s = turn[half + i + k];
            p[k] = a[k] * c - b[k] * s;
            q[k] = b[k] * c + a[k] * s;
        }
        store(y + at, p);
        store(y + at + half, q);
    }
    int rest = width - 2 * half;
    for (int n = threadIdx.x; n < heads * rest; n += blockDim.x) {
        i64 at = (i64)(n / rest) * width + 2 * half + n % rest;
        y[at] = x[at];
    }
}

extern "C" __global__ void rope(const Element *x, const int *positions, const float *freq, Element *y, int heads, int width, int half, float scale, int inverse) {
    rotate<LANES>(x, positions, freq, y, heads, width, half, scale, inverse);
}
extern "C" __global__ void ropeOne(const Element *x, const int *positions, const float *freq, Element *y, int heads, int width, int half, float scale, int inverse) {
    rotate<1>(x, positions, freq, y, heads, width, half, scale, inverse);
}
