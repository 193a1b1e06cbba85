package metamorphic

import (
	"flag"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"

	"spillway/device/cpu"
	"spillway/dtype"
	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/lora"
	"spillway/nn"
	"spillway/op"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/quant"
	"spillway/spec"
)

var (
	plans = flag.Int("plans", 60, "how many random plans to compare")
	first = flag.Uint64("seed", 0, "the first seed; a failure names its own")
)

const encoder = `{"model_type":"transformer_encoder","d_model":16,"nhead":2,"num_layers":3,"dim_feedforward":24,
"activation":"gelu","norm_first":true,"dropout":0.1,"final_norm":true}`

// Bounds where devices sum gradients apart: of losses relative to each, and of the weights of
// a param relative to their norm. They are rounding, grown over three iterations; a param that
// was left out of an update, or updated twice, differs by half its norm.
const (
	lossBound, weightBound         = 1e-4, 1e-3 // 6e-5 was seen of weights
	halfLossBound, halfWeightBound = 2e-2, 0.2  // of bf16, with 8 bits; 0.1 was seen
)

type subject struct {
	model      *spec.Model
	evaluation *spec.Model // traced to be evaluated
	goal       planner.Goal
	tied       bool
}

// newSubject traces a model to be trained, and to be evaluated. Change may be nil.
func newSubject(t testing.TB, config string, c graph.Config, goal planner.Goal, tied bool, change func(nn.Model) error) subject {
	if change == nil {
		change = func(nn.Model) error { return nil }
	}
	c.Task = graph.Eval
	evaluation := tiny.ModelWith(t, config, c, change)
	c.Task = graph.Train
	return subject{tiny.ModelWith(t, config, c, change), evaluation, goal, tied}
}

// trainBy trains a subject by the plan of a choice.
func (s subject) trainBy(t *testing.T, site planner.Site, choose func(slabs, blocks int) strategy.Choice, seed uint64) (*plan.Plan, Outcome) {
	t.Helper()
	p, err := planner.Build(s.model, s.goal, site, choose)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	got, err := Train(s.model, p, t.TempDir(), 7, 3)
	if err != nil {
		t.Fatalf("seed %d: %s: %v", seed, p.Strategy, err)
	}
	return p, got
}

// bounds on its losses and weights where sums have another order.
func (s subject) bounds() (losses, weights float64) {
	if s.model.Config.DType == dtype.F32 {
		return lossBound, weightBound
	}
	return halfLossBound, halfWeightBound
}

func adafactorStates(t testing.TB) func(spec.Param) []op.State {
	c, err := optim.Parse("adafactor")
	if err != nil {
		t.Fatal(err)
	}
	states, err := c.StatesFor(nil)
	if err != nil {
		t.Fatal(err)
	}
	return func(p spec.Param) []op.State { return states(p.Name, p.Type.Shape) }
}

func subjects(t testing.TB) (list []subject) {
	for _, micros := range []int{1, 2, 4} {
		for _, clip := range []bool{false, true} {
			adamw, mixed, lion, adafactor := tiny.AdamW(micros, clip), tiny.AdamW(micros, clip), tiny.AdamW(micros, clip), tiny.AdamW(micros, clip)
			adafactor.Optimizer.Rule, adafactor.Optimizer.States = optim.Adafactor, adafactorStates(t)
			mixed.Optimizer.States = tiny.MixedStates("exp_avg", "exp_avg_sq")
			lion.Optimizer.Rule, lion.Optimizer.States = optim.Lion, tiny.MixedStates("exp_avg")
			list = append(list,
				newSubject(t, tiny.Llama, graph.Config{MicroBatchSize: 1, Seq: 12}, adamw, true, nil),
				newSubject(t, tiny.Llama, graph.Config{MicroBatchSize: 1, Seq: 12}, mixed, true, nil),
				newSubject(t, tiny.Untied, graph.Config{MicroBatchSize: 2, Seq: 9, Packed: true}, mixed, false, nil),
				newSubject(t, encoder, graph.Config{MicroBatchSize: 2, Seq: 7}, adamw, false, nil),
				newSubject(t, tiny.Untied, graph.Config{MicroBatchSize: 2, Seq: 7}, adafactor, false, nil),
				newSubject(t, encoder, graph.Config{MicroBatchSize: 2, Seq: 7}, lion, false, nil),
				half(t, dtype.BF16, mixed, true), half(t, dtype.BF16, mixed, false), half(t, dtype.F16, adamw, true),
				withExceptions(t, tiny.Untied, mixed, true), withExceptions(t, tiny.Llama, adamw, true), withExceptions(t, tiny.Untied, adamw, false),
				adapters(t, mixed))
		}
	}
	return list
}

// half computes in a 16-bit type, with masters or without.
func half(t testing.TB, as dtype.Type, goal planner.Goal, masters bool) subject {
	goal.Master, goal.Grad = masters, as
	return newSubject(t, tiny.Untied, graph.Config{MicroBatchSize: 1, Seq: 12, DType: as}, goal, false, nil)
}

// kept computes in bf16, but for the norms, an MLP, a whole layer and the output, in f32:
// blocks train weights of both types.
func withExceptions(t testing.TB, config string, goal planner.Goal, masters bool) subject {
	goal.Master, goal.Grad = masters, dtype.BF16
	exceptions := regexp.MustCompile(`.*norm|lm_head|model\.layers\.(1\.mlp|2)`)
	return newSubject(t, config, graph.Config{MicroBatchSize: 1, Seq: 12, DType: dtype.BF16}, goal, config == tiny.Llama, func(m nn.Model) error {
		_, err := nn.Except(m, func(module string) bool { return exceptions.FindString(module) == module }, dtype.F32)
		return err
	})
}

// adapters trains LoRA next to frozen weights that are held in 12 bits, in bf16.
func adapters(t testing.TB, goal planner.Goal) subject {
	const config = `{"model_type":"llama","vocab_size":61,"hidden_size":64,"num_hidden_layers":3,"num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":96,
"rms_norm_eps":1e-5,"tie_word_embeddings":false,"max_position_embeddings":64}`
	goal.Master, goal.Grad = true, dtype.BF16
	return newSubject(t, config, graph.Config{MicroBatchSize: 1, Seq: 12, DType: dtype.BF16}, goal, false, func(m nn.Model) error {
		if _, err := lora.Attach(m, lora.Options{Targets: []string{lora.AllLinear}, Rank: 4, Alpha: 8}); err != nil {
			return err
		}
		return nn.Walk(m, func(_ string, part any) error {
			if l, ok := part.(*nn.Linear); ok && quant.CompressedShape(l.Weight.Shape.Rows(), l.Weight.Shape.Last()) {
				l.Weight.Storage = quant.CompressedBF16
			}
			return nil
		})
	})
}

func TestPlacementChangesNothing(t *testing.T) {
	kernels := cpu.Open(cpu.Options{Threads: 1})
	defer kernels.Close()
	site := tiny.Site(1 << 30)
	site.Kernels, site.Disk = kernels, planner.Disk{Budget: 1 << 26, Read: 1e9, Write: 1e9}
	list := subjects(t)
	standard := map[int]Outcome{}
	exact, deferred, carried := 0, 0, 0
	for n := range *plans {
		seed := *first + uint64(n)
		r := rand.New(rand.NewPCG(seed, 3))
		i := r.IntN(len(list))
		s := list[i]
		if _, ok := standard[i]; !ok {
			standard[i] = train(t, s, site, strategy.Uniform(false, false, strategy.SaveAll, 0))
		}
		choose, sameOrder := RandomChoice(r, s.goal.MicroBatches)
		p, got := s.trainBy(t, site, choose, seed)
		losses, weights := s.bounds()
		check := func() error { return standard[i].Near(got, losses, weights) }
		if sameOrder(s.tied) {
			exact++
			if slices.ContainsFunc(p.Instructions, func(s plan.Instruction) bool { return s.Deferred }) {
				deferred++
			}
			if slices.ContainsFunc(p.Instructions, func(s plan.Instruction) bool { return s.CarriesOver }) {
				carried++
			}
			check = func() error { return standard[i].Same(got) }
		}
		if err := check(); err != nil {
			t.Errorf("run again with -seed %d -plans 1: %s on %d devices, %d micro-batches, clip %t: %v", seed, p.Strategy, len(p.Devices), s.goal.MicroBatches, s.goal.Optimizer.Clip, err)
		}
	}
	if exact < *plans/3 || deferred < *plans/30 || carried < *plans/10 {
		t.Errorf("only %d of %d plans were compared bit for bit, %d of them with deferred updates, %d with iterations that overlap", exact, *plans, deferred, carried)
	}
}

func train(t *testing.T, s subject, site planner.Site, choose func(slabs, blocks int) strategy.Choice) Outcome {
	t.Helper()
	p, err := planner.Build(s.model, s.goal, site, choose)
	if err != nil {
		t.Fatal(err)
	}
	out, err := Train(s.model, p, t.TempDir(), 7, 3)
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := Train(s.model, p, t.TempDir(), 7, 0)
	if err != nil {
		t.Fatal(err)
	}
	if fresh.Hash == out.Hash {
		t.Fatalf("%s: three iterations changed nothing", p.Strategy)
	}
	return out
}

// Equal losses are not enough: a param that missed its last update is found, and so is one
// that is missing.
func TestNearComparesWeights(t *testing.T) {
	kernels := cpu.Open(cpu.Options{Threads: 1})
	defer kernels.Close()
	site := tiny.Site(1 << 30)
	site.Kernels = kernels
	list := subjects(t)
	for _, s := range []subject{list[0], list[6]} {
		p, err := planner.Build(s.model, s.goal, site, strategy.Uniform(false, false, strategy.SaveAll, 0))
		if err != nil {
			t.Fatal(err)
		}
		all, err := Train(s.model, p, t.TempDir(), 7, 3)
		if err != nil {
			t.Fatal(err)
		}
		first, err := Train(s.model, p, t.TempDir(), 7, 2)
		if err != nil {
			t.Fatal(err)
		}
		losses, weights := s.bounds()
		if err := all.Near(all, losses, weights); err != nil {
			t.Errorf("an outcome is not near itself: %v", err)
		}
		name := "model.layers.1.mlp.up_proj.weight"
		wrong := Outcome{Losses: all.Losses, Weights: maps.Clone(all.Weights)}
		wrong.Weights[name] = first.Weights[name]
		if err := all.Near(wrong, losses, weights); err == nil {
			t.Errorf("%v: weights without the last update pass", s.model.Config.DType)
		}
		delete(wrong.Weights, name)
		if err := all.Near(wrong, losses, weights); err == nil {
			t.Error("a missing param passes")
		}
	}
}

// Plans with states in every type are among those compared.
func TestSubjectsKeepStatesInEveryType(t *testing.T) {
	seen := map[dtype.Type]bool{}
	for _, s := range subjects(t) {
		for _, p := range s.model.Params {
			for _, state := range s.goal.Optimizer.States(p) {
				seen[state.Type.DType] = true
			}
		}
	}
	for _, want := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F16, quant.Dyn8, quant.UDyn8} {
		if !seen[want] {
			t.Errorf("no subject keeps states in %v", want)
		}
	}
}
