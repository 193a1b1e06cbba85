package kernel

import "unsafe"

// A depthwiseFunc convolves vectors of DepthwiseLanes channels, or of depthwiseWide, of h places, each channel by itself: the places
// of a window and their weights are at pairs of offsets.
//
//	c[i*cStep+j] = add[j] + Σt x[offsets[t][0]+i*step+j] · w[offsets[t][1]+j]     i < h
//
// Meanwhile it may fetch what is xNext and cNext elements further on.
//
// A depthwiseWeightsFunc adds to the sums of up to four times three places of a window, tap apart in x, what n
// places give:
//
//	sums[(3*k+t)*sumStep+j] += Σi xk[t*tap+i*step+j] · dy[i*dyStep+j]     i < n, t < 3
//
// and may fetch what is next elements further on.
type (
	depthwiseFunc        func(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32, xNext, cNext, vectors int)
	depthwiseWeightsFunc func(n int, x0, x1, x2, x3 *float32, next, tap, step int, dy *float32, dyStep int, sums *float32, sumStep, vectors int)
)

// DepthwiseLanes is how many channels are convolved at once, or depthwiseWide; depthwiseRows is how many places at most where
// windows are small, so that memory decides and what the places see should stay in the first-level cache, and
// planeRows where windows have more than depthwiseFew places; depthwiseTriples are the pointers of gradients of weights.
const (
	DepthwiseLanes   = 8
	depthwiseWide    = 16
	depthwiseRows    = 8
	depthwiseFew     = 16
	depthwiseTriples = 4
)

// Depthwise convolves all channels, a multiple of DepthwiseLanes, of n places that lie side by side in y,
// and whose windows are step apart in x. Offsets hold at least one pair. bias may be nil. The next line of y
// sees lines of x that are xNext further on.
func Depthwise(y []float32, n, channels int, x []float32, step int, w []float32, offsets [][2]int, bias []float32, xNext, yNext int) {
	_, _ = y[n*channels-1], x[offsets[len(offsets)-1][0]+(n-1)*step+channels-1]
	xNext += offsets[len(offsets)-1][0]
	rows, wide := depthwiseRows, 0
	if len(offsets) > depthwiseFew {
		rows = planeRows
	}
	if active.depthwiseWide[rows] != nil {
		wide = channels / depthwiseWide * depthwiseWide
	}
	for first := 0; first < n; {
		h := min(ceil(n-first, ceil(n-first, rows)), n-first)
		run := func(f depthwiseFunc, from, vectors int) {
			var add *float32
			if bias != nil {
				add = &bias[from]
			}
			f(len(offsets), unsafe.SliceData(offsets), &x[first*step+from], step, &w[from], &y[first*channels+from], channels, add, xNext, yNext, vectors)
		}
		if wide > 0 {
			run(active.depthwiseWide[h], 0, wide/depthwiseWide)
		}
		if wide < channels {
			run(active.depthwise[h], wide, (channels-wide)/DepthwiseLanes)
		}
		first += h
	}
}

// DepthwiseTriple are three places of a window: where they begin in x and in the sums.
type DepthwiseTriple struct{ At, Sums int }

// DepthwiseWeights adds what n places of dy, side by side, give to the sums [places channels] of triples of a
// window: their places are tap apart in x, the windows step. Lines are xNext apart.
func DepthwiseWeights(sums []float32, triples []DepthwiseTriple, n, channels int, x []float32, tap, step int, dy []float32, xNext int) {
	for len(triples) > 0 {
		h := min(len(triples), depthwiseTriples)
		for h > 1 && triples[h-1].Sums != triples[0].Sums+3*(h-1)*channels { // sums that lie one behind the other
			h--
		}
		var from [depthwiseTriples]*float32
		for i := range from {
			t := triples[min(i, h-1)]
			_ = x[t.At+2*tap+(n-1)*step+channels-1]
			from[i] = &x[t.At]
		}
		_, _ = sums[triples[h-1].Sums+3*channels-1], dy[n*channels-1]
		active.depthwiseWeights[h](n, from[0], from[1], from[2], from[3], xNext, tap, step, &dy[0], channels, &sums[triples[0].Sums], channels, channels/DepthwiseLanes)
		triples = triples[h:]
	}
}

// depthwiseGo are the plain functions by their number of places.
func depthwiseGo() (fs [planeRows + 1]depthwiseFunc) {
	for h := range fs {
		fs[h] = func(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32, _, _, vectors int) {
			for i := range h {
				for j := range vectors * DepthwiseLanes {
					var sum float32
					if add != nil {
						sum = *at(add, j)
					}
					for _, o := range unsafe.Slice(offsets, taps) {
						sum += *at(x, o[0]+i*step+j) * *at(w, o[1]+j)
					}
					*at(c, i*cStep+j) = sum
				}
			}
		}
	}
	return fs
}

// depthwiseWeightsGo are the plain functions by their number of triples.
func depthwiseWeightsGo() (fs [depthwiseTriples + 1]depthwiseWeightsFunc) {
	for h := range fs {
		fs[h] = func(n int, x0, x1, x2, x3 *float32, _, tap, step int, dy *float32, dyStep int, sums *float32, sumStep, vectors int) {
			for k, x := range []*float32{x0, x1, x2, x3}[:h] {
				for t := range 3 {
					for j := range vectors * DepthwiseLanes {
						var sum float32
						for i := range n {
							sum += *at(x, t*tap+i*step+j) * *at(dy, i*dyStep+j)
						}
						*at(sums, (3*k+t)*sumStep+j) += sum
					}
				}
			}
		}
	}
	return fs
}
