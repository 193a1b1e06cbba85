// Attention works on tiles of scores stored key by key, one lane per query, so that
// what softmax does to a row of scores is plain arithmetic down a column.
//
//	SI  tile     R8  bytes from row to row     R9  rows     CX  bytes of a row left

// func(m []float32, s *float32, step, rows int): m = max(m, every row of s)
#define COLUMN_MAX_BODY \
	MOVQ m_base+0(FP), DI; MOVQ m_len+8(FP), CX; MOVQ s+24(FP), SI; MOVQ step+32(FP), R8; MOVQ rows+40(FP), R9; SHLQ $2, R8; \
column: \
	VMOVUPS (DI), V0; MOVQ SI, AX; MOVQ R9, BX; \
row: \
	VMAXPS (AX), V0, V0; ADDQ R8, AX; DECQ BX; JNZ row; \
	VMOVUPS V0, (DI); \
	ADDQ $BYTES, DI; ADDQ $BYTES, SI; SUBQ $LANES, CX; JGT column; \
	VZEROUPPER; RET

// func(sum, m []float32, s *float32, step, rows int): s = e^(s - m), sum += every row of s
#define COLUMN_EXP_BODY \
	MOVQ sum_base+0(FP), DI; MOVQ sum_len+8(FP), CX; MOVQ m_base+24(FP), DX; \
	MOVQ s+48(FP), SI; MOVQ step+56(FP), R8; MOVQ rows+64(FP), R9; SHLQ $2, R8; \
column: \
	VMOVUPS (DI), V0; VMOVUPS (DX), V7; MOVQ SI, AX; MOVQ R9, BX; \
row: \
	VMOVUPS (AX), V3; VSUBPS V7, V3, V3; EXP(V3, V1, V4); VADDPS V1, V0, V0; VMOVUPS V1, (AX); \
	ADDQ R8, AX; DECQ BX; JNZ row; \
	VMOVUPS V0, (DI); \
	ADDQ $BYTES, DI; ADDQ $BYTES, DX; ADDQ $BYTES, SI; SUBQ $LANES, CX; JGT column; \
	VZEROUPPER; RET

// func(delta []float32, d, p *float32, step, rows int, scale float32): d = scale·p·(d - delta)
#define COLUMN_GRAD_BODY \
	MOVQ delta_base+0(FP), DI; MOVQ delta_len+8(FP), CX; MOVQ d+24(FP), SI; MOVQ p+32(FP), DX; \
	MOVQ step+40(FP), R8; MOVQ rows+48(FP), R9; CONST(scale+56(FP), V5); SHLQ $2, R8; \
column: \
	VMOVUPS (DI), V7; MOVQ SI, AX; MOVQ DX, R10; MOVQ R9, BX; \
row: \
	VMOVUPS (AX), V0; VSUBPS V7, V0, V0; VMULPS (R10), V0, V0; VMULPS V5, V0, V0; VMOVUPS V0, (AX); \
	ADDQ R8, AX; ADDQ R8, R10; DECQ BX; JNZ row; \
	ADDQ $BYTES, DI; ADDQ $BYTES, DX; ADDQ $BYTES, SI; SUBQ $LANES, CX; JGT column; \
	VZEROUPPER; RET
