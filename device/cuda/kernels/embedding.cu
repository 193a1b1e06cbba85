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

// table[id] = the sum of dy over the positions with that id, in their order. The block of 256
// threads of an id's first position computes it, V columns per thread; blocks of later
// positions end when they find an earlier position with their id. Rows of the table that no
// id names are not written.
template <int V> __device__ __forceinline__ void scatter(const int *ids, const Element *dy, Element *table, i64 n, i64 rows, i64 width, int add) {
    const i64 first = blockIdx.x;
    const int id = clamped(ids[first], rows);
    bool earlier = false;
    for (i64 i = threadIdx.x; i < first; i += blockDim.x) earlier |= clamped(ids[i], rows) == id;
    if (__syncthreads_or(earlier)) return;

    i64 column = ((i64)blockIdx.y * blockDim.x + threadIdx.x) * V;
    float sum[V], f[V];
    for (int k = 0; k < V; k++) sum[k] = 0;
    __shared__ u32 found[8];  // which of the next 256 positions have the id
    __shared__ u8 list[256];  // those, in their order
    for (i64 from = first; from < n; from += 256) {
        i64 i = from + threadIdx.x;
        bool mine = i < n && clamped(ids[i], rows) == id;
        u32 votes = __ballot_sync(0xffffffffu, mine), lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        if (lane == 0) found[warp] = votes;
        __syncthreads();
        int before = __popc(votes & ((1u << lane) - 1)), all = 0;
        for (int w = 0; w < 8; w++) {
            if (w < warp) before += __popc(found[w]);
            all += __popc(found[w]);
        }
        if (mine) list[before] = (u8)threadIdx.x;
        __syncthreads();
        if (column < width)
#pragma unroll 4
            for (int x = 0; x < all; x++) {
                load(dy + (from + list[x]) * width + column, f);
                for (int k = 0; k < V; k++) sum[k] += f[k];
            }
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
