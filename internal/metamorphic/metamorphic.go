// Package metamorphic trains one small model under random plans and compares the
// outcomes. Any two sound plans of a training must give the same losses and the
// same weights: bit for bit where their sums have the same order, within a stated
// bound where devices sum apart. It is the deepest test of planner and executor.
package metamorphic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"

	"spillway/autograd"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/executor"
	"spillway/op"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner"
	"spillway/spec"
	"spillway/store"
	"spillway/weights"
)

// Outcome of a training.
type Outcome struct {
	Losses  []float64
	Weights uint64    // hash of all weights and optimizer state
	Sample  []float32 // of the weights, for comparing within a bound
}

// Train runs iterations of a plan on CPU devices, one per device of the plan, and a
// disk in a folder, with weights and batches that depend on the seed alone.
func Train(m *spec.Model, p *plan.Plan, folder string, seed uint64, iterations int) (out Outcome, err error) {
	r, err := start(m, p, folder, seed)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	for i := range iterations {
		if err := r.iterate(i); err != nil {
			return out, err
		}
		out.Losses = append(out.Losses, r.e.Loss())
		if i%2 == 1 { // as if it were saved; other iterations leave what they owe to the next
			if err := r.e.Flush(); err != nil {
				return out, err
			}
		}
	}
	return out, out.collect(r.e)
}

// run is a training under way.
type run struct {
	model   *spec.Model
	seed    uint64
	devices []device.Device
	e       *executor.Executor
}

// start claims what a plan takes and fills in the weights.
func start(m *spec.Model, p *plan.Plan, folder string, seed uint64) (r *run, err error) {
	r = &run{model: m, seed: seed}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	for _, d := range p.Devices {
		dev, err := open(d, folder)
		if err != nil {
			return r, err
		}
		r.devices = append(r.devices, dev)
	}
	if r.e, err = executor.New(p, r.devices); err != nil {
		return r, err
	}
	source, err := weights.Random(m.Params, seed)
	if err != nil {
		return r, err
	}
	return r, errors.Join(r.e.WriteConstants(), weights.Load(r.e, source))
}

// iterate trains one iteration on its batch.
func (r *run) iterate(i int) error {
	if err := fill(r.e, r.model, r.seed, i); err != nil {
		return err
	}
	args, err := iterationArgs(r.seed, i, r.e.Plan())
	if err != nil {
		return err
	}
	return r.e.Iterate(context.Background(), args)
}

func (r *run) close() (err error) {
	if r.e != nil {
		err = r.e.Close()
	}
	for _, d := range r.devices {
		err = errors.Join(err, d.Close())
	}
	return err
}

func open(d plan.Device, folder string) (device.Device, error) {
	if d.Name == planner.DiskName {
		return store.Open(store.Options{Dir: folder, Limit: d.Budget})
	}
	return cpu.Open(cpu.Options{Threads: 1, Limit: d.Budget}), nil
}

// limits of the gradient norm, by iteration: some are far below it, one never is reached.
var maxNorms = []float32{0.5, 1e9, 0.05}

func iterationArgs(seed uint64, i int, p *plan.Plan) (executor.IterationArgs, error) {
	n := executor.IterationArgs{Seed: seed, Iteration: uint64(i), FirstSequence: uint64(i) * uint64(p.MicroBatchSize) * uint64(p.MicroBatches), MaxNorm: maxNorms[i%len(maxNorms)]}
	if p.Optimizer == nil {
		return n, nil
	}
	c, err := optim.Parse(optimizers[p.Optimizer.Rule])
	if err != nil {
		return n, err
	}
	if n.Optimizer, err = c.Scalars(i+1, c.LR, true); err != nil {
		return n, err
	}
	n.NoDecay, err = c.Scalars(i+1, c.LR, false)
	return n, err
}

// optimizers are what plans are carried out with, by the op of their update.
var optimizers = map[op.Kind]string{
	optim.Adam: "adamw:lr=0.01,weight_decay=0.1", optim.SGD: "sgd:lr=0.01,weight_decay=0.1,momentum=0.9",
	optim.Lion: "lion:lr=0.01,weight_decay=0.1", optim.Adafactor: "adafactor:lr=0.01,weight_decay=0.1",
}

// fill writes a batch: every part of every micro-batch from the global index of its
// rows, so that splitting a batch differently gives the same samples.
func fill(e *executor.Executor, m *spec.Model, seed uint64, iteration int) error {
	p := e.Plan()
	total := float32(p.MicroBatchSize) * float32(p.MicroBatches) * float32(max(p.Seq, 1))
	for j := range p.MicroBatches {
		for _, part := range p.Batch {
			raw, err := e.BatchTensor(j, part.Name)
			if err != nil {
				return err
			}
			switch part.Name {
			case "scale":
				put(raw, 0, math.Float32bits(1/total))
				continue
			case autograd.LossScale:
				put(raw, 0, math.Float32bits(1))
				continue
			}
			fillRows(raw, part, m, rand.New(rand.NewPCG(seed, uint64(iteration)<<32|uint64(j))))
		}
	}
	return nil
}

// fillRows writes one part by what its name means.
func fillRows(raw []byte, part plan.BatchTensor, m *spec.Model, r *rand.Rand) {
	seq := part.Type.Shape.Last()
	for i := range part.Type.Shape.Elements() {
		var bits uint32
		switch part.Name {
		case "tokens", "targets":
			bits = uint32(r.IntN(50))
		case "positions":
			bits = uint32(i % seq)
		case "segments":
			bits = uint32(i % seq * 2 / seq)
		case "key_mask":
			bits = 1
		default:
			bits = math.Float32bits(float32(r.NormFloat64()))
		}
		put(raw, i, bits)
	}
}

func put(raw []byte, i int64, bits uint32) { binary.LittleEndian.PutUint32(raw[4*i:], bits) }

// collect hashes weights and state, by name, and takes a sample of the weights.
func (o *Outcome) collect(e *executor.Executor) error {
	sums := map[string]uint64{}
	for _, t := range append(e.Weights(), e.States()...) {
		h := fnv.New64a()
		err := e.Read(t, func(_ int64, chunk []byte) error {
			h.Write(chunk)
			for i := 0; t.State == "" && i+4 <= len(chunk); i += 4 * 37 {
				o.Sample = append(o.Sample, math.Float32frombits(binary.LittleEndian.Uint32(chunk[i:])))
			}
			return nil
		})
		if err != nil {
			return err
		}
		sums[t.Param.Name+" "+t.State] = h.Sum64()
	}
	for name, sum := range sums { // order does not matter to a sum
		o.Weights += op.Key(sum, hashString(name))
	}
	return nil
}

func hashString(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return h.Sum64()
}

// Same says whether two outcomes are equal bit for bit.
func (o Outcome) Same(p Outcome) error {
	for i := range o.Losses {
		if o.Losses[i] != p.Losses[i] {
			return fmt.Errorf("iteration %d: losses %v and %v", i, o.Losses[i], p.Losses[i])
		}
	}
	if o.Weights != p.Weights {
		return fmt.Errorf("the losses are equal, weights or optimizer state are not")
	}
	return nil
}

// Near says whether losses and weights agree within a bound relative to the
// largest.
func (o Outcome) Near(p Outcome, bound float64) error {
	for i := range o.Losses {
		if d := math.Abs(o.Losses[i] - p.Losses[i]); !(d <= bound*math.Abs(o.Losses[i])) {
			return fmt.Errorf("iteration %d: losses %v and %v", i, o.Losses[i], p.Losses[i])
		}
	}
	return nil
}

// Choice is a random choice for so many devices and micro-batches, and whether its
// sums have the order of one device's.
func RandomChoice(r *rand.Rand, micros int) (choose func(slabs, blocks int) planner.Choice, sameOrder func(tied bool) bool) {
	devices, way, disk, host := 1, r.IntN(7), r.IntN(4) == 0, r.IntN(3) == 0
	if way >= 2 {
		devices = 2 + r.IntN(2)
	}
	choose = func(slabs, blocks int) planner.Choice {
		c := planner.Choice{Streamed: make([]bool, slabs), OffloadedState: make([]bool, slabs), Level: make([]planner.Level, blocks), OffloadedActivations: make([]bool, blocks), OnDisk: make([]bool, slabs),
			Prefetch: 1 + r.IntN(4), PrefetchStates: r.IntN(3), PieceElements: 256 * int64(1+r.IntN(8)), BreadthFirst: r.IntN(2) == 0, DelayedReuse: r.IntN(2) == 0, DelayedUpdates: r.IntN(2) == 0, Devices: devices}
		for i := range slabs {
			c.Streamed[i], c.OffloadedState[i] = r.IntN(2) == 0, r.IntN(2) == 0
			c.OnDisk[i] = disk && r.IntN(2) == 0
			c.UpdatedByCPU = append(c.UpdatedByCPU, host && r.IntN(3) > 0)
		}
		for i := range blocks {
			c.Level[i], c.OffloadedActivations[i] = planner.Level(r.IntN(4)), r.IntN(3) == 0
		}
		switch way {
		case 2, 3, 4:
			c.ShardGradients, c.ShardWeights = way >= 3, way == 4
		case 5, 6:
			c.Pipeline, c.Split = way == 6, make([]int, blocks)
			stages := devices * (1 + r.IntN(2))
			for i := range c.Split {
				c.Split[i] = i * stages / blocks % devices
			}
		}
		return c
	}
	sameOrder = func(tied bool) bool {
		switch way {
		case 0, 1:
			return true
		case 2, 3, 4: // data parallel: what one device adds term by term, several add in sums
			return micros == 1
		}
		return !tied // a tied gradient has parts on two devices
	}
	return choose, sameOrder
}
