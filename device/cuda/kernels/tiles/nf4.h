#include "tiles/fourbit.h"

#if ELEMENT != 0
using Tile_nf4 = FourBitTile<0, 94159>;
#endif
