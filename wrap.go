package spillway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"spillway/dtype"
	"spillway/executor"
	"spillway/internal/vfs"
	"spillway/lora"
	"spillway/nn"
	"spillway/rig"
	"spillway/run"
	"spillway/run/batch"
	"spillway/shape"
	"spillway/spec"
	"spillway/train"
	"spillway/weights"
)

// Wrapped is a model that runs within the memory there is. It is used from one goroutine
// at a time.
//
// It holds one state: weights, and once it has been trained optimizer states. Training,
// inference and evaluation each have a plan, made for the size of the batches that come;
// a batch of another size is planned for when it comes, and the state is carried over
// bit for bit.
type Wrapped struct {
	model *Model // of the one network that is wrapped
	c     Config

	rig *rig.Rig

	layouts map[Task]batch.Layout
	params  []spec.Param
	values  weights.Values // of the params, until they are trained
	loaded  bool           // and they are not the model's own

	training *run.Run // has the state once there is training; nil before
	view     *run.Run // infers or evaluates with a copy of the weights; nil for none
	stale    bool     // the copy is older than the weights
	latest   *run.Run // of the two, the one used last
	past     run.Transfers

	// sequenced: batches come from a sequence (Steps), so that plans may prefetch them.
	sequenced bool
	trainer   *train.Trainer
	feed      *givenBatches
	broken    error // what left the state undefined
	hook      run.GradientHook

	passes  int
	profile Profile
	notices []string
}

// Wrap prepares a model of one's own for use: any Go struct of layers. Its weights start
// as it says, from the configuration's seed. The caller closes it.
func Wrap(net nn.Model, c Config) (*Wrapped, error) {
	if net == nil {
		return nil, errors.New("wrapping a model: there is none")
	}
	m := Define(typeName(net), func() (nn.Model, error) { return net, nil })
	m.Seed = c.Seed
	return WrapModel(m, c)
}

// typeName is the name of a model of one's own: its type, in lower case.
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

// WrapModel prepares a model that was opened for use. The caller closes both.
func WrapModel(m *Model, c Config) (*Wrapped, error) {
	w := &Wrapped{model: m, c: c, layouts: map[Task]batch.Layout{}}
	if err := w.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("wrapping %s: %w", m.Name, err), w.Close())
	}
	return w, nil
}

func (w *Wrapped) prepare() error {
	if err := w.c.check(); err != nil {
		return err
	}
	if err := w.adopt(); err != nil {
		return err
	}
	if err := w.openDevices(); err != nil {
		return err
	}
	if w.c.Disk != "" {
		if err := vfs.MkdirAll(vfs.OS, w.c.Disk); err != nil {
			return fmt.Errorf("making the folder %s: %w", w.c.Disk, err)
		}
	}
	s := batch.Size{Sequences: w.c.BatchSize, Positions: w.c.Seq}
	if !w.layouts[w.c.Task].HasPositions() {
		s.Positions = 1
	}
	if s.Sequences == 0 || s.Positions == 0 {
		return nil // the first batch will tell
	}
	_, err := w.ready(w.c.Task, s)
	return err
}

// adopt builds the network once, with its adapters, and finds its params and their
// values.
func (w *Wrapped) adopt() error {
	net, err := w.model.Build()
	if err != nil {
		return err
	}
	if w.c.Adapters.Rank > 0 {
		if _, err := lora.Attach(net, w.c.Adapters); err != nil {
			return err
		}
	}
	w.model = w.model.WithNetwork(net)
	first, err := w.layout(w.c.Task)
	if err != nil {
		return err
	}
	w.params = first.Model.Params
	w.model.Info.OtherNames = nn.OtherNames(net)
	w.model.Info.Buffers = append(slices.Clone(w.model.Info.Buffers), w.unused(net)...)
	isAdapter := map[string]bool{}
	for _, p := range w.params {
		isAdapter[p.Name] = w.c.Adapters.Rank > 0 && !p.Frozen
	}
	w.values, err = w.model.Values(w.params, func(param string) bool { return isAdapter[param] })
	return err
}

// unused are the names of params that the model has and this task does not use, such as those of a head for training: weights from elsewhere may
// have them.
func (w *Wrapped) unused(net nn.Model) (names []string) {
	bound, _ := nn.Bind(net) // which tracing did before
	for _, p := range bound {
		if !slices.ContainsFunc(w.params, func(used spec.Param) bool { return used.Name == p.Name }) {
			names = append(names, p.Name)
		}
	}
	return names
}

// openDevices opens those that are named, or all GPUs, or the CPU, and describes the
// machine they are part of. Devices that are open already are not the rig's to close.
func (w *Wrapped) openDevices() (err error) {
	o := w.c.rigOptions()
	if len(w.c.On) > 0 {
		w.rig = &rig.Rig{Devices: w.c.On}
		w.rig.Machine, err = rig.Describe(w.c.On, o)
		return err
	}
	if w.rig, err = rig.OpenList(w.c.Devices, o); err != nil {
		return err
	}
	if w.rig.Devices[0].Info().OnHost && w.rig.Reason != "" {
		w.note(fmt.Sprintf("device: CPU (%s)", w.rig.Reason))
	}
	return nil
}

// layout finds what the model reads for a task, once.
func (w *Wrapped) layout(t Task) (l batch.Layout, err error) {
	l, ok := w.layouts[t]
	if ok {
		return l, nil
	}
	o := w.options(t, batch.Size{})
	if l, err = batch.Trace(func(size, seq int64) (*spec.Model, error) { return w.model.Trace(o, size, seq) }); err == nil {
		w.layouts[t] = l
	}
	return l, err
}

// Step trains one iteration on a batch and returns its loss: the mean over all targets
// of the batch, before the update.
func (w *Wrapped) Step(b Batch) (loss float64, err error) {
	r, m, err := w.begin(Train, b)
	if err != nil {
		return 0, fmt.Errorf("training %s: %w", w.model.Name, err)
	}
	w.feed.give(m, nil)
	return w.trainStep(r)
}

// trainStep trains an iteration on the batch that is in place.
func (w *Wrapped) trainStep(r *run.Run) (loss float64, err error) {
	w.stale = true
	err = w.pass(r, func() error {
		report, err := w.trainer.Step()
		loss = report.Loss
		return err
	})
	return loss, w.failed("training", err)
}

// failed says what failed, and remembers whether that left the weights or the gradients undefined: an iteration
// that was refused, or that diverged, did not.
func (w *Wrapped) failed(doing string, err error) error {
	if err == nil {
		return nil
	}
	var refused *train.RefusedError
	var diverged *train.DivergedError
	if !errors.As(err, &refused) && !errors.As(err, &diverged) {
		w.broken = err
	}
	return fmt.Errorf("%s %s: %w", doing, w.model.Name, err)
}

// Forward gives the model's outputs for a batch: logits of a language model, what comes
// before the loss of others.
func (w *Wrapped) Forward(b Batch) (Tensor, error) {
	r, _, err := w.begin(Infer, b)
	if err == nil {
		err = w.pass(r, func() error { return r.Executor().Iterate(context.Background(), executor.IterationArgs{}) })
	}
	if err != nil {
		return Tensor{}, fmt.Errorf("running %s: %w", w.model.Name, err)
	}
	p := r.Spec.Program(len(r.Spec.Blocks) - 1)
	out := Tensor{Shape: append(shape.Shape(nil), p.Type(p.Outputs[0].Value).Shape...)}
	if len(out.Shape) == 0 { // a number for each micro-batch
		out.Shape = shape.Of(1)
	}
	out.Shape[0] *= int64(r.Plan.MicroBatches)
	for j := range r.Plan.MicroBatches {
		out.Floats = append(out.Floats, r.Executor().Result(j)...)
	}
	if p.Type(p.Outputs[0].Value).DType == dtype.I32 { // such as classes: the result's words are integers
		for _, f := range out.Floats {
			out.Ints = append(out.Ints, int32(math.Float32bits(f)))
		}
		out.Floats = nil
	}
	return out, nil
}

// ForwardAll gives the outputs of a model with several, by the names that it gave them (graph.Builder.Results); one
// without names has "".
func (w *Wrapped) ForwardAll(b Batch) (map[string]Tensor, error) {
	all, err := w.Forward(b)
	if err != nil {
		return nil, err
	}
	parts := w.latest.Spec.Program(len(w.latest.Spec.Blocks) - 1).Results
	if parts == nil {
		return map[string]Tensor{"": all}, nil
	}
	rows, at := all.Shape[0], int64(0)
	width := all.Shape.Elements() / rows
	list := map[string]Tensor{}
	for _, p := range parts {
		n := p.Shape.Elements()
		t := Tensor{Shape: append(shape.Shape{rows}, p.Shape...)}
		for r := range rows {
			t.Floats = append(t.Floats, all.Floats[r*width+at:][:n]...)
		}
		list[p.Name], at = t, at+n
	}
	return list, nil
}

// Evaluate gives the loss of a batch without training on it and without dropout.
func (w *Wrapped) Evaluate(b Batch) (loss float64, err error) {
	r, m, err := w.begin(Eval, b)
	if err == nil {
		err = w.pass(r, func() error {
			loss, err = train.BatchLoss(r.Executor(), m.Counted())
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("evaluating %s: %w", w.model.Name, err)
	}
	return loss, nil
}

// begin checks a batch against the model, gets a run ready for it and puts it in place.
func (w *Wrapped) begin(task Task, b Batch) (*run.Run, batch.Matched, error) {
	if err := w.sound(); err != nil {
		return nil, batch.Matched{}, err
	}
	l, err := w.layout(task)
	if err != nil {
		return nil, batch.Matched{}, err
	}
	m, err := l.Match(w.readHere(task, l, b))
	if err != nil {
		return nil, m, err
	}
	r, err := w.ready(task, m.Size)
	if err == nil && task == Train {
		err = w.trainer.DropPrefetched()
	}
	if err == nil {
		err = m.Fill(r.Plan.MicroBatches, r.Executor().BatchTensor)
	}
	if err == nil {
		err = r.Executor().CheckBatch()
	}
	return r, m, err
}

// readHere is a batch without what only training reads of it, such as targets, so that inference and evaluation take the batches of training. What no task
// reads stays, and is refused.
func (w *Wrapped) readHere(task Task, l batch.Layout, b Batch) Batch {
	if task == Train || w.c.Outputs {
		return b
	}
	here := maps.Clone(b)
	for name := range b {
		if l.Reads(name) {
			continue
		}
		if trained, err := w.layout(Train); err == nil && trained.Reads(name) {
			delete(here, name)
		}
	}
	return here
}

// sound refuses a model whose weights are undefined.
func (w *Wrapped) sound() error {
	if w.broken == nil {
		return nil
	}
	return fmt.Errorf("the weights of %s are undefined; wrap the model anew: %w", w.model.Name, w.broken)
}

// Strategy is how the model is run now, in a line; "" before anything is planned.
func (w *Wrapped) Strategy() string {
	if w.latest == nil {
		return ""
	}
	return w.latest.Plan.Strategy
}

// Config the model is run with.
func (w *Wrapped) Config() Config { return w.c }

func (w *Wrapped) note(text string) {
	w.notices = append(w.notices, text)
	if w.c.Notice != nil {
		w.c.Notice(text)
	}
}

// Close gives all memory back. Devices that were open before stay open.
func (w *Wrapped) Close() error {
	var errs []error
	for _, r := range []*run.Run{w.view, w.training} {
		if r != nil {
			errs = append(errs, r.Close())
		}
	}
	w.view, w.training, w.latest = nil, nil, nil
	w.broken = errors.New("it was closed")
	if w.rig != nil && len(w.c.On) == 0 {
		errs = append(errs, w.rig.Close())
	}
	return errors.Join(errs...)
}
