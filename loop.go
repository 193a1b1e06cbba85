package spillway

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"spillway/dtype"
	"spillway/optim"
	"spillway/plan"
	"spillway/run"
	"spillway/run/batch"
	"spillway/shape"
	"spillway/train"
	"spillway/weights"
)

// Loop trains a wrapped model by separate calls, as loops of one's own are written, while weights
// stream as they do in Step:
//
//	loop, err := net.Loop()
//	for _, b := range batches {
//		loop.ZeroGrad()
//		loss, err := loop.Backward(b)   // any number of times: gradients add up
//		norm, err := loop.ClipGradNorm(1)
//		report, err := loop.Step()
//	}
//
// Gradients are held between the calls, in f32, where the plan has room for them: four bytes for
// each trained number. Backward and Step have the bits of Wrapped.Step.
type Loop struct{ w *Wrapped }

// Report is what an update did.
type Report = train.Report

// Loop has the model trained by separate calls from now on. Wrapped.Step still trains a whole
// iteration. If the model is being trained it is planned again, with the same weights and states.
func (w *Wrapped) Loop() (*Loop, error) {
	if w.c.Held {
		return &Loop{w}, nil
	}
	if err := w.change(func(c *Config) { c.Held = true }); err != nil {
		return nil, fmt.Errorf("preparing a loop over %s: %w", w.model.Name, err)
	}
	return &Loop{w}, nil
}

// change changes what is trained or how, and plans a training run again for it.
func (w *Wrapped) change(to func(*Config)) error {
	was := w.c
	to(&w.c)
	err := errors.Join(w.sound(), w.c.check())
	if err == nil && w.training != nil {
		err = w.replanTraining()
	}
	if err != nil {
		w.c = was
	}
	return err
}

// Forward gives the model's outputs for a batch, see Wrapped.Forward.
func (l *Loop) Forward(b Batch) (Tensor, error) { return l.w.Forward(b) }

// Backward runs a batch forward and backward, adds its gradients to those there are, and returns its
// loss: the mean over all targets of the batch.
func (l *Loop) Backward(b Batch) (loss float64, err error) { return l.BackwardScaled(b, 1) }

// OutputLoop is Loop for a loss that the program computes itself: the model's last block gives its outputs, as in Forward,
// and BackwardWith is given their gradient. Batches have no targets then.
func (w *Wrapped) OutputLoop() (*Loop, error) {
	if w.c.Outputs {
		return &Loop{w}, nil
	}
	had := w.layouts[Train]
	delete(w.layouts, Train)
	if err := w.change(func(c *Config) { c.Held, c.Outputs = true, true }); err != nil {
		w.layouts[Train] = had
		return nil, fmt.Errorf("preparing a loop over outputs of %s: %w", w.model.Name, err)
	}
	return &Loop{w}, nil
}

// BackwardWith runs a batch forward, gives loss its outputs, and goes backward from the gradient by each of them that loss returns
// next to its value. Gradients are added to those there are. The batch passes forward twice.
func (l *Loop) BackwardWith(b Batch, loss func(outputs Tensor) (value float64, gradient []float32, err error)) (value float64, err error) {
	return l.backward(b, func(r *run.Run) (float64, error) {
		p := r.Spec.Program(len(r.Spec.Blocks) - 1)
		s := append(shape.Shape(nil), p.Type(p.Outputs[0].Value).Shape...)
		s[0] *= int64(r.Plan.MicroBatches)
		return l.w.trainer.BackwardWith(func(outputs []float32) (float64, []float32, error) { return loss(batch.Floats(outputs, s...)) })
	})
}

// BackwardScaled is Backward with gradients that are multiplied by a weight: 1/n for the mean over n batches.
func (l *Loop) BackwardScaled(b Batch, weight float64) (loss float64, err error) {
	if math.IsNaN(weight) || math.IsInf(weight, 0) {
		return 0, fmt.Errorf("gradients of %s multiplied by %v; a weight is a finite number", l.w.model.Name, weight)
	}
	return l.backward(b, func(*run.Run) (float64, error) { return l.w.trainer.Backward(weight) })
}

// backward has a batch passed forward and backward, with its numbers in place.
func (l *Loop) backward(b Batch, pass func(*run.Run) (loss float64, err error)) (loss float64, err error) {
	w := l.w
	if err := l.inUse(); err != nil {
		return 0, err
	}
	r, m, err := w.begin(Train, b)
	if err != nil {
		return 0, fmt.Errorf("training %s: %w", w.model.Name, err)
	}
	w.feed.give(m, nil)
	err = w.pass(r, func() error {
		loss, err = pass(r)
		return err
	})
	return loss, w.failed("training", err)
}

// Step updates the weights with the gradients there are, clipped to Config.Clip. In fp16 it changes
// nothing but the loss scale where a gradient has overflowed, which its report says: it is PyTorch's
// GradScaler too. The gradients stay until ZeroGrad.
func (l *Loop) Step() (Report, error) {
	w := l.w
	if err := l.ready(); err != nil {
		return Report{}, err
	}
	w.stale = true
	report, err := w.trainer.Update()
	return report, w.failed("updating", err)
}

// ZeroGrad drops all gradients.
func (l *Loop) ZeroGrad() {
	if l.w.trainer != nil {
		l.w.trainer.ZeroGrad()
	}
}

// Gradient copies the gradient of a param.
func (l *Loop) Gradient(param string) (Tensor, error) {
	var found Tensor
	err := l.gradients(func(name string, t Tensor) ([]float32, error) {
		if name == param {
			found = t
		}
		return nil, nil
	}, func(name string) bool { return name == param })
	if err == nil && found.Floats == nil {
		err = fmt.Errorf("%s has no gradient of %q; it is no param, frozen, or a running statistic", l.w.model.Name, param)
	}
	return found, err
}

// EachGradient calls f with the gradient of each trained param, in the model's order. What it returns takes
// the gradient's place; nil leaves it as it is.
func (l *Loop) EachGradient(f GradientHook) error {
	return l.gradients(f, func(string) bool { return true })
}

// SetGradient replaces the gradient of a param.
func (l *Loop) SetGradient(param string, values []float32) error {
	found := false
	err := l.gradients(func(string, Tensor) ([]float32, error) { found = true; return values, nil }, func(name string) bool { return name == param })
	if err == nil && !found {
		err = fmt.Errorf("%s has no gradient of %q; it is no param, frozen, or a running statistic", l.w.model.Name, param)
	}
	return err
}

// gradients visits those of some params.
func (l *Loop) gradients(f GradientHook, of func(param string) bool) error {
	if err := l.ready(); err != nil {
		return err
	}
	list, err := l.w.trainer.Gradients()
	if err != nil {
		return err
	}
	e := l.w.training.Executor()
	for _, g := range list {
		if !of(g.Param.Name) {
			continue
		}
		values, err := weights.ReadF32(e, g)
		if err != nil {
			return err
		}
		n := len(values)
		changed, err := f(g.Param.Name, batch.Floats(values, g.Type.Shape...))
		switch {
		case err != nil:
			return fmt.Errorf("the gradient of %s: %w", g.Param.Name, err)
		case changed == nil:
			continue
		case len(changed) != n:
			return fmt.Errorf("%d numbers were given for the gradient of %s, which has %d", len(changed), g.Param.Name, n)
		}
		if err := e.Write(g, func(offset int64, chunk []byte) error {
			g.Type.DType.Encode(chunk, changed[offset/4:offset/4+int64(len(chunk))/4])
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// GradNorm is the norm of all gradients together.
func (l *Loop) GradNorm() (float64, error) {
	if err := l.ready(); err != nil {
		return 0, err
	}
	return l.w.trainer.GradNorm()
}

// ClipGradNorm multiplies all gradients so that their norm is at most the one given, and returns what it
// was, as PyTorch's clip_grad_norm_ does.
func (l *Loop) ClipGradNorm(most float64) (float64, error) {
	norm, err := l.GradNorm()
	if err != nil {
		return 0, err
	}
	factor, err := optim.Clip(norm, most)
	if err != nil || factor == 1 {
		return norm, err
	}
	return norm, l.EachGradient(func(_ string, g Tensor) ([]float32, error) {
		for i := range g.Floats {
			g.Floats[i] *= factor
		}
		return g.Floats, nil
	})
}

// ready refuses calls before there are gradients, and wakes the run.
func (l *Loop) ready() error {
	if err := l.inUse(); err != nil {
		return err
	}
	if l.w.training == nil {
		return fmt.Errorf("%s has no gradients yet: call Backward first", l.w.model.Name)
	}
	return l.w.holdTraining()
}

// inUse refuses a loop whose model was told to train in one piece again.
func (l *Loop) inUse() error {
	if err := l.w.sound(); err != nil {
		return err
	}
	if !l.w.c.Held {
		return fmt.Errorf("%s holds no gradients; take a Loop of it again", l.w.model.Name)
	}
	return nil
}

// SetLR changes the learning rate from the next update on; a schedule multiplies it as before.
func (w *Wrapped) SetLR(lr float64) error { return w.SetGroupLR(0, lr) }

// SetGroupLR is SetLR of one of Config.Groups, counted from 1; 0 is all other params.
func (w *Wrapped) SetGroupLR(group int, lr float64) error {
	if w.trainer == nil {
		return fmt.Errorf("%s has no optimizer yet: train a step, or give Config.BatchSize and Config.Seq", w.model.Name)
	}
	return w.trainer.SetLR(group, lr)
}

// Freeze has the params that match one of the patterns trained no longer: words (biases, norms,
// embeddings) or regular expressions that match a part of a param's name. None trains all again. The
// model is planned anew; optimizer states of params that stay trained are kept to the bit, those of others are dropped, and
// begin at zero where a param is trained again. Gradients that a Loop holds are kept likewise.
func (w *Wrapped) Freeze(patterns ...string) error {
	if err := w.change(func(c *Config) { c.Freeze = slices.Clone(patterns) }); err != nil {
		return fmt.Errorf("freezing params of %s: %w", w.model.Name, err)
	}
	return nil
}

// AverageWeights copies the running average of the weights that Config.Average asks for, or that a schedule-free
// optimizer is evaluated with. Frozen params are as they are.
func (w *Wrapped) AverageWeights() (StateDict, error) {
	free := w.c.Optimizer.Name == "schedule_free_adamw"
	if w.c.Average == 0 && !free {
		return nil, fmt.Errorf("%s has no average of its weights; set Config.Average, such as to 0.999", w.model.Name)
	}
	if err := w.holdTraining(); err != nil {
		return nil, err
	}
	d, err := w.StateDict()
	if err != nil {
		return nil, err
	}
	e := w.training.Executor()
	for _, t := range e.States() {
		if t.State != plan.Average && !(free && w.c.Average == 0 && t.State == optim.ScheduleFreeZ) {
			continue
		}
		values, err := weights.ReadF32(e, t)
		if err != nil {
			return nil, err
		}
		if t.State == optim.ScheduleFreeZ {
			optim.Scored(w.c.Optimizer.Get("beta1"), d[t.Param.Name].Floats, values)
			continue
		}
		d[t.Param.Name] = batch.Floats(values, t.Type.Shape...)
	}
	return d, nil
}

// WithAverage calls f while Forward, Evaluate, Save and StateDict see the average of the weights instead of the
// weights; it must not train.
func (w *Wrapped) WithAverage(f func() error) (err error) {
	average, err := w.AverageWeights()
	if err != nil {
		return err
	}
	own, err := w.StateDict()
	if err != nil {
		return err
	}
	if err := w.LoadStateDict(average); err != nil {
		return err
	}
	trained := w.trainer.Iterations()
	defer func() {
		if w.trainer.Iterations() != trained {
			w.broken = errors.New("it was trained while its weights were their average")
			err = errors.Join(err, w.broken)
			return
		}
		err = errors.Join(err, w.LoadStateDict(own))
	}()
	return f()
}

// SetStateTypes has a function of one's own decide in which type each state of each param is stored from now on:
// f32, bf16, f16 or quant.Dyn8; dtype.Invalid leaves it as the optimizer says. The states are converted. Called between
// steps, as often as wanted, it is a policy of param, state and step.
func (w *Wrapped) SetStateTypes(of func(param, state string) dtype.Type) error {
	if of != nil {
		for _, p := range w.params {
			for _, state := range w.optimizer().States() {
				if t := of(p.Name, state); t != dtype.Invalid {
					if _, err := w.optimizer().StoredAs(state, t); err != nil {
						return err
					}
				}
			}
		}
	}
	return w.change(func(c *Config) { c.StateTypes = of })
}

// optimizer is that of the configuration, or the one of those who name none.
func (w *Wrapped) optimizer() optim.Config {
	if w.c.Optimizer.Name != "" {
		return w.c.Optimizer
	}
	c, _ := optim.Parse(optim.Default) // its own defaults are valid
	return c
}

// CentralizeGradients is a GradientHook that takes the mean over all dimensions but the first off the gradients of
// matrices and of larger tensors (gradient centralization).
func CentralizeGradients(_ string, g Tensor) ([]float32, error) {
	if len(g.Shape) < 2 {
		return nil, nil
	}
	width := int(g.Shape.Elements() / g.Shape[0])
	for from := 0; from < len(g.Floats); from += width {
		row, sum := g.Floats[from:from+width], 0.0
		for _, f := range row {
			sum += float64(f)
		}
		mean := float32(sum / float64(width))
		for i := range row {
			row[i] -= mean
		}
	}
	return g.Floats, nil
}

// Compress has the optimizer states compressed now, as Config.StatePolicy says, without waiting for its
// warm-up.
func (w *Wrapped) Compress() error {
	if err := w.holdTraining(); err != nil {
		return err
	}
	if err := w.trainer.Compress(); err != nil {
		return fmt.Errorf("compressing the optimizer states of %s: %w", w.model.Name, err)
	}
	return nil
}
