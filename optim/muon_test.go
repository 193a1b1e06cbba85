package optim

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"spillway/dtype"
	"spillway/op"
	"spillway/shape"
)

// Matrices follow torch.optim.Muon. PyTorch makes them orthogonal in bf16, with 8 bits of precision, and here
// it is f32. So a step is compared twice: with PyTorch's roundings put in, and as it is, which is off by what
// those roundings are.
func TestMuonAgreesWithPyTorch(t *testing.T) {
	var reference struct {
		Cases []struct {
			Name, Optimizer   string
			Shape             shape.Shape
			Initial           []float64
			Gradients, Values [][]float64
		}
	}
	text, err := os.ReadFile("../testdata/reference/rules.json")
	if err == nil {
		err = json.Unmarshal(text, &reference)
	}
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, r := range reference.Cases {
		c, err := Parse(r.Optimizer)
		if err != nil {
			t.Fatal(err)
		}
		if c.Name != "muon" {
			continue
		}
		tried++
		typ := op.Type{DType: dtype.F32, Shape: r.Shape}
		before, m := r.Initial, op.NewArray(typ)
		for i, g := range r.Gradients {
			w := op.Array{Type: typ, F: slices.Clone(before)}
			muonStep(t, c, i+1, w, g, m)
			rounded := slices.Clone(before)
			muonInBF16(c, r.Shape, rounded, g, m.F)
			theirs := stepOf(before, r.Values[i])
			exact, near := distance(stepOf(before, w.F), theirs), distance(stepOf(before, rounded), theirs)
			t.Logf("%s %v: step %d is off by %.2g of its length, with roundings by %.2g", r.Name, r.Shape, i+1, exact, near)
			if !(near < 5e-5) || !(exact < 5e-2) {
				t.Errorf("%s %v: step %d is off by %.3g of its length, with roundings by %.3g", r.Name, r.Shape, i+1, exact, near)
			}
			before = r.Values[i]
		}
	}
	if tried != 3 {
		t.Errorf("%d runs tried, want 3", tried)
	}
}

// muonInBF16 is a step with every result of an operation rounded where PyTorch rounds it; m is updated already.
func muonInBF16(c Config, s shape.Shape, w, g, m []float64) {
	round := func(list []float64) []float64 {
		for i, f := range list {
			list[i] = float64(dtype.FromBF16(dtype.ToBF16(float32(f))))
		}
		return list
	}
	rows, cols, x := int(s[0]), int(s[1]), slices.Clone(m)
	if c.Get("nesterov") != 0 {
		for i := range x {
			x[i] = g[i] + (m[i]-g[i])*c.Get("momentum")
		}
	}
	x = round(x)
	if rows > cols {
		x, rows, cols = transposed(x, rows, cols), cols, rows
	}
	norm := 0.0
	for _, f := range x {
		norm += f * f
	}
	norm = round([]float64{math.Sqrt(norm)})[0]
	for i := range x {
		x[i] /= norm
	}
	x = round(x)
	for range 5 {
		gram := round(product(x, transposed(x, rows, cols), rows, cols, rows))
		by := product(gram, gram, rows, rows, rows)
		for i := range by {
			by[i] = 2.0315*by[i] - 4.775*gram[i]
		}
		next := product(round(by), x, rows, rows, cols)
		for i := range next {
			next[i] += 3.4445 * x[i]
		}
		x = round(next)
	}
	if s[0] > s[1] {
		x = transposed(x, rows, cols)
	}
	rate := c.LR * math.Sqrt(max(1, float64(s[0])/float64(s[1])))
	if c.Get("match_rms_adamw") != 0 {
		rate = c.LR * 0.2 * math.Sqrt(float64(max(s[0], s[1])))
	}
	for i := range w {
		w[i] = w[i]*(1-c.LR*c.WeightDecay) - rate*x[i]
	}
}

func stepOf(before, after []float64) []float64 {
	step := make([]float64, len(before))
	for i := range step {
		step[i] = after[i] - before[i]
	}
	return step
}

// distance is how far a vector is from another, as a share of its length.
func distance(got, want []float64) float64 {
	var off, size float64
	for i := range want {
		off += (got[i] - want[i]) * (got[i] - want[i])
		size += want[i] * want[i]
	}
	return math.Sqrt(off / size)
}

// muonStep updates a param with its states.
func muonStep(t *testing.T, c Config, iteration int, w op.Array, g []float64, states ...op.Array) {
	t.Helper()
	in := append([]op.Array{w, {Type: w.Type, F: g}}, states...)
	in = append(in, op.Array{Type: op.Type{DType: dtype.F32, Shape: shape.Of(2)}, F: []float64{1, 0}})
	types := make([]op.Type, len(in))
	for i, a := range in {
		types[i] = a.Type
	}
	s, err := c.Scalars(iteration, c.LR, true)
	if err != nil {
		t.Fatal(err)
	}
	call, err := op.Make(Muon, op.Attr{}, types...)
	if err == nil {
		err = call.Reference(in, append([]op.Array{w}, states...), op.Args{Scalars: s})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Steps of a matrix have singular values between about 0.7 and 1.2, whatever the size of the gradient.
func TestMuonStepsAreOrthogonal(t *testing.T) {
	c := parse(t, "muon:lr=1,weight_decay=0")
	for _, s := range []shape.Shape{{3, 40}, {40, 3}} {
		w, g := op.NewArray(op.Type{DType: dtype.F32, Shape: s}), make([]float64, 120)
		for i := range g {
			g[i] = math.Sin(float64(i*i)) * 1e-3
		}
		muonStep(t, c, 1, w, g, op.NewArray(w.Type))
		x, factor := w.F, op.MuonFactor(s[0], s[1], false)
		if s[0] > s[1] {
			x = transposed(x, int(s[0]), int(s[1]))
		}
		square := product(x, transposed(x, 3, 40), 3, 40, 3)
		for k := range 20 { // along unit vectors all over the sphere
			along, up := 2.4*float64(k), 1-float64(2*k+1)/20
			flat := math.Sqrt(1 - up*up)
			v := []float64{flat * math.Cos(along), flat * math.Sin(along), up}
			size := product(v, product(square, v, 3, 3, 1), 1, 3, 1)[0] / (factor * factor)
			if !(size > 0.45 && size < 1.5) {
				t.Errorf("%v: along %.2g the square of a step is %.3g", s, v, size)
			}
		}
	}
}

// Matrices have a momentum; embeddings, heads, vectors and kernels of convolutions have AdamW's states and
// AdamW's bits.
func TestMuonLeavesTheRestToAdamW(t *testing.T) {
	c := parse(t, "muon:lr=0.02,weight_decay=0.1")
	states, err := c.StatesFor(nil)
	if err != nil {
		t.Fatal(err)
	}
	for param, want := range map[string]int{"model.layers.0.mlp.up_proj.weight": 1, "h.0.attn.c_attn.weight": 1, "multihead.weight": 1,
		"model.embed_tokens.weight": 2, "wte.weight": 2, "lm_head.weight": 2, "score.weight": 2, "classifier.weight": 2} {
		if got := states(param, shape.Of(4, 8)); len(got) != want {
			t.Errorf("%s has the states %v, want %d", param, got, want)
		}
	}
	for _, s := range []shape.Shape{{7}, {4, 3, 3, 3}} {
		if got := states("conv.weight", s); len(got) != 2 {
			t.Errorf("%v has the states %v, want AdamW's", s, got)
		}
	}
	adamw := parse(t, "adamw:lr=0.02,weight_decay=0.1")
	typ := op.Type{DType: dtype.F32, Shape: shape.Of(5)}
	w, m, v := op.NewArray(typ), op.NewArray(typ), op.NewArray(typ)
	plain := training{w: make([]float32, 5), states: [][]float32{make([]float32, 5), make([]float32, 5)}}
	for i := range 4 {
		g := []float32{0.5, -1, 0.25 * float32(i), 2, -0.125}
		wide := make([]float64, len(g))
		for k := range g {
			wide[k] = float64(g[k])
		}
		muonStep(t, c, i+1, w, wide, m, v)
		plain.step(t, adamw, i+1, 1, true, g)
		for k := range g {
			if float32(w.F[k]) != plain.w[k] {
				t.Errorf("update %d: number %d is %v, AdamW has %v", i+1, k, w.F[k], plain.w[k])
			}
		}
	}
	for _, bad := range []string{"muon_8bit", "muon_bf16", "muon:codecs=exp_avg:8bit", "muon:momentum=1"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}
