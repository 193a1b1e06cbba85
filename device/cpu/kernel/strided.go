package kernel

// strided are the transforms of convolutions with windows of 3 by 3 that move by two places. In one dimension a
// window sees every other place twice, at its ends, and the others once, in its middle. With d0 to d4 the places
// that two windows see and g the window, five multiplications instead of six make
//
//	y0 = (d0-d2)·g0 + d1·g1 + d2·(g0+g2)
//	y1 = (d4-d2)·g2 + d3·g1 + d2·(g0+g2)
//
// and so 25 instead of 36 make 2 by 2 places. What only y0 needs is one sum, and what both need, and what only y1
// needs: sums of 2, 1 and 2 terms, so that there are 9 matmuls in two dimensions, see StridedParts.
//
// The gradient of x has five multiplications too: with e0 to e2 places of dy
//
//	dx0 = (e0-e1)·g2 + e1·(g0+g2)    dx1 = e1·g1
//	dx2 = (e2-e1)·g0 + e1·(g0+g2)    dx3 = e2·g1
//
// which are 16 matmuls in two dimensions, since e1 is multiplied by two. Number k of several results is xi elements
// behind the one before, or at table[k]; places are row and col elements apart; n channels, a multiple of
// StridedLanes, lie side by side.
type strided struct {
	in      func(dst *float32, table *[StridedTerms]int, src *float32, row, col, n int)     // of 5 by 5 places of x
	out     func(dst *float32, row, col int, src *float32, xi int, add *float32, n int)     // 2 by 2 places of 9 sums, and add where it is not nil
	grad    func(dst *float32, xi int, src *float32, row, col, n int)                       // of 2 by 2 places of dy, the transposed of out
	backIn  func(dst *float32, xi int, src *float32, row, col, n int)                       // of 3 by 3 places of dy
	backOut func(dst *float32, row, col int, src *float32, table *[StridedTerms]int, n int) // 4 by 4 places of dx
}

// Sizes of strided convolutions.
const (
	StridedLanes = 8
	StridedTerms = 25
	StridedSums  = 9  // of a convolution
	StridedBack  = 16 // matrices of its gradient of x
)

// The terms of one dimension, of a convolution and of its gradient of x: which sum they are added to, or which
// matrix is multiplied.
var (
	StridedParts     = [5]int{0, 0, 1, 2, 2}
	StridedBackParts = [5]int{0, 1, 1, 2, 3}
)

// StridedWeights gives what the 25 terms of a tile multiply by, [5a+b], for windows of 3 by 3, StridedLanes of them
// at once. back gives those of the gradient of x.
func StridedWeights(to *[StridedTerms][StridedLanes]float32, window *[9][StridedLanes]float32, back bool) {
	of := [5][2]int{{0, -1}, {1, -1}, {0, 2}, {2, -1}, {1, -1}}
	if back {
		of = [5][2]int{{2, -1}, {0, 2}, {1, -1}, {0, -1}, {1, -1}}
	}
	for a, rows := range of {
		var line [3][StridedLanes]float32
		for c := range line {
			line[c] = window[3*rows[0]+c]
			if rows[1] >= 0 {
				for j, f := range window[3*rows[1]+c] {
					line[c][j] += f
				}
			}
		}
		for b, cols := range of {
			sum := &to[5*a+b]
			*sum = line[cols[0]]
			if cols[1] >= 0 {
				for j, f := range line[cols[1]] {
					sum[j] += f
				}
			}
		}
	}
}

// StridedIn transforms the places of x that a tile sees.
func StridedIn(dst []float32, table *[StridedTerms]int, src []float32, row, col, n int) {
	_, _ = dst[table[StridedTerms-1]+n-1], src[4*row+4*col+n-1]
	active.strided.in(&dst[0], table, &src[0], row, col, n)
}

// StridedOut makes a tile of y.
func StridedOut(dst []float32, row, col int, src []float32, xi int, bias []float32, n int) {
	_, _ = src[(StridedSums-1)*xi+n-1], dst[row+col+n-1]
	var add *float32
	if bias != nil {
		add = &bias[:n][0]
	}
	active.strided.out(&dst[0], row, col, &src[0], xi, add, n)
}

// StridedGrad transforms a tile of dy for gradients of weights.
func StridedGrad(dst []float32, xi int, src []float32, row, col, n int) {
	_, _ = dst[(StridedSums-1)*xi+n-1], src[row+col+n-1]
	active.strided.grad(&dst[0], xi, &src[0], row, col, n)
}

// StridedBackIn transforms the places of dy that give to a tile of x.
func StridedBackIn(dst []float32, xi int, src []float32, row, col, n int) {
	_, _ = dst[(StridedBack-1)*xi+n-1], src[2*row+2*col+n-1]
	active.strided.backIn(&dst[0], xi, &src[0], row, col, n)
}

// StridedBackOut makes a tile of dx.
func StridedBackOut(dst []float32, row, col int, src []float32, table *[StridedTerms]int, n int) {
	_, _ = src[table[StridedTerms-1]+n-1], dst[3*row+3*col+n-1]
	active.strided.backOut(&dst[0], row, col, &src[0], table, n)
}

// PackRow writes StridedLanes elements of row k of a matrix of depth rows that MultiplyPanels takes, from col on.
func PackRow(to []float32, from *[StridedLanes]float32, k, depth, col, cols int) {
	nr := active.nr
	for j := 0; j < StridedLanes; j += min(nr, StridedLanes) {
		copy(to[panelAt(k, depth, col+j, cols, nr):][:min(nr, StridedLanes)], from[j:])
	}
}

// Transforms of one dimension: element [i][j] is how often place j counts in result i.
var (
	stridedIn      = [][]float32{{1, 0, -1, 0, 0}, {0, 1, 0, 0, 0}, {0, 0, 1, 0, 0}, {0, 0, -1, 0, 1}, {0, 0, 0, 1, 0}}
	stridedOut     = [][]float32{{1, 1, 0}, {0, 1, 1}}
	stridedGrad    = [][]float32{{1, 0}, {1, 1}, {0, 1}}
	stridedBackIn  = [][]float32{{1, -1, 0}, {0, 1, 0}, {0, -1, 1}, {0, 0, 1}}
	stridedBackOut = [][]float32{{1, 1, 0, 0, 0}, {0, 0, 1, 0, 0}, {0, 1, 0, 1, 0}, {0, 0, 0, 0, 1}}
)

// transformed is the plain transform in two dimensions: to and from say where places are.
func transformed(dst *float32, to func(k int) int, src *float32, from func(k int) int, m [][]float32, add *float32, n int) {
	for c := range n {
		for i := range m {
			for j := range m {
				var sum float32
				for p, f := range m[i] {
					for q, g := range m[j] {
						if f*g != 0 {
							sum += f * g * *at(src, from(p*len(m[i])+q)+c)
						}
					}
				}
				if add != nil {
					sum += *at(add, c)
				}
				*at(dst, to(i*len(m)+j)+c) = sum
			}
		}
	}
}

// stridedGo are the plain transforms.
func stridedGo() strided {
	apart := func(xi int) func(int) int { return func(k int) int { return k * xi } }
	places := func(side, row, col int) func(int) int {
		return func(k int) int { return k/side*row + k%side*col }
	}
	listed := func(table *[StridedTerms]int) func(int) int { return func(k int) int { return table[k] } }
	return strided{
		in: func(dst *float32, table *[StridedTerms]int, src *float32, row, col, n int) {
			transformed(dst, listed(table), src, places(5, row, col), stridedIn, nil, n)
		},
		out: func(dst *float32, row, col int, src *float32, xi int, add *float32, n int) {
			transformed(dst, places(2, row, col), src, apart(xi), stridedOut, add, n)
		},
		grad: func(dst *float32, xi int, src *float32, row, col, n int) {
			transformed(dst, apart(xi), src, places(2, row, col), stridedGrad, nil, n)
		},
		backIn: func(dst *float32, xi int, src *float32, row, col, n int) {
			transformed(dst, apart(xi), src, places(3, row, col), stridedBackIn, nil, n)
		},
		backOut: func(dst *float32, row, col int, src *float32, table *[StridedTerms]int, n int) {
			transformed(dst, places(4, row, col), src, listed(table), stridedBackOut, nil, n)
		},
	}
}
