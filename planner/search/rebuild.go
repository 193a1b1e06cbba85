package search

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"spillway/plan"
	"spillway/planner/emit"
	"spillway/planner/goal"
	"spillway/planner/layout"
	"spillway/planner/pass"
	"spillway/planner/strategy"
	"spillway/spec"
)

// Rebuild writes a plan from a file again, from its choices, and refuses it where anything
// that would be carried out differs: a plan that was changed by hand or by a fault, or that
// was made for another model, goal or kind of device. What only describes the plan, such as
// its forecast, is taken from the file.
// A plan to generate has the phases of some steps.
func Rebuild(m *spec.Model, g goal.Goal, site goal.Site, from *plan.Plan, steps ...Step) (*plan.Plan, error) {
	l, err := layout.New(m, g, site)
	if err != nil {
		return nil, err
	}
	c, err := readChoice(from, l)
	if err != nil {
		return nil, err
	}
	p, err := write(emit.NewWriter(l), c)
	if err != nil {
		return nil, err
	}
	if from.Captured && p.CanCapture() {
		p = p.Capture()
	}
	if len(steps) > 0 {
		p.Choices = from.Choices
		if p, err = writeSteps(p, g, site, steps); err != nil {
			return nil, err
		}
		for i := range min(len(p.Phases), len(from.Phases)) {
			if from.Phases[i].Captured {
				view, err := p.Phase(p.Phases[i].Name)
				if err != nil {
					return nil, err
				}
				capturePhase(&p.Phases[i], view)
			}
			p.Phases[i].Seconds = from.Phases[i].Seconds
		}
	}
	for _, ph := range from.Phases[min(len(p.Phases), len(from.Phases)):] {
		if ph.Name != plan.Evaluate {
			return nil, fmt.Errorf("its phase %q is not known", ph.Name)
		}
		if p, err = WithEvaluation(p, site); err != nil {
			return nil, err
		}
		p.Phases[len(p.Phases)-1].Seconds = ph.Seconds
	}
	p.Strategy, p.Strategies, p.Reason, p.Choices, p.Forecast, p.Rejected = from.Strategy, from.Strategies, from.Reason, from.Choices, from.Forecast, from.Rejected
	for i := range min(len(p.Devices), len(from.Devices)) {
		// What was free then, next to the context; what is free now is compared elsewhere.
		p.Devices[i].Budget, p.Devices[i].Context = from.Devices[i].Budget, from.Devices[i].Context
	}
	if err := sameParts(from, p); err != nil {
		return nil, err
	}
	return p, plan.Verify(p)
}

// readChoice takes the choices of a plan, if they can be those of a plan for the model on the
// site.
func readChoice(p *plan.Plan, l *layout.Layout) (c strategy.Choice, err error) {
	d := json.NewDecoder(bytes.NewReader(p.Choices))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, fmt.Errorf("its choices cannot be read: %w", err)
	}
	slabs, blocks, devices := len(l.Slabs.List), len(l.Model.Blocks), max(l.Site.Devices, 1)
	var elements int64
	for _, s := range l.Slabs.List {
		elements += s.Elements
	}
	for _, n := range []int{len(c.Streamed), len(c.OffloadedState), len(c.OnDisk)} {
		if n != slabs {
			return c, fmt.Errorf("its choices are for %d slabs, the model has %d", n, slabs)
		}
	}
	bad := func(format string, args ...any) error { return fmt.Errorf("among its choices, "+format, args...) }
	switch {
	case len(c.Level) != blocks || len(c.OffloadedActivations) != blocks:
		return c, fmt.Errorf("its choices are for %d blocks, the model has %d", len(c.Level), blocks)
	case c.UpdatedByCPU != nil && len(c.UpdatedByCPU) != slabs || c.Split != nil && len(c.Split) != blocks:
		return c, bad("updates by the CPU are for %d slabs and the split for %d blocks, the model has %d and %d", len(c.UpdatedByCPU), len(c.Split), slabs, blocks)
	case c.CPURows != nil && (len(c.CPURows) != blocks || slices.ContainsFunc(c.CPURows, func(n int64) bool { return n < 0 || n > strategy.AllRows })):
		return c, bad("the CPU computes up to %v rows of the %d blocks", c.CPURows, blocks)
	case c.Devices < 0 || c.Devices > devices:
		return c, bad("%d devices work, there are %d", c.Devices, devices)
	case slices.ContainsFunc(c.Level, func(v strategy.Level) bool { return v < strategy.SaveAll || v > strategy.SaveNone }):
		return c, bad("a block saves at a level that is not known")
	case slices.ContainsFunc(c.Split, func(d int) bool { return d < 0 || d >= c.DeviceCount() }):
		return c, bad("a block is on a device beyond the %d that work", c.DeviceCount())
	case c.Pipeline && c.Split == nil || c.ShardWeights && !c.ShardGradients:
		return c, bad("a pipeline without a split, or weights sharded without gradients")
	case c.PackedBy < 0 || c.PackedBy >= pass.Orders:
		return c, bad("an order of packing %d; there are %d", c.PackedBy, pass.Orders)
	case c.HeldRuns < 0 || c.HeldRuns > 1<<20 || c.PrefetchActivations != nil && len(c.PrefetchActivations) != blocks:
		return c, bad("activations that are held for %d runs, and fetched beforehand for %d of %d blocks", c.HeldRuns, len(c.PrefetchActivations), blocks)
	case c.Prefetch < 0 || c.Prefetch > slabs+1 || c.PrefetchStates < 0 || c.PrefetchStates > 1<<20:
		return c, bad("prefetch depths of %d and %d for %d slabs", c.Prefetch, c.PrefetchStates, slabs)
	case c.Rounds < 0 || c.Rounds > l.Goal.MicroBatches:
		return c, bad("%d rounds of %d micro-batches", c.Rounds, l.Goal.MicroBatches)
	case c.PieceElements < 0 || c.PieceElements > 0 && elements/c.PieceElements > int64(len(p.Instructions)):
		return c, bad("pieces of %d elements in a plan of %d instructions", c.PieceElements, len(p.Instructions))
	}
	return l.Allowed(c), nil
}

// sameParts compares two plans part by part, and names the first thing that differs.
func sameParts(from, made *plan.Plan) error {
	a, b := reflect.ValueOf(from).Elem(), reflect.ValueOf(made).Elem()
	for i := range a.NumField() {
		name := a.Type().Field(i).Name
		x, y := a.Field(i), b.Field(i)
		if x.Kind() == reflect.Slice && x.Type().Elem().Kind() != reflect.Uint8 {
			for k := range min(x.Len(), y.Len()) {
				if err := sameJSON(fmt.Sprintf("%s[%d]", name, k), x.Index(k), y.Index(k)); err != nil {
					return err
				}
			}
			if x.Len() != y.Len() {
				return fmt.Errorf("it has %d %s, its choices give %d", x.Len(), name, y.Len())
			}
			continue
		}
		if err := sameJSON(name, x, y); err != nil {
			return err
		}
	}
	return nil
}

// sameJSON compares two values by how they are written.
func sameJSON(name string, a, b reflect.Value) error {
	x, err := json.Marshal(a.Interface())
	if err != nil {
		return err
	}
	y, err := json.Marshal(b.Interface())
	if err == nil && !bytes.Equal(x, y) {
		at := 0
		for at < min(len(x), len(y)) && x[at] == y[at] {
			at++
		}
		around := func(s []byte) []byte { return s[max(at-40, 0):min(at+40, len(s))] }
		err = fmt.Errorf("%s is not what its choices give: …%s… for …%s…", name, around(x), around(y))
	}
	return err
}
