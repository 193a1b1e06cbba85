package kernel

import "unsafe"

// A tileFunc computes one register tile of a matmul:
//
//	c[i*cStep+j] = add[i*addStep+j] + Σp a(i, p) · b[p*bStep+j]     i < h, j < cols, p < k
//
// where a(i, p) is a[p*aStep+i] for the functions in tileCols (A stored column by
// column, as packed panels are) and a[i*aStep+p] for those in tileRows. h is the
// height the function was made for, cols at most nr. add may be c itself
// (accumulate), a bias with addStep 0, or nil. The sum runs over p in order, one
// fused multiply-add each, so the bits depend on nothing but the operands.
type tileFunc func(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, ahead fetch)

// A lineFunc computes whole tiles side by side: mr rows, and nr columns of each of some panels of B
// that lie one behind the other. It has the bits of a tileFunc for each.
type lineFunc func(k int, a *float32, aStep int, b *float32, c *float32, cStep int, add *float32, addStep, panels int, ahead later)

// later is what a line prefetches into the second-level cache for later lines, during each of its first
// panels: a cache line for every four k, from + panel·(its number) + next·(how many before), in elements. With linePairs it is
// two lines for every 16 k, pair apart. Rows of A come from memory, and the first tile that reads one would wait for it.
type later struct {
	from                *float32
	panel, next, panels int // no panels for nothing
	pair                int
}

// A fetch is what a tile prefetches into the second-level cache for later tiles: for every 16
// k the cache lines at from and from+pair, after which from moves on by next. Only AVX-512
// tiles do it.
type fetch struct {
	from       *float32 // nil for nothing
	pair, next int      // in elements
}

// at is the address of p[i]. The element must exist: Go does not allow computing a pointer
// past the end of an allocation.
func at(p *float32, i int) *float32 {
	return (*float32)(unsafe.Add(unsafe.Pointer(p), i*4))
}

// tiles computes any number of rows: it takes the highest tile function that fits, as often
// as it fits, then the next. rowStep is the distance between rows of A in a.
func (r *routines) tiles(fs *[maxRows + 1]tileFunc, rows, rowStep, k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep, cols int, add *float32, addStep int, ahead fetch) {
	if rows == r.mr { // as in most calls
		fs[rows](k, a, aStep, b, bStep, c, cStep, cols, add, addStep, ahead)
		return
	}
	i := 0
	for _, h := range r.heights {
		for ; rows-i >= h; i += h {
			from := add
			if add != nil {
				from = at(add, i*addStep)
			}
			fs[h](k, at(a, i*rowStep), aStep, b, bStep, at(c, i*cStep), cStep, cols, from, addStep, ahead)
		}
	}
}

// The portable tile is square: what fits into the registers of most CPUs.
const portableSide = 4

// tileColsGo and tileRowsGo make the plain tile of h rows.
func tileColsGo(h int) tileFunc {
	return func(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, ahead fetch) {
		tileGo(h, k, a, 1, aStep, b, bStep, c, cStep, cols, add, addStep)
	}
}

func tileRowsGo(h int) tileFunc {
	return func(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, ahead fetch) {
		tileGo(h, k, a, aStep, 1, b, bStep, c, cStep, cols, add, addStep)
	}
}

// tileGo is the portable tile: a(i, p) is a[i*aRow+p*aCol].
func tileGo(h, k int, a *float32, aRow, aCol int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int) {
	var sum [portableSide][portableSide]float32
	if h == portableSide && cols == portableSide {
		sum = squareSums(k, a, aRow, aCol, b, bStep)
	} else {
		sum = sums(h, k, a, aRow, aCol, b, bStep, cols)
	}
	for i := range h {
		for j := range cols {
			v := sum[i][j]
			if add != nil {
				v += *at(add, i*addStep+j)
			}
			*at(c, i*cStep+j) = v
		}
	}
}

// sums multiplies h rows by cols columns.
func sums(h, k int, a *float32, aRow, aCol int, b *float32, bStep, cols int) (sum [portableSide][portableSide]float32) {
	for i := range h {
		for j := range cols {
			for p := range k {
				sum[i][j] += *at(a, i*aRow+p*aCol) * *at(b, p*bStep+j)
			}
		}
	}
	return sum
}

// squareSums is sums of a whole tile, with the sums in registers.
func squareSums(k int, a *float32, aRow, aCol int, b *float32, bStep int) [portableSide][portableSide]float32 {
	var c00, c01, c02, c03, c10, c11, c12, c13, c20, c21, c22, c23, c30, c31, c32, c33 float32
	for p := range k {
		row := (*[portableSide]float32)(unsafe.Pointer(at(b, p*bStep)))
		b0, b1, b2, b3 := row[0], row[1], row[2], row[3]
		x := *at(a, p*aCol)
		c00, c01, c02, c03 = c00+x*b0, c01+x*b1, c02+x*b2, c03+x*b3
		x = *at(a, aRow+p*aCol)
		c10, c11, c12, c13 = c10+x*b0, c11+x*b1, c12+x*b2, c13+x*b3
		x = *at(a, 2*aRow+p*aCol)
		c20, c21, c22, c23 = c20+x*b0, c21+x*b1, c22+x*b2, c23+x*b3
		x = *at(a, 3*aRow+p*aCol)
		c30, c31, c32, c33 = c30+x*b0, c31+x*b1, c32+x*b2, c33+x*b3
	}
	return [portableSide][portableSide]float32{{c00, c01, c02, c03}, {c10, c11, c12, c13}, {c20, c21, c22, c23}, {c30, c31, c32, c33}}
}
