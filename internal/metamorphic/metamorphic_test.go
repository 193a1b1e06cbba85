package metamorphic

import (
	"flag"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"

	"spillway/device/cpu"
	"spillway/dtype"
	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/nn"
	"spillway/op"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner"
	"spillway/quant"
	"spillway/spec"
)

var (
	plans = flag.Int("plans", 60, "how many random plans to compare")
	first = flag.Uint64("seed", 0, "the first seed; a failure names its own")
)

const encoder = `{"model_type":"transformer_encoder","d_model":16,"nhead":2,"num_layers":3,"dim_feedforward":24,
"activation":"gelu","norm_first":true,"dropout":0.1,"final_norm":true}`

// bound on losses where devices sum gradients apart: rounding of f32 sums, grown
// over three iterations.
const bound = 1e-4

// halfBound is the same with products rounded to the 8 bits of bf16.
const halfBound = 2e-2

type subject struct {
	model *spec.Model
	goal  planner.Goal
	tied  bool
}

// bound on its losses where sums have another order.
func (s subject) bound() float64 {
	if s.model.Config.DType == dtype.F32 {
		return bound
	}
	return halfBound
}

func adafactorStates(t testing.TB) func(spec.Param) []op.State {
	c, err := optim.Parse("adafactor")
	if err != nil {
		t.Fatal(err)
	}
	states, err := c.StatesFor()
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
			mixed.Optimizer.States = tiny.Keep("exp_avg", "exp_avg_sq")
			lion.Optimizer.Rule, lion.Optimizer.States = optim.Lion, tiny.Keep("exp_avg")
			list = append(list,
				subject{tiny.Model(t, tiny.Llama, graph.Config{MicroBatchSize: 1, Seq: 12, Task: graph.Train}), adamw, true},
				subject{tiny.Model(t, tiny.Llama, graph.Config{MicroBatchSize: 1, Seq: 12, Task: graph.Train}), mixed, true},
				subject{tiny.Model(t, tiny.Untied, graph.Config{MicroBatchSize: 2, Seq: 9, Task: graph.Train, Packed: true}), mixed, false},
				subject{tiny.Model(t, encoder, graph.Config{MicroBatchSize: 2, Seq: 7, Task: graph.Train}), adamw, false},
				subject{tiny.Model(t, tiny.Untied, graph.Config{MicroBatchSize: 2, Seq: 7, Task: graph.Train}), adafactor, false},
				subject{tiny.Model(t, encoder, graph.Config{MicroBatchSize: 2, Seq: 7, Task: graph.Train}), lion, false},
				half(t, dtype.BF16, mixed, true), half(t, dtype.BF16, mixed, false), half(t, dtype.F16, adamw, true),
				withExceptions(t, tiny.Untied, mixed, true), withExceptions(t, tiny.Llama, adamw, true), withExceptions(t, tiny.Untied, adamw, false))
		}
	}
	return list
}

// half computes in a 16-bit type, with masters or without.
func half(t testing.TB, as dtype.Type, goal planner.Goal, masters bool) subject {
	goal.Master, goal.Grad = masters, as
	return subject{tiny.Model(t, tiny.Untied, graph.Config{MicroBatchSize: 1, Seq: 12, Task: graph.Train, DType: as}), goal, false}
}

// kept computes in bf16, but for the norms, an MLP, a whole layer and the output, in f32:
// blocks train weights of both types.
func withExceptions(t testing.TB, config string, goal planner.Goal, masters bool) subject {
	goal.Master, goal.Grad = masters, dtype.BF16
	exceptions := regexp.MustCompile(`.*norm|lm_head|model\.layers\.(1\.mlp|2)`)
	m := tiny.Changed(t, config, graph.Config{MicroBatchSize: 1, Seq: 12, Task: graph.Train, DType: dtype.BF16}, func(m nn.Model) error {
		_, err := nn.Except(m, func(module string) bool { return exceptions.FindString(module) == module }, dtype.F32)
		return err
	})
	return subject{m, goal, config == tiny.Llama}
}

func TestPlacementChangesNothing(t *testing.T) {
	kernels := cpu.Open(cpu.Options{Threads: 1})
	defer kernels.Close()
	site := tiny.Site(1 << 30)
	site.Kernels, site.Disk = kernels, planner.Disk{Budget: 1 << 26, Read: 1e9, Write: 1e9}
	list := subjects(t)
	standard := map[int]Outcome{}
	exact, late, trail := 0, 0, 0
	for n := range *plans {
		seed := *first + uint64(n)
		r := rand.New(rand.NewPCG(seed, 3))
		i := r.IntN(len(list))
		s := list[i]
		if _, ok := standard[i]; !ok {
			standard[i] = train(t, s, site, planner.Uniform(false, false, planner.SaveAll, 0))
		}
		choose, sameOrder := RandomChoice(r, s.goal.MicroBatches)
		p, err := planner.Build(s.model, s.goal, site, choose)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		got, err := Train(s.model, p, t.TempDir(), 7, 3)
		if err != nil {
			t.Fatalf("seed %d: %s: %v", seed, p.Strategy, err)
		}
		check := func() error { return standard[i].Near(got, s.bound()) }
		if sameOrder(s.tied) {
			exact++
			if slices.ContainsFunc(p.Instructions, func(s plan.Instruction) bool { return s.Deferred }) {
				late++
			}
			if slices.ContainsFunc(p.Instructions, func(s plan.Instruction) bool { return s.CarriesOver }) {
				trail++
			}
			check = func() error { return standard[i].Same(got) }
		}
		if err := check(); err != nil {
			t.Errorf("run again with -seed %d -plans 1: %s on %d devices, %d micro-batches, clip %t: %v", seed, p.Strategy, len(p.Devices), s.goal.MicroBatches, s.goal.Optimizer.Clip, err)
		}
	}
	if exact < *plans/3 || late < *plans/30 || trail < *plans/10 {
		t.Errorf("only %d of %d plans were compared bit for bit, %d of them with late updates, %d with iterations that overlap", exact, *plans, late, trail)
	}
}

func train(t *testing.T, s subject, site planner.Site, choose func(slabs, blocks int) planner.Choice) Outcome {
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
	if fresh.Weights == out.Weights || fresh.Sample[0] == out.Sample[0] {
		t.Fatalf("%s: three iterations changed nothing", p.Strategy)
	}
	return out
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
