package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"spillway"
	"spillway/autograd"
	"spillway/device"
	"spillway/dtype"
	"spillway/executor"
	"spillway/internal/stopwatch"
	"spillway/machine"
	"spillway/op"
	"spillway/optim"
	"spillway/plan"
	"spillway/rig"
	"spillway/run"
	"spillway/units"
)

// measure plans, runs and times the row on a freshly opened GPU. The rig is closed before and
// after.
func (g *GPURow) measure(ctx context.Context, here *rig.Rig, rates machine.Device) (err error) {
	began := stopwatch.Now()
	if err := here.Reopen(); err != nil {
		return joinClose(err, here)
	}
	if d, can := here.Devices[0].(device.TF32); can {
		d.SetTF32(g.tf32)
	}
	defer func() { err = joinClose(err, here) }()
	m, err := openBench(g.model)
	if err != nil {
		return err
	}
	defer m.Close() // opened for reading
	job, err := m.Plan(g.request(here.Machine, here))
	if err != nil {
		return err
	}
	g.DriverPredicted = run.DriverPredicted(here, job.Plan)
	if err := g.recordGrowth(here, "planned"); err != nil {
		return err
	}
	job.Loading = func(int64, int64) error { return ctx.Err() }
	if err := job.StartNoise(1); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, job.Close()) }()
	e := job.Executor()
	if err := fillParts(e, m.Info.Vocab, g.documents); err != nil {
		return err
	}
	g.Prepare = stopwatch.Since(began).Seconds()
	if err := g.recordGrowth(here, "started"); err != nil {
		return err
	}
	if err := g.iterate(ctx, e, func() error { return g.recordGrowth(here, "timed") }); err != nil {
		return err
	}
	g.account(job.Plan, rates)
	g.Captured = e.ReplaysGraph()
	return g.recordGrowth(here, "traced")
}

// recordGrowth records what the driver counts at the end of a stage.
func (g *GPURow) recordGrowth(here *rig.Rig, name string) error {
	held, err := here.DriverUsed()
	g.Growth = append(g.Growth, GPUStage{name, held - g.Driver})
	g.Driver = held
	return err
}

// iterate runs the iterations that are timed, calls timed after them, and runs one more with
// tracing.
func (g *GPURow) iterate(ctx context.Context, e *executor.Executor, timed func() error) error {
	numbers, err := adamNumbers()
	if err != nil {
		return err
	}
	once := func() error { return e.Iterate(ctx, numbers) }
	if g.twin != "" {
		if g.Digest, err = digestAfter(twinIterations, e, once); err != nil {
			return err
		}
	}
	if err := g.time(warmUp(e.Plan().Forecast), once); err != nil {
		return err
	}
	if err := timed(); err != nil {
		return err
	}
	return g.traceIteration(e, once)
}

// How iterations are timed. A GPU that computes most of the time is slower after a second
// than at first, and the sustained speed counts.
const (
	gpuWarmUp    = time.Second
	gpuTimed     = 500 * time.Millisecond
	gpuTries     = 4 // at least
	gpuComputing = 0.5
)

// warmUp is how long iterations of a plan run before their time counts.
func warmUp(f *plan.Forecast) time.Duration {
	if f.Busy["compute"] < gpuComputing {
		return 0
	}
	return gpuWarmUp
}

// time runs iterations and times all but the first, which prepares the others.
func (g *GPURow) time(settles time.Duration, once func() error) error {
	var sustained []float64
	start := stopwatch.Now()
	for n := 0; len(sustained) < gpuTries || stopwatch.Since(start) < settles+gpuTimed; n++ {
		began := stopwatch.Now()
		if err := once(); err != nil {
			return err
		}
		took := stopwatch.Since(began).Seconds()
		if n > 0 && (g.Best == 0 || took < g.Best) {
			g.Best = took
		}
		if n > 0 && began.Sub(start) >= settles {
			sustained = append(sustained, took)
		}
	}
	slices.Sort(sustained)
	g.Seconds = sustained[len(sustained)/2]
	return nil
}

// twinIterations is after how many iterations the bits of twins are compared.
const twinIterations = 3

func joinClose(err error, r *rig.Rig) error { return errors.Join(err, r.Close()) }

// request completes the options of the row for a machine. Where the row computes in TF32, so
// does the machine.
func (g *GPURow) request(m machine.Machine, here *rig.Rig) spillway.Options {
	o := g.options
	o.Machine, o.Device, o.On = m, m.Devices[0].Name, here.Devices
	if g.tf32 {
		o.Machine.Devices = slices.Clone(m.Devices)
		o.Machine.Devices[0] = rig.AsTF32(m.Devices[0])
	}
	return o
}

// rate is the measured rate of the row's matmuls.
func (g *GPURow) rate(c machine.Compute) units.Flops {
	if g.tf32 {
		return max(c.F32, c.TF32)
	}
	return c.Rate(g.options.Precision)
}

// account compares the time with the bounds, at the rates that the same run measured.
func (g *GPURow) account(p *plan.Plan, rates machine.Device) {
	f, peak := p.Forecast, p.Peak()
	g.Arena, g.Host, g.Forecast = peak[plan.OnDevice], peak[plan.OnHost]+peak[plan.Pinned], f.StepSeconds
	g.Burst = g.bound(f, g.rate(rates.Compute), rates)
	g.Sustained = g.bound(f, g.rate(rates.Sustained.Or(rates.Compute)), rates)
	g.Useful, g.LinkIn = usefulFlops(p)/g.Seconds, float64(f.BytesIn)/g.Seconds
}

// bound is the bound of the row with matmuls at some rate.
func (g *GPURow) bound(f *plan.Forecast, matmuls units.Flops, rates machine.Device) (b GPUBound) {
	bounds := map[string]float64{"arithmetic": f.Flops / float64(matmuls)}
	for name, link := range map[string]struct {
		bytes int64
		rate  units.Rate
	}{"link in": {f.BytesIn, rates.Link.In}, "link out": {f.BytesOut, rates.Link.Out}, "link both ways": {f.BytesIn + f.BytesOut, rates.Link.BothWays()}} {
		bounds[name] = link.rate.Time(units.Bytes(link.bytes)).Seconds()
	}
	for _, name := range slices.Sorted(maps.Keys(bounds)) {
		if bounds[name] > b.Seconds {
			b.By, b.Seconds = name, bounds[name]
		}
	}
	b.Share = b.Seconds / g.Seconds
	return b
}

// usefulFlops is the arithmetic of the model itself: 2 operations per param and token forward,
// 6 with backward, or 4 where the param is frozen.
func usefulFlops(p *plan.Plan) (sum float64) {
	for _, s := range p.Slabs {
		for _, w := range s.Params {
			per := 6.0
			if p.Optimizer == nil {
				per = 2
			} else if w.Frozen() {
				per = 4
			}
			sum += per * float64(w.Type.Shape.Elements())
		}
	}
	return sum * float64(p.MicroBatchSize*p.Seq*int64(p.MicroBatches))
}

// adamNumbers are the arguments of an iteration with AdamW and its defaults.
func adamNumbers() (n executor.IterationArgs, err error) {
	o, err := optim.Parse("adamw")
	if err != nil {
		return n, err
	}
	n.Optimizer, err = o.Scalars(1, benchLR, true)
	n.NoDecay = n.Optimizer
	return n, err
}

// benchLR leaves weights near where they started. A run that diverges has subnormal gradients,
// which take a CPU many times as long.
const benchLR = 1e-6

// fillParts fills the batch: random tokens and targets, documents of some tokens on average with
// their positions in order, small numbers elsewhere. Documents of 0 tokens are as long as
// sequences.
func fillParts(e *executor.Executor, vocabulary, documents int64) error {
	p := e.Plan()
	for micro := range p.MicroBatches {
		for _, part := range p.Batch {
			raw, err := e.BatchTensor(micro, part.Name)
			if err != nil {
				return err
			}
			if fillPart(raw, part.Name, part.Type, max(vocabulary, 1), p); documents > 0 && (part.Name == "segments" || part.Name == "positions") {
				fillDocuments(raw, part.Name == "positions", p.Seq, documents)
			}
		}
	}
	return nil
}

// fillDocuments writes which document each position is in, or its position there.
func fillDocuments(raw []byte, positions bool, seq, documents int64) {
	for at := int64(0); at < int64(len(raw))/4; {
		for number, n := range documentLengths(at/seq, seq, documents) {
			for i := range n {
				word := uint32(number)
				if positions {
					word = uint32(i)
				}
				binary.LittleEndian.PutUint32(raw[4*at:], word)
				at++
			}
		}
	}
}

func fillPart(raw []byte, name string, t op.Type, vocabulary int64, p *plan.Plan) {
	last, width := t.Shape.Last(), int(t.DType.Bytes(1))
	for i := range t.Shape.Elements() {
		u := op.Uniform(1, 0, uint64(i))
		word := math.Float32bits(u - 0.5)
		switch {
		case name == "scale":
			word = math.Float32bits(1 / float32(p.MicroBatchSize*p.Seq*int64(p.MicroBatches)))
		case name == autograd.LossScale:
			word = math.Float32bits(1)
		case name == "segments":
			word = 0
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
