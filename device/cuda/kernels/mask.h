// Which keys a query sees, shared by the attention kernels. Positions: query i of T,
// key j of S; at = i + S - T is the query's place among the keys. MASKS is 1 where
// there may be segments or masks, DROPOUT where there may be that; code for them is left
// out elsewhere, which saves registers.

struct Mask {
    const int *segments, *keyMask; // [B S], may be null
    const int *spans;              // [B S/SPAN 2] of segments, see flash.h; null with them
    const float *mask;             // [T S] of the head at hand, see ofHead; may be null
    i64 maskSample, maskHead;      // elements between the masks of samples and heads, 0 where they share one
    int T, S, heads, keyHeads, width;
    float scale;
    int causal, window;
    float prob, keep; // of dropout: the share dropped, the factor of the rest
    u32 stream;
    u64 key, firstSample;
};

#define MASK_PARAMS                                                                                                          \
    const int *segments, const int *keyMask, const float *mask, i64 maskSample, i64 maskHead, const int *spans, int T, int S, int heads, int keyHeads, int width, float scale, \
        int causal, int window, float prob, float keep, u32 stream, u64 key, u64 firstSample
#define MASK {segments, keyMask, spans, mask, maskSample, maskHead, T, S, heads, keyHeads, width, scale, causal, window, prob, keep, stream, key, firstSample}

// The first key any of the queries from i on sees, and one behind the last that those
// up to i see, masks of numbers left aside.
__device__ __forceinline__ int firstKey(const Mask &c, int i) {
    int first = i + c.S - c.T - c.window + 1;
    return c.window > 0 && first > 0 ? first : 0;
}
__device__ __forceinline__ int endKey(const Mask &c, int i) {
    int end = i + c.S - c.T + 1;
    return c.causal && end < c.S ? end : c.S;
}
// The same from a key's side.
__device__ __forceinline__ int firstQuery(const Mask &c, int j) {
    int first = j - (c.S - c.T);
    return c.causal && first > 0 ? first : 0;
}
__device__ __forceinline__ int endQuery(const Mask &c, int j) {
    int end = j - (c.S - c.T) + c.window;
    return c.window > 0 && end < c.T ? end : c.T;
}

// visible says whether a query sees a key, and both exist.
__device__ __forceinline__ bool visible(const Mask &c, int b, int i, int j) {
    int at = i + c.S - c.T;
    if (i >= c.T || j >= c.S || c.causal && j > at || c.window > 0 && j <= at - c.window) return false;
#if MASKS
    if (c.segments && c.segments[(i64)b * c.S + at] != c.segments[(i64)b * c.S + j]) return false;
    if (c.keyMask && c.keyMask[(i64)b * c.S + j] == 0) return false;
#endif
    return true;
}
// ofHead makes the mask that of head h of sample b; mask is that of all of them.
__device__ __forceinline__ void ofHead(Mask &c, const float *mask, int b, int h) {
    if (MASKS && mask) c.mask = mask + b * c.maskSample + h * c.maskHead;
}
// added is what the mask adds to the score of a pair.
__device__ __forceinline__ float added(const Mask &c, int i, int j) {
    return MASKS && c.mask ? c.mask[(i64)i * c.S + j] : 0.0f;
}

// Dropout of weights: drops says whether there is any. Each query of a head has a line of random
// numbers of 32 bits, one for each key (op.Line), named by start and turn; what is below limit is
// dropped. lineBits takes start + j·LINE_STEP for key j.
struct Line { u32 start, turn; };
#define LINE_STEP 0x9e3779b9u
__device__ __forceinline__ bool drops(const Mask &c) { return DROPOUT && c.prob > 0; }
__device__ __forceinline__ u32 limitOf(const Mask &c) { return __float2uint_rz(c.prob * 4294967296.0f); }
__device__ __forceinline__ Line lineOf(const Mask &c, u64 base, int b, int h, int i) {
    u64 x = mix(base + ((c.firstSample + b) * (u64)c.heads + h) * c.T + i);
    return {(u32)x, (u32)(x >> 32)};
}
__device__ __forceinline__ u32 lineBits(u32 x, u32 turn) {
    x = (x ^ x >> 16) * 0x7feb352du + turn;
    return (x ^ x >> 15) * 0x846ca68bu;
}
// dropBits says which of the columns at, at+1, at+8, at+9, at+16 ... of a line are dropped, N of
// them: bit i is about the i-th. They are ready when later volatile code begins.
template <int N> __device__ __forceinline__ u32 dropBits(const Line &l, int at, u32 limit) {
    u32 bits = 0, x = l.start + at * LINE_STEP;
#pragma unroll
    for (int i = 0; i < N; i++) bits |= (lineBits(x + ((i >> 1) * 8 + (i & 1)) * LINE_STEP, l.turn) < limit ? 1u : 0u) << i;
    asm volatile("" : "+r"(bits));
    return bits;
}
// dropped is the factor of dropout on the weight of a pair.
__device__ __forceinline__ float dropped(const Mask &c, u64 base, int b, int h, int i, int j) {
    Line l = lineOf(c, base, b, h, i);
    return lineBits(l.start + j * LINE_STEP, l.turn) < limitOf(c) ? 0.0f : c.keep;
}
