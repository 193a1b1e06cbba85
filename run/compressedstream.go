package run

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"spillway/dtype"
	"spillway/plan"
	"spillway/planner"
	"spillway/units"
)

// Next to a GPU weights in 12 bits are for those that stream: they are a quarter less to store in host memory and to
// bring over the link, for the CPU that computes some blocks a quarter less to read, and of the GPU's own memory they
// take less too. The GPU decodes them right before it multiplies by them, see graph.Decoded.

// planPlain is the plan with weights in bf16 that one with compressed weights is compared with; nil where none fits. It is an error where all that could
// be compressed stay on the device. It is made first, so that kernels it asks for count when the other one is.
func (m *Model) planPlain(o Options, names map[string]bool) (*Run, error) {
	o.CompressWeights, o.tries = CompressOff, true
	plain, err := m.Plan(o)
	var lacks *planner.FitError
	switch {
	case errors.As(err, &lacks):
		return nil, nil
	case err != nil:
		return nil, err
	case !offDevice(plain.Plan, names):
		return nil, &SettingError{Err: fmt.Errorf("compressed weights, and all that could be of %s stay on %s in bf16, where to decode them for every step would only take longer; leave the setting out", m.Name, plain.Options.Device)}
	}
	return plain, nil
}

// comparedWith says what a step of a plan with compressed weights, of so many that could be, is forecast to take next to one with weights in bf16.
func (r *Run) comparedWith(plain *Run, could int) (said string, err error) {
	if more := could - len(r.Options.compressedWeights); more > 0 {
		said = fmt.Sprintf(", and %d of the blocks before it, for which %s has room", more, r.Options.Device)
	}
	if plain == nil {
		return said + "; in bf16 the model does not fit", nil
	}
	before, err := plain.usualStep()
	if err != nil {
		return "", err
	}
	after, err := r.usualStep()
	if err != nil {
		return "", err
	}
	return said + fmt.Sprintf("; a step is forecast to take %s instead of %s", units.Seconds(after), units.Seconds(before)), nil
}

// offDevice says whether a plan stores some of the params off the device.
func offDevice(p *plan.Plan, names map[string]bool) bool {
	return slices.ContainsFunc(p.Slabs, func(s plan.Slab) bool {
		return p.TierOf(s.Weight) != plan.OnDevice && slices.ContainsFunc(s.Params, func(q plan.SlabParam) bool { return names[q.Name] })
	})
}

// usualStep is the forecast of a pass, or of the step that adds a token to every sequence. Seconds.
func (r *Run) usualStep() (float64, error) {
	if r.Options.Task != Generate {
		return r.Plan.Forecast.StepSeconds, nil
	}
	f, err := r.ForecastStep(r.Options.Generation.Streams, r.Options.Generation.Context)
	return f.Seconds, err
}

// decodesLess is a plan with fewer weights compressed where all of them are on the device and it has memory left: those of its last
// blocks need not be decoded for every step then.
func (m *Model) decodesLess(packed Options, r *Run) *Run {
	names, spare := packed.compressedWeights, r.site.DeviceBudget(0)-r.Plan.Peak()[plan.OnDevice]
	if r.site.Devices > 1 || offDevice(r.Plan, names) {
		return r
	}
	plain := []map[string]bool{maps.Clone(names)} // by how many blocks are not compressed: what still is
	for _, b := range slices.Backward(r.Spec.Blocks) {
		rest := maps.Clone(plain[len(plain)-1])
		for _, id := range b.Params {
			if p := r.Spec.Params[id]; rest[p.Name] {
				delete(rest, p.Name)
				spare -= dtype.BF16.Bytes(p.Type.Shape.Elements()) - p.Type.Bytes()
			}
		}
		if spare < 0 || len(rest) == 0 {
			break
		}
		if len(rest) < len(plain[len(plain)-1]) {
			plain = append(plain, rest)
		}
	}
	const tries = 3 // what a block takes in a plan is a little more than its weights
	for n := len(plain) - 1; n > max(0, len(plain)-1-tries); n-- {
		packed.compressedWeights, packed.tries = plain[n], true
		if fewer, err := packed.withinDriver(m.plan); err == nil && !offDevice(fewer.Plan, names) && !readsDisk(fewer.Plan) {
			return fewer
		}
	}
	return r
}
