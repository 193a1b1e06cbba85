package inference

import (
	"context"
	"errors"
	"fmt"
	"time"

	"spillway"
	"spillway/dtype"
	"spillway/generate"
	"spillway/lora"
	"spillway/plan"
	"spillway/rig"
	"spillway/tokenizer"
)

// Size is what memory is planned for.
type Size struct {
	Context int64 // tokens of a text, prompt included; 0 is what the model was made for, at most 4096
	Streams int64 // texts at once; 0 is 1
}

// usualContext bounds the context where nobody says, in tokens.
const usualContext = 4096

// Engine is a model in memory, ready to compute.
type Engine struct {
	generate.Engine
	Model *Model
	Rig   *rig.Rig
	Run   *spillway.Run
	// Loading is how long it took until the weights were there.
	Loading time.Duration

	tokenizer *tokenizer.Tokenizer // nil where the model has none
}

// CheckContext refuses texts that the model has no positions for.
func (m *Model) CheckContext(tokens int64) error {
	if most := m.Info.Context; most > 0 && tokens > most {
		return fmt.Errorf("a context of %d tokens is wanted, %s was made for %d: give fewer --max-new-tokens, a shorter prompt or a smaller --context", tokens, m.Name, most)
	}
	return nil
}

// Start opens the devices, makes the plan and loads the weights. The caller closes the
// engine, and the model after it.
func (m *Model) Start(ctx context.Context, size Size) (e *Engine, err error) {
	start := time.Now()
	if size.Context == 0 {
		size.Context = usualContext
		if m.Info.Context > 0 {
			size.Context = min(size.Context, m.Info.Context)
		}
	}
	if err := m.CheckContext(size.Context); err != nil {
		return nil, err
	}
	e = &Engine{Model: m}
	defer func() {
		if err != nil {
			e, err = nil, errors.Join(err, e.Close())
		}
	}()
	if e.Rig, err = rig.Open(m.s.Device, m.s.Rig); err != nil {
		return e, err
	}
	if e.Run, err = m.plan(e.Rig, m.generateOptions(size)); err != nil {
		return e, err
	}
	if err := m.load(ctx, e.Run); err != nil {
		return e, err
	}
	if e.Engine, err = m.newEngine(e.Run); err != nil {
		return e, err
	}
	if t, err := m.Tokenizer(); err == nil {
		e.tokenizer = t
	}
	e.Loading = time.Since(start)
	return e, nil
}

// options are those of every task.
func (m *Model) options(o spillway.Options, on *rig.Rig) spillway.Options {
	o.Machine, o.On, o.Device, o.MaxMemory = on.Machine, on.Devices, on.Machine.Devices[0].Name, m.s.MaxMemory
	if m.s.MaxHost > 0 {
		o.Machine.Host.Usable = min(o.Machine.Host.Usable, m.s.MaxHost)
	}
	if o.Precision = m.s.Precision; o.Precision == dtype.Invalid {
		if o.Precision = m.Info.DType; !o.Precision.IsPlain() {
			o.Precision = dtype.F32
		}
	}
	if m.adapter != nil {
		o.Adapter, o.Adapters = m.adapter, lora.Options{}
	}
	return o
}

// plan plans a task on devices that are open.
func (m *Model) plan(on *rig.Rig, o spillway.Options) (*spillway.Run, error) {
	job, err := m.Plan(m.options(o, on))
	if err != nil {
		return nil, err
	}
	for _, text := range job.Notices {
		m.s.Notice(text)
	}
	job.Notice = m.s.Notice
	return job, nil
}

// load starts a run, and reports how far its weights are loaded.
func (m *Model) load(ctx context.Context, job *spillway.Run) error {
	job.Loading = func(done, total int64) error {
		m.s.Progress("loading weights", done, total)
		return ctx.Err()
	}
	return job.Start()
}

// Generate begins to carry out a request.
func (e *Engine) Generate(r generate.Request) (*generate.Generation, error) {
	return generate.New(e.Engine, e.tokenizer, r)
}

// PredictedPeak and MeasuredPeak are bytes of device memory.
func (e *Engine) PredictedPeak() int64 { return e.Run.Plan.Peak()[plan.OnDevice] }

// MeasuredPeak is what the devices have allocated.
func (e *Engine) MeasuredPeak() int64 { return e.Rig.Allocated() }

// Close gives all memory and the devices back.
func (e *Engine) Close() error {
	var errs []error
	if e.Engine != nil {
		errs = append(errs, e.Engine.Close())
	}
	if e.Run != nil {
		errs = append(errs, e.Run.Close())
	}
	if e.Rig != nil {
		errs = append(errs, e.Rig.Close())
	}
	return errors.Join(errs...)
}
