#include "tiles/fourbit.h"

#if ELEMENT != 0
using Tile_fp4 = FourBitTile<1, 65536 * 3>;
#endif
