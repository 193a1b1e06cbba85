package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"spillway/eventlog"
	"spillway/machine"
	"spillway/plan"
)

// Run is a run that is looked at.
type Run struct {
	*eventlog.Log
	Name string // the folder's, short

	plans map[int]*plan.Plan // that were read
}

// Open opens the run in a folder, or in an event log. The caller closes it.
func Open(path string) (*Run, error) {
	l, err := eventlog.Follow(eventlog.PathOf(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w; a run is a folder that train --out wrote, with %s in it", err, eventlog.FileName)
	}
	if err != nil {
		return nil, err
	}
	return &Run{Log: l, Name: NameOf(path), plans: map[int]*plan.Plan{}}, nil
}

// ID is the run's own, the same wherever its folder is; its name where the log has none.
func (r *Run) ID() string {
	if len(r.Starts) > 0 && r.Starts[0].Run != "" {
		return r.Starts[0].Run
	}
	return r.Name
}

// On is the machine that the run is on, as its event log describes it.
func (r *Run) On() (machine.Machine, error) {
	var m machine.Machine
	err := json.Unmarshal(r.Machine, &m)
	if err == nil && len(m.Devices) == 0 {
		err = errors.New("it has no devices")
	}
	if err != nil {
		return machine.Machine{}, fmt.Errorf("the event log of %s does not say on which machine the run is: %w", r.Name, err)
	}
	return m, nil
}

// NameOf is how a run is called: by its folder.
func NameOf(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if filepath.Base(path) == eventlog.FileName {
		path = filepath.Dir(path)
	}
	return filepath.Base(path)
}

// OpenAll opens runs, with names that tell them apart.
func OpenAll(paths []string) (runs []*Run, err error) {
	for _, path := range paths {
		r, err := Open(path)
		if err != nil {
			CloseAll(runs)
			return nil, err
		}
		runs = append(runs, r)
	}
	for i, r := range runs {
		same := slices.ContainsFunc(runs, func(o *Run) bool { return o != r && o.Name == r.Name })
		if same {
			r.Name = strings.TrimSuffix(filepath.Clean(paths[i]), string(filepath.Separator)+eventlog.FileName)
		}
	}
	return runs, nil
}

// CloseAll closes runs, which were only read.
func CloseAll(runs []*Run) {
	for _, r := range runs {
		r.Close()
	}
}

// Plan is the plan that the run carries out, or carried out last; nil where the log has none.
func (r *Run) Plan() (*plan.Plan, error) { return r.planAt(len(r.Plans) - 1) }

func (r *Run) planAt(i int) (*plan.Plan, error) {
	if i < 0 {
		return nil, nil
	}
	if p := r.plans[i]; p != nil {
		return p, nil
	}
	recorded, err := r.ReadPlan(r.Plans[i])
	if err != nil {
		return nil, err
	}
	p, err := plan.Read(bytes.NewReader(recorded.Plan))
	if err != nil {
		return nil, fmt.Errorf("%s: the plan after step %d: %w", r.Path, recorded.Step, err)
	}
	r.plans[i] = p
	return p, nil
}

// Metric is a number that every step has: those of training, or those of generating texts.
type Metric struct {
	Name  string // as JSON and flags have it
	Title string
	Unit  Unit
	of    func(*eventlog.Iteration) (v float64, has bool)  // nil where steps of training have none
	made  func(*eventlog.Generation) (v float64, has bool) // nil where generating has none
}

// Metrics are all there are.
var Metrics = []Metric{
	{Name: "loss", Title: "loss", Unit: Plain, of: func(it *eventlog.Iteration) (float64, bool) { return it.Loss, !it.Skipped }},
	{Name: "eval_loss", Title: "eval loss", Unit: Plain, of: func(it *eventlog.Iteration) (float64, bool) { return it.EvalLoss, it.EvalLoss != 0 }},
	{Name: "grad_norm", Title: "gradient norm", Unit: Plain, of: func(it *eventlog.Iteration) (float64, bool) { return it.GradNorm, it.GradNorm != 0 }},
	{Name: "lr", Title: "learning rate", Unit: Plain, of: func(it *eventlog.Iteration) (float64, bool) { return it.LR, true }},
	{Name: "tokens_per_second", Title: "tokens/s", Unit: Rate, of: func(it *eventlog.Iteration) (float64, bool) { return it.TokensPerSecond, it.TokensPerSecond > 0 }},
	{Name: "seconds", Title: "time per step", Unit: Seconds, of: func(it *eventlog.Iteration) (float64, bool) { return it.Seconds, it.Seconds > 0 }},
	{Name: "share_of_roofline", Title: "share of roofline", Unit: Share, of: func(it *eventlog.Iteration) (float64, bool) { return it.ShareOfRoofline, it.ShareOfRoofline > 0 }},
	{Name: "device_bytes", Title: "device memory", Unit: Bytes, of: func(it *eventlog.Iteration) (float64, bool) { return float64(it.MeasuredBytes), it.MeasuredBytes > 0 },
		made: func(g *eventlog.Generation) (float64, bool) { return float64(g.MeasuredBytes), g.MeasuredBytes > 0 }},
	{Name: "state_bytes", Title: "optimizer state", Unit: Bytes, of: func(it *eventlog.Iteration) (float64, bool) { return float64(it.StateBytes), true }},
	{Name: "resident_bytes", Title: "memory of the process", Unit: Bytes, of: func(it *eventlog.Iteration) (float64, bool) { return float64(it.Resident), it.Resident > 0 },
		made: func(g *eventlog.Generation) (float64, bool) { return float64(g.Resident), g.Resident > 0 }},
	{Name: "decode_rate", Title: "new tokens/s", Unit: Rate, made: func(g *eventlog.Generation) (float64, bool) { return g.DecodeRate(), g.DecodeRate() > 0 }},
	{Name: "prefill_rate", Title: "prompt tokens/s", Unit: Rate, made: func(g *eventlog.Generation) (float64, bool) { return g.PrefillRate(), g.PrefillRate() > 0 }},
	{Name: "decode_seconds", Title: "time per token of a sequence", Unit: Seconds, made: func(g *eventlog.Generation) (float64, bool) {
		return g.DecodeSeconds / float64(max(g.Steps, 1)), g.PromptTokens == 0 && g.DecodeSeconds > 0
	}},
	{Name: "sequences", Title: "sequences", Unit: Count, made: func(g *eventlog.Generation) (float64, bool) { return float64(g.Sequences), true }},
	{Name: "cache_used", Title: "pages of the cache in use", Unit: Share, made: func(g *eventlog.Generation) (float64, bool) {
		return float64(g.PagesUsed) / float64(max(g.Pages, 1)), g.Pages > 0
	}},
	{Name: "cache_bytes", Title: "keys and values", Unit: Bytes, made: func(g *eventlog.Generation) (float64, bool) { return float64(g.CacheBytes), g.CacheBytes > 0 }},
}

// FindMetric finds one by its name.
func FindMetric(name string) (Metric, error) {
	var names []string
	for _, m := range Metrics {
		if m.Name == name {
			return m, nil
		}
		names = append(names, m.Name)
	}
	return Metric{}, fmt.Errorf("no metric is called %q; there are %s", name, strings.Join(names, ", "))
}

// Curves are a metric of several runs over their steps, with at most so many points each; 0 for
// all.
func Curves(runs []*Run, m Metric, points int) Chart {
	c := Chart{Title: m.Title, X: "step", Unit: m.Unit, Lines: []Line{}, several: len(runs) > 1}
	for i, r := range runs {
		xs, ys := m.points(r)
		if len(xs) > 0 {
			l := reduce(r.Name, xs, ys, points)
			l.colour = i
			c.Lines = append(c.Lines, l)
		}
	}
	if (m.Name == "seconds" || m.Name == "decode_seconds") && len(runs) == 1 {
		c.Lines = append(c.Lines, forecastLine(runs[0], m.made != nil, points)...)
	}
	return c
}

// Of says whether a run has the metric.
func (m Metric) Of(r *Run) bool {
	for i := range r.Iterations {
		if m.of == nil {
			break
		}
		if _, has := m.of(&r.Iterations[i]); has {
			return true
		}
	}
	for i := range r.Generations {
		if m.made == nil {
			break
		}
		if _, has := m.made(&r.Generations[i]); has {
			return true
		}
	}
	return false
}

// points are the steps of a run that have the metric.
func (m Metric) points(r *Run) (xs, ys []float64) {
	if m.of != nil && len(r.Iterations) > 0 {
		xs, ys = make([]float64, 0, len(r.Iterations)), make([]float64, 0, len(r.Iterations))
		for i := range r.Iterations {
			if v, has := m.of(&r.Iterations[i]); has {
				xs, ys = append(xs, float64(r.Iterations[i].Step)), append(ys, v)
			}
		}
	}
	if m.made != nil {
		for i := range r.Generations {
			if v, has := m.made(&r.Generations[i]); has {
				xs, ys = append(xs, float64(r.Generations[i].Step)), append(ys, v)
			}
		}
	}
	return xs, ys
}

// forecastLine is the time that the plan predicts for a step.
func forecastLine(r *Run, generates bool, points int) []Line {
	var xs, ys []float64
	if generates {
		for i := range r.Generations {
			if f := r.Generations[i].Forecast; f > 0 {
				xs, ys = append(xs, float64(r.Generations[i].Step)), append(ys, f)
			}
		}
	}
	for i := range r.Iterations {
		if f := r.Iterations[i].Forecast; f > 0 && !generates {
			xs, ys = append(xs, float64(r.Iterations[i].Step)), append(ys, f)
		}
	}
	if len(xs) == 0 {
		return nil
	}
	l := reduce("forecast", xs, ys, points)
	l.Low, l.High, l.Dashed, l.colour = nil, nil, true, 1
	return []Line{l}
}
