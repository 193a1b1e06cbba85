package spillway_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"spillway"
	"spillway/dtype"
	"spillway/internal/datadriven"
	"spillway/lora"
	"spillway/machine"
	"spillway/optim"
	"spillway/placement"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/quant"
	"spillway/units"
)

// The files of testdata/plans say for models, machines and goals which plan is made, or
// why there is none. Commands:
//
//	plan MODEL machine=... [setting=value ...]   the plan in a few lines
//	text MODEL machine=... [setting=value ...]   every instruction of it too
//
// Settings are in planSettings. MODEL is a preset, or a folder of testdata/reference.
func TestPlans(t *testing.T) {
	datadriven.Run(t, "testdata/plans/*.txt", func(t *testing.T, c datadriven.Case) string {
		if c.Command != "plan" && c.Command != "text" || len(c.Args) == 0 {
			t.Fatalf("%s:%d: %q is no command; plan MODEL and text MODEL are", c.File, c.Line, c.Command)
		}
		o := spillway.Options{Task: spillway.Train, Precision: dtype.BF16}
		for _, a := range c.Args[1:] {
			set, ok := planSettings[a.Name]
			if !ok {
				t.Fatalf("%s:%d: there is no setting %q; there are %s", c.File, c.Line, a.Name, strings.Join(slices.Sorted(maps.Keys(planSettings)), ", "))
			}
			if err := set(&o, a.Value); err != nil {
				return fmt.Sprintf("refused: %v\n", err)
			}
		}
		name := c.Args[0].Name
		if folder, ok := strings.CutPrefix(name, "reference/"); ok {
			name = filepath.Join("testdata", "reference", folder)
		}
		m, err := spillway.Open(name)
		if err != nil {
			t.Fatalf("%s:%d: %v", c.File, c.Line, err)
		}
		defer m.Close()
		job, err := m.Plan(o)
		if err != nil {
			return refusal(err)
		}
		if err := plan.Verify(job.Plan); err != nil {
			t.Errorf("%s:%d: %v", c.File, c.Line, err)
		}
		text := summary(job.Plan)
		for _, n := range job.Notices {
			text += fmt.Sprintf("notice: %s\n", n)
		}
		if c.Command == "text" {
			var b bytes.Buffer
			if err := job.Plan.Text(&b); err != nil {
				t.Fatal(err)
			}
			text += strings.ReplaceAll(strings.TrimSpace(b.String()), "\n\n", "\n") + "\n"
		}
		return text
	})
}

// planSettings read what stands after a name in a case.
var planSettings = map[string]func(o *spillway.Options, v string) error{
	"machine":       parseMachine,
	"task":          func(o *spillway.Options, v string) error { o.Task = spillway.Task(v); return nil },
	"batch":         number(func(o *spillway.Options, n int64) { o.BatchSize = n }),
	"micro-batch":   number(func(o *spillway.Options, n int64) { o.MicroBatchSize = n }),
	"micro-batches": number(func(o *spillway.Options, n int64) { o.MicroBatches = int(n) }),
	"accumulate":    number(func(o *spillway.Options, n int64) { o.GradientAccumulation = int(n) }),
	"seq":           number(func(o *spillway.Options, n int64) { o.Seq = n }),
	"rank": number(func(o *spillway.Options, n int64) {
		o.Adapters = lora.Options{Rank: n, Alpha: float64(2 * n), Targets: []string{lora.AllLinear}}
	}),
	"prefetch":  number(func(o *spillway.Options, n int64) { o.Bounds.Prefetch = int(n) }),
	"precision": parsePrecision,
	"base": func(o *spillway.Options, v string) (err error) {
		o.Adapters.Base, err = quant.ParseWeights(v)
		return err
	},
	"dora": func(o *spillway.Options, _ string) error { o.Adapters.DoRA = true; return nil },
	"clip": func(o *spillway.Options, _ string) error { o.Clip = 1; return nil },
	"optimizer": func(o *spillway.Options, v string) (err error) {
		o.Optimizer, err = optim.Parse(v)
		return err
	},
	"policy": func(o *spillway.Options, v string) (err error) {
		o.StatePolicy, err = optim.ParsePolicy(v)
		return err
	},
	"strategy": func(o *spillway.Options, v string) error {
		if _, err := strategy.Find(v); err != nil {
			return err
		}
		o.Constraints = strategy.Demands(v)
		return nil
	},
	"updates": func(o *spillway.Options, v string) error { o.Constraints.Updates = strategy.Updater(v); return nil },
	"activations": func(o *spillway.Options, v string) error {
		o.Constraints.Activations = strategy.Activations(v)
		return nil
	},
	"weights": func(o *spillway.Options, v string) error { o.Constraints.Weights = plan.Tier(v); return nil },
	"state":   func(o *spillway.Options, v string) error { o.Constraints.State = plan.Tier(v); return nil },
	"parallelism": func(o *spillway.Options, v string) error {
		o.Constraints.Parallelism = strategy.Parallelism(v)
		return nil
	},
	"without": func(o *spillway.Options, v string) error {
		o.Bounds.Without = append(o.Bounds.Without, strategy.Parallelism(v))
		return nil
	},
	"device-map": func(o *spillway.Options, v string) error {
		m, err := placement.ParseMap(v)
		o.DeviceMap = &m
		return err
	},
	"max-memory": func(o *spillway.Options, v string) error { o.MaxMemory = v; return nil },
	"f32": func(o *spillway.Options, v string) error {
		o.Exceptions = append(o.Exceptions, spillway.Exception{Modules: []string{v}, Type: dtype.F32})
		return nil
	},
	"disk": func(o *spillway.Options, v string) error {
		n, err := units.ParseBytes(v)
		o.Disk, o.DiskBudget = "testdata", int64(n)
		return err
	},
}

func number(set func(o *spillway.Options, n int64)) func(*spillway.Options, string) error {
	return func(o *spillway.Options, v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		set(o, n)
		return err
	}
}

func parseMachine(o *spillway.Options, v string) (err error) {
	o.Machine, err = machine.Parse(v)
	return err
}

func parsePrecision(o *spillway.Options, v string) (err error) {
	v, o.Pure = strings.CutPrefix(v, "pure-")
	o.Precision, err = dtype.Parse(v)
	return err
}

// summary is what a reader wants to know first about a plan.
func summary(p *plan.Plan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "strategy: %s (%s)\n", p.Strategy, strings.Join(p.Strategies, ", "))
	fmt.Fprintf(&b, "because: %s\n", p.Reason)
	if p.MicroBatches > 1 {
		fmt.Fprintf(&b, "batch: %d micro-batches of %d\n", p.MicroBatches, p.MicroBatchSize)
	}
	if order := p.SumOrder(); order != "" {
		fmt.Fprintf(&b, "sums: %s\n", order)
	}
	fmt.Fprintf(&b, "peak: %s\n", tiers(p.Peak()))
	verbs := map[plan.Verb]int{}
	for _, s := range p.Instructions {
		verbs[s.Verb]++
	}
	fmt.Fprintf(&b, "instructions: %d", len(p.Instructions))
	for _, v := range slices.Sorted(maps.Keys(verbs)) {
		fmt.Fprintf(&b, ", %d %s", verbs[v], v)
	}
	if p.Captured {
		b.WriteString(", captured")
	}
	b.WriteString("\n")
	if f := p.Forecast; f != nil {
		fmt.Fprintf(&b, "forecast: %.4g ms, bound by %s, %.3g%% of roofline\n", f.StepSeconds*1e3, f.Bound, f.RooflineShare*100)
	}
	for _, r := range p.Rejected[:min(3, len(p.Rejected))] {
		fmt.Fprintf(&b, "not %s: %s\n", r.Strategy, r.Reason)
	}
	return b.String()
}

// refusal is why there is no plan, and what would fit.
func refusal(err error) string {
	text := fmt.Sprintf("refused: %v\n", err)
	var fit *planner.FitError
	if errors.As(err, &fit) {
		for _, o := range fit.Options {
			text += fmt.Sprintf("fits: %s: %s\n", o.Change, tiers(o.Peak))
		}
	}
	return text
}

// tiers are bytes by where they are.
func tiers(bytes map[plan.Tier]int64) string {
	var parts []string
	for _, t := range slices.Sorted(maps.Keys(bytes)) {
		parts = append(parts, fmt.Sprintf("%s %s", t, units.Bytes(bytes[t])))
	}
	return strings.Join(parts, ", ")
}
