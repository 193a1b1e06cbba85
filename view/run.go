package view

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"spillway/eventlog"
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

// Metric is a number that every step has.
type Metric struct {
	Name  string // as JSON and flags have it
	Title string
	Unit  Unit
	of    func(*eventlog.Iteration) (v float64, has bool)
}

// Metrics are all there are.
var Metrics = []Metric{
	{"loss", "loss", Plain, func(it *eventlog.Iteration) (float64, bool) { return it.Loss, !it.Skipped }},
	{"eval_loss", "eval loss", Plain, func(it *eventlog.Iteration) (float64, bool) { return it.EvalLoss, it.EvalLoss != 0 }},
	{"grad_norm", "gradient norm", Plain, func(it *eventlog.Iteration) (float64, bool) { return it.GradNorm, it.GradNorm != 0 }},
	{"lr", "learning rate", Plain, func(it *eventlog.Iteration) (float64, bool) { return it.LR, true }},
	{"tokens_per_second", "tokens/s", Rate, func(it *eventlog.Iteration) (float64, bool) { return it.TokensPerSecond, it.TokensPerSecond > 0 }},
	{"seconds", "time per step", Seconds, func(it *eventlog.Iteration) (float64, bool) { return it.Seconds, it.Seconds > 0 }},
	{"share_of_roofline", "share of roofline", Share, func(it *eventlog.Iteration) (float64, bool) { return it.ShareOfRoofline, it.ShareOfRoofline > 0 }},
	{"device_bytes", "device memory", Bytes, func(it *eventlog.Iteration) (float64, bool) { return float64(it.MeasuredBytes), it.MeasuredBytes > 0 }},
	{"state_bytes", "optimizer state", Bytes, func(it *eventlog.Iteration) (float64, bool) { return float64(it.StateBytes), true }},
	{"resident_bytes", "memory of the process", Bytes, func(it *eventlog.Iteration) (float64, bool) { return float64(it.Resident), it.Resident > 0 }},
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
	c := Chart{Title: m.Title, X: "step", Unit: m.Unit, Lines: []Line{}}
	for _, r := range runs {
		xs, ys := make([]float64, 0, len(r.Iterations)), make([]float64, 0, len(r.Iterations))
		for i := range r.Iterations {
			if v, has := m.of(&r.Iterations[i]); has {
				xs, ys = append(xs, float64(r.Iterations[i].Step)), append(ys, v)
			}
		}
		if len(xs) > 0 {
			c.Lines = append(c.Lines, reduce(r.Name, xs, ys, points))
		}
	}
	if m.Name == "seconds" && len(runs) == 1 {
		c.Lines = append(c.Lines, forecastLine(runs[0], points)...)
	}
	return c
}

// forecastLine is the time that the plan predicts for a step.
func forecastLine(r *Run, points int) []Line {
	var xs, ys []float64
	for i := range r.Iterations {
		if f := r.Iterations[i].Forecast; f > 0 {
			xs, ys = append(xs, float64(r.Iterations[i].Step)), append(ys, f)
		}
	}
	if len(xs) == 0 {
		return nil
	}
	l := reduce("forecast", xs, ys, points)
	l.Low, l.High, l.Dashed = nil, nil, true
	return []Line{l}
}
