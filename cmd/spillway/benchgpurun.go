package main

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"spillway"
	"spillway/dtype"
	"spillway/executor"
	"spillway/machine"
	"spillway/op"
	"spillway/optim"
	"spillway/plan"
	"spillway/probe"
	"spillway/spec"
	"spillway/units"
	"spillway/weights"
)

// measure plans, runs and times the row on a card of its own. The rig is closed
// before and after.
func (g *gpuRow) measure(ctx context.Context, sh shell, here *rig, rates probe.Rates) (err error) {
	began := time.Now()
	here.choice.cards[0].TF32 = g.tf32
	if err := here.open(sh, 0); err != nil {
		return joinClose(err, here)
	}
	defer func() { err = joinClose(err, here) }()
	m, err := openBench(g.model)
	if err != nil {
		return err
	}
	defer m.Close() // opened for reading
	job, err := m.Plan(g.request(here.machine, here))
	if err != nil {
		return err
	}
	g.DriverPredicted = here.predicted(job.Plan)
	e, err := job.StartEmpty()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	if err := errors.Join(fillNoise(e, job.Spec.Params), fillParts(e, m.Info.Vocab)); err != nil {
		return err
	}
	g.Prepare = time.Since(began).Seconds()
	if err := g.iterate(ctx, e); err != nil {
		return err
	}
	g.account(job.Plan, g.rate(rates), rates)
	g.Driver, err = here.held()
	return err
}

// iterate runs the iterations that are timed, and those that tell more.
func (g *gpuRow) iterate(ctx context.Context, e *executor.Executor) error {
	numbers, err := adamNumbers()
	if err != nil {
		return err
	}
	once := func() error { return e.Iterate(ctx, numbers) }
	if g.twin != "" {
		if g.Digest, err = digestAfter(gpuTwinned, e, once); err != nil {
			return err
		}
	}
	best, err := bestOf(gpuTries, once)
	if err != nil {
		return err
	}
	g.Seconds = best.Seconds()
	return g.follow(e, once)
}

// gpuTries is how many iterations are timed.
const gpuTries = 4

// gpuTwinned is after how many iterations rows that are one training have their bits compared.
const gpuTwinned = 3

func joinClose(err error, r *rig) error { return errors.Join(err, r.close()) }

// request completes the options of the row for a machine, whose f32 arithmetic is the
// rounded one where the row wants that.
func (g *gpuRow) request(m machine.Machine, here *rig) spillway.PlanOptions {
	o := g.options
	o.Machine, o.Device, o.On = m, m.Devices[0].Name, here.on
	if g.tf32 {
		o.Machine.Devices = slices.Clone(m.Devices)
		o.Machine.Devices[0] = rounding(m.Devices[0])
	}
	return o
}

// rate of the row's products, as measured.
func (g *gpuRow) rate(r probe.Rates) units.Flops {
	if g.tf32 {
		return max(r.Compute.F32, r.Compute.TF32)
	}
	return r.Compute.Rate(g.options.Precision)
}

// account holds the time against the bound that the same run measured.
func (g *gpuRow) account(p *plan.Plan, products units.Flops, rates probe.Rates) {
	f, peak := p.Forecast, p.Peak()
	g.Arena, g.Host, g.Forecast = peak[plan.OnDevice], peak[plan.OnHost]+peak[plan.Pinned], f.StepSeconds
	bounds := map[string]float64{
		"arithmetic": f.Flops / float64(products), "link in": float64(f.BytesIn) / float64(rates.In), "link out": float64(f.BytesOut) / float64(rates.Out),
	}
	for _, name := range slices.Sorted(maps.Keys(bounds)) {
		if bounds[name] > g.BoundSeconds {
			g.Bound, g.BoundSeconds = name, bounds[name]
		}
	}
	g.Share = g.BoundSeconds / g.Seconds
	g.Useful, g.LinkIn = usefulFlops(p)/g.Seconds, float64(f.BytesIn)/g.Seconds
}

// usefulFlops is the arithmetic of the model itself: 2 operations per param and token
// forward, with the backward 6, or 4 where the param is frozen.
func usefulFlops(p *plan.Plan) (sum float64) {
	for _, s := range p.Slabs {
		for _, w := range s.Params {
			per := 2.0
			switch {
			case p.Update != nil && w.Frozen():
				per = 4
			case p.Update != nil:
				per = 6
			}
			sum += per * float64(w.Type.Shape.Elements())
		}
	}
	return sum * float64(p.Rows*p.Seq*int64(p.Micros))
}

// adamNumbers are an iteration's, of AdamW as it comes.
func adamNumbers() (n executor.Numbers, err error) {
	o, err := optim.Parse("adamw")
	if err != nil {
		return n, err
	}
	n.Optimizer, err = o.Args(1, o.LR, true)
	return n, err
}

// fillParts fills the batch: tokens and targets at random, positions in order, other
// numbers small.
func fillParts(e *executor.Executor, vocabulary int64) error {
	p := e.Plan()
	for micro := range p.Micros {
		for _, part := range p.Parts {
			raw, err := e.Part(micro, part.Name)
			if err != nil {
				return err
			}
			fillPart(raw, part.Name, part.Type, max(vocabulary, 1), p)
		}
	}
	return nil
}

func fillPart(raw []byte, name string, t op.Type, vocabulary int64, p *plan.Plan) {
	last, width := t.Shape.Last(), int(t.DType.Bytes(1))
	for i := range t.Shape.Elements() {
		u := op.Uniform(1, 0, uint64(i))
		word := math.Float32bits(u - 0.5)
		switch {
		case name == "scale":
			word = math.Float32bits(1 / float32(p.Rows*p.Seq*int64(p.Micros)))
		case name == "seed":
			word = math.Float32bits(1)
		case name == "positions":
			word = uint32(i % last)
		case t.DType == dtype.I32:
			word = uint32(u * float32(vocabulary))
		case t.DType == dtype.BF16:
			word >>= 16
		}
		if width == 2 {
			binary.LittleEndian.PutUint16(raw[2*i:], uint16(word))
		} else {
			binary.LittleEndian.PutUint32(raw[4*i:], word)
		}
	}
}

// fillNoise gives weights small random numbers, faster than starting them well:
// the time of an iteration is the same. Moments begin at zero.
func fillNoise(e *executor.Executor, params []spec.Param) error {
	source, err := weights.Noise(params, 1)
	if err != nil {
		return err
	}
	return weights.Replace(e, source)
}
