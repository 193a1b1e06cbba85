package kernel

import "math"

// How much of a tile its queries see.
type visibility int

const (
	none visibility = iota
	some
	all
)

// keyRange is the range of keys a tile of queries may see by position.
func (a *Attention) keyRange(q queries) (from, to int) {
	to = a.S
	first := q.i0 + a.S - a.T
	if a.Causal {
		to = first + q.n
	}
	if a.Window > 0 {
		from = max(0, first-a.Window+1)
	}
	return from, to
}

// visible says how much of keys j to j+n the queries see.
func (a *Attention) visible(q queries, j, n int) visibility {
	first := q.i0 + a.S - a.T
	last := first + q.n - 1
	see := all
	if a.Causal && j+n-1 > first || a.Window > 0 && j <= last-a.Window || a.KeyMask != nil || a.Mask != nil {
		see = some
	}
	if a.Segments != nil {
		row := a.Segments[q.b*a.S:]
		loQ, hiQ := span(row[first : last+1])
		loK, hiK := span(row[j : j+n])
		switch {
		case hiQ < loK || hiK < loQ:
			return none
		case loQ != hiQ || loK != hiK:
			see = some
		}
	}
	return see
}

// span is the smallest and the largest of some numbers.
func span(x []int32) (lo, hi int32) {
	lo, hi = x[0], x[0]
	for _, v := range x {
		lo, hi = min(lo, v), max(hi, v)
	}
	return lo, hi
}

// hidden are the scores of keys that are not seen.
var hidden = func() (s [tileQ]float32) {
	for i := range s {
		s[i] = float32(math.Inf(-1))
	}
	return s
}()

// hide adds the mask to the scores of keys j to j+n and sets those that are not seen
// to minus infinity.
func (a *Attention) hide(s []float32, q queries, j, n int) {
	first := q.i0 + a.S - a.T
	for k := range n {
		row, key := s[k*tileQ:][:q.n], j+k
		from, to := 0, q.n // the queries of the tile that see this key by position
		if a.Causal {
			from = max(0, key-first)
		}
		if a.Window > 0 {
			to = min(to, key+a.Window-first)
		}
		if a.KeyMask != nil && a.KeyMask[q.b*a.S+key] == 0 {
			to = 0
		}
		copy(row[:min(from, q.n)], hidden[:])
		copy(row[min(max(to, 0), q.n):], hidden[:])
		a.hideElements(row, q, key, from, to)
	}
}

// hideElements does what differs from query to query: segments and the mask.
func (a *Attention) hideElements(row []float32, q queries, key, from, to int) {
	if a.Segments != nil {
		segments := a.Segments[q.b*a.S:][:a.S]
		mine, first := segments[key], q.i0+a.S-a.T
		for c := from; c < to; c++ {
			if segments[first+c] != mine {
				row[c] = float32(math.Inf(-1))
			}
		}
	}
	if a.Mask != nil {
		mask := a.Mask[q.b*a.MaskSample+q.h*a.MaskHead+q.i0*a.S+key:]
		for c := from; c < to; c++ {
			row[c] += mask[c*a.S]
		}
	}
}

// drop multiplies the weights of a tile by their dropout factors.
func (a *Attention) drop(w scratch, s []float32, q queries, j, n int) {
	if a.Dropout == nil {
		return
	}
	a.Dropout.lines(w.lines, uint64((q.b*a.Heads+q.h)*a.T+q.i0), q.n)
	for k := range n {
		a.Dropout.apply(s[k*tileQ:][:tileQ], w.lines, j+k) // of more queries than there may be
	}
}
