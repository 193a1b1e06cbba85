package machine

import (
	"fmt"
	"math"
	"slices"

	"spillway/op"
)

// Tables hold the rates that calls reach by their shape: for each arithmetic (by its name
// in Compute: "bf16", "tf32") a table per variant of op.
type Tables map[string]ByVariant

// ByVariant holds the tables of one arithmetic. A variant without a table runs at the
// device's rates for large work.
type ByVariant map[op.Variant]Table

// Of finds the table of a call. Attention with dropout that was not measured counts as
// attention without.
func (b ByVariant) Of(c op.Call) (Table, bool) {
	v := c.Variant()
	t, measured := b[v]
	if !measured && v.Dropout {
		t, measured = b[op.Variant{Kind: v.Kind}]
	}
	return t, measured
}

// Table holds the measured rates of one variant on a grid of sizes. The axes are those of
// op.Call.Sizes; for a matmul they are m, n and k.
type Table struct {
	Axes [][]int64 `json:"axes"` // each ascending
	// Rates of all combinations of sizes, the last axis varying fastest, in
	// op.Cost.Amount per second.
	Rates []float64 `json:"rates"`
}

// At is the rate at given sizes. Between measured sizes it interpolates linearly in the
// logarithms of sizes and rates; beyond them it takes the outermost.
func (t Table) At(sizes []int64) float64 {
	return math.Exp(t.log(sizes, 0, 0))
}

// log is the logarithm of the rate. The indices on the axes before depth are already
// chosen; base is the index into Rates that they make.
func (t Table) log(sizes []int64, depth, base int) float64 {
	if depth == len(t.Axes) {
		return math.Log(t.Rates[base])
	}
	axis := t.Axes[depth]
	low, share := between(axis, sizes[depth])
	rate := t.log(sizes, depth+1, (base+low)*t.width(depth+1))
	if share == 0 {
		return rate
	}
	return (1-share)*rate + share*t.log(sizes, depth+1, (base+low+1)*t.width(depth+1))
}

// width is the number of sizes on an axis, 1 behind the last axis.
func (t Table) width(depth int) int {
	if depth == len(t.Axes) {
		return 1
	}
	return len(t.Axes[depth])
}

// between finds n on an axis: the index of the size below it, and how far it is towards the
// next one, from 0 to 1, in logarithms.
func between(axis []int64, n int64) (low int, share float64) {
	at, found := slices.BinarySearch(axis, n)
	switch {
	case found:
		return at, 0
	case at == 0:
		return 0, 0
	case at == len(axis):
		return at - 1, 0
	}
	from, to := math.Log(float64(axis[at-1])), math.Log(float64(axis[at]))
	return at - 1, (math.Log(float64(n)) - from) / (to - from)
}

// Check refuses a table that At could not read, such as one of a damaged file.
func (t Table) Check() error {
	cells := 1
	for i, axis := range t.Axes {
		if len(axis) == 0 || !slices.IsSorted(axis) || axis[0] < 1 {
			return fmt.Errorf("axis %d of a table of rates is %v, want ascending numbers from 1", i, axis)
		}
		cells *= len(axis)
	}
	if len(t.Axes) == 0 || len(t.Rates) != cells {
		return fmt.Errorf("a table of %d axes has %d rates, want %d; measure again", len(t.Axes), len(t.Rates), cells)
	}
	for _, r := range t.Rates {
		if !(r > 0) || math.IsInf(r, 0) {
			return fmt.Errorf("a table has the rate %v; measure again", r)
		}
	}
	return nil
}

// Check refuses tables whose axes are not those of their variant.
func (t Tables) Check() error {
	for d, variants := range t {
		for v, table := range variants {
			if err := table.Check(); err != nil {
				return fmt.Errorf("%v in %s: %w", v, d, err)
			}
			if want := v.Axes(); len(table.Axes) != want {
				return fmt.Errorf("%v in %s: a table has %d axes, want %d; measure again", v, d, len(table.Axes), want)
			}
		}
	}
	return nil
}
