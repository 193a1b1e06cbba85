// What the codecs compare and clamp with, each broadcast from memory.
DATA constants<>+0(SB)/4, $0x7fffffff          // all bits but the sign
DATA constants<>+4(SB)/4, $const_FirstCell
DATA constants<>+8(SB)/4, $(const_SignCells-1)
DATA constants<>+12(SB)/4, $1
DATA constants<>+16(SB)/4, $0xff
DATA constants<>+20(SB)/4, $0x006ce3ee         // leastAbsmax, 1e-38
DATA constants<>+24(SB)/4, $0x3f800000         // 1
DATA constants<>+28(SB)/4, $0x01100110         // bytes 16, 1, 16, 1
GLOBL constants<>(SB), RODATA|NOPTR, $32
