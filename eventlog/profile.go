package eventlog

import (
	"cmp"
	"slices"
	"strconv"
)

// Profile is what the ops of one step took, by module: where the time of the step is.
type Profile struct {
	Step  int64  `json:"step"`
	Phase string `json:"phase,omitempty"` // of the plan; "" is its main instructions
	// Seconds is the whole step, with its ops timed one by one.
	Seconds float64      `json:"seconds"`
	Rows    []ProfileRow `json:"rows"` // the one that took longest first
}

// ProfileRow is an op in a module, or an instruction that runs no ops: a copy, an update.
type ProfileRow struct {
	Module string `json:"module"` // of the model: "layer", "head"
	Op     string `json:"op"`     // "matmul"; of other instructions the verb
	Pass   string `json:"pass"`   // forward or backward; "" of other instructions
	Lane   string `json:"lane"`   // device and queue that it ran on
	Calls  int64  `json:"calls"`
	// Seconds is what all calls took. Bound is what they take at least by the rates of the machine,
	// and By what limits that: compute, memory or link.
	Seconds float64 `json:"seconds"`
	Bound   float64 `json:"bound_seconds"`
	By      string  `json:"bound"`
	Flops   float64 `json:"flops"`
	Bytes   int64   `json:"bytes"`                 // of memory traffic, or that crossed a link
	Saved   int64   `json:"saved_bytes,omitempty"` // of the outputs, saved for the backward pass
	// Forecast is what the plan's forecast has all calls take, each by itself; 0 where it has none.
	Forecast float64 `json:"forecast_seconds,omitempty"`
}

// Share of the roofline: Bound over Seconds, 0 where nothing bounds it.
func (r ProfileRow) Share() float64 {
	if r.Seconds <= 0 {
		return 0
	}
	return r.Bound / r.Seconds
}

// Merge adds up rows that have the same key, which the caller makes by leaving out what shall not
// tell them apart: of a row without its op come the totals of modules. The order is that of
// time, the longest first.
func (p Profile) Merge(key func(ProfileRow) ProfileRow) []ProfileRow {
	type id struct{ module, op, pass, lane string }
	at, list := map[id]int{}, []ProfileRow{}
	var longest []float64 // the bound of each row's part that is largest, whose By is taken
	for _, r := range p.Rows {
		k := key(r)
		i, has := at[id{k.Module, k.Op, k.Pass, k.Lane}]
		if !has {
			i = len(list)
			at[id{k.Module, k.Op, k.Pass, k.Lane}] = i
			list, longest = append(list, ProfileRow{Module: k.Module, Op: k.Op, Pass: k.Pass, Lane: k.Lane, By: r.By}), append(longest, 0)
		}
		sum := &list[i]
		sum.Calls += r.Calls
		sum.Seconds += r.Seconds
		sum.Bound += r.Bound
		sum.Flops += r.Flops
		sum.Bytes += r.Bytes
		sum.Saved += r.Saved
		sum.Forecast += r.Forecast
		if r.Bound > longest[i] {
			longest[i], sum.By = r.Bound, r.By
		}
	}
	slices.SortStableFunc(list, func(a, b ProfileRow) int { return cmp.Compare(b.Seconds, a.Seconds) })
	return list
}

// ByModule are the totals of modules, each pass apart.
func (p Profile) ByModule() []ProfileRow {
	return p.Merge(func(r ProfileRow) ProfileRow { return ProfileRow{Module: r.Module, Pass: r.Pass} })
}

// ByOp are the totals of ops, whatever module they are in.
func (p Profile) ByOp() []ProfileRow {
	return p.Merge(func(r ProfileRow) ProfileRow { return ProfileRow{Op: r.Op} })
}

// ProfileOrders are what the rows of a profile can be sorted by, the largest first.
var ProfileOrders = []string{"time", "flops", "bytes", "saved", "calls", "roofline"}

// Sort sorts rows by one of ProfileOrders. By roofline the row comes first that could save most
// time if it reached it.
func Sort(rows []ProfileRow, by string) {
	of := map[string]func(ProfileRow) float64{
		"time":     func(r ProfileRow) float64 { return r.Seconds },
		"flops":    func(r ProfileRow) float64 { return r.Flops },
		"bytes":    func(r ProfileRow) float64 { return float64(r.Bytes) },
		"saved":    func(r ProfileRow) float64 { return float64(r.Saved) },
		"calls":    func(r ProfileRow) float64 { return float64(r.Calls) },
		"roofline": func(r ProfileRow) float64 { return r.Seconds - r.Bound },
	}[by]
	if of != nil {
		slices.SortStableFunc(rows, func(a, b ProfileRow) int { return cmp.Compare(of(b), of(a)) })
	}
}

// ProfileColumns are those of a profile as a table.
var ProfileColumns = []string{"step", "phase", "module", "op", "pass", "lane", "calls", "seconds", "bound_seconds", "bound", "flops", "bytes", "saved_bytes"}

// Cells are the rows as a table.
func (p Profile) Cells() (list [][]string) {
	float := func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
	integer := func(n int64) string { return strconv.FormatInt(n, 10) }
	for _, r := range p.Rows {
		list = append(list, []string{integer(p.Step), p.Phase, r.Module, r.Op, r.Pass, r.Lane, integer(r.Calls), float(r.Seconds), float(r.Bound), r.By, float(r.Flops), integer(r.Bytes), integer(r.Saved)})
	}
	return list
}
