// VDPBF16PS Zs, Zt, Zd, which Go's assembler does not know: Zd += upper halves of Zs and Zt multiplied, then
// the lower ones. EVEX.512.F3.0F38.W0 52 /r; bits 3 and 4 of register numbers are stored inverted.
#define DP(t, s, d) \
	BYTE $0x62; \
	BYTE $(((((d>>3)&1)^1)<<7)|((((t>>4)&1)^1)<<6)|((((t>>3)&1)^1)<<5)|((((d>>4)&1)^1)<<4)|2); \
	BYTE $((((s&15)^15)<<3)|6); \
	BYTE $(0x40|((((s>>4)&1)^1)<<3)); \
	BYTE $0x52; \
	BYTE $(0xc0|((d&7)<<3)|(t&7))
