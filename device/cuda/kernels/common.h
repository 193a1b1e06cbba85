// What all kernels share. No header is included: the compiler comes without any.
//
// Each file is compiled once per element type: ELEMENT is 0 for f32, 1 for bf16, 2 for
// f16, and Element is that type. Arithmetic is in f32. Buffers begin at multiples of
// 16 bytes unless a kernel says otherwise.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

struct bf16 { u16 bits; };
struct f16 { u16 bits; };

#if ELEMENT == 0
typedef float Element;
#elif ELEMENT == 1
typedef bf16 Element;
#else
typedef f16 Element;
#endif

#define INFINITE __int_as_float(0x7f800000)

// wide and narrow convert to and from f32, rounding to nearest even.
__device__ __forceinline__ float wide(float x) { return x; }
__device__ __forceinline__ float wide(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
__device__ __forceinline__ float wide(f16 x) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x.bits));
    return f;
}
__device__ __forceinline__ void narrow(float x, float *y) { *y = x; }
__device__ __forceinline__ void narrow(float x, bf16 *y) {
    u16 b;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(b) : "f"(x));
    y->bits = b;
}
__device__ __forceinline__ void narrow(float x, f16 *y) {
    u16 b;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(b) : "f"(x));
    y->bits = b;
}

__device__ __forceinline__ bool finite(float x) { return (__float_as_uint(x) & 0x7f800000) != 0x7f800000; }

// keep rounds an element of an optimizer state to nearest. In f16 only zero becomes zero, and
// only infinities infinite.
template <class E> __device__ __forceinline__ void keep(float x, E *y) { narrow(x, y); }
template <> __device__ __forceinline__ void keep(float x, f16 *y) {
    narrow(x, y);
    u16 sign = y->bits & 0x8000, size = y->bits & 0x7fff;
    if (size == 0 && x != 0) y->bits = sign | 1;
    if (size == 0x7c00 && finite(x)) y->bits = sign | 0x7bff;
}

// power is e^x and over is a/b. For 16-bit elements they may be off by a few units in the last
// place of f32, which is faster.
#if ELEMENT == 0
__device__ __forceinline__ float power(float x) { return expf(x); }
__device__ __forceinline__ float over(float a, float b) { return a / b; }
#else
__device__ __forceinline__ float power(float x) { return __expf(x); }
__device__ __forceinline__ float over(float a, float b) { return __fdividef(a, b); }
#endif

// Pack is what one thread loads at once: 16 bytes.
#define LANES (16 / (int)sizeof(Element))
template <class E, int N> struct alignas(sizeof(E) * N) Pack { E x[N]; };
typedef Pack<Element, LANES> Lane;

// load reads a pack as floats, store writes one.
template <class E, int N> __device__ __forceinline__ void load(const E *p, float (&f)[N]) {
    Pack<E, N> v = *(const Pack<E, N> *)p;
#pragma unroll
    for (int i = 0; i < N; i++) f[i] = wide(v.x[i]);
}
template <class E, int N> __device__ __forceinline__ void store(E *p, const float (&f)[N]) {
    Pack<E, N> v;
#pragma unroll
    for (int i = 0; i < N; i++) narrow(f[i], &v.x[i]);
    *(Pack<E, N> *)p = v;
}

__device__ __forceinline__ u32 sharedAt(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// fetch16 starts copying 16 bytes to shared memory; zeros are written unless there. commit ends
// a group of copies, and await<N> returns when all groups of this thread but the latest N have
// arrived.
__device__ __forceinline__ void fetch16(Element *to, const Element *from, bool there) {
    int n = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(sharedAt(to)), "l"(from), "r"(n));
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;"); }
template <int N> __device__ __forceinline__ void await() { asm volatile("cp.async.wait_group %0;" ::"n"(N)); }

// Position of a thread in a one-dimensional grid.
__device__ __forceinline__ i64 position() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }

// warpSum and warpMax give every lane the result, by one fixed tree.
__device__ __forceinline__ float warpSum(float x) {
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}
__device__ __forceinline__ double warpSum(double x) {
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}
__device__ __forceinline__ float warpMax(float x) {
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
    return x;
}

// rowSum sums over the blockDim.x threads of a row. With 32 of them a row is a warp and
// a block may hold several rows; with more the block is the row. All threads call it.
template <class F> __device__ __forceinline__ F rowSum(F x) {
    x = warpSum(x);
    if (blockDim.x == 32) return x;
    __shared__ F part[32];
    __syncthreads(); // the last use of part is over
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = x;
    __syncthreads();
    F sum = 0;
    for (int i = 0; i < blockDim.x >> 5; i++) sum += part[i];
    return sum;
}
__device__ __forceinline__ float rowMax(float x) {
    x = warpMax(x);
    if (blockDim.x == 32) return x;
    __shared__ float part[32];
    __syncthreads();
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = x;
    __syncthreads();
    float top = part[0];
    for (int i = 1; i < blockDim.x >> 5; i++) top = fmaxf(top, part[i]);
    return top;
}

// uniform is op.Uniform: 24 random bits of a position of a stream, as a number in [0, 1).
__device__ __forceinline__ u64 mix(u64 x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}
__device__ __forceinline__ u64 streamBase(u64 key, u32 stream) { return mix(key ^ ((u64)stream * 0x9e3779b97f4a7c15ull)); }
__device__ __forceinline__ float uniform(u64 base, u64 position) {
    return (float)(mix(base + position) >> 40) * (1.0f / (1 << 24));
}

// roundBy rounds to bf16 by adding 16 random bits to those that it has no room for.
__device__ __forceinline__ bf16 roundBy(float x, u32 random) {
    bf16 y;
    narrow(x, &y);
    if (finite(x)) y.bits = (u16)((__float_as_uint(x) + random) >> 16);
    return y;
}

// roundRandomly is op.RoundStochastic of a position; base is mix of the key.
__device__ __forceinline__ bf16 roundRandomly(float x, u64 base, u64 position) { return roundBy(x, (u32)(mix(base + position) >> 48)); }

// stateBits are the random bits with which op.Stream.RoundState rounds four states from a
// position on, 16 for each, the first in the lowest; base is streamBase of the state.
__device__ __forceinline__ u64 stateBits(u64 base, u64 position) {
    u64 bits = mix(base + position / 4);
    u32 shift = position % 4 * 16;
    return shift == 0 ? bits : bits >> shift | mix(base + position / 4 + 1) << (64 - shift);
}
