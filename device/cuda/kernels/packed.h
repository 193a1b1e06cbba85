#include "decode.h"
#include "forms.h"
#include "tile.h"
#include "other.h"

// Matmuls of a few rows x [R K] with weights in block formats, whose codes are decoded in
// registers: y = x·Wᵀ.
//
// A tile is 16 rows of W. A block takes every gridDim.x-th tile: some of its warps fetch codes
// through a ring in shared memory, in pieces of GROUP units of 256 elements, WARPS warps multiply a unit
// each, groups of them a piece in turn, and one warp adds what they have found, in order, and
// stores. Tensor cores multiply codes as numbers
// (those of a format, or integers), W on the left. Their eight columns are not rows of x but its
// parts: column j is part j of the unit, and of what part i of W makes only column i is used. So
// scales multiply sums instead of weights, every lane needs those of few columns alone, and a row of
// x gives the same bits however many rows there are.
//
// FIRST is the format of the matrices, a struct of tiles/ (tile.h stands for its file), and SECOND
// that of the last of three. ROWS is R. Sums of units are added in an order that does not depend on WARPS: a
// warp has SETS of them.
//
// RESIDENT: so many blocks, of other kernels too, share a multiprocessor.

#if ELEMENT != 0

#define FETCHERS 2
#define STORERS 1
#define PACKED_THREADS ((WARPS + FETCHERS + STORERS) * 32)
#define MAX_STAGES 16
#define GROUP 8 // units of a piece, and warps that multiply it
#define GROUPS (WARPS / GROUP)
#define SLOTS 16 // every 16th unit is added to the same sum
#define SETS (SLOTS / WARPS)

// pitchOf is how far rows of a piece lie apart in shared memory: GROUP units, and what keeps rows in
// different banks. Rows begin at any address; the 16 bytes that the first one is in are copied whole.
template <class Tile> __device__ __forceinline__ constexpr int pitchOf() {
    int bytes = GROUP * Tile::bytes + (Tile::bytes % 16 ? 16 : 0);
    return bytes + (Tile::bank - bytes % 128 + 128) % 128;
}
constexpr bool two = FIRST::id != SECOND::id;
constexpr int stageBytes = 16 * (two && pitchOf<SECOND>() > pitchOf<FIRST>() ? pitchOf<SECOND>() : pitchOf<FIRST>());
constexpr bool integer = FIRST::integer;
static_assert(FIRST::integer == SECOND::integer, "both formats are multiplied as integers, or both as numbers");
constexpr bool needSums = FIRST::sums || two && SECOND::sums, needTable = FIRST::table || two && SECOND::table;

// ENGINE: the copy engine fetches rows of pieces; else lanes fetch 16 bytes each.
#define ENGINE (__CUDA_ARCH__ >= 900 && !PLAINLY)

// Input is the few rows: x, and for those that are normalized first the weights of the norm.
struct Input {
    const Element *x, *norm; // null: as they are
    float eps;
    int width; // K, a multiple of 256
    int stages;
};

// Weights are what a form multiplies with.
template <class Form> struct Weights {
    Form form;
    Matrix matrix[3];
    // of is one of them, chosen by value: parameters of a kernel have no address.
    __device__ __forceinline__ Matrix of(int i) const {
        Matrix m = matrix[0];
        if (i == 1) m = {matrix[1].in, matrix[1].n};
        if (i == 2) m = {matrix[2].in, matrix[2].n};
        return m;
    }
};

__device__ __forceinline__ void barrierInit(u64 *b, int count) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(sharedAt(b)), "r"(count) : "memory"); }
__device__ __forceinline__ void arrive(u64 *b) { asm volatile("{\n.reg .b64 s;\nmbarrier.arrive.shared.b64 s, [%0];\n}" ::"r"(sharedAt(b)) : "memory"); }
// awaitTurn returns when the barrier has completed the turn with this parity.
__device__ __forceinline__ void awaitTurn(u64 *b, u32 parity) {
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n@p bra done;\nbra again;\ndone:\n}" ::"r"(sharedAt(b)), "r"(parity) : "memory");
#else
    asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.test_wait.parity.shared.b64 p, [%0], %1;\n@p bra done;\nbra again;\ndone:\n}" ::"r"(sharedAt(b)), "r"(parity) : "memory");
#endif
}

__device__ __forceinline__ void fetchRow(u8 *to, const u8 *from, int bytes, u64 *full, int lane) {
#if ENGINE
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(sharedAt(full)), "r"(bytes) : "memory");
    if (bytes) asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(sharedAt(to)), "l"(from), "r"(bytes), "r"(sharedAt(full)) : "memory");
#else
    for (int i = lane * 16; i < bytes; i += 512) fetch16((Element *)(to + i), (const Element *)(from + i), true);
#endif
}

// together is a barrier of the threads that multiply.
__device__ __forceinline__ void together() { asm volatile("bar.sync 1, %0;" ::"n"(WARPS * 32) : "memory"); }

// Packs of the weights of a norm that a thread holds, fetched before what precedes has ended.
#define PACKS 2
#define STRIDE (WARPS * 32 * LANES)

// digits makes integers of eight elements, those of four lanes in one unit, and stores their two digits, the
// sums of 16 and the unit. NaN and infinities make the unit NaN.
__device__ __forceinline__ void digits(const Lane &v, u8 *to, int width, float *sums, float *units) {
    const int lane = threadIdx.x & 31;
    float most = 0;
#pragma unroll
    for (int e = 0; e < LANES; e++) {
        float size = fabsf(wide(v.x[e]));
        most = size <= most ? most : size; // NaN stays
    }
#pragma unroll
    for (int d = 1; d < 4; d <<= 1) {
        float other = __shfl_xor_sync(0xffffffffu, most, d);
        most = other <= most ? most : other;
    }
    const int exponent = max((int)(__float_as_uint(most) >> 23 & 255), 14);
    const float by = __uint_as_float((u32)(267 - exponent) << 23), unit = exponent == 255 ? __int_as_float(0x7fffffff) : __uint_as_float((u32)(exponent - 13) << 23); // most becomes 2^13 to 2^14
    u32 front[2] = {}, back[2] = {};
    int sum = 0;
#pragma unroll
    for (int e = 0; e < LANES; e++) {
        int i = __float_as_int(__fmaf_rn(wide(v.x[e]), by, 12582912.0f)) - 0x4b400000; // rounded to even
        sum += i;
        front[e >> 2] |= (u32)((i + 128) >> 8 & 255) << (e & 3) * 8;
        back[e >> 2] |= (u32)(i & 255) << (e & 3) * 8;
    }
    *(uint2 *)to = {front[0], front[1]};
    *(uint2 *)(to + width) = {back[0], back[1]};
    if (needSums) {
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        if (!(lane & 1)) *sums = (float)sum * unit;
    }
    if (!(lane & 3)) *units = unit;
}

// loadLane reads a pack that another multiprocessor may have written since the kernel began.
__device__ __forceinline__ Lane loadLane(const Element *p) {
    uint4 v = __ldcg((const uint4 *)p);
    return *(Lane *)&v;
}

// normsOf fetches the first weights of a norm of a thread.
__device__ __forceinline__ void normsOf(const Input &in, Lane (&norms)[PACKS]) {
    if (in.norm)
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            int i = threadIdx.x * LANES + k * STRIDE;
            if (i < in.width) norms[k] = *(const Lane *)(in.norm + i);
        }
}

// share puts the rows into shared memory, normalized where they are to be, and the sums of every 16
// elements where scales have offsets. A thread fetches PACKED packs at once: with a norm PACKS.
template <int PACKED> __device__ __forceinline__ void share(const Input &in, const Lane (&norms)[PACKS], Element *xs, float *sums, float *units, float *partial) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const bool normed = PACKED == PACKS && in.norm;
    float inverse[ROWS];
    Lane held[PACKS]; // the first packs of the last row
    if (normed) {
        for (int n = 0; n < ROWS; n++) {
            float squares = 0;
            for (int from = 0; from < in.width; from += PACKS * STRIDE) {
                Lane v[PACKS];
#pragma unroll
                for (int k = 0; k < PACKS; k++) {
                    int i = from + threadIdx.x * LANES + k * STRIDE;
                    if (i < in.width) v[k] = loadLane(in.x + (i64)n * in.width + i);
                }
#pragma unroll
                for (int k = 0; k < PACKS; k++) {
                    int i = from + threadIdx.x * LANES + k * STRIDE;
                    if (i < in.width)
#pragma unroll
                        for (int e = 0; e < LANES; e++) squares += wide(v[k].x[e]) * wide(v[k].x[e]);
                    if (from == 0) held[k] = v[k];
                }
            }
            squares = warpSum(squares);
            if (lane == 0) partial[n * WARPS + warp] = squares;
        }
        together();
#pragma unroll
        for (int n = 0; n < ROWS; n++) {
            float sum = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++) sum += partial[n * WARPS + w];
            inverse[n] = 1.0f / sqrtf(sum / in.width + in.eps);
        }
    }
#pragma unroll
    for (int n = 0; n < ROWS; n++)
        for (int from = 0; from < in.width; from += PACKED * STRIDE) {
            Lane v[PACKED];
#pragma unroll
            for (int k = 0; k < PACKED; k++) {
                int i = from + threadIdx.x * LANES + k * STRIDE;
                if (ROWS == 1 && normed && from == 0) v[k] = held[k % PACKS];
                else if (i < in.width) v[k] = loadLane(in.x + (i64)n * in.width + i); // for the second time where there is a norm
            }
#pragma unroll
            for (int k = 0; k < PACKED; k++) {
                int i = from + threadIdx.x * LANES + k * STRIDE;
                if (i >= in.width) continue; // a warp as a whole: the width is a multiple of 256
                if (normed) {
                    Lane w = from == 0 ? norms[k % PACKS] : *(const Lane *)(in.norm + i);
#pragma unroll
                    for (int e = 0; e < LANES; e++) narrow(wide(v[k].x[e]) * inverse[n] * wide(w.x[e]), &v[k].x[e]);
                }
                if (integer) digits(v[k], (u8 *)xs + 2 * n * in.width + i, in.width, sums + (n * in.width + i) / 16, units + (n * in.width + i) / 32);
                else *(Lane *)(xs + n * in.width + i) = v[k];
            }
        }
    together();
}

// Ring is the shared memory of a block and the state of a warp in it.
struct Ring {
    u8 *space;
    u64 *full, *empty;
    int stages, stage;
    u32 turn;
    __device__ __forceinline__ void next(int pieces) {
        stage += pieces;
        if (stage >= stages) stage -= stages, turn ^= 1;
    }
};

// fetchTile fetches rows of a tile, those of the warp.
template <class Tile> __device__ __forceinline__ void fetchTile(Ring &ring, const u8 *row, int mine, int units, int lane) {
    for (int c = 0; c < units; c += GROUP, row += GROUP * Tile::bytes) {
        const int skew = Tile::bytes % 16 ? (int)((u64)row & 15) : 0, bytes = (skew + min(GROUP, units - c) * Tile::bytes + 15) & ~15;
        awaitTurn(ring.empty + ring.stage, ring.turn);
        u8 *to = ring.space + ring.stage * stageBytes;
#if ENGINE
        if (lane < 16 / FETCHERS) fetchRow(to + mine * pitchOf<Tile>(), row - skew, mine < 0 ? 0 : bytes, ring.full + ring.stage, lane);
        __syncwarp();
#else
        for (int i = 0; i < 16 / FETCHERS; i++) { // what lane i knows of its row
            const u8 *from = (const u8 *)__shfl_sync(0xffffffffu, (u64)(row - skew), i);
            int of = __shfl_sync(0xffffffffu, mine, i), count = __shfl_sync(0xffffffffu, bytes, i);
            if (of >= 0) fetchRow(to + of * pitchOf<Tile>(), from, count, ring.full + ring.stage, lane);
        }
        asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(sharedAt(ring.full + ring.stage)) : "memory");
#endif
        ring.next(1);
    }
}

// Work is a tile as a lane of the warps that multiply sees it: its rows, their matrix, and the first unit of the warp.
struct Work {
    TwoRows rows;
    int matrix, first;
};
template <class Form> __device__ __forceinline__ Work workOf(const Weights<Form> &w, int tile, int first, int lane) {
    Place low = w.form.place(tile, lane >> 2), high = w.form.place(tile, (lane >> 2) + 8);
    const Matrix m = w.of(low.matrix);
    return {{{m.in, w.of(high.matrix).in}, m.n, {max(low.row, 0), max(high.row, 0)}}, low.matrix, first};
}

// multiplyTile gives the sums of a lane: of rows g and g+8 of the tile, over the units of its warp. With the last of them
// it fetches scales of the next tile.
template <class Tile> __device__ __forceinline__ void multiplyTile(Tile &tile, Ring &ring, const Work &work, const Work &next, bool more, const Input &in, const Shared &shared,
                                                                   float (&acc)[SETS][ROWS][2]) {
    const int lane = threadIdx.x & 31, g = lane >> 2, units = in.width / UNIT;
    const int first = work.first;
    const int atLow = g * pitchOf<Tile>() + first % GROUP * Tile::bytes, atHigh = atLow + 8 * pitchOf<Tile>();
    const u32 from = (u32)(first / GROUP * GROUP * Tile::bytes); // of addresses the last four bits matter: matrices begin at multiples of 16
    u32 skewLow = from + (u32)(work.rows.row[0] * units) * Tile::bytes, skewHigh = from + (u32)(work.rows.row[1] * units) * Tile::bytes;
    if (first / GROUP * GROUP >= units && more) tile.ahead(next.rows, in.width, min(next.first, units - 1), lane & 3); // it has none here
    for (int unit = first; unit / GROUP * GROUP < units; unit += WARPS) { // while the piece has any
        tile.take();
        const bool here = (unit + WARPS) / GROUP * GROUP < units;
        if (here || more) {
            TwoRows rows = next.rows;
            if (here) rows = work.rows;
            tile.ahead(rows, in.width, min(here ? unit + WARPS : next.first, units - 1), lane & 3);
        }
        awaitTurn(ring.full + ring.stage, ring.turn);
        if (unit < units) tile.multiply(ring.space + ring.stage * stageBytes, atLow + (Tile::bytes % 16 ? skewLow & 15 : 0), atHigh + (Tile::bytes % 16 ? skewHigh & 15 : 0), shared.of(unit), acc[0]);
        if (SETS > 1)
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int y = 0; y < 2; y++) { // the next unit is of the other set
                    float other = acc[SETS - 1][r][y];
                    acc[SETS - 1][r][y] = acc[0][r][y];
                    acc[0][r][y] = other;
                }
        skewLow += WARPS * Tile::bytes, skewHigh += WARPS * Tile::bytes;
        __syncwarp();
        if (lane == 0) arrive(ring.empty + ring.stage);
        ring.next(GROUPS);
    }
}

// Added is what a form adds to the sums of two rows, fetched before they are there.
struct Added { float bias[2], plus[2]; };
template <class Form> __device__ __forceinline__ Added addedTo(const Form &, int, int, int) { return {}; }
__device__ __forceinline__ Added addedTo(const Plain &form, int tile, int g, int x) {
    Added a = {};
#pragma unroll
    for (int y = 0; y < 2; y++) {
        int row = tile * 16 + g + 8 * y;
        if (row < form.n && form.bias) a.bias[y] = wide(form.bias[row]);
        if (row < form.n && form.plus) a.plus[y] = wide(form.plus[(i64)x * form.n + row]);
    }
    return a;
}
template <class Form> __device__ __forceinline__ void putSums(const Form &form, int tile, int g, int x, float low, float high, const Added &) { form.put(tile, g, x, low, high); }
__device__ __forceinline__ void putSums(const Plain &form, int tile, int g, int x, float low, float high, const Added &a) {
    int row = tile * 16 + g;
    if (row < form.n) narrow(low + a.bias[0] + a.plus[0], form.y + (i64)x * form.n + row);
    if (row + 8 < form.n) narrow(high + a.bias[1] + a.plus[1], form.y + (i64)x * form.n + row + 8);
}

// Block is what the warps of a block share: the ring, sums of tiles on their way to the warp that adds them, in two
// halves, and what x becomes.
struct Block {
    u8 *space;
    u64 *full, *empty, *ready, *drained;
    float *partial; // [2][SLOTS][16][ROWS]
    u32 *table;
    int stages;
    // shared memory of x, which is as wide as the matmul wants it.
    __device__ __forceinline__ float *sums() const { return partial + 2 * SLOTS * 16 * ROWS; }
    __device__ __forceinline__ float *units(int width) const { return sums() + (needSums ? ROWS * width / 16 : 0); }
    __device__ __forceinline__ Element *rows(int width) const { return (Element *)(units(width) + (integer ? ROWS * width / 32 : 0)); }
    __device__ __forceinline__ Shared shared(int width) const { return {rows(width), sums(), units(width), table, width, (int)(threadIdx.x & 31)}; }
    __device__ __forceinline__ Ring ring(u32 turn) const { return {space, full, empty, stages, 0, turn}; }
    template <int PACKED> __device__ __forceinline__ void share(const Input &in, const Lane (&norms)[PACKS]) const { ::share<PACKED>(in, norms, rows(in.width), sums(), units(in.width), partial); }
};

// BLOCK declares the shared memory of a block and makes its barriers ready.
#define BLOCK(block, stages)                                                                                       \
    extern __shared__ __align__(128) u8 space[];                                                                   \
    __shared__ __align__(16) u32 lookup[needTable ? TABLE : 4]; /* where the compiler knows its address */         \
    __shared__ u64 full[MAX_STAGES], empty[MAX_STAGES], ready[2], drained[2];                                      \
    const Block block = {space, full, empty, ready, drained, (float *)(space + (stages) * stageBytes), lookup, stages}; \
    begin(block);

__device__ __forceinline__ void begin(const Block &b) {
    if (threadIdx.x < MAX_STAGES) {
        barrierInit(b.full + threadIdx.x, ENGINE ? 16 : FETCHERS * 32);
        barrierInit(b.empty + threadIdx.x, GROUP);
        if (threadIdx.x < 2) {
            barrierInit(b.ready + threadIdx.x, WARPS);
            barrierInit(b.drained + threadIdx.x, STORERS);
        }
#if __CUDA_ARCH__ >= 900
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
    }
    __syncthreads();
}

// A matmul of a block, by the warps that fetch, by those that multiply and by the one that stores. One is of
// the format of all matrices but the last of three, Other of that. What they count goes on with the next matmul.

template <class One, class Other, class Form> __device__ __forceinline__ void fetchTiles(const Weights<Form> &w, int units, Ring &ring) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, tiles = w.form.tiles();
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        int mine = (warp - WARPS) * (16 / FETCHERS) + lane % (16 / FETCHERS);
        Place p = w.form.place(tile, mine);
        const Matrix m = w.of(p.matrix);
        i64 row = max(p.row, 0);
        if (p.row < 0) mine = -1;
        if (One::id != Other::id && p.matrix == 2) fetchTile<Other>(ring, m.in + row * units * Other::bytes, mine, units, lane);
        else fetchTile<One>(ring, m.in + row * units * One::bytes, mine, units, lane);
    }
}

template <class One, class Other, class Form> __device__ __forceinline__ void storeTiles(const Weights<Form> &w, const Block &b, u32 &n) {
    const int lane = threadIdx.x & 31, tiles = w.form.tiles();
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, n++) {
        int half = n & 1, mine = threadIdx.x - (WARPS + FETCHERS) * 32;
        Added added = {};
        float by[2] = {1, 1};
        if (mine < 8 * ROWS) {
            added = addedTo(w.form, tile, mine & 7, mine >> 3);
            if (One::scaled || Other::scaled)
#pragma unroll
                for (int y = 0; y < 2; y++) {
                    Place p = w.form.place(tile, (mine & 7) + 8 * y);
                    if (p.row >= 0) by[y] = One::id != Other::id && p.matrix == 2 ? Other::rowScale(w.of(2), p.row) : One::rowScale(w.of(p.matrix), p.row);
                }
        }
        awaitTurn(b.ready + half, n >> 1 & 1);
        for (int e = mine; e < 8 * ROWS; e += STORERS * 32) {
            int row = e & 7, x = e >> 3;
            if (e != mine) added = addedTo(w.form, tile, row, x);
            float low = 0, high = 0;
#pragma unroll
            for (int k = 0; k < SLOTS; k++) {
                const float *part = b.partial + (half * SLOTS + k) * 16 * ROWS;
                low += part[row * ROWS + x];
                high += part[(row + 8) * ROWS + x];
            }
            putSums(w.form, tile, row, x, __fmul_rn(low, by[0]), __fmul_rn(high, by[1]), added);
        }
        __syncwarp();
        if (lane == 0) arrive(b.drained + half);
    }
}

// Multiplier is the state of a warp that multiplies: the next piece of the warp, counted from where its tile begins,
// and how many tiles there were.
struct Multiplier {
    Ring ring;
    int piece;
    u32 n;
};
__device__ __forceinline__ Multiplier newMultiplier(const Block &b) {
    Multiplier m = {b.ring(0), (int)(threadIdx.x >> 5) / GROUP, 0};
    m.ring.next(m.piece);
    return m;
}

// firstWork is the first tile of a warp, whose scales it begins to fetch.
template <class One, class Form> __device__ __forceinline__ Work firstWork(const Weights<Form> &w, const Input &in, const Multiplier &m, One &scales) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    Work work = workOf(w, min((int)blockIdx.x, w.form.tiles() - 1), m.piece * GROUP + warp % GROUP, lane);
    scales.ahead(work.rows, in.width, min(work.first, in.width / UNIT - 1), lane & 3);
    return work;
}

template <class One, class Other, class Form> __device__ __forceinline__ void multiplyTiles(const Weights<Form> &w, const Input &in, const Block &b, Multiplier &m, One &scales, Work work) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3, units = in.width / UNIT, tiles = w.form.tiles();
    const Shared shared = b.shared(in.width);
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, m.n++) {
        const int first = work.first;
        m.piece = ((m.piece - (units + GROUP - 1) / GROUP) % GROUPS + GROUPS) % GROUPS;
        const bool more = tile + gridDim.x < tiles;
        const Work next = workOf(w, more ? tile + gridDim.x : tile, m.piece * GROUP + warp % GROUP, lane);
        float acc[SETS][ROWS][2] = {};
        if (One::id != Other::id && work.matrix == 2) {
            Other other;
            other.ahead(work.rows, in.width, min(work.first, units - 1), lane & 3);
            multiplyTile(other, m.ring, work, next, false, in, shared, acc);
        } else
            multiplyTile(scales, m.ring, work, next, more && !(One::id != Other::id && next.matrix == 2), in, shared, acc);
        work = next;
        int half = m.n & 1;
        if (m.n >= 2) awaitTurn(b.drained + half, (m.n >> 1 & 1) ^ 1);
        const int turned = SETS > 1 ? max(units - first / GROUP * GROUP + WARPS - 1, 0) / WARPS & 1 : 0; // which set is in front
#pragma unroll
        for (int s = 0; s < SETS; s++) {
            float *mine = b.partial + (half * SLOTS + first + (s ^ turned) * WARPS) * 16 * ROWS;
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int y = 0; y < 2; y++) {
                    float sum = acc[s][r][y];
                    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
                    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
                    if (t == 0) mine[(g + 8 * y) * ROWS + r] = sum;
                }
        }
        __syncwarp();
        if (lane == 0) arrive(b.ready + half);
    }
}

#endif
