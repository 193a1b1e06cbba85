package spillway

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"spillway/device"
	"spillway/dtype"
	"spillway/executor"
	"spillway/lora"
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
	model *Model // builds the one network that is wrapped
	c     Config

	here    machine.Machine
	devices []device.Device
	opened  []device.Device

	traced  map[Task]traced
	params  []spec.Param
	source  weights.Values  // of the weights, until they are trained
	loaded  bool            // and the source is not the model's own
	state   *running        // trains and holds the state; nil until there is training
	parked  *weights.Parked // the state while no executor holds it
	view    *running        // infers or evaluates with a copy of the weights
	latest  *running        // of the two, what was used last
	trainer *train.Trainer
	// compressed: the policy has begun.
	compressed bool
	feed       *handed
	broken     error // what left the state undefined

	past    map[executor.Route]executor.Transfers // of executors that are closed
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
	if net == nil {
		return nil, errors.New("wrapping a model: there is none")
	}
	m := Define(typeName(net), func() (nn.Model, error) { return net, nil })
	m.Seed = c.Seed
	return m.Wrap(c)
}

// typeName is what a model of one's own is called: its type, in lower case.
func typeName(net nn.Model) string {
	t := reflect.TypeOf(net)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Name() == "" {
		return "model"
	}
	return strings.ToLower(t.Name())
}

// Wrap prepares a model that was opened for use. The caller closes both.
func (m *Model) Wrap(c Config) (*Wrapped, error) {
	own := *m // which builds one network
	w := &Wrapped{model: &own, c: c, traced: map[Task]traced{}, past: map[executor.Route]executor.Transfers{}}
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
	if err := w.adopt(); err != nil {
		return err
	}
	if err := w.open(); err != nil {
		return err
	}
	s := sizes{w.c.BatchSize, w.c.Seq}
	if !slices.ContainsFunc(w.traced[w.c.Task].parts, part.hasPositions) {
		s.seq = 1
	}
	if s.samples == 0 || s.seq == 0 {
		return nil // the first batch will tell
	}
	_, err := w.ready(w.c.Task, s)
	return err
}

// adopt builds the network once, with its adapters, and finds its params and where they
// come from.
func (w *Wrapped) adopt() error {
	net, err := w.model.build()
	if err != nil {
		return err
	}
	if w.c.Adapters.Rank > 0 {
		if _, err := lora.Attach(net, w.c.Adapters); err != nil {
			return err
		}
	}
	w.model.build = func() (nn.Model, error) { return net, nil }
	first, err := w.trace(w.c.Task)
	if err != nil {
		return err
	}
	w.params = first.spec.Params
	trained := map[string]bool{}
	for _, p := range w.params {
		trained[p.Name] = w.c.Adapters.Rank > 0 && !p.Frozen
	}
	w.source, err = w.model.weights(w.params, func(param string) bool { return trained[param] })
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
		return traced{}, fmt.Errorf("task %s: give Config.Adapters a rank and train; other params are then frozen", t)
	}
	net, err := w.model.build()
	if err != nil {
		return traced{}, err
	}
	found, err := w.model.trace(net, task, w.c.Precision, w.c.Packed)
	if err == nil {
		w.traced[t] = found
	}
	return found, err
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
	if err := w.pass(r, func() error { return r.e.Iterate(context.Background(), executor.IterationArgs{}) }); err != nil {
		return Tensor{}, fmt.Errorf("running %s: %w", w.model.Name, err)
	}
	return r.outputs(), nil
}

// outputs puts the results of the micro-batches behind each other.
func (r *running) outputs() Tensor {
	p := r.job.Spec.Program(len(r.job.Spec.Blocks) - 1)
	out := Tensor{Shape: append(shape.Shape(nil), p.Type(p.Outputs[0].Value).Shape...)}
	out.Shape[0] *= int64(r.job.Plan.MicroBatches)
	for j := range r.job.Plan.MicroBatches {
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
