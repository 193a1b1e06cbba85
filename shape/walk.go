package shape

import (
	"fmt"
	"slices"
)

// Strides are how many elements lie between neighbours of each dimension, of a tensor whose
// elements lie in order.
func (s Shape) Strides() []int64 {
	strides, n := make([]int64, len(s)), int64(1)
	for i := len(s) - 1; i >= 0; i-- {
		strides[i] = n
		n *= s[i]
	}
	return strides
}

// Broadcast is the shape of two tensors together, as NumPy has it: they are aligned at their last
// dimensions, and a dimension of 1 is repeated.
func Broadcast(a, b Shape) (Shape, error) {
	out := make(Shape, max(len(a), len(b)))
	for i := range out {
		x, y := a.fromLast(len(out)-1-i), b.fromLast(len(out)-1-i)
		switch {
		case x == y || y == 1:
			out[i] = x
		case x == 1:
			out[i] = y
		default:
			return nil, fmt.Errorf("shapes %v and %v do not fit together: %d and %d, counted from the last dimension %d", a, b, x, y, len(out)-1-i)
		}
	}
	return out, nil
}

// fromLast is a dimension counted from the last; 1 where there are not so many.
func (s Shape) fromLast(i int) int64 {
	if i >= len(s) {
		return 1
	}
	return s[len(s)-1-i]
}

// Walk goes over the elements of several tensors at once: along each of Dims a tensor moves by its
// stride, which is 0 where it is repeated.
type Walk struct {
	Dims    Shape
	Strides [][]int64 // of each tensor
}

// BroadcastWalk goes over all elements of a shape; tensors of smaller shapes are repeated.
func BroadcastWalk(over Shape, tensors ...Shape) Walk {
	w := Walk{Dims: over}
	for _, t := range tensors {
		strides, own := make([]int64, len(over)), t.Strides()
		for i := range own {
			if t[i] != 1 {
				strides[len(over)-len(t)+i] = own[i]
			}
		}
		w.Strides = append(w.Strides, strides)
	}
	return w.Merged()
}

// Merged is the same walk in as few dimensions as can be, at least one.
func (w Walk) Merged() Walk {
	m := Walk{Strides: make([][]int64, len(w.Strides))}
	for i, n := range w.Dims {
		if n == 1 {
			continue
		}
		last := len(m.Dims) - 1
		if last >= 0 && w.follows(m, i) {
			m.Dims[last] *= n
		} else {
			m.Dims, last = append(m.Dims, n), last+1
			for t := range m.Strides {
				m.Strides[t] = append(m.Strides[t], 0)
			}
		}
		for t := range m.Strides {
			m.Strides[t][last] = w.Strides[t][i]
		}
	}
	if len(m.Dims) == 0 {
		m.Dims = Shape{1}
		for t := range m.Strides {
			m.Strides[t] = []int64{1}
		}
	}
	return m
}

// follows says that dimension i goes on where the last dimension of m ends, for every tensor.
func (w Walk) follows(m Walk, i int) bool {
	for t, s := range w.Strides {
		if outer := m.Strides[t]; outer[len(outer)-1] != s[i]*w.Dims[i] {
			return false
		}
	}
	return true
}

// Row finds where row i of the walk begins in each tensor; a row runs along the last dimension.
func (w Walk) Row(i int64, at []int64) {
	clear(at)
	for d := len(w.Dims) - 2; d >= 0; d-- {
		k := i % w.Dims[d]
		i /= w.Dims[d]
		for t := range at {
			at[t] += k * w.Strides[t][d]
		}
	}
}

// Next moves the places of row i-1 to those of row i, which is faster than Row.
func (w Walk) Next(i int64, at []int64) {
	for d := len(w.Dims) - 2; d >= 0; d-- {
		n := w.Dims[d]
		if i%n != 0 {
			for t := range at {
				at[t] += w.Strides[t][d]
			}
			return
		}
		for t := range at {
			at[t] -= (n - 1) * w.Strides[t][d]
		}
		i /= n
	}
}

// Rows is the number of rows.
func (w Walk) Rows() int64 { return w.Dims.Rows() }

// Each calls f with the place in each tensor of one element after the other.
func (w Walk) Each(f func(at []int64)) {
	at, here := make([]int64, len(w.Strides)), make([]int64, len(w.Strides))
	last := len(w.Dims) - 1
	for row := range w.Rows() {
		w.Row(row, at)
		copy(here, at)
		for range w.Dims[last] {
			f(here)
			for t := range here {
				here[t] += w.Strides[t][last]
			}
		}
	}
}

// Permuted are the dimensions in another order; ok is false if order is none of them.
func (s Shape) Permuted(order []int64) (p Shape, ok bool) {
	seen := make([]bool, len(s))
	if len(order) != len(s) {
		return nil, false
	}
	for _, i := range order {
		if i < 0 || i >= int64(len(s)) || seen[i] {
			return nil, false
		}
		seen[i] = true
		p = append(p, s[i])
	}
	return p, true
}

// Around cuts the dimensions in three: those before, count of them of which the last is axis,
// counted from the last dimension, and those behind. Each part is counted as one dimension.
func (s Shape) Around(axis, count int64) (outer, along, inner int64) {
	end := int64(len(s)) - axis
	first := end - max(count, 1)
	return s[:first].Elements(), s[first:end].Elements(), s[end:].Elements()
}

// Has says that there are count dimensions of which the last is axis, counted from the last.
func (s Shape) Has(axis, count int64) bool {
	return axis >= 0 && count >= 0 && axis <= int64(len(s)) && max(count, 1) <= int64(len(s))-axis
}

// With is the same shape with another size of a dimension, counted from the last.
func (s Shape) With(axis, size int64) Shape {
	t := slices.Clone(s)
	t[int64(len(t))-1-axis] = size
	return t
}
