package machine

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/op"
	"spillway/shape"
)

// A table whose rates are a product of powers of the sizes is met exactly between its
// points: there logarithms are straight lines.
func TestTableFollowsPowers(t *testing.T) {
	rate := func(m, n, k int64) float64 {
		return 1e9 * math.Pow(float64(m), 0.5) * math.Pow(float64(n), 0.25) * float64(k)
	}
	table := Table{Axes: [][]int64{{64, 1024}, {32, 256, 4096}, {8, 512}}}
	for _, m := range table.Axes[0] {
		for _, n := range table.Axes[1] {
			for _, k := range table.Axes[2] {
				table.Rates = append(table.Rates, rate(m, n, k))
			}
		}
	}
	if err := table.Check(); err != nil {
		t.Fatal(err)
	}
	for _, s := range [][]int64{{64, 32, 8}, {1024, 4096, 512}, {100, 1000, 100}, {64, 257, 9}, {1000, 255, 511}} {
		if got, want := table.At(s), rate(s[0], s[1], s[2]); math.Abs(got-want) > 1e-9*want {
			t.Errorf("%v runs at %g, want %g", s, got, want)
		}
	}
	if got, want := table.At([]int64{1, 1 << 30, 100}), rate(64, 4096, 100); math.Abs(got-want) > 1e-9*want {
		t.Errorf("sizes outside run at %g, want the outermost %g", got, want)
	}
}

func TestDamagedTablesAreRefused(t *testing.T) {
	for what, table := range map[string]Table{
		"0 axes":     {},
		"want 2":     {Axes: [][]int64{{1, 2}}, Rates: []float64{1}},
		"ascending":  {Axes: [][]int64{{2, 1}}, Rates: []float64{1, 1}},
		"the rate 0": {Axes: [][]int64{{1, 2}}, Rates: []float64{1, 0}},
		"want 3":     {Axes: [][]int64{{1, 2}}, Rates: []float64{1, 1}},
	} {
		tables := Tables{"bf16": {{Kind: op.MatMul}: table}}
		if err := tables.Check(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v gives %v, want %q", table, err, what)
		}
	}
}

// Attention with dropout has a table of its own; where nobody measured that, it is read
// from the one without. Files name both.
func TestTablesTellDropoutApart(t *testing.T) {
	q := op.Type{DType: dtype.BF16, Shape: shape.Of(1, 8, 16)}
	call, err := op.Make(op.Attention, op.Attr{Heads: 2, KVHeads: 2, Prob: 0.1}, q, q, q)
	if err != nil {
		t.Fatal(err)
	}
	var tables Tables
	const one = `{"axes":[[1],[1],[1]],"rates":[%d]}`
	text := fmt.Sprintf(`{"bf16":{"attention":`+one+`,"attention+dropout":`+one+`}}`, 5, 3)
	if err := json.Unmarshal([]byte(text), &tables); err != nil {
		t.Fatal(err)
	}
	if err := tables.Check(); err != nil {
		t.Error(err)
	}
	if again, err := json.Marshal(tables); err != nil || string(again) != text {
		t.Errorf("%s is written as %s (%v)", text, again, err)
	}
	if got, ok := tables["bf16"].Of(call); !ok || got.Rates[0] != 3 {
		t.Errorf("attention with dropout is read from %v, %v", got, ok)
	}
	delete(tables["bf16"], call.Variant())
	if got, ok := tables["bf16"].Of(call); !ok || got.Rates[0] != 5 {
		t.Errorf("without a table of its own it is read from %v, %v", got, ok)
	}
}
