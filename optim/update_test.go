package optim

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spillway/op"
)

// cases cover every branch of every rule.
var cases = []string{
	"adamw", "adamw:lr=0.02,beta1=0.8,beta2=0.95,eps=1e-6,weight_decay=0.1", "adam", "adam:weight_decay=0.1,lr=0.01",
	"sgd:lr=0.1", "sgd:lr=0.1,weight_decay=0.2", "sgd:lr=0.1,momentum=0.9", "sgd:lr=0.1,momentum=0.9,dampening=0.3,weight_decay=0.1",
	"sgd:lr=0.1,momentum=0.9,nesterov=true",
	"lion:lr=0.01,weight_decay=0.1", "lion:beta1=0.95,beta2=0.98",
}

func parse(t *testing.T, text string) Config {
	t.Helper()
	c, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// training is one param on its way: weights and states.
type training struct {
	w      []float32
	states [][]float32
}

func start(c Config, n int, r *rand.Rand) training {
	tr := training{w: randoms(n, r)}
	for range c.States() {
		tr.states = append(tr.states, make([]float32, n))
	}
	return tr
}

func randoms(n int, r *rand.Rand) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(r.NormFloat64())
	}
	return out
}

func (tr training) step(t *testing.T, c Config, iteration int, clip float32, decays bool, g []float32) {
	t.Helper()
	f, err := c.Scalars(iteration, c.LR, decays)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Update(f, clip, tr.w, g, tr.states...); err != nil {
		t.Fatal(err)
	}
}

// textbook is each rule in float64, written as its paper writes it.
type textbook struct {
	w, m, v []float64
}

func (b *textbook) step(c Config, t int, clip, decay float64, g []float32) {
	for i := range b.w {
		gi := float64(g[i]) * clip
		if c.Name == "adamw" || c.Name == "lion" {
			b.w[i] -= c.LR * decay * b.w[i]
		} else {
			gi += decay * b.w[i]
		}
		if c.Name == "sgd" {
			b.w[i] -= c.LR * b.momentum(c, t, i, gi)
			continue
		}
		if c.Name == "lion" {
			b.w[i] -= math.Copysign(c.LR, c.Get("beta1")*b.m[i]+(1-c.Get("beta1"))*gi)
			b.m[i] = c.Get("beta2")*b.m[i] + (1-c.Get("beta2"))*gi
			continue
		}
		b.m[i] = c.Get("beta1")*b.m[i] + (1-c.Get("beta1"))*gi
		b.v[i] = c.Get("beta2")*b.v[i] + (1-c.Get("beta2"))*gi*gi
		mean := b.m[i] / (1 - math.Pow(c.Get("beta1"), float64(t)))
		square := b.v[i] / (1 - math.Pow(c.Get("beta2"), float64(t)))
		b.w[i] -= c.LR * mean / (math.Sqrt(square) + c.Get("eps"))
	}
}

func (b *textbook) momentum(c Config, t, i int, g float64) float64 {
	if c.Get("momentum") == 0 {
		return g
	}
	if t == 1 {
		b.m[i] = g
	} else {
		b.m[i] = c.Get("momentum")*b.m[i] + (1-c.Get("dampening"))*g
	}
	if c.Get("nesterov") != 0 {
		return g + c.Get("momentum")*b.m[i]
	}
	return b.m[i]
}

func TestUpdateFollowsTheTextbook(t *testing.T) {
	const n, iterations, clip = 64, 40, 0.5
	for _, text := range cases {
		for _, decays := range []bool{true, false} {
			c := parse(t, text)
			r := rand.New(rand.NewPCG(1, 2))
			tr := start(c, n, r)
			b := textbook{make([]float64, n), make([]float64, n), make([]float64, n)}
			for i, w := range tr.w {
				b.w[i] = float64(w)
			}
			decay := c.WeightDecay
			if !decays {
				decay = 0
			}
			for it := 1; it <= iterations; it++ {
				g := randoms(n, r)
				tr.step(t, c, it, clip, decays, g)
				b.step(c, it, clip, decay, g)
			}
			for i := range tr.w {
				if d := math.Abs(float64(tr.w[i]) - b.w[i]); d > 1e-5*max(1, math.Abs(b.w[i])) {
					t.Fatalf("%s, decays %v: weight %d is %v, the textbook says %v", text, decays, i, tr.w[i], b.w[i])
				}
			}
		}
	}
}

// An update of a slice is the update of its parts: what streaming and sharding rest on.
func TestUpdateOfPartsIsUpdateOfTheWhole(t *testing.T) {
	for _, text := range cases {
		c := parse(t, text)
		whole, parts := start(c, 100, rand.New(rand.NewPCG(5, 6))), start(c, 100, rand.New(rand.NewPCG(5, 6)))
		g := randoms(100, rand.New(rand.NewPCG(7, 8)))
		for it := 1; it <= 3; it++ {
			whole.step(t, c, it, 1, true, g)
			for _, cut := range [][2]int{{37, 100}, {0, 37}} {
				part := training{w: parts.w[cut[0]:cut[1]]}
				for _, s := range parts.states {
					part.states = append(part.states, s[cut[0]:cut[1]])
				}
				part.step(t, c, it, 1, true, g[cut[0]:cut[1]])
			}
		}
		if !slices.Equal(whole.w, parts.w) {
			t.Errorf("%s: parts differ from the whole", text)
		}
	}
}

func TestUpdateRefusesMismatch(t *testing.T) {
	c := parse(t, "adamw")
	f, _ := c.Scalars(1, c.LR, true)
	four, five := make([]float32, 4), make([]float32, 5)
	for name, err := range map[string]error{
		"one state":      c.Update(f, 1, four, four, four),
		"long gradient":  c.Update(f, 1, four, five, four, four),
		"long state":     c.Update(f, 1, four, four, four, five),
		"unknown":        Config{Name: "rprop"}.Update(f, 1, four, four),
		"momentum state": parse(t, "sgd").Update(f, 1, four, four, four),
	} {
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := c.Scalars(0, 1, true); err == nil {
		t.Error("iteration 0 was accepted; bias corrections would divide by zero")
	}
}

func TestParseOptimizer(t *testing.T) {
	c := parse(t, "AdamW: lr=3e-4, beta2=0.95")
	if c.Name != "adamw" || c.LR != 3e-4 || c.Get("beta1") != 0.9 || c.Get("beta2") != 0.95 || c.Get("eps") != 1e-8 || c.WeightDecay != 0.01 {
		t.Errorf("got %+v", c)
	}
	for _, text := range append(cases, "adamw:lr=0.0003,beta2=0.95", "sgd:nesterov=true,momentum=0.1") {
		c := parse(t, text)
		if again := parse(t, c.String()); again != c {
			t.Errorf("%q writes itself %q, which reads as %+v", text, c, again)
		}
	}
	for text, says := range map[string]string{
		"rprop": "there are adamw, ada", "adamw_4bit": "there is no optimizer", "8bit": "there is no optimizer",
		"adamw_8bit:min_8bit_size=-1": "number of elements", "adamw_8bit:states_of=embeddings": "write it like", "adamw_8bit:states_of=(:f32": "regular expression",
		"adamw_8bit:states_of=embeddings:int8": "f32, bf16, fp16 and 8bit", "adamw:momentum=0.9": "its options are lr", "adamw:lr": "write it like lr=0.001",
		"adamw:lr=-1": "at least 0", "adamw:lr=NaN": "at least 0", "adamw:beta2=1": "below 1", "adamw:beta2=0.9999999999": "below 1",
		"sgd:nesterov": "needs momentum", "sgd:momentum=0.9,nesterov,dampening=0.1": "no dampening", "adamw:lr=1e300": "below", "": "no optimizer",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Parse(%q): %v, want %q", text, err, says)
		}
	}
}

func TestStatesAndOps(t *testing.T) {
	for text, want := range map[string]string{
		"adamw": "adam [exp_avg exp_avg_sq]", "adam": "adam [exp_avg exp_avg_sq]", "sgd": "sgd []", "lion": "lion [exp_avg]", "rmsprop": "rmsprop [square_avg]", "adagrad": "rmsprop [sum]",
		"sgd:momentum=0.9,nesterov": "sgd [momentum_buffer]",
	} {
		c := parse(t, text)
		kind, err := c.Kind()
		if got := fmt.Sprintf("%s %v", kind, c.States()); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
}

// Clipping by a factor is the same as a gradient already multiplied by it.
func TestUpdatesClip(t *testing.T) {
	const factor = 0.75
	for _, text := range cases {
		c := parse(t, text)
		r := rand.New(rand.NewPCG(3, 4))
		clipped := start(c, 50, r)
		scaled := training{w: slices.Clone(clipped.w), states: make([][]float32, len(clipped.states))}
		for i := range scaled.states {
			scaled.states[i] = make([]float32, 50)
		}
		g := randoms(50, r)
		clipped.step(t, c, 1, factor, true, g)
		for i := range g {
			g[i] *= factor
		}
		scaled.step(t, c, 1, 1, true, g)
		if !slices.Equal(clipped.w, scaled.w) {
			t.Errorf("%s: a clip factor gives other weights than a gradient multiplied by it", text)
		}
	}
}

// A checkpoint reads back what it wrote, and refuses what is not there.
func TestConfigJSON(t *testing.T) {
	for _, text := range append(cases, "adafactor:relative_step=true,beta1=0.9", "adamw_8bit:states_of=norms:f32", "adamw:beta1=0") {
		c := parse(t, text)
		raw, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var back Config
		if err := json.Unmarshal(raw, &back); err != nil || back != c {
			t.Errorf("%s reads as %+v, want %+v (%v)", raw, back, c, err)
		}
	}
	for text, says := range map[string]string{`{"name":"rprop"}`: "there is no optimizer", `{"name":"lion","eps":1}`: "its options are lr, beta1"} {
		var c Config
		if err := json.Unmarshal([]byte(text), &c); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
	var none Config
	if raw, err := json.Marshal(none); err != nil || json.Unmarshal(raw, &none) != nil || none != (Config{}) {
		t.Errorf("no optimizer is written %s (%v)", raw, err)
	}
}

// A program of one's own can add an optimizer; here it is signSGD.
func TestRegisteredOptimizer(t *testing.T) {
	Register(Rule{Name: "signsgd", LR: 1e-2, Kind: "signsgd", States: func(Config) []string { return nil },
		Options: []Option{{Name: "floor", Default: 0.5}},
		Scalars: func(c Config, _ int, lr, _ float32) op.Scalars { return op.Scalars{lr, float32(c.Get("floor"))} }})
	RegisterUpdate(Update{Kind: "signsgd", Scalars: []string{"rate", "floor"}, Step: func(s *op.Scalars, w, g float32, _ []Cell) float32 {
		if g > s[1] {
			return w - s[0]
		}
		return w
	}, Examples: map[string]op.Scalars{"signsgd": {0.01}}})
	c := parse(t, "signsgd:floor=0")
	s, err := c.Scalars(1, c.LR, true)
	if err != nil {
		t.Fatal(err)
	}
	w := []float32{1, 1}
	if err := c.Update(s, 1, w, []float32{2, -2}); err != nil || w[0] != 0.99 || w[1] != 1 || c.String() != "signsgd:floor=0" {
		t.Errorf("%s makes %v (%v)", c, w, err)
	}
	if _, err := Parse("help"); err == nil || !strings.Contains(err.Error(), "floor=0.5") {
		t.Errorf("help does not list it: %v", err)
	}
}

func BenchmarkUpdateAdamW(b *testing.B) {
	c, err := Parse("adamw")
	if err != nil {
		b.Fatal(err)
	}
	const n = 1 << 16
	r := rand.New(rand.NewPCG(1, 1))
	w, g, m, v := randoms(n, r), randoms(n, r), make([]float32, n), make([]float32, n)
	f, _ := c.Scalars(1, c.LR, true)
	b.SetBytes(28 * n)
	for b.Loop() {
		if err := c.Update(f, 1, w, g, m, v); err != nil {
			b.Fatal(err)
		}
	}
}
