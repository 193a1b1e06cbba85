#include "textflag.h"

// A call by C's convention for amd64. DI holds the address of a block:
//   0 function, 8 result, 16 sixteen arguments.
// Six arguments go in registers, ten on the stack. The stack is aligned to 16 at
// the inner call: 8 (return address) + 8 (BP) + 8 (BX) + 88.
TEXT calling<>(SB), NOSPLIT|NOFRAME, $0-0
	PUSHQ BP
	MOVQ  SP, BP
	PUSHQ BX
	SUBQ  $88, SP
	MOVQ  DI, BX

	MOVQ 64(BX), AX
	MOVQ AX, 0(SP)
	MOVQ 72(BX), AX
	MOVQ AX, 8(SP)
	MOVQ 80(BX), AX
	MOVQ AX, 16(SP)
	MOVQ 88(BX), AX
	MOVQ AX, 24(SP)
	MOVQ 96(BX), AX
	MOVQ AX, 32(SP)
	MOVQ 104(BX), AX
	MOVQ AX, 40(SP)
	MOVQ 112(BX), AX
	MOVQ AX, 48(SP)
	MOVQ 120(BX), AX
	MOVQ AX, 56(SP)
	MOVQ 128(BX), AX
	MOVQ AX, 64(SP)
	MOVQ 136(BX), AX
	MOVQ AX, 72(SP)

	MOVQ 16(BX), DI
	MOVQ 24(BX), SI
	MOVQ 32(BX), DX
	MOVQ 40(BX), CX
	MOVQ 48(BX), R8
	MOVQ 56(BX), R9
	XORL AX, AX
	MOVQ 0(BX), R11
	CALL R11

	MOVQ AX, 8(BX)
	ADDQ $88, SP
	POPQ BX
	POPQ BP
	RET

DATA ·trampoline(SB)/8, $calling<>(SB)
GLOBL ·trampoline(SB), NOPTR|RODATA, $8
