// Package shape is the arithmetic of tensor dimensions. Shapes are small, so they
// are plain slices, never modified after they are made.
package shape

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Shape lists dimensions, outermost first. The empty shape is a scalar.
type Shape []int64

// Of makes a shape from ints.
func Of(dims ...int) Shape {
	s := make(Shape, len(dims))
	for i, d := range dims {
		s[i] = int64(d)
	}
	return s
}

// Elements is the number of elements: all dimensions multiplied. It overflows only if Check was
// not called on a shape from outside; every reader of files calls Check first.
func (s Shape) Elements() int64 {
	n := int64(1)
	for _, d := range s {
		n *= d
	}
	return n
}

// Check refuses negative dimensions, and shapes with more elements than an int64 counts.
func (s Shape) Check() error {
	n := int64(1)
	for _, d := range s {
		if d < 0 {
			return fmt.Errorf("shape %v has the negative dimension %d", s, d)
		}
		if d != 0 && n > math.MaxInt64/d {
			return fmt.Errorf("shape %v has more elements than 63 bits count", s)
		}
		n *= d
	}
	return nil
}

// Last is the innermost dimension, 1 for a scalar.
func (s Shape) Last() int64 {
	if len(s) == 0 {
		return 1
	}
	return s[len(s)-1]
}

// Rows is the number of innermost vectors: Elements / Last.
func (s Shape) Rows() int64 {
	n := int64(1)
	for _, d := range s[:max(len(s)-1, 0)] {
		n *= d
	}
	return n
}

// WithLast is the same shape with another innermost dimension.
func (s Shape) WithLast(d int64) Shape {
	t := slices.Clone(s)
	t[len(t)-1] = d
	return t
}

// Equal compares dimension by dimension.
func (s Shape) Equal(t Shape) bool { return slices.Equal(s, t) }

// String prints "[4 2048 64]".
func (s Shape) String() string {
	parts := make([]string, len(s))
	for i, d := range s {
		parts[i] = strconv.FormatInt(d, 10)
	}
	return "[" + strings.Join(parts, " ") + "]"
}
