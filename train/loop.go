package train

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"spillway/autograd"
	"spillway/executor"
	"spillway/optim"
	"spillway/plan"
	"spillway/weights"
)

// A loop of one's own calls Backward, any number of times, and then Update, on a run whose
// plan holds gradients (run.Options.Held). Step does the same as a whole, with the same bits.

// heldGradients are what was done since the last update.
type heldGradients struct {
	passes    int     // whose gradients are held
	overflows bool    // of gradients in fp16; nothing of that pass is held
	loss      float64 // of the last pass
	filled    Filled
	args      executor.IterationArgs // of the last pass
}

// heldStep is Step on a plan that holds gradients.
func (t *Trainer) heldStep() (Report, error) {
	t.ZeroGrad()
	if _, err := t.Backward(1); err != nil {
		return Report{}, err
	}
	return t.Update()
}

// BackwardWith is Backward of a loss that is computed by the caller, on a plan of outputs: loss is given the outputs
// of the batch, one sample after the other, and returns its value and its gradient by each of them.
func (t *Trainer) BackwardWith(loss func(outputs []float32) (value float64, gradient []float32, err error)) (value float64, err error) {
	if !t.run.Plan.Optimizer.Outputs {
		return 0, &RefusedError{fmt.Errorf("the plan for %s has the model's own loss; plan with Outputs to give a gradient", t.run.Plan.Model)}
	}
	return t.backward(1, func(args executor.IterationArgs) error {
		e := t.run.Executor()
		if err := e.RunPhase(context.Background(), plan.Evaluate, args); err != nil {
			return err
		}
		var outputs []float32
		for j := range t.run.Plan.MicroBatches {
			outputs = append(outputs, e.Result(j)...)
		}
		n := len(outputs)
		of, gradient, err := loss(outputs)
		if err != nil {
			return &RefusedError{fmt.Errorf("the loss: %w", err)}
		}
		if len(gradient) != n {
			return &RefusedError{fmt.Errorf("the loss gave a gradient of %d numbers for %d outputs", len(gradient), n)}
		}
		value = of
		for j := range t.run.Plan.MicroBatches {
			to, err := e.BatchTensor(j, autograd.OutputGradient)
			if err != nil {
				return err
			}
			part := gradient[j*len(to)/4 : (j+1)*len(to)/4]
			for i, g := range part {
				binary.LittleEndian.PutUint32(to[4*i:], math.Float32bits(g*args.LossScale))
			}
		}
		return nil
	}, func() float64 { return value })
}

// Backward runs a batch forward and backward and adds its gradients, each multiplied by the weight
// given, to those that are held. It returns the loss, without the weight. io.EOF means that the feed
// has ended.
func (t *Trainer) Backward(weight float64) (loss float64, err error) {
	if t.run.Plan.Optimizer.Outputs {
		return 0, &RefusedError{fmt.Errorf("the plan for %s gives outputs and has no loss; give one with BackwardWith", t.run.Plan.Model)}
	}
	return t.backward(weight, func(executor.IterationArgs) error { return nil }, t.run.Executor().Loss)
}

// backward is a pass forward and backward, before which prepare is called, with the batch in place.
func (t *Trainer) backward(weight float64, prepare func(executor.IterationArgs) error, loss func() float64) (float64, error) {
	if err := t.holds(); err != nil {
		return 0, err
	}
	if t.held.passes == 0 && !t.held.overflows {
		t.pace.start()
	}
	e := t.run.Executor()
	filled, err := t.nextBatch()
	if t.pace.fed(); err != nil {
		return 0, err
	}
	args, err := t.args(filled, weight)
	if err != nil {
		return 0, err
	}
	if err := t.begin(t.done + 1); err != nil {
		return 0, err
	}
	if err := prepare(args); err != nil {
		return 0, err
	}
	if err := errors.Join(t.iterate(args), e.Flush()); err != nil {
		return 0, err
	}
	norm, err := e.Norm()
	if err != nil {
		return 0, err
	}
	h := &t.held
	h.loss, h.args = loss(), args
	h.filled.Tokens, h.filled.Counted = h.filled.Tokens+filled.Tokens, h.filled.Counted+filled.Counted
	if t.scale != nil && !finite(norm) {
		h.overflows = true
		return h.loss, nil
	}
	h.passes++
	return h.loss, nil
}

// holds refuses a plan that holds no gradients.
func (t *Trainer) holds() error {
	if !t.run.Plan.Optimizer.Held {
		return fmt.Errorf("the plan for %s updates in every iteration; plan with Held gradients for a loop of one's own", t.run.Plan.Model)
	}
	return nil
}

// ZeroGrad drops the gradients that are held: those of the next Backward take their place.
func (t *Trainer) ZeroGrad() { t.held = heldGradients{} }

// Update applies the optimizer to the gradients that are held, clipped where the options say so. Where
// gradients in fp16 have overflowed it changes nothing but the loss scale. The gradients stay, and
// further ones are added to them, until ZeroGrad.
func (t *Trainer) Update() (Report, error) {
	if err := t.holds(); err != nil {
		return Report{}, err
	}
	h := &t.held
	if h.passes == 0 && !h.overflows {
		return Report{}, &RefusedError{errors.New("there are no gradients to update with: call Backward first")}
	}
	r := Report{Iteration: t.done + 1, Loss: h.loss, LR: t.run.Options.Optimizer.Rate(t.updates(), t.scheduledRate())}
	sound := !h.overflows
	if sound {
		if err := t.applyHeld(&r); err != nil {
			return r, err
		}
	}
	if t.scale != nil {
		r.LossScale, r.Skipped = t.scale.Scale, !sound
		if *t.scale = t.scale.Next(sound); t.scale.Exhausted() {
			return r, t.diverged(r)
		}
	}
	t.done++
	h.overflows = false
	tokens := h.filled.Tokens
	h.filled = Filled{}
	if sound {
		t.wanted = t.run.Options.StatePolicy.Next(t.wanted, t.done, r.Loss)
	}
	var err error
	if t.done%t.c.JournalEvery == 0 {
		err = t.commit()
	}
	t.pace.stop(tokens)
	if err == nil {
		err = t.applyPolicy()
	}
	return r, err
}

// applyHeld updates with the gradients there are.
func (t *Trainer) applyHeld(r *Report) error {
	args := t.held.args
	args.Iteration = uint64(t.done)
	if err := t.setOptimizer(&args); err != nil {
		return err
	}
	factor := float32(1)
	if t.run.Options.Clip > 0 {
		norm, err := t.GradNorm()
		if err == nil && !finite(norm) {
			r.GradNorm = norm
			return t.diverged(*r)
		}
		if err == nil {
			factor, err = optim.Clip(norm, t.run.Options.MaxNorm())
		}
		if err != nil {
			return err
		}
		r.GradNorm = norm
	}
	return t.run.Executor().Update(args, factor)
}

// Gradients lists the gradients that are held, as tensors of the executor. What a running statistic has to
// move by is held like a gradient and is none.
func (t *Trainer) Gradients() ([]executor.Tensor, error) {
	if err := t.holds(); err != nil {
		return nil, err
	}
	if t.held.passes == 0 {
		return nil, fmt.Errorf("there are no gradients: call Backward first")
	}
	var list []executor.Tensor
	for _, s := range t.run.Executor().States() {
		if s.State == plan.HeldGradient && s.Param.Momentum == 0 {
			list = append(list, s)
		}
	}
	return list, nil
}

// GradNorm is the norm of all gradients that are held.
func (t *Trainer) GradNorm() (float64, error) {
	list, err := t.Gradients()
	var sum float64
	for _, g := range list {
		if err != nil {
			break
		}
		var values []float32
		values, err = weights.ReadF32(t.run.Executor(), g)
		sum += optim.SumSquares(values)
	}
	return math.Sqrt(sum), err
}
