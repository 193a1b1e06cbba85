package machine

import (
	"fmt"
	"math"
	"slices"

	"spillway/op"
)

// Tables are the rates that calls of many sizes reach, by the arithmetic they compute in
// (the names of Compute: "bf16", "tf32") and their variant.
type Tables map[string]ByVariant

// ByVariant are the tables of one arithmetic. A variant that is not there runs at the
// rates of large work.
type ByVariant map[op.Variant]Table

// Of finds the table of a call. Attention that drops weights is taken for attention that
// does not where nobody measured it.
func (b ByVariant) Of(c op.Call) (Table, bool) {
	v := c.Variant()
	t, measured := b[v]
	if !measured && v.Dropout {
		t, measured = b[op.Variant{Kind: v.Kind}]
	}
	return t, measured
}

// Table is what a kind of call reaches at the sizes it was measured at: every
// combination of one number of each axis, as op.Call.Sizes orders them.
type Table struct {
	Axes [][]int64 `json:"axes"` // each ascending
	// Rates by the first axis, then the second and so on, in what op.Cost.Amount
	// counts, per second.
	Rates []float64 `json:"rates"`
}

// At is the rate at given sizes: between measured ones by straight lines of logarithms,
// beyond them that of the outermost.
func (t Table) At(sizes []int64) float64 {
	return math.Exp(t.log(sizes, 0, 0))
}

// log is the logarithm of the rate, the axes before depth being settled: base counts
// the cells they skip.
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

// width of an axis; 1 behind the last.
func (t Table) width(depth int) int {
	if depth == len(t.Axes) {
		return 1
	}
	return len(t.Axes[depth])
}

// between finds the place of n on an axis: behind which number, and how far towards
// the next.
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

// Check refuses a table that rates cannot be read from, such as one of a damaged file.
func (t Table) Check() error {
	cells := 1
	for i, axis := range t.Axes {
		if len(axis) == 0 || !slices.IsSorted(axis) || axis[0] < 1 {
			return fmt.Errorf("axis %d of a table of rates is %v, want numbers from 1 that grow", i, axis)
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

// Check refuses tables that do not have the axes they are read by.
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
