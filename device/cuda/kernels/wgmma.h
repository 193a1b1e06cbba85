#include "panels.h"

// Matmuls of tiles by warpgroups, for GPUs of the Hopper generation (sm_90a): four warps
// compute c += a·b with a of 64 × 16 and b of 16 × N elements, in the background. Warp w of
// a warpgroup holds rows 16w..16w+15 of the sums, as fragments.h has them.
//
// Tiles (panels.h) begin at multiples of 1024 bytes. describe is what the hardware wants to
// know of a tile: its address, and how far apart its panels are, in bytes.

__device__ __forceinline__ u64 describe(u32 at, int panel) {
    return (u64)(at >> 4 & 0x3fff) | (u64)(panel >> 4) << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}

#if ELEMENT == 2
#define KIND ".f32.f16.f16 "
#else
#define KIND ".f32.bf16.bf16 "
#endif

#define N0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define N1 N0 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define N2 N1 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define N3 N2 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define N4 N3 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define N5 N4 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define N6 N5 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define N7 N6 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define N8 N7 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define N9 N8 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define N10 N9 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define N11 N10 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define C4(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define C0 C4(0), C4(1)
#define C1 C0, C4(2), C4(3)
#define C2 C1, C4(4), C4(5)
#define C3 C2, C4(6), C4(7)
#define C4S C3, C4(8), C4(9)
#define C5 C4S, C4(10), C4(11)
#define C6 C5, C4(12), C4(13)
#define C7 C6, C4(14), C4(15)
#define C8 C7, C4(16), C4(17)
#define C9 C8, C4(18), C4(19)
#define C10 C9, C4(20), C4(21)
#define C11 C10, C4(22), C4(23)

// both: a and b of 16 columns each in shared memory, b by its rows; add is 0 if c is to be
// forgotten. down: a in registers, and 16 rows of b.
#define MATMULS(N, LIST, SUMS, A, B, P, A0, A1, A2, A3, BD)                                                            \
    __device__ __forceinline__ void both(float (&c)[N / 8][4], u64 a, u64 b, int add) {                                   \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16" KIND        \
                     "{" LIST "}, " A ", " B ", p, 1, 1, 0, 0;\n}"                                                        \
                     : SUMS                                                                                               \
                     : "l"(a), "l"(b), "r"(add));                                                                         \
    }                                                                                                                     \
    __device__ __forceinline__ void down(float (&c)[N / 8][4], const u32 (&a)[4], u64 b) {                                 \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16" KIND "{" LIST "}, {" A0 ", " A1 ", " A2 ", " A3 "}, " BD \
                     ", 1, 1, 1, 1;"                                                                                       \
                     : SUMS                                                                                               \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                               \
    }
MATMULS(16, N0, C0, "%8", "%9", "%10", "%8", "%9", "%10", "%11", "%12")
MATMULS(32, N1, C1, "%16", "%17", "%18", "%16", "%17", "%18", "%19", "%20")
MATMULS(48, N2, C2, "%24", "%25", "%26", "%24", "%25", "%26", "%27", "%28")
MATMULS(64, N3, C3, "%32", "%33", "%34", "%32", "%33", "%34", "%35", "%36")
MATMULS(80, N4, C4S, "%40", "%41", "%42", "%40", "%41", "%42", "%43", "%44")
MATMULS(96, N5, C5, "%48", "%49", "%50", "%48", "%49", "%50", "%51", "%52")
MATMULS(112, N6, C6, "%56", "%57", "%58", "%56", "%57", "%58", "%59", "%60")
MATMULS(128, N7, C7, "%64", "%65", "%66", "%64", "%65", "%66", "%67", "%68")
MATMULS(144, N8, C8, "%72", "%73", "%74", "%72", "%73", "%74", "%75", "%76")
MATMULS(192, N11, C11, "%96", "%97", "%98", "%96", "%97", "%98", "%99", "%100")

// begin comes before matmuls, submit closes a group of them, and finish<N> waits until at
// most N groups are under way. Sums and left factors are not to be touched meanwhile; held
// keeps the compiler from doing so.
__device__ __forceinline__ void begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void submit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ __forceinline__ void finish() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
template <int N> __device__ __forceinline__ void held(float (&x)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) asm volatile("" : "+f"(x[n][i])::"memory");
}

// rowsByRows is c = a·bᵀ over the elements of a head: rows of a from row on, and N rows of b.
// ROWS are those of a's tile.
template <int ROWS, int N> __device__ __forceinline__ void rowsByRows(float (&c)[N][4], u32 a, int row, u32 b) {
    u64 x = describe(a + row * 128, 0), y = describe(b, 0);
#pragma unroll
    for (int d = 0; d < HEAD / 16; d++) both(c, x + (d / 4 * ROWS * 128 + d % 4 * 32 >> 4), y + (d / 4 * N * 8 * 128 + d % 4 * 32 >> 4), d > 0);
}

// byColumns is c += a·b, with sums of 64 rows and N columns as a, and N rows of b.
template <int N> __device__ __forceinline__ void byColumns(float (&c)[HEAD / 8][4], const u32 (&a)[N][4], u32 b) {
    u64 y = describe(b, N * 16 * 128);
#pragma unroll
    for (int n = 0; n < N; n++) down(c, a[n], y + (n * 2048 >> 4));
}

// asFactor rounds sums to elements, as a left factor.
template <int N> __device__ __forceinline__ void asFactor(u32 (&a)[N][4], const float (&x)[2 * N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++) {
        a[n][0] = two(x[2 * n][0], x[2 * n][1]);
        a[n][1] = two(x[2 * n][2], x[2 * n][3]);
        a[n][2] = two(x[2 * n + 1][0], x[2 * n + 1][1]);
        a[n][3] = two(x[2 * n + 1][2], x[2 * n + 1][3]);
    }
}

// Barriers in shared memory: a phase ends when as many threads arrived as the barrier counts.
struct Barrier { u64 state; };
__device__ __forceinline__ void reset(Barrier &b, int count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(sharedAt(&b)), "r"(count)); }
__device__ __forceinline__ void arrive(Barrier &b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(sharedAt(&b)) : "memory"); }
// arriveFetched arrives when what the thread fetched is here.
__device__ __forceinline__ void arriveFetched(Barrier &b) { asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(sharedAt(&b)) : "memory"); }
__device__ __forceinline__ void waitFor(Barrier &b, int phase) {
    u32 done;
    do
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(done) : "r"(sharedAt(&b)), "r"(phase) : "memory");
    while (!done);
}
// seeFetched makes what was fetched visible to matmuls, after waiting for it.
__device__ __forceinline__ void seeFetched() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Two warpgroups, 0 and 1, take turns at giving tensor cores work: awaitTurn waits until the other
// ended its own. Both take as many.
__device__ __forceinline__ void awaitTurn(int group) { asm volatile("bar.sync %0, 256;" ::"r"(1 + group) : "memory"); }
__device__ __forceinline__ void endTurn(int group) { asm volatile("bar.arrive %0, 256;" ::"r"(2 - group) : "memory"); }

// Ring is a place in a ring of STAGES tiles: which one, and the parity of the rounds so far.
template <int COUNT> struct Ring {
    int at, phase;
    __device__ __forceinline__ void next() {
        if (++at == COUNT) at = 0, phase ^= 1;
    }
};

// Registers move from the warpgroup that fetches to the two that compute: FETCHING_REGISTERS are those
// of a thread of the one, COMPUTING_REGISTERS of the others. A block of 384 threads has 168 each: more
// in all would be waited for without end.
#define FETCHING_REGISTERS(n) asm volatile("setmaxnreg.dec.sync.aligned.u32 " #n ";")
#define COMPUTING_REGISTERS(n) asm volatile("setmaxnreg.inc.sync.aligned.u32 " #n ";")
