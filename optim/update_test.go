package optim

import (
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
	f, err := c.Args(iteration, c.LR, decays)
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
			b.w[i] -= math.Copysign(c.LR, c.Beta1*b.m[i]+(1-c.Beta1)*gi)
			b.m[i] = c.Beta2*b.m[i] + (1-c.Beta2)*gi
			continue
		}
		b.m[i] = c.Beta1*b.m[i] + (1-c.Beta1)*gi
		b.v[i] = c.Beta2*b.v[i] + (1-c.Beta2)*gi*gi
		mean := b.m[i] / (1 - math.Pow(c.Beta1, float64(t)))
		square := b.v[i] / (1 - math.Pow(c.Beta2, float64(t)))
		b.w[i] -= c.LR * mean / (math.Sqrt(square) + c.Eps)
	}
}

func (b *textbook) momentum(c Config, t, i int, g float64) float64 {
	if c.Momentum == 0 {
		return g
	}
	if t == 1 {
		b.m[i] = g
	} else {
		b.m[i] = c.Momentum*b.m[i] + (1-c.Dampening)*g
	}
	if c.Nesterov {
		return g + c.Momentum*b.m[i]
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

// rounded does each operation in float64 and rounds: for + - × ÷ and √ of float32
// that gives the float32 result exactly, and no compiler can fuse anything.
type rounded struct{}

func (rounded) mul(a, b float32) float32 { return float32(float64(a) * float64(b)) }
func (rounded) add(a, b float32) float32 { return float32(float64(a) + float64(b)) }
func (rounded) sub(a, b float32) float32 { return float32(float64(a) - float64(b)) }
func (rounded) div(a, b float32) float32 { return float32(float64(a) / float64(b)) }
func (rounded) sqrt(a float32) float32   { return float32(math.Sqrt(float64(a))) }

// documented is the order of operations as the comments give it, in operations
// that round once each.
func documented(c Config, f op.Scalars, clip, w, g float32, m, v *float32) float32 {
	var o rounded
	rate, decay := f[op.ArgRate], f[op.ArgDecay]
	g = o.mul(g, clip)
	if c.Name == "adamw" || c.Name == "lion" {
		w = o.mul(w, o.sub(1, o.mul(rate, decay)))
	} else if decay != 0 {
		g = o.add(g, o.mul(decay, w))
	}
	if c.Name == "sgd" {
		if c.Momentum != 0 {
			take := o.sub(1, f[op.ArgBeta2])
			if f[op.ArgBias1] == 1 {
				take = 1
			}
			*m = o.add(o.mul(f[op.ArgBeta1], *m), o.mul(take, g))
			if c.Nesterov {
				g = o.add(g, o.mul(f[op.ArgBeta1], *m))
			} else {
				g = *m
			}
		}
		return o.sub(w, o.mul(rate, g))
	}
	take1, take2 := o.sub(1, f[op.ArgBeta1]), o.sub(1, f[op.ArgBeta2])
	if c.Name == "lion" {
		step := o.add(o.mul(f[op.ArgBeta1], *m), o.mul(take1, g))
		*m = o.add(o.mul(f[op.ArgBeta2], *m), o.mul(take2, g))
		return o.sub(w, float32(math.Copysign(float64(rate), float64(step))))
	}
	*m = o.add(*m, o.mul(take1, o.sub(g, *m)))
	*v = o.add(o.mul(f[op.ArgBeta2], *v), o.mul(o.mul(take2, g), g))
	d := o.add(o.div(o.sqrt(*v), f[op.ArgBias2]), f[op.ArgEps])
	return o.sub(w, o.div(o.mul(o.div(rate, f[op.ArgBias1]), *m), d))
}

func TestUpdateIsDefinedToTheBit(t *testing.T) {
	const n, iterations, clip = 200, 10, 0.7
	for _, text := range cases {
		c := parse(t, text)
		r := rand.New(rand.NewPCG(3, 4))
		tr := start(c, n, r)
		w, m, v := slices.Clone(tr.w), make([]float32, n), make([]float32, n)
		for it := 1; it <= iterations; it++ {
			g := randoms(n, r)
			f, _ := c.Args(it, c.LR, true)
			tr.step(t, c, it, clip, true, g)
			for i := range w {
				w[i] = documented(c, f, clip, w[i], g[i], &m[i], &v[i])
				if math.Float32bits(w[i]) != math.Float32bits(tr.w[i]) {
					t.Fatalf("%s, iteration %d, weight %d: %x, as documented %x", text, it, i, math.Float32bits(tr.w[i]), math.Float32bits(w[i]))
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
	f, _ := c.Args(1, c.LR, true)
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
	if _, err := c.Args(0, 1, true); err == nil {
		t.Error("iteration 0 was accepted; bias corrections would divide by zero")
	}
}

func TestParseOptimizer(t *testing.T) {
	c := parse(t, "AdamW: lr=3e-4, beta2=0.95")
	if want := (Config{Name: "adamw", LR: 3e-4, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.01}); c != want {
		t.Errorf("got %+v", c)
	}
	for _, text := range append(cases, "adamw:lr=0.0003,beta2=0.95", "sgd:nesterov=true,momentum=0.1") {
		c := parse(t, text)
		if again := parse(t, c.String()); again != c {
			t.Errorf("%q writes itself %q, which reads as %+v", text, c, again)
		}
	}
	for text, says := range map[string]string{
		"rprop": "there are adamw, adam, sgd, lion", "adamw_4bit": "there is no optimizer", "8bit": "there is no optimizer",
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
		"adamw": "adam true false [exp_avg exp_avg_sq]", "adam": "adam false false [exp_avg exp_avg_sq]", "sgd": "sgd false false []",
		"lion":                      "lion false false [exp_avg]",
		"sgd:momentum=0.9,nesterov": "sgd false true [momentum_buffer]",
	} {
		c := parse(t, text)
		kind, attr, err := c.Op()
		if got := fmt.Sprintf("%s %v %v %v", kind, attr.Decoupled, attr.Nesterov, c.States()); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
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
	f, _ := c.Args(1, c.LR, true)
	b.SetBytes(28 * n)
	for b.Loop() {
		if err := c.Update(f, 1, w, g, m, v); err != nil {
			b.Fatal(err)
		}
	}
}
