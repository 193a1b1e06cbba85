#include "codecs/fourbit.h"
using Weight = FourBitWeight<0>;
