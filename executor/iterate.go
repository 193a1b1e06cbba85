package executor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
	"unsafe"

	"spillway/device"
	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
	"spillway/plan"
)

// Numbers are what differs from one iteration to the next besides the batch.
type IterationArgs struct {
	Seed      uint64
	Iteration uint64
	// FirstRow is the global index of the iteration's first sample.
	FirstSequence uint64
	// Optimizer holds the scalars of the optimizer's update for params that decay, NoDecay
	// those for params that weight decay leaves alone (optim.Config.Scalars makes both).
	Optimizer, NoDecay op.Scalars
	MaxNorm   float32 // of gradients; 0 for no clipping
	LossScale float32 // what gradients were multiplied by; 0 counts as 1
}

// runArgs are the numbers of one run.
type runArgs struct {
	args         *op.Args
	block, micro int
}

// updateArgs are the numbers of one update launch.
type updateArgs struct {
	args     *op.Args
	decay    bool
	slab     int
	element  int64 // of the slab, the first one updated
	deferred bool  // with the numbers of the iteration before
}

// Iterate runs all steps once. The parts of the batch must be in place (Part). Copies of
// the plan that trail may be under way when it returns; everything else is done, results
// and the norm are there. An error of such a copy comes with whoever waits for it: the next
// Iterate, a reader or a writer, Sync or Close. After an error the contents of the arenas are undefined: restore a checkpoint.
func (e *Executor) Iterate(ctx context.Context, n IterationArgs) error {
	e.setArgs(n)
	before := e.carried
	begin, had := time.Now(), e.counters.launched()
	if err := e.start(ctx); err != nil {
		return errors.Join(err, e.Sync())
	}
	if err := e.finish(n); err != nil {
		return fmt.Errorf("iteration %d%s: %w", n.Iteration, before.text(), err)
	}
	e.graph.observe(len(e.devices), e.counters.launched()-had, time.Since(begin))
	e.counters.Iterations++
	e.reportEvents()
	return e.postpone(n)
}

// issueAll gives all steps to their queues.
func (e *Executor) issueAll(ctx context.Context) error {
	e.swapEvents()
	had := e.counters.launched()
	e.graph.pace = pace{start: time.Now()}
	if err := e.trace.begin(e.queues); err != nil {
		return err
	}
	for i := range e.instructions {
		if e.instructions[i].queue == nil {
			continue
		}
		var err error
		if !e.plan.Instructions[i].Deferred { // what is owed is looked at when it is settled
			err = e.observe(&e.plan.Instructions[i])
		}
		if err == nil {
			err = e.issueInstruction(&e.plan.Instructions[i], &e.instructions[i])
		}
		if err != nil {
			return fmt.Errorf("issuing step %d (%s): %w", i, e.plan.Instructions[i].Verb, err)
		}
		e.graph.pace.count(e.counters.launched() - had)
		if i%64 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

func (e *Executor) issueInstruction(s *plan.Instruction, p *prepared) error {
	if err := e.waitFor(s, p.queue); err != nil {
		return err
	}
	if p.start != nil {
		if err := p.queue.Record(p.start); err != nil {
			return err
		}
	}
	if err := p.issue(p.queue); err != nil {
		return err
	}
	if p.end != nil {
		if err := p.queue.Record(p.end); err != nil {
			return err
		}
	}
	if p.done == nil {
		return nil
	}
	return p.queue.Record(p.done)
}

// waits has a queue wait for what must be done before a step: of its iteration, and of the
// one before as long as that may be under way.
func (e *Executor) waitFor(s *plan.Instruction, q device.Queue) error {
	for _, a := range s.After {
		if err := q.Wait(e.instructions[a].done); err != nil {
			return err
		}
	}
	if !e.carried.underway {
		return nil
	}
	for _, a := range s.AfterPrevious {
		if err := q.Wait(e.instructions[a].last); err != nil {
			return err
		}
	}
	return nil
}

// Sync waits for all queues, also for what trails, and returns their errors.
func (e *Executor) Sync() error {
	e.carried.underway = false
	var first error
	for _, q := range e.opened {
		if err := q.Sync(); err != nil {
			first = errors.Join(first, err)
		}
	}
	return first
}

func (e *Executor) setArgs(n IterationArgs) {
	for _, r := range e.runs {
		r.args.Key = runKey(n, r.block)
		r.args.Row = n.FirstSequence + uint64(max(r.micro, 0))*uint64(e.plan.MicroBatchSize)
	}
	for _, u := range e.updates {
		if u.deferred {
			u.set(e.pending)
		} else {
			u.set(n)
		}
	}
	if e.clipArgs != nil {
		e.clipArgs.Scalars = op.ClipScalars(n.MaxNorm, n.LossScale)
	}
}

func (u *updateArgs) set(n IterationArgs) {
	u.args.Scalars, u.args.Key, u.args.Row = n.Optimizer, updateKey(n, u.slab), uint64(u.element)
	if !u.decay {
		u.args.Scalars = n.NoDecay
	}
}

// runKey gives each block of each iteration its random streams, whatever order or
// device it runs on.
func runKey(n IterationArgs, block int) uint64 {
	return op.Key(n.Seed, n.Iteration, uint64(block))
}

// updateKey gives each slab of each iteration the random stream its weights are rounded
// with, another than any block's.
func updateKey(n IterationArgs, slab int) uint64 {
	return op.Key(n.Seed, n.Iteration, uint64(slab), 1)
}

// Part is a tensor of a micro-batch as bytes to be filled before Iterate.
func (e *Executor) BatchTensor(micro int, name string) ([]byte, error) {
	home := e.host(plan.BatchData, micro)
	for _, p := range e.plan.Batch {
		if p.Name != name {
			continue
		}
		if home == nil {
			return nil, fmt.Errorf("micro-batch %d of %d has no host memory", micro, e.plan.MicroBatches)
		}
		return home[p.Offset : p.Offset+p.Type.Bytes()], nil
	}
	return nil, fmt.Errorf("batches have no part %q", name)
}

// Result of a micro-batch, valid until the next Iterate: the loss or the logits.
func (e *Executor) Result(micro int) []float32 {
	raw := e.host(plan.ResultData, micro)
	switch e.result {
	case dtype.BF16:
		return widen(raw, dtype.FromBF16)
	case dtype.F16:
		return widen(raw, dtype.FromF16)
	}
	return floats(raw)
}

// resultType is the element type of what the last block gives.
func resultType(p *plan.Plan) dtype.Type {
	for _, s := range p.Instructions {
		if _, ok := s.Bound(plan.OutResult, 0); ok {
			g := p.Programs[s.Program].Graph
			return g.Type(graph.Ports(g.Outputs, graph.Result)[0].Value).DType
		}
	}
	return dtype.Invalid
}

func widen(raw []byte, from func(uint16) float32) []float32 {
	out := make([]float32, len(raw)/2)
	for i := range out {
		out[i] = from(binary.LittleEndian.Uint16(raw[2*i:]))
	}
	return out
}

// Loss is the sum of the micro-batches' losses, in order.
func (e *Executor) Loss() float64 {
	var sum float64
	for j := range e.plan.MicroBatches {
		if r := e.Result(j); len(r) > 0 {
			sum += float64(r[0])
		}
	}
	return sum
}

// Norm of the gradients of the last iteration, the loss scale taken off; NaN when the
// plan does not compute it. Where it is no finite number nothing was updated.
func (e *Executor) Norm() (float64, error) {
	if e.clipArgs == nil {
		return math.NaN(), nil
	}
	var norm float32
	err := e.access(e.norm, func(b []byte) { norm = floats(b)[1] }, nil)
	return float64(norm), err
}

// host finds the bytes of the n-th home of a class in host memory.
func (e *Executor) host(class plan.Class, n int) []byte {
	for id, b := range e.plan.Buffers {
		if b.Home && b.Class == class && e.plan.TierOf(id) != plan.OnDevice {
			if n == 0 {
				return e.buffer(id).Host()
			}
			n--
		}
	}
	return nil
}

// floats views bytes of an arena, which is aligned, as numbers.
func floats(b []byte) []float32 {
	if len(b) < 4 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}
