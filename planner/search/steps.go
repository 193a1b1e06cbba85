package search

import (
	"encoding/json"
	"fmt"
	"slices"

	"spillway/device"
	"spillway/plan"
	"spillway/planner/emit"
	"spillway/planner/forecast"
	"spillway/planner/goal"
	"spillway/planner/layout"
	"spillway/planner/pass"
	"spillway/planner/strategy"
	"spillway/spec"
	"spillway/units"
)

// Step is the model of a plan to generate, traced for another number of rows.
type Step struct {
	Rows  int64
	Model *spec.Model
	Draws bool // graph.KVCache.Draws
	// Chunks of a pass, each of Rows; 0 counts as 1.
	Chunks int
}

// WithSteps is a plan to generate with a phase for each of some smaller steps. All of them
// share weights and caches, so a choice of what is streamed is one of all. Steps of one
// row for each sequence are captured as graphs where the device can and there are not too
// many launches in all, first those that draw tokens, which run most often; those of prompts compute much longer than they launch.
func WithSteps(p *plan.Plan, g goal.Goal, site goal.Site, steps []Step) (*plan.Plan, error) {
	p, err := writeSteps(p, g, site, steps)
	if err != nil {
		return nil, err
	}
	left := plan.MaxCaptured
	if p.Captured {
		left -= p.Launches()
	}
	order := make([]int, len(p.Phases))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch first, second := steps[a].Draws, steps[b].Draws; {
		case first == second:
			return 0
		case first:
			return -1
		}
		return 1
	})
	for _, i := range order {
		ph := &p.Phases[i]
		view, err := forecastPhase(p, ph, site)
		if err != nil {
			return nil, err
		}
		_, captures := site.Kernels.(device.GraphCapturer)
		if n := view.Launches(); (captures || site.Device.Kernel > 0) && view.CanCapture() && n <= left && steps[i].Rows <= p.Cache.Slots()*(1+p.Cache.Drafts) {
			captured := *ph
			capturePhase(&captured, view)
			f, err := forecast.Of(view, site)
			if err != nil {
				return nil, err
			}
			if f.StepSeconds <= ph.Seconds {
				*ph, ph.Seconds = captured, f.StepSeconds
				left -= n
			}
		}
	}
	return p, plan.Verify(p)
}

// capturePhase makes a phase, and the view of it, one that is captured.
func capturePhase(ph *plan.Phase, view *plan.Plan) {
	pass.InLine(view)
	view.Captured = true
	ph.Captured, ph.Instructions = true, view.Instructions
}

// writeSteps adds the phases of steps, without forecasts.
func writeSteps(p *plan.Plan, g goal.Goal, site goal.Site, steps []Step) (*plan.Plan, error) {
	var c strategy.Choice
	if err := json.Unmarshal(p.Choices, &c); err != nil {
		return nil, fmt.Errorf("planning the steps of %s: %w", p.Model, err)
	}
	phases := make([]emit.Phase, len(steps))
	for i, s := range steps {
		g.MicroBatches = max(s.Chunks, 1)
		l, err := layout.New(s.Model, g, site)
		if err != nil {
			return nil, err
		}
		phases[i] = emit.Phase{Name: plan.Step(s.Rows), Writer: emit.NewWriter(l)}
		switch {
		case s.Draws:
			phases[i].Name = plan.Draw(s.Rows)
		case s.Chunks > 1:
			phases[i].Name, phases[i].MicroBatches = plan.Pass(s.Chunks), s.Chunks
		}
	}
	q, err := emit.WithPhases(p, c, site.Alignment, phases)
	if err != nil {
		return nil, err
	}
	q.Devices = append([]plan.Device(nil), p.Devices...)
	for _, a := range q.Arenas {
		if a.Tier != plan.OnDevice {
			continue
		}
		budget := site.DeviceBudget(a.Device) // the plan may have been made within less
		q.Devices[a.Device].Budget = max(budget, q.Devices[a.Device].Budget)
		if a.Bytes > budget {
			return nil, &goal.FitError{Model: p.Model, Tier: plan.OnDevice, Needed: a.Bytes, Budget: budget, BudgetHost: site.HostBudget}
		}
	}
	if q.Forecast != nil {
		whole := *q.Forecast
		whole.PeakBytes, q.Forecast = q.Peak(), &whole
	}
	return q, nil
}

// AtPositions is a phase of a plan to generate, "" for its main instructions, whose ops that read the cache
// are taken to read so many positions of each sequence: what forecasts of it are about.
func AtPositions(p *plan.Plan, phase string, positions int64) (*plan.Plan, error) {
	if phase != "" {
		view, err := p.Phase(phase)
		if err != nil {
			return nil, err
		}
		p = view
	}
	q := *p
	q.Phases, q.Programs = nil, append([]plan.Program(nil), p.Programs...)
	for i := range q.Programs {
		g := *q.Programs[i].Graph
		g.Nodes = append(g.Nodes[:0:0], g.Nodes...)
		for n := range g.Nodes {
			if g.Nodes[n].Kind.ReadsCache() {
				g.Nodes[n].Attr.Document = positions
			}
		}
		q.Programs[i].Graph = &g
	}
	return &q, nil
}

// Filled is a step of a plan to generate, forecast for sequences that have so many
// positions; "" is the main phase.
func Filled(p *plan.Plan, site goal.Site, phase string, positions int64) (*plan.Forecast, error) {
	q, err := AtPositions(p, phase, positions)
	if err != nil {
		return nil, err
	}
	f, err := forecast.Step(q, site)
	if err != nil {
		return nil, fmt.Errorf("a step over %d positions: %w", positions, err)
	}
	return f, nil
}

// ForDecoding is a plan to generate, chosen anew where it streams weights: a chunk of a prompt
// computes long enough to hide transfers that a token waits for. The search is for
// the step that adds a token to every sequence then, within what the largest leaves of the device, and with the CPU computing
// blocks where that is faster. It takes the model traced for both, and for more rows.
func ForDecoding(p *plan.Plan, main, decode *spec.Model, g goal.Goal, site goal.Site, more Rows) (*plan.Plan, error) {
	p, err := streamForDecoding(p, main, decode, g, site)
	if err != nil {
		return nil, err
	}
	var c strategy.Choice
	if err := json.Unmarshal(p.Choices, &c); err != nil || strategy.Count(c.Streamed) == 0 {
		return p, err
	}
	return shareWithCPU(p, main, decode, g, site, more)
}

// streamForDecoding chooses anew what streams.
func streamForDecoding(p *plan.Plan, main, decode *spec.Model, g goal.Goal, site goal.Site) (*plan.Plan, error) {
	var c strategy.Choice
	if err := json.Unmarshal(p.Choices, &c); err != nil {
		return nil, fmt.Errorf("planning the steps of %s: %w", p.Model, err)
	}
	if strategy.Count(c.Streamed) == 0 {
		return p, nil
	}
	l, err := layout.New(decode, g, site)
	if err != nil {
		return nil, err
	}
	now, err := write(emit.NewWriter(l), c)
	if err != nil {
		return nil, err
	}
	less := site
	less.Budgets = nil
	for i, a := range now.Arenas {
		if a.Tier == plan.OnDevice {
			less.Budget = min(less.Budget, site.DeviceBudget(a.Device)-max(p.Arenas[i].Bytes-a.Bytes, 0))
		}
	}
	next, err := Make(decode, g, less)
	if err != nil {
		return p, nil // what was found fits
	}
	before, err := forecast.Of(now, site)
	if err != nil || next.Forecast.StepSeconds > worthwhile*before.StepSeconds {
		return p, err
	}
	if err := json.Unmarshal(next.Choices, &c); err != nil {
		return nil, err
	}
	if l, err = layout.New(main, g, site); err != nil {
		return nil, err
	}
	q, err := write(emit.NewWriter(l), c)
	if err != nil {
		return nil, err
	}
	if n := DemandOf(q, site.SharedMemory, 1); n.lacks() > 0 || n.Host > site.HostBudget || n.Disk > site.Disk.Budget {
		return p, nil
	}
	q, f, err := forecast.CaptureIfFaster(q, site)
	if err != nil {
		return nil, err
	}
	q.Forecast = f
	q.Reason = fmt.Sprintf("%s; a token takes %s instead of %s with what is fastest for prompts", p.Reason, units.Seconds(next.Forecast.StepSeconds), units.Seconds(before.StepSeconds))
	q.Rejected = p.Rejected
	return q, plan.Verify(q)
}
