// Package metamorphic trains small models under random plans and compares the outcomes.
// Any two sound plans of a training run must give the same losses and the same weights: bit
// for bit where their sums have the same order, within a stated bound where devices sum
// parts of a gradient first. It is the deepest test of planner and executor.
package metamorphic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strings"

	"spillway/autograd"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/executor"
	"spillway/op"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner/strategy"
	"spillway/spec"
	"spillway/store"
	"spillway/weights"
)

// Outcome of a training run.
type Outcome struct {
	Losses  []float64
	Hash    uint64               // of all weights and optimizer states
	Weights map[string][]float64 // by param
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
		if i%2 == 1 { // as if it were saved; other iterations leave deferred updates to the next
			if err := r.e.Flush(); err != nil {
				return out, err
			}
		}
	}
	return out, out.collect(r.e)
}

// run is a training run in progress.
type run struct {
	model   *spec.Model
	seed    uint64
	devices []device.Device
	e       *executor.Executor
	sent    int // 1 + the iteration whose batch was sent before it began; 0 for none
}

// start allocates what a plan takes and fills in the weights.
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

// iterate trains one iteration on its batch, and where the plan says so sends the next one meanwhile, but for
// every third.
func (r *run) iterate(i int) error {
	if r.sent != i+1 {
		r.e.DropUpload()
		if err := fill(r.e, r.model, r.seed, i); err != nil {
			return err
		}
	}
	var late error
	args := iterationArgs(r.seed, i, r.e.Plan())
	if r.e.PrefetchesBatch() && i%3 != 2 {
		args.Meanwhile = func() {
			late = errors.Join(fill(r.e, r.model, r.seed, i+1), r.e.Upload())
			r.sent = i + 2
		}
	}
	return errors.Join(r.e.Iterate(context.Background(), args), late)
}

// dropSent forgets a batch that was sent, where something else was put into its place on the host before all of it was.
func (r *run) dropSent() {
	if r.e.Plan().MicroBatches > 1 {
		r.sent = 0
	}
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
	if d.Name == plan.DiskName {
		return store.Open(store.Options{Dir: folder, Limit: d.Budget})
	}
	return cpu.Open(cpu.Options{Threads: 1, Limit: d.Budget}), nil
}

// maxNorms of gradients, by iteration: some are far below the norm, one is never reached.
var maxNorms = []float32{0.5, 1e9, 0.05}

func iterationArgs(seed uint64, i int, p *plan.Plan) executor.IterationArgs {
	n := executor.IterationArgs{Seed: seed, Iteration: uint64(i), FirstSequence: uint64(i) * uint64(p.MicroBatchSize) * uint64(p.MicroBatches), MaxNorm: maxNorms[i%len(maxNorms)]}
	if p.Optimizer != nil {
		c, _ := optim.Parse(optimizers[p.Optimizer.Rule]) // sound names; without one nothing is updated, which tests find
		n.Optimizer, _ = c.Scalars(i+1, c.LR, true)
		n.NoDecay, _ = c.Scalars(i+1, c.LR, false)
	}
	return n
}

// optimizers are what plans are carried out with, by the op of their update.
var optimizers = map[op.Kind]string{
	optim.Adam: "adamw:lr=0.01,weight_decay=0.1", optim.SGD: "sgd:lr=0.01,weight_decay=0.1,momentum=0.9",
	optim.Lion: "lion:lr=0.01,weight_decay=0.1", optim.Adafactor: "adafactor:lr=0.01,weight_decay=0.1",
}

// fill writes a batch: every tensor of every micro-batch, from the seed, the iteration and
// the number of the micro-batch.
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
			fillTensor(raw, part, rand.New(rand.NewPCG(seed, uint64(iteration)<<32|uint64(j))))
		}
	}
	return nil
}

// fillTensor writes a tensor of the batch by what its name means.
func fillTensor(raw []byte, part plan.BatchTensor, r *rand.Rand) {
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

// collect reads the weights, and hashes them and the optimizer states by name.
func (o *Outcome) collect(e *executor.Executor) error {
	o.Weights = map[string][]float64{}
	for _, t := range append(e.Weights(), e.States()...) {
		var raw []byte
		err := e.Read(t, func(_ int64, chunk []byte) error {
			raw = append(raw, chunk...)
			return nil
		})
		if err != nil {
			return err
		}
		if t.State == "" {
			a, err := op.Decode(t.Type, raw)
			if err != nil {
				return err
			}
			o.Weights[t.Param.Name] = a.F
		}
		o.Hash += op.Key(hash(raw), hash([]byte(t.Param.Name+" "+t.State))) // a sum: order does not matter
	}
	return nil
}

func hash(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
}

// Same says whether two outcomes are equal bit for bit.
func (o Outcome) Same(p Outcome) error {
	for i := range o.Losses {
		if o.Losses[i] != p.Losses[i] {
			return fmt.Errorf("iteration %d: losses %v and %v", i, o.Losses[i], p.Losses[i])
		}
	}
	if o.Hash != p.Hash {
		return fmt.Errorf("the losses are equal, weights or optimizer state are not")
	}
	return nil
}

// Near says whether losses agree within a bound relative to each, and the weights of every
// param within another relative to their norm. Single weights may differ more: where a
// gradient is next to nothing, rounding decides the direction in which Adam and Lion go.
func (o Outcome) Near(p Outcome, losses, weights float64) error {
	for i := range o.Losses {
		if d := math.Abs(o.Losses[i] - p.Losses[i]); !(d <= losses*math.Abs(o.Losses[i])) {
			return fmt.Errorf("iteration %d: losses %v and %v", i, o.Losses[i], p.Losses[i])
		}
	}
	if len(o.Weights) != len(p.Weights) {
		return fmt.Errorf("%d params and %d", len(o.Weights), len(p.Weights))
	}
	for name := range o.Weights {
		if d := distance(withGradient(name, o.Weights), withGradient(name, p.Weights)); !(d <= weights) {
			return fmt.Errorf("the weights of %s differ by %.2g of their norm, at most %.2g is rounding", name, d, weights)
		}
	}
	return nil
}

// withGradient is the weights of a param without key biases: softmax does not notice what is
// added to all keys, so their gradients are nothing but rounding.
func withGradient(name string, weights map[string][]float64) []float64 {
	list := weights[name]
	if third := len(list) / 3; strings.HasSuffix(name, "in_proj_bias") { // of queries, keys and values
		return append(list[:third:third], list[2*third:]...)
	}
	return list
}

// distance is the norm of the difference of two lists, relative to that of the first.
func distance(a, b []float64) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	var diff, norm float64
	for i := range a {
		diff += (a[i] - b[i]) * (a[i] - b[i])
		norm += a[i] * a[i]
	}
	if diff == 0 {
		return 0
	}
	return math.Sqrt(diff / norm)
}

// RandomChoice is a random choice for a goal with so many micro-batches. sameOrder says
// whether its sums have the order of one device's, so that the bits agree.
func RandomChoice(r *rand.Rand, micros int) (choose func(slabs, blocks int) strategy.Choice, sameOrder func(tied bool) bool) {
	devices, parallelism, disk, host := 1, r.IntN(7), r.IntN(4) == 0, r.IntN(3) == 0
	if parallelism >= 2 {
		devices = 2 + r.IntN(2)
	}
	choose = func(slabs, blocks int) strategy.Choice {
		c := strategy.Choice{Streamed: make([]bool, slabs), OffloadedState: make([]bool, slabs), Level: make([]strategy.Level, blocks), OffloadedActivations: make([]bool, blocks), OnDisk: make([]bool, slabs),
			Prefetch: 1 + r.IntN(4), PrefetchStates: r.IntN(3), PieceElements: 256 * int64(1+r.IntN(8)), BreadthFirst: r.IntN(2) == 0, Rounds: r.IntN(4), DelayedReuse: r.IntN(2) == 0, DelayedUpdates: r.IntN(2) == 0, Devices: devices}
		for i := range slabs {
			c.Streamed[i], c.OffloadedState[i] = r.IntN(2) == 0, r.IntN(2) == 0
			c.OnDisk[i] = disk && r.IntN(2) == 0
			c.UpdatedByCPU = append(c.UpdatedByCPU, host && r.IntN(3) > 0)
		}
		for i := range blocks {
			c.Level[i], c.OffloadedActivations[i] = strategy.Level(r.IntN(4)), r.IntN(3) == 0
		}
		switch parallelism {
		case 2, 3, 4:
			c.ShardGradients, c.ShardWeights = parallelism >= 3, parallelism == 4
		case 5, 6:
			c.Pipeline, c.Split = parallelism == 6, make([]int, blocks)
			stages := devices * (1 + r.IntN(2))
			for i := range c.Split {
				c.Split[i] = i * stages / blocks % devices
			}
		}
		c.NextBatch = r.IntN(2) == 0
		return c
	}
	sameOrder = func(tied bool) bool {
		switch parallelism {
		case 0, 1:
			return true
		case 2, 3, 4: // data parallel: what one device adds term by term, several add in sums
			return micros == 1
		}
		return !tied // a tied gradient has parts on two devices
	}
	return choose, sameOrder
}
