package kernel

// winograd are the transforms of convolutions with windows of 3 by 3 that make 2 by 2 places at once out of
// 4 by 4, with 16 multiplications instead of 36 (Winograd's minimal filtering): with d the places of x, g the
// window and y what is made,
//
//	y = Aᵀ·[(G·g·Gᵀ) ⊙ (Bᵀ·d·B)]·A
//
// The multiplications of all tiles and channels are 16 matmuls. Gradients of weights are the transposed,
// Gᵀ·[(A·dy·Aᵀ) ⊙ (Bᵀ·d·B)]·G. Number 4i+j of 16 is xi elements behind the one before; places are row and
// col elements apart; n channels, a multiple of WinogradLanes, lie side by side.
type winograd struct {
	in  func(dst *float32, xi int, src *float32, row, col, n int)                   // Bᵀ·d·B
	out func(dst *float32, row, col int, src *float32, xi int, add *float32, n int) // Aᵀ·m·A, and add where it is not nil
	// G·g·Gᵀ of n rows of WinogradLanes windows: windows are step, rows rowStep and transformed rows dstStep apart. reversed says
	// that places of windows are taken in reverse order.
	weight func(dst *float32, xi, dstStep int, src *float32, step, rowStep, n int, reversed bool)
	grad   func(dst *float32, xi int, src *float32, row, col, n int) // A·dy·Aᵀ
	back   func(dst *float32, step int, src *float32, xi, n int)     // Gᵀ·m·G into n windows, step apart
}

// Sizes of Winograd's convolutions.
const (
	WinogradLanes   = 8
	WinogradMatmuls = 16
	WinogradRoom    = WinogradMatmuls * WinogradLanes
)

var (
	winogradB = [4][4]float32{{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}} // Bᵀ
	winogradA = [2][4]float32{{1, 1, 1, 0}, {0, 1, -1, -1}}                              // Aᵀ
	winogradG = [4][3]float32{{1, 0, 0}, {.5, .5, .5}, {.5, -.5, .5}, {0, 0, 1}}
)

// WinogradIn transforms a tile of x.
func WinogradIn(dst []float32, xi int, src []float32, row, col, n int) {
	_, _ = dst[15*xi+n-1], src[3*row+3*col+n-1]
	active.winograd.in(&dst[0], xi, &src[0], row, col, n)
}

// WinogradOut makes a tile of y.
func WinogradOut(dst []float32, row, col int, src []float32, xi int, bias []float32, n int) {
	_, _ = src[15*xi+n-1], dst[row+col+n-1]
	var add *float32
	if bias != nil {
		add = &bias[:n][0]
	}
	active.winograd.out(&dst[0], row, col, &src[0], xi, add, n)
}

// WinogradGrad transforms a tile of dy.
func WinogradGrad(dst []float32, xi int, src []float32, row, col, n int) {
	_, _ = dst[15*xi+n-1], src[row+col+n-1]
	active.winograd.grad(&dst[0], xi, &src[0], row, col, n)
}

// WinogradBack makes gradients of n windows of 3 by 3 places, step elements apart.
func WinogradBack(dst []float32, step int, src []float32, xi, n int) {
	_, _ = src[15*xi+n-1], dst[(n-1)*step+8]
	active.winograd.back(&dst[0], step, &src[0], xi, n)
}

// Windows are those of 3 by 3 places that weights hold: of columns, Step elements apart, and rows, RowStep apart. Their places may
// be taken in reverse order.
type Windows struct {
	Data          []float32
	Step, RowStep int
	Reversed      bool
}

// WinogradWeights transforms the windows of WinogradLanes columns, from col on, and n rows, from k on, of the 16 matrices of depth
// rows that MultiplyPanels takes. room is of WinogradRoom.
func WinogradWeights(dst []float32, xi, k, n, depth, col, cols int, w Windows, room []float32) {
	nr := active.nr
	_ = w.Data[(WinogradLanes-1)*w.Step+(n-1)*w.RowStep+8]
	for end, from := k+n, w.Data; k < end; k += n {
		n = min(end, (k/slabK+1)*slabK) - k // rows of one slab
		if nr >= WinogradLanes {
			at := panelAt(k, depth, col, cols, nr)
			_ = dst[15*xi+at+(n-1)*nr+WinogradLanes-1]
			active.winograd.weight(&dst[at], xi, nr, &from[0], w.Step, w.RowStep, n, w.Reversed)
		} else {
			n = 1
			active.winograd.weight(&room[:WinogradRoom][0], WinogradLanes, 0, &from[0], w.Step, w.RowStep, n, w.Reversed)
			for i := range WinogradMatmuls {
				for j := 0; j < WinogradLanes; j += nr {
					copy(dst[i*xi+panelAt(k, depth, col+j, cols, nr):][:nr], room[i*WinogradLanes+j:])
				}
			}
		}
		if k+n < end {
			from = from[n*w.RowStep:]
		}
	}
}

// panelAt is where an element of a packed matrix lies: slabs of at most slabK rows, in each panels of nr
// columns.
func panelAt(k, depth, col, cols, nr int) int {
	slab := k / slabK * slabK
	kc := min(slabK, depth-slab)
	return slab*roundUp(cols, nr) + col/nr*nr*kc + (k-slab)*nr + col%nr
}

// PackedColumns is how many columns of a packed matrix take memory, on any path.
func PackedColumns(cols int) int { return roundUp(cols, maxCols) }

// MultiplyPanels is the matmul of rows of A and a matrix packed by panels.
func MultiplyPanels(c []float32, cStep int, a []float32, aStep, rows, depth int, b []float32, cols int) {
	AddPanels(c, cStep, nil, 0, a, aStep, rows, depth, b, cols)
}

// AddPanels is that matmul added to rows of addend, which nil stands for zeros of.
func AddPanels(c []float32, cStep int, addend []float32, addendStep int, a []float32, aStep, rows, depth int, b []float32, cols int) {
	r := active
	for p0 := 0; p0 < depth; p0 += slabK {
		kc := min(slabK, depth-p0)
		wide := max(blockSize/kc/maxCols*maxCols, maxCols)
		for j0 := 0; j0 < cols; j0 += wide {
			jEnd := min(j0+wide, cols)
			for i := 0; i < rows; i += r.mr {
				j, h := j0, min(r.mr, rows-i)
				if whole := (jEnd - j) / r.nr; r.lineRows != nil && h == r.mr && whole > 0 {
					add, addStep := panelAddend(c, cStep, addend, addendStep, i, j, p0)
					r.lineRows(kc, &a[i*aStep+p0], aStep, &b[panelAt(p0, depth, j, cols, r.nr)], &c[i*cStep+j], cStep, add, addStep, whole, later{})
					j += whole * r.nr
				}
				for ; j < jEnd; j += r.nr {
					add, addStep := panelAddend(c, cStep, addend, addendStep, i, j, p0)
					r.tiles(&r.tileRows, h, aStep, kc, &a[i*aStep+p0], aStep, &b[panelAt(p0, depth, j, cols, r.nr)], r.nr,
						&c[i*cStep+j], cStep, min(r.nr, jEnd-j), add, addStep, fetch{})
				}
			}
		}
	}
}

func panelAddend(c []float32, cStep int, addend []float32, addendStep, i, j, p0 int) (*float32, int) {
	if p0 == 0 && addend == nil {
		return nil, 0
	}
	if p0 == 0 {
		return &addend[i*addendStep+j], addendStep
	}
	return &c[i*cStep+j], cStep
}

// TransposedRoom is the room that MultiplyTransposed needs, on any path: for all of A, and some columns of B.
func TransposedRoom(rows, k int) int { return k * (roundUp(rows, maxRows) + maxCols) }

// NearRows is up to how many elements rows of memory are apart that are multiplied as they lie: more pages than
// those take are found slowly.
const NearRows = 384

// MultiplyTransposed is C = Aᵀ·B of matrices of k rows each; add says that it is added to C. Rows that lie far apart
// are packed first, those of A where tiles are not wide.
func MultiplyTransposed(c []float32, cStep int, a []float32, aStep, rows int, b []float32, bStep, cols, k int, add bool, room []float32) {
	r := active
	near := aStep <= NearRows && bStep <= NearRows
	left, right := room[:k*roundUp(rows, r.mr)], room[k*roundUp(rows, r.mr):][:k*r.nr]
	packs := !near && !r.wideTiles()
	if whole := rows / r.mr; whole > 0 && packs {
		r.packCopy(&left[0], r.mr, &a[0], aStep, k, r.mr, whole)
	}
	if i := rows / r.mr * r.mr; i < rows && packs {
		r.packCopy(&left[i*k], r.mr, &a[i], aStep, k, rows-i, 1)
	}
	for j := 0; j < cols; j += r.nr {
		wide := min(r.nr, cols-j)
		columns, colStep := &b[j], bStep
		if !near {
			r.packCopy(&right[0], r.nr, columns, bStep, k, wide, 1)
			columns, colStep = &right[0], r.nr
		}
		for i := 0; i < rows; i += r.mr {
			at, from, fromStep := &c[i*cStep+j], (*float32)(nil), 0
			if add {
				from, fromStep = at, cStep
			}
			panel, step := &a[i], aStep
			if packs {
				panel, step = &left[i*k], r.mr
			}
			r.tiles(&r.tileCols, min(r.mr, rows-i), 1, k, panel, step, columns, colStep, at, cStep, wide, from, fromStep, fetch{})
		}
	}
}

// winogradGo are the plain transforms.
func winogradGo() winograd {
	return winograd{
		in: func(dst *float32, xi int, src *float32, row, col, n int) {
			for c := range n {
				for i := range 4 {
					for j := range 4 {
						var sum float32
						for p := range 4 {
							for q := range 4 {
								sum += winogradB[i][p] * winogradB[j][q] * *at(src, p*row+q*col+c)
							}
						}
						*at(dst, (4*i+j)*xi+c) = sum
					}
				}
			}
		},
		out: func(dst *float32, row, col int, src *float32, xi int, add *float32, n int) {
			for c := range n {
				for i := range 2 {
					for j := range 2 {
						var sum float32
						for p := range 4 {
							for q := range 4 {
								sum += winogradA[i][p] * winogradA[j][q] * *at(src, (4*p+q)*xi+c)
							}
						}
						if add != nil {
							sum += *at(add, c)
						}
						*at(dst, i*row+j*col+c) = sum
					}
				}
			}
		},
		weight: func(dst *float32, xi, dstStep int, src *float32, step, rowStep, n int, reversed bool) {
			for c := range n * WinogradLanes {
				k, c := c/WinogradLanes, c%WinogradLanes
				for i := range 4 {
					for j := range 4 {
						var sum float32
						for p := range 3 {
							for q := range 3 {
								tap := 3*p + q
								if reversed {
									tap = 8 - tap
								}
								sum += winogradG[i][p] * winogradG[j][q] * *at(src, k*rowStep+c*step+tap)
							}
						}
						*at(dst, k*dstStep+(4*i+j)*xi+c) = sum
					}
				}
			}
		},
		grad: func(dst *float32, xi int, src *float32, row, col, n int) {
			for c := range n {
				for i := range 4 {
					for j := range 4 {
						var sum float32
						for p := range 2 {
							for q := range 2 {
								sum += winogradA[p][i] * winogradA[q][j] * *at(src, p*row+q*col+c)
							}
						}
						*at(dst, (4*i+j)*xi+c) = sum
					}
				}
			}
		},
		back: func(dst *float32, step int, src *float32, xi, n int) {
			for c := range n {
				for i := range 3 {
					for j := range 3 {
						var sum float32
						for p := range 4 {
							for q := range 4 {
								sum += winogradG[p][i] * winogradG[q][j] * *at(src, (4*p+q)*xi+c)
							}
						}
						*at(dst, c*step+3*i+j) = sum
					}
				}
			}
		},
	}
}
