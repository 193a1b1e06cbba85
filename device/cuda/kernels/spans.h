#include "decode.h"
#include "fragments.h"
#include "wgmma.h"

// What matmuls share that the copy engine feeds: y = x·Wᵀ (+ bias) (+ plus) of rows x [M K] with a matrix of weights W [N K], with the additions of
// decode.cu in their order. There a row is cut into spans of SPAN elements, spans w, w + CHAINS, ... are added up one after the
// other, and then these CHAINS sums in order.

#define SPAN 64
#define CHAINS 8

// Map is what the copy engine knows of a matrix: CUtensorMap.
struct alignas(64) Map { u64 words[16]; };

__device__ __forceinline__ void expect(Barrier &b, u32 bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(sharedAt(&b)), "r"(bytes) : "memory"); }
__device__ __forceinline__ void fetchTile(u32 to, const Map *map, int column, int row, Barrier &b) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(map), "r"(column), "r"(row), "r"(sharedAt(&b)) : "memory");
}
__device__ __forceinline__ void clusterSync() {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// partOf reads four numbers of the shared memory of a block of the cluster.
__device__ __forceinline__ float4 partOf(u32 at, int block) {
    float4 v;
    asm volatile("{\n.reg .b32 a;\nmapa.shared::cluster.u32 a, %4, %5;\nld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [a];\n}" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(at), "r"(block) : "memory");
    return v;
}

// Result is what is done with sums.
struct Result {
    const Element *bias, *plus;
    Element *y;
    int m, n, step; // step: elements from a row of y to the next

    __device__ __forceinline__ float added(float sum, int row, int column) const {
        if (row >= m || column >= n) return sum;
        if (bias) sum += wide(bias[column]);
        if (plus) sum += wide(plus[(i64)row * n + column]);
        return sum;
    }
    __device__ __forceinline__ void one(float sum, int row, int column) const {
        if (row < m && column < n) narrow(added(sum, row, column), y + (i64)row * step + column);
    }
    // addTwo adds to numbers of neighbouring columns; n is even.
    __device__ __forceinline__ void addTwo(float &a, float &b, int row, int column) const {
        if (row >= m || column >= n) return;
        float x[2];
        if (bias) {
            load(bias + column, x);
            a += x[0], b += x[1];
        }
        if (plus) {
            load(plus + (i64)row * n + column, x);
            a += x[0], b += x[1];
        }
    }
    // four writes sums of neighbouring columns.
    __device__ __forceinline__ void four(float4 sum, int row, int column) const {
        if ((n | step) % 4 == 0) {
            addTwo(sum.x, sum.y, row, column);
            addTwo(sum.z, sum.w, row, column + 2);
            *(uint2 *)(y + (i64)row * step + column) = {two(sum.x, sum.y), two(sum.z, sum.w)};
            return;
        }
        one(sum.x, row, column);
        one(sum.y, row, column + 1);
        one(sum.z, row, column + 2);
        one(sum.w, row, column + 3);
    }
    // put writes sums of rows row and row + 8 and of columns from the first on. The four lanes that hold a row exchange what they have, so
    // that each writes 16 bytes.
    template <int C> __device__ __forceinline__ void put(float (&sum)[C][4], int row, int first) const {
        const int t = threadIdx.x & 3;
        if ((n | step) % 8 != 0) {
#pragma unroll
            for (int i = 0; i < C; i++)
#pragma unroll
                for (int e = 0; e < 4; e++) one(sum[i][e], row + (e >> 1) * 8, first + i * 8 + 2 * t + (e & 1));
            return;
        }
#pragma unroll
        for (int i = 0; i < C; i += 4)
#pragma unroll
            for (int y2 = 0; y2 < 2; y2++) {
                u32 w[4];
                const int r = row + y2 * 8;
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    float a = sum[i + c][2 * y2], b = sum[i + c][2 * y2 + 1];
                    addTwo(a, b, r, first + (i + c) * 8 + 2 * t);
                    w[c] = two(a, b);
                }
#pragma unroll
                for (int c = 0; c < 4; c += 2) {
                    u32 other = __shfl_xor_sync(0xffffffffu, t & 1 ? w[c] : w[c + 1], 1);
                    if (t & 1) w[c] = other;
                    else w[c + 1] = other;
                }
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    u32 other = __shfl_xor_sync(0xffffffffu, t & 2 ? w[c] : w[c + 2], 2);
                    if (t & 2) w[c] = other;
                    else w[c + 2] = other;
                }
                const int column = first + (i + t) * 8;
                if (r < m && column < n) *(uint4 *)(y + (i64)r * step + column) = {w[0], w[1], w[2], w[3]};
            }
    }
};
