// Copies of columns from one matrix to another, for Split and Concat.

// dst[r][dstAt + c] = src[r][srcAt + c] for rows × width elements. V elements at once.
template <class V> __device__ __forceinline__ void columns(const Element *src, i64 srcStep, Element *dst, i64 dstStep, i64 rows, i64 width) {
    const int lanes = sizeof(V) / sizeof(Element);
    i64 packs = width / lanes, n = rows * packs;
    for (i64 i = position(); i < n; i += (i64)gridDim.x * blockDim.x) {
        i64 r, c;
        if (n < (1ll << 31)) {
            r = (u32)i / (u32)packs;
            c = (u32)i % (u32)packs;
        } else {
            r = i / packs;
            c = i % packs;
        }
        *(V *)(dst + r * dstStep + c * lanes) = *(const V *)(src + r * srcStep + c * lanes);
    }
}
extern "C" __global__ void columnsOne(const Element *src, i64 srcStep, Element *dst, i64 dstStep, i64 rows, i64 width) {
    columns<Element>(src, srcStep, dst, dstStep, rows, width);
}
extern "C" __global__ void columnsWide(const Element *src, i64 srcStep, Element *dst, i64 dstStep, i64 rows, i64 width) {
    columns<Lane>(src, srcStep, dst, dstStep, rows, width);
}
