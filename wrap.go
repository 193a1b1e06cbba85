package spillway

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"spillway/device"
	"spillway/dtype"
	"spillway/executor"
	"spillway/machine"
	"spillway/nn"
	"spillway/shape"
	"spillway/spec"
	"spillway/train"
	"spillway/weights"
)

// Wrapped is a model that runs within the memory there is. It is used from one
// goroutine at a time.
//
// It holds one state: weights, and once it has been trained what the optimizer keeps.
// Training, inference and evaluation each have a plan, made for the sizes of the
// batches that come; a batch of other sizes is planned for when it comes, and the
// state carried over bit for bit.
type Wrapped struct {
	model *Model
	c     Config
	net   nn.Model

	here    machine.Machine
	devices []device.Device
	opened  []device.Device

	traced  map[Task]traced
	params  []spec.Param
	source  weights.Source  // of the weights, until they are trained
	state   *running        // trains and holds the state; nil until there is training
	parked  *weights.Parked // the state while no executor holds it
	view    *running        // infers or evaluates with a copy of the weights
	latest  *running        // of the two, what was used last
	trainer *train.Trainer
	feed    *handed
	broken  error // what left the state undefined

	past    map[executor.Route]executor.Traffic // of executors that are closed
	passes  int
	profile Profile
	notices []string
}

// running is a job that has its memory.
type running struct {
	job   *Job
	e     *executor.Executor // nil while it has none
	sizes                    // of the batches it is planned for
	stale bool               // a view whose weights are not the state's
}

// Wrap prepares a model of one's own for use: any Go struct of layers. Its weights
// start as it says, from the configuration's seed. The caller closes it.
func Wrap(net nn.Model, c Config) (*Wrapped, error) {
	name := strings.ToLower(reflect.Indirect(reflect.ValueOf(net)).Type().Name())
	m := Define(name, func() (nn.Model, error) { return net, nil })
	m.Seed = c.Seed
	return m.Wrap(c)
}

// Wrap prepares a model that was opened for use. The caller closes both.
func (m *Model) Wrap(c Config) (*Wrapped, error) {
	w := &Wrapped{model: m, c: c, traced: map[Task]traced{}, past: map[executor.Route]executor.Traffic{}}
	if err := w.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("wrapping %s: %w", m.Name, err), w.Close())
	}
	return w, nil
}

func (w *Wrapped) prepare() error {
	if err := w.c.check(); err != nil {
		return err
	}
	if w.c.Precision == dtype.Invalid {
		w.c.Precision = dtype.F32
	}
	if w.c.Task == "" {
		w.c.Task = Train
	}
	net, err := w.model.build()
	if err != nil {
		return err
	}
	w.net = net
	first, err := w.trace(w.c.Task)
	if err != nil {
		return err
	}
	w.params = first.spec.Params
	if w.source, err = w.model.weights(w.params, func(string) bool { return false }); err != nil {
		return err
	}
	if err := w.open(); err != nil {
		return err
	}
	if w.c.Samples == 0 || w.c.Seq == 0 {
		return nil
	}
	_, err = w.ready(w.c.Task, sizes{w.c.Samples, w.c.Seq})
	return err
}

// trace finds what the model reads for a task, once.
func (w *Wrapped) trace(t Task) (traced, error) {
	if had, ok := w.traced[t]; ok {
		return had, nil
	}
	task, err := t.graph()
	if err != nil {
		return traced{}, err
	}
	if t == LoRA || t == QLoRA {
		return traced{}, fmt.Errorf("task %s: attach adapters to the model with package lora and train it; its other params are then frozen", t)
	}
	w.traced[t], err = w.model.trace(w.net, task, w.c.Precision, w.c.Packed)
	return w.traced[t], err
}

// sound refuses a model whose weights are undefined.
func (w *Wrapped) sound() error {
	if w.broken == nil {
		return nil
	}
	return fmt.Errorf("the weights of %s are undefined; wrap the model anew: %w", w.model.Name, w.broken)
}

// begin holds a batch against the model, gets ready for it and puts it in place.
func (w *Wrapped) begin(task Task, b Batch) (*running, matched, error) {
	if err := w.sound(); err != nil {
		return nil, matched{}, err
	}
	t, err := w.trace(task)
	if err != nil {
		return nil, matched{}, err
	}
	m, err := match(t.parts, b)
	if err != nil {
		return nil, m, err
	}
	r, err := w.ready(task, m.sizes)
	if err == nil {
		err = m.fill(train.PartsOf(r.e))
	}
	if err == nil {
		err = r.e.CheckBatch()
	}
	return r, m, err
}

// Step trains one iteration on a batch and returns its loss: the mean over all targets
// of the batch, before the update.
func (w *Wrapped) Step(b Batch) (loss float64, err error) {
	r, m, err := w.begin(Train, b)
	if err != nil {
		return 0, fmt.Errorf("training %s: %w", w.model.Name, err)
	}
	w.feed.next = m
	err = w.pass(r, func() error {
		report, err := w.trainer.Step()
		loss = report.Loss
		return err
	})
	if w.view != nil {
		w.view.stale = true
	}
	if err != nil {
		if diverged := (*train.DivergedError)(nil); !errors.As(err, &diverged) {
			w.broken = err
		}
		return loss, fmt.Errorf("training %s: %w", w.model.Name, err)
	}
	return loss, nil
}

// Forward gives the model's outputs for a batch: logits of a language model, what
// comes before the loss of others.
func (w *Wrapped) Forward(b Batch) (Tensor, error) {
	r, _, err := w.begin(Infer, b)
	if err != nil {
		return Tensor{}, fmt.Errorf("running %s: %w", w.model.Name, err)
	}
	if err := w.pass(r, func() error { return r.e.Iterate(context.Background(), executor.Numbers{}) }); err != nil {
		return Tensor{}, fmt.Errorf("running %s: %w", w.model.Name, err)
	}
	return r.outputs(), nil
}

// outputs puts the results of the micro-batches behind each other.
func (r *running) outputs() Tensor {
	p := r.job.Spec.Program(len(r.job.Spec.Blocks) - 1)
	out := Tensor{Shape: append(shape.Shape(nil), p.Type(p.Outputs[0].Value).Shape...)}
	out.Shape[0] *= int64(r.job.Plan.Micros)
	for j := range r.job.Plan.Micros {
		out.Floats = append(out.Floats, r.e.Result(j)...)
	}
	return out
}

// Evaluate gives the loss of a batch without training on it and without dropout.
func (w *Wrapped) Evaluate(b Batch) (loss float64, err error) {
	r, m, err := w.begin(Eval, b)
	if err != nil {
		return 0, fmt.Errorf("evaluating %s: %w", w.model.Name, err)
	}
	v := train.Evaluation{Executor: r.e, Feed: &handed{next: m}, Batches: 1}
	err = w.pass(r, func() error {
		loss, err = v.Loss()
		return err
	})
	if err != nil {
		err = fmt.Errorf("evaluating %s: %w", w.model.Name, err)
	}
	return loss, err
}

// Strategy is how the model is run now, in a line; "" before anything is planned.
func (w *Wrapped) Strategy() string {
	if w.latest == nil {
		return ""
	}
	return w.latest.job.Plan.Strategy
}

// Config the model is run with.
func (w *Wrapped) Config() Config { return w.c }

func (w *Wrapped) notice(text string) {
	w.notices = append(w.notices, text)
	if w.c.Notice != nil {
		w.c.Notice(text)
	}
}

// Close gives all memory back. Devices that were open before stay open.
func (w *Wrapped) Close() error {
	errs := []error{w.release(w.view), w.release(w.state)}
	if w.parked != nil {
		errs = append(errs, w.parked.Close())
	}
	w.view, w.state, w.parked, w.latest = nil, nil, nil, nil
	w.broken = errors.New("it was closed")
	return errors.Join(append(errs, w.closeDevices())...)
}
