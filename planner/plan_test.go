package planner_test

import (
	"bytes"
	"errors"
	"flag"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway/arch"
	"spillway/dtype"
	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/machine"
	"spillway/nn"
	"spillway/op"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/spec"
)

var rewrite = flag.Bool("rewrite", false, "write golden plans anew")

// randomChoice of everything a choice leaves open.
func randomChoice(r *rand.Rand) func(slabs, blocks int) strategy.Choice {
	return func(slabs, blocks int) strategy.Choice {
		c := strategy.Choice{Streamed: make([]bool, slabs), OffloadedState: make([]bool, slabs), Level: make([]strategy.Level, blocks), OffloadedActivations: make([]bool, blocks), Prefetch: 1 + r.IntN(4), PrefetchStates: r.IntN(3), PieceElements: 256 * int64(r.IntN(8)), BreadthFirst: true}
		for i := range slabs {
			c.Streamed[i], c.OffloadedState[i] = r.IntN(2) == 0, r.IntN(2) == 0
		}
		for i := range blocks {
			c.Level[i], c.OffloadedActivations[i] = strategy.Level(r.IntN(4)), r.IntN(3) == 0
		}
		return c
	}
}

// overDevices spreads a choice over several devices in one of the ways there are.
func overDevices(r *rand.Rand, choose func(slabs, blocks int) strategy.Choice) func(slabs, blocks int) strategy.Choice {
	return func(slabs, blocks int) strategy.Choice {
		c := choose(slabs, blocks)
		c.Devices, c.BreadthFirst, c.Rounds = 1+r.IntN(3), r.IntN(2) == 0, r.IntN(4)
		switch r.IntN(3) {
		case 0:
			c.ShardWeights = r.IntN(2) == 0
		case 1:
			c.Split = make([]int, blocks)
			for i := range c.Split {
				c.Split[i] = i * c.Devices / blocks
			}
		case 2: // two stages per device, in turns
			c.Split, c.Pipeline = make([]int, blocks), true
			for i := range c.Split {
				c.Split[i] = i * 2 * c.Devices / blocks % c.Devices
			}
		}
		return c
	}
}

// Whatever the choice, the plan is sound: Build verifies it. Arithmetic is the
// same in all of them but for what is recomputed, and so is nothing smaller.
func TestEveryChoiceGivesASoundPlan(t *testing.T) {
	models := []*spec.Model{
		tiny.Model(t, tiny.Llama, graph.Config{MicroBatchSize: 2, Seq: 16, Task: graph.Train}),
		tiny.Model(t, tiny.Untied, graph.Config{MicroBatchSize: 1, Seq: 8, Task: graph.Train, Packed: true}),
	}
	for seed := range uint64(120) {
		r := rand.New(rand.NewPCG(seed, 2))
		m := models[r.IntN(len(models))]
		goal := tiny.AdamW(1+r.IntN(3), r.IntN(2) == 0)
		p, err := planner.Build(m, goal, tiny.Site(1<<30), overDevices(r, randomChoice(r)))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		keep, err := planner.Build(m, goal, tiny.Site(1<<30), strategy.Uniform(false, false, strategy.SaveAll, 0))
		if err != nil {
			t.Fatal(err)
		}
		if p.Forecast.Flops < keep.Forecast.Flops {
			t.Errorf("seed %d: %g operations, without recomputing %g", seed, p.Forecast.Flops, keep.Forecast.Flops)
		}
	}
}

// A plan as text, reviewed as a diff when it changes.
func TestGoldenPlans(t *testing.T) {
	for name, choose := range map[string]func(slabs, blocks int) strategy.Choice{
		"standard": strategy.Uniform(false, false, strategy.SaveAll, 0),
		"streamed": strategy.Uniform(true, true, strategy.SaveNone, 2),
	} {
		m := tiny.Model(t, tiny.Llama, graph.Config{MicroBatchSize: 2, Seq: 16, Task: graph.Train})
		p, err := planner.Build(m, tiny.AdamW(1, name == "standard"), tiny.Site(1<<20), choose)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := p.Text(&got); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", name+".plan")
		if *rewrite {
			if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("%v; make it with: go test ./planner -rewrite", err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("plan %s differs from %s; review with: go test ./planner -rewrite && git diff", name, path)
		}
	}
}

// named plans a preset.
func named(t testing.TB, name, description string, rows, seq int64, task graph.Task) planner.Request {
	t.Helper()
	return adapted(t, name, description, rows, seq, task, nil)
}

// adapted is named for a model that was changed, such as by adapters.
func adapted(t testing.TB, name, description string, rows, seq int64, task graph.Task, change func(nn.Model) error) planner.Request {
	t.Helper()
	mach, err := machine.Parse(description)
	if err != nil {
		t.Fatal(err)
	}
	site, err := planner.SiteOf(mach, mach.Devices[0].Name, dtype.BF16)
	if err != nil {
		t.Fatal(err)
	}
	config, err := arch.Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	m, info, err := arch.FromConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		if err := change(m); err != nil {
			t.Fatal(err)
		}
	}
	goal := planner.Goal{MicroBatches: 1}
	if task == graph.Train {
		goal = planner.Goal{MicroBatches: 1, Master: true, Optimizer: &planner.Optimizer{Rule: optim.Adam, States: planner.FullStates("exp_avg", "exp_avg_sq")}}
	}
	return planner.Request{MicroBatchSize: rows, Seq: seq, Goal: goal, Site: site, Trace: func(rows, seq int64) (*spec.Model, error) {
		return spec.Trace(name, info.Type, m, graph.Config{MicroBatchSize: rows, Seq: seq, DType: dtype.BF16, Task: task})
	}}
}

// The more memory, the less is given up, and never slower.
func TestMoreMemoryIsNeverSlower(t *testing.T) {
	last := 0.0
	for _, gib := range []string{"16", "24", "48", "80", "200"} {
		p, _, err := named(t, "llama-3-8b", "gpu:"+gib+"GiB@25GB/s,host:400GiB", 1, 2048, graph.Train).Plan()
		if err != nil {
			t.Fatalf("%s GiB: %v", gib, err)
		}
		if f := p.Forecast.StepSeconds; last > 0 && f > last*1.0001 {
			t.Errorf("%s GiB takes %.3f s, less memory took %.3f s", gib, f, last)
		}
		last = p.Forecast.StepSeconds
		if p.Peak()[plan.OnDevice] > p.Devices[0].Budget {
			t.Errorf("%s GiB: over budget", gib)
		}
	}
}

// Streamed inference is bound by the link: with all weights on the host each
// crosses once, hidden behind nothing but its own end. What the search picks is at
// least as fast.
func TestStreamedInferenceReachesTheLinkBound(t *testing.T) {
	r := named(t, "llama-3-8b", "gpu:6GiB@25GB/s,host:64GiB", 1, 128, graph.Infer)
	best, m, err := r.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(best.Strategies, "cpu-offload") || best.Forecast.Bound != "link to device" {
		t.Fatalf("strategy %q bound by %s", best.Strategy, best.Forecast.Bound)
	}
	all, err := planner.Build(m, r.Goal, r.Site, strategy.Uniform(true, false, strategy.SaveAll, 2))
	if err != nil {
		t.Fatal(err)
	}
	bound := float64(2*m.Count()) / 25e9
	if f := all.Forecast.StepSeconds; f < bound || f > bound*1.03 {
		t.Errorf("forecast %.4f s, the link alone needs %.4f s", f, bound)
	}
	if best.Forecast.StepSeconds > all.Forecast.StepSeconds {
		t.Errorf("the search found %.4f s, streaming everything takes %.4f s", best.Forecast.StepSeconds, all.Forecast.StepSeconds)
	}
}

// What does not fit gets options, and the options fit.
func TestFitErrorOptionsFit(t *testing.T) {
	r := named(t, "llama-3-8b", "gpu:8GiB@25GB/s,host:192GiB", 16, 8192, graph.Train)
	_, _, err := r.Plan()
	var fit *planner.FitError
	if !errors.As(err, &fit) {
		t.Fatalf("got %v, want a FitError", err)
	}
	if len(fit.Options) == 0 || fit.Needed <= fit.Budget {
		t.Fatalf("%+v", fit)
	}
	for _, o := range fit.Options {
		q := r
		q.MicroBatchSize, q.Seq, q.Goal.MicroBatches, q.Site.Budget, q.Site.HostBudget = o.MicroBatchSize, o.Seq, o.MicroBatches, o.Device, o.Host
		if _, _, err := q.Plan(); err != nil {
			t.Errorf("option %q does not fit: %v", o.Change, err)
		}
	}
}

// Where the disk is what lacks, one is offered that is large enough for all its copies.
func TestLargerDisksAreOffered(t *testing.T) {
	r := named(t, "llama-3-8b", "gpu:24GiB@25GB/s,host:16GiB", 1, 2048, graph.Train)
	r.Site.Disk = planner.Disk{Budget: 60 << 30, Read: 2e9, Write: 1e9, Copies: 2}
	_, _, err := r.Plan()
	var fit *planner.FitError
	if !errors.As(err, &fit) || fit.Tier != plan.OnDisk {
		t.Fatalf("got %v, want a FitError of the disk", err)
	}
	at := slices.IndexFunc(fit.Options, func(o planner.FitOption) bool { return o.Disk > 2*r.Site.Disk.Budget })
	if at < 0 {
		t.Fatalf("no larger disk is among %+v", fit.Options)
	}
	r.Site.Disk.Budget = fit.Options[at].Disk / 2
	if _, _, err := r.Plan(); err != nil {
		t.Errorf("option %q does not fit: %v", fit.Options[at].Change, err)
	}
}

// Where the host is too small for what the optimizer keeps, 8 bits of it are offered.
func TestCodedStatesAreOffered(t *testing.T) {
	r := named(t, "llama-3-8b", "gpu:24GiB@25GB/s,host:72GiB", 1, 2048, graph.Train)
	r.Goal.Optimizer.States8Bit = coded
	_, _, err := r.Plan()
	var fit *planner.FitError
	if !errors.As(err, &fit) {
		t.Fatalf("got %v, want a FitError", err)
	}
	at := slices.IndexFunc(fit.Options, func(o planner.FitOption) bool { return o.States8Bit })
	if at < 0 {
		t.Fatalf("states in 8 bits are not among %+v", fit.Options)
	}
	r.Goal.Optimizer.States = r.Goal.Optimizer.States8Bit
	p, _, err := r.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(p.Peak(), fit.Options[at].Peak) {
		t.Errorf("the option takes %v, planned by itself %v", fit.Options[at].Peak, p.Peak())
	}
}

// In 8 bits the states of Adam take 2.03 bytes per param, by the homes of a plan.
func TestCodedStatesTakeTwoBytes(t *testing.T) {
	r := named(t, "llama-3-8b", "gpu:24GiB@25GB/s,host:192GiB", 1, 2048, graph.Train)
	config, err := optim.Parse("paged_adamw_8bit")
	if err != nil {
		t.Fatal(err)
	}
	keeping, err := config.StatesFor(nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Goal.Optimizer.States = func(p spec.Param) []op.State { return keeping(p.Name, p.Type.Shape) }
	p, m, err := r.Plan()
	if err != nil {
		t.Fatal(err)
	}
	var bytes int64
	for _, b := range p.Buffers {
		if b.Home && b.Class == plan.State {
			bytes += b.Bytes
		}
	}
	if per := float64(bytes) / float64(m.Count()); per < 2+2*4/256.0 || per > 2.032 {
		t.Errorf("%d bytes of states for %d params are %.4f each", bytes, m.Count(), per)
	}
}

// Reasons say times as people do, never with an exponent; what is listed as rejected is not what was taken, and slower
// only where it is.
func TestReasonsOfRejected(t *testing.T) {
	for _, c := range []struct {
		model, on  string
		batch, seq int64
	}{{"gpt2", "gpu:8GiB", 64, 128}, {"tiny-llama", "2xgpu:8GiB", 2, 64}, {"tiny-llama", "gpu:8GiB", 1, 16}, {"llama-50m", "cpu:4GiB,host:16GiB", 1, 128}} {
		p, _, err := named(t, c.model, c.on, c.batch, c.seq, graph.Train).Plan()
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range p.Rejected {
			if o.Strategy == p.Strategy || strings.Contains(o.Reason, "e-0") || strings.HasPrefix(o.Reason, "slower") && o.StepSeconds <= p.Forecast.StepSeconds {
				t.Errorf("%s on %s: %s in %v s is taken, %s in %v s is not: %s", c.model, c.on, p.Strategy, p.Forecast.StepSeconds, o.Strategy, o.StepSeconds, o.Reason)
			}
		}
		if strings.Contains(p.Reason, "e-0") {
			t.Errorf("%s on %s: because %s", c.model, c.on, p.Reason)
		}
	}
}
