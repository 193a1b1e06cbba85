// Transpose the 4 by 4 blocks in the lanes of a to d; p to s are free.
#define BLOCKS(a, b, c, d, p, q, r, s) \
	VUNPCKLPS b, a, p; VUNPCKHPS b, a, q; VUNPCKLPS d, c, r; VUNPCKHPS d, c, s; \
	VUNPCKLPD r, p, a; VUNPCKHPD r, p, b; VUNPCKLPD s, q, c; VUNPCKHPD s, q, d
