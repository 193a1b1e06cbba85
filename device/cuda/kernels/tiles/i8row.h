#include "tiles/rows.h"

#if ELEMENT != 0

struct PairI8 {
    static const int id = 6;
    static constexpr float factor = 7.874015718698502e-3f; // a 127th
    __device__ __forceinline__ static u32 of(u32 word) { return whole(word); }
};
using Tile_i8row = RowTile<PairI8>;

#endif
