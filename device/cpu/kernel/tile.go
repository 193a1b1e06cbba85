package kernel

import "unsafe"

// A tileFunc computes one register tile of a matrix product:
//
//	c[i*cStep+j] = add[i*addStep+j] + Σp a(i, p) · b[p*bStep+j]     i < h, j < cols, p < k
//
// where a(i, p) is a[p*aStep+i] for the functions in tileCols (A stored column by
// column, as packed panels are) and a[i*aStep+p] for those in tileRows. h is the
// height the function was made for, cols at most nr. add may be c itself
// (accumulate), a bias with addStep 0, or nil. The sum runs over p in order, one
// fused multiply-add each, so the bits depend on nothing but the operands.
type tileFunc func(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int)

// at is the address of p[i], which must exist: a pointer past the end of what the
// collector manages may not even be computed.
func at(p *float32, i int) *float32 {
	return (*float32)(unsafe.Add(unsafe.Pointer(p), i*4))
}

// tiles runs the tile functions over rows of any number: the highest tile that fits
// is taken again and again. rowStep is the distance between rows of A in a.
func (r *routines) tiles(fs *[maxRows + 1]tileFunc, rows, rowStep, k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep, cols int, add *float32, addStep int) {
	i := 0
	for _, h := range r.heights {
		for ; rows-i >= h; i += h {
			from := add
			if add != nil {
				from = at(add, i*addStep)
			}
			fs[h](k, at(a, i*rowStep), aStep, b, bStep, at(c, i*cStep), cStep, cols, from, addStep)
		}
	}
}

// Heights of the portable tiles.
var portableHeights = []int{4, 1}

// tileColsGo and tileRowsGo make the plain tile of h rows.
func tileColsGo(h int) tileFunc {
	return func(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int) {
		tileGo(h, k, a, 1, aStep, b, bStep, c, cStep, cols, add, addStep)
	}
}

func tileRowsGo(h int) tileFunc {
	return func(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int) {
		tileGo(h, k, a, aStep, 1, b, bStep, c, cStep, cols, add, addStep)
	}
}

// tileGo is the portable tile: a(i, p) is a[i*aRow+p*aCol].
func tileGo(h, k int, a *float32, aRow, aCol int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int) {
	for i := range h {
		var sum [portableCols]float32
		acc := sum[:cols]
		for p := range k {
			x := *at(a, i*aRow+p*aCol)
			row := unsafe.Slice(at(b, p*bStep), cols)
			for j, y := range row {
				acc[j] += x * y
			}
		}
		out := unsafe.Slice(at(c, i*cStep), cols)
		if add != nil {
			for j, v := range unsafe.Slice(at(add, i*addStep), cols) {
				acc[j] += v
			}
		}
		copy(out, acc)
	}
}
