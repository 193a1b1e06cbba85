// Tiles in shared memory: a row of panels, each 64 elements (128 bytes) wide; the 16-byte
// chunks of row r of a panel are exchanged, c for c ^ r%8, so that neither rows nor columns
// meet in one bank.

#define PANELS ((HEAD + 63) / 64)

// fetchRows starts copying rows from..from+ROWS-1 of a head to a tile, by 128 threads; zeros
// from row limit on. FETCHERS threads copy one row.
#define FETCHERS (CHUNKS <= 8 ? 8 : CHUNKS <= 16 ? 16 : 32)
template <int ROWS> __device__ __forceinline__ void fetchRows(u32 to, const Element *x, i64 step, int from, int limit) {
    int t = threadIdx.x & 127, r = t / FETCHERS, c = t % FETCHERS;
    if (c >= CHUNKS) return;
    to += (c >> 3) * (ROWS * 128) + r * 128 + ((c & 7) ^ (r & 7)) * 16;
    const Element *line = x + (i64)(from + r) * step + c * LANES;
    const int together = 128 / FETCHERS; // rows
    step *= together;
    if (from + ROWS <= limit) {
#pragma unroll 4
        for (int i = 0; i < ROWS; i += together) {
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + i * 128 ^ (i & 4) * 16), "l"(line));
            line += step;
            asm volatile("" : "+l"(line)); // one address at a time: registers are short
        }
        return;
    }
    int left = limit - from - r;
#pragma unroll 4
    for (int i = 0; i < ROWS; i += together, line += step)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to + i * 128 ^ (i & 4) * 16), "l"(i < left ? line : x), "r"(i < left ? 16 : 0));
}

// Quarters are parts of two rows of o, r and r + 8 with r%8 = lane/4, of which each of four lanes
// loads one: chunks lane%4, lane%4 + 4 and so on. dot sums their products with rows of a tile of
// ROWS, for all four.
struct Quarters {
    uint4 x[2][(CHUNKS + 3) / 4];
    __device__ __forceinline__ void load(const Element *o, i64 step, int r, int limit) {
#pragma unroll
        for (int y = 0; y < 2; y++)
#pragma unroll
            for (int n = 0; n < (CHUNKS + 3) / 4; n++) {
                int c = n * 4 + (threadIdx.x & 3);
                x[y][n] = r + y * 8 < limit && c < CHUNKS ? *(const uint4 *)(o + (r + y * 8) * step + c * LANES) : uint4{};
            }
    }
    template <int ROWS> __device__ __forceinline__ void dot(u32 tile, int r, float (&sums)[2]) {
#pragma unroll
        for (int y = 0; y < 2; y++) {
            float sum = 0;
#pragma unroll
            for (int n = 0; n < (CHUNKS + 3) / 4; n++) {
                int c = n * 4 + (threadIdx.x & 3);
                if (c >= CHUNKS) continue;
                uint4 w;
                asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w) : "r"(tile + (c >> 3) * (ROWS * 128) + (r + y * 8) * 128 + ((c & 7) ^ (r & 7)) * 16));
                Lane a = *(Lane *)&x[y][n], b = *(Lane *)&w;
#pragma unroll
                for (int i = 0; i < LANES; i++) sum += wide(a.x[i]) * wide(b.x[i]);
            }
            sums[y] = lineSum(sum);
        }
    }
};

// totalOf is a logarithm by base 2 of one by base e, 0 of a sum of nothing.
__device__ __forceinline__ float totalOf(float lse) { return lse == -INFINITE ? 0 : lse * LOG2E; }
