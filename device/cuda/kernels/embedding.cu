// Rows of a table by number, and the sum back into the table.

__device__ __forceinline__ int clamped(int id, i64 rows) { return id < 0 ? 0 : id >= rows ? (int)(rows - 1) : id; }

// y[n] = table[ids[n]]; a block per n.
extern "C" __global__ void embedding(const int *ids, const Element *table, Element *y, i64 rows, i64 width) {
    const Element *from = table + clamped(ids[blockIdx.x], rows) * width;
    Element *to = y + (i64)blockIdx.x * width;
    if (width % LANES == 0) {
        for (i64 i = threadIdx.x; i < width / LANES; i += blockDim.x) ((Lane *)to)[i] = ((const Lane *)from)[i];
        return;
    }
    for (i64 i = threadIdx.x; i < width; i += blockDim.x) to[i] = from[i];
}

// table[id] = the sum of dy over the positions with that id, in their order. The block
// of the first position of an id does the work, for V columns per thread; the others
// end when they find an earlier position with their id. Rows no id names are not
// touched. 256 threads.
template <int V> __device__ __forceinline__ void scatter(const int *ids, const Element *dy, Element *table, i64 n, i64 rows, i64 width, int add) {
    const i64 first = blockIdx.x;
    const int id = clamped(ids[first], rows);
    bool earlier = false;
    for (i64 i = threadIdx.x; i < first; i += blockDim.x) earlier |= clamped(ids[i], rows) == id;
    if (__syncthreads_or(earlier)) return;

    i64 column = ((i64)blockIdx.y * blockDim.x + threadIdx.x) * V;
    float sum[V], f[V];
    for (int k = 0; k < V; k++) sum[k] = 0;
    __shared__ u32 found[8]; // which of the next 256 positions have the id
    for (i64 from = first; from < n; from += 256) {
        i64 i = from + threadIdx.x;
        u32 votes = __ballot_sync(0xffffffffu, i < n && clamped(ids[i], rows) == id);
        if ((threadIdx.x & 31) == 0) found[threadIdx.x >> 5] = votes;
        __syncthreads();
        if (column < width)
            for (int w = 0; w < 8; w++)
                for (u32 bits = found[w]; bits; bits &= bits - 1) {
                    load(dy + (from + w * 32 + __ffs(bits) - 1) * width + column, f);
                    for (int k = 0; k < V; k++) sum[k] += f[k];
                }
        __syncthreads();
    }
    if (column >= width) return;
    Element *to = table + id * width + column;
    if (add) {
        load(to, f);
        for (int k = 0; k < V; k++) sum[k] += f[k];
    }
    store(to, sum);
}
extern "C" __global__ void embeddingGrad(const int *ids, const Element *dy, Element *table, i64 n, i64 rows, i64 width, int add) {
    scatter<LANES>(ids, dy, table, n, rows, width, add);
}
extern "C" __global__ void embeddingGradOne(const int *ids, const Element *dy, Element *table, i64 n, i64 rows, i64 width, int add) {
    scatter<1>(ids, dy, table, n, rows, width, add);
}
