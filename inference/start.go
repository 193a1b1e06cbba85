package inference

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"spillway"
	"spillway/dtype"
	"spillway/generate"
	"spillway/internal/stopwatch"
	"spillway/internal/vfs"
	"spillway/lora"
	"spillway/machine"
	"spillway/plan"
	"spillway/planner"
	"spillway/rig"
	"spillway/tokenizer"
	"spillway/units"
)

// Size is what memory is planned for.
type Size struct {
	Context int64 // tokens of a text, prompt included; 0 is what the model was made for, at most 4096
	Streams int64 // texts at once; 0 is 1
	Chunk   int64 // tokens of prompts that are computed at once; 0 is 512 on a CPU and 2048 on a GPU
	Outputs int64 // tokens of a prompt that get log-probabilities in one step; 0 is 1
	Drafts  int64 // guessed tokens of a text, one after the other, that are computed in one step; see Draft
	// Branches are continuations of a text that are guessed next to the first, and Apart how many of their last tokens
	// differ; 0 is Drafts and one.
	Branches, Apart int64
}

// usualContext bounds the context where nobody says, in tokens.
const usualContext = 4096

// Engine is a model in memory, ready to compute.
type Engine struct {
	generate.Engine
	Model *Model
	Rig   *rig.Rig
	Run   *spillway.Run
	// Loading is how long it took until the weights were there. Measuring is how long the
	// rates of the computer were measured before, which Loading leaves out.
	Loading, Measuring time.Duration

	tokenizer *tokenizer.Tokenizer // nil where the model has none
}

// CheckContext refuses texts that the model has no positions for.
func (m *Model) CheckContext(tokens int64) error {
	if most := m.Info.Context; most > 0 && tokens > most {
		return fmt.Errorf("a context of %d tokens is wanted, %s was made for %d: give fewer --max-new-tokens, a shorter prompt or a smaller --context", tokens, m.Name, most)
	}
	return nil
}

// contextOf is the context of a size, in tokens, also where nobody says.
func (m *Model) contextOf(size Size) int64 {
	switch {
	case size.Context > 0:
		return size.Context
	case m.Info.Context > 0:
		return min(usualContext, m.Info.Context)
	}
	return usualContext
}

// Start opens the devices, makes the plan and loads the weights. The caller closes the
// engine, and the model after it.
func (m *Model) Start(ctx context.Context, size Size) (e *Engine, err error) {
	start := stopwatch.Now()
	size.Context = m.contextOf(size)
	if err := m.CheckContext(size.Context); err != nil {
		return nil, err
	}
	e = &Engine{Model: m}
	defer func() {
		if err != nil {
			e, err = nil, errors.Join(err, e.Close())
		}
	}()
	e.Rig, e.Run, e.Measuring, err = m.prepare(ctx, func(*rig.Rig) spillway.Options { return m.generateOptions(size) })
	if err != nil {
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
	} else if m.s.Tokenizer != "" || slices.Contains(m.Folder.Tokenizer, "tokenizer.json") && !m.s.guesses {
		m.s.Notice(fmt.Sprintf("texts are written as ids: %v", err))
	}
	e.Loading = stopwatch.Since(start) - e.Measuring
	return e, nil
}

// options are those of every task.
func (m *Model) options(o spillway.Options, on *rig.Rig) spillway.Options {
	o.Machine, o.On, o.Device, o.MaxMemory, o.Disk = on.Machine, on.Devices, on.Machine.Devices[0].Name, m.s.MaxMemory, m.s.Disk
	if m.s.MaxHost > 0 {
		o.Machine.Host.Usable = min(o.Machine.Host.Usable, m.s.MaxHost)
	}
	o.CompressWeights = m.s.CompressWeights
	if o.Precision = m.s.Precision; o.Precision == dtype.Invalid {
		o.Precision = Precision(m.Model)
	}
	o.Adapters.Outliers, o.Adapters.Base = m.s.Outliers, cmp.Or(m.s.quantized, m.s.Casting)
	if len(m.s.SkipCasting) > 0 {
		o.Exceptions = append(o.Exceptions, spillway.Exception{Modules: m.s.SkipCasting})
	}
	m.AddAdapters(&o)
	return o
}

// AddAdapters has options use the adapters of the model, next to its weights as they were trained for them.
func (m *Model) AddAdapters(o *spillway.Options) {
	if m.adapter == nil {
		return
	}
	o.Adapter, o.Adapters = m.adapter, lora.Options{}
	if m.base != nil {
		o.Adapters, o.Exceptions = m.base.Adapters, append(o.Exceptions, m.base.Exceptions...)
	}
}

// Precision is what a model computes in where nobody says: the type of its weights.
func Precision(m *spillway.Model) dtype.Type {
	if t := m.Info.DType; t.IsPlain() {
		return t
	}
	return dtype.F32
}

// mostMeasuring bounds how long the first token waits for measurements of a GPU that a model does
// not fit on.
const mostMeasuring = 15 * time.Second

var errMeasuring = errors.New("measuring takes too long")

// prepare opens the devices and plans a task on them. A model whose weights stay on the device
// has the same plan whatever the rates of the computer are, and so has about every model on a CPU:
// the first token does not wait for measurements. They are made, once, where weights stream to a
// GPU, for as long as mostMeasuring. The caller closes the rig, also after an error.
func (m *Model) prepare(ctx context.Context, task func(*rig.Rig) spillway.Options) (on *rig.Rig, job *spillway.Run, measuring time.Duration, err error) {
	o, announced := m.s.Rig, false
	var start time.Time // of measuring, zero before and after
	o.Measure, o.Assume = false, true
	o.Report = func(what string) {
		if !announced {
			m.s.Notice(fmt.Sprintf("measuring this computer, once, for %.0f s at most: how a model that does not fit is streamed depends on its rates", mostMeasuring.Seconds()))
			announced = true
		}
		if m.s.Rig.Report != nil {
			m.s.Rig.Report(what)
		}
	}
	o.Stop = func() error {
		if !start.IsZero() && stopwatch.Since(start) > mostMeasuring {
			return errMeasuring
		}
		return ctx.Err()
	}
	if on, err = rig.Open(m.s.Device, o); err != nil {
		return on, nil, 0, err
	}
	job, err = m.Plan(m.options(task(on), on))
	if err == nil && m.s.Rig.Measure && on.Machine.Devices[0].Kind == machine.GPU && !resident(job.Plan) {
		start = stopwatch.Now()
		err = on.Measure(true)
		measuring, start = stopwatch.Since(start), time.Time{}
		switch {
		case err == nil:
			job, err = m.Plan(m.options(task(on), on))
		case errors.Is(err, errMeasuring):
			err = nil
			m.s.Notice("the rates are assumed, since measuring them took too long now; spillway devices measures them at leisure")
		}
	}
	var fit *planner.FitError
	if errors.As(err, &fit) && !m.s.guesses {
		m.moreMemory(fit, m.options(task(on), on))
		if fit.Tier != plan.OnDevice {
			err = m.aboutDisk(fit, err)
		}
	}
	if err != nil {
		return on, nil, measuring, err
	}
	for _, text := range job.Notices {
		m.s.Notice(text)
	}
	job.Notice = m.s.Notice
	return on, job, measuring, nil
}

// moreMemory plans within more memory than the limit that was given, and puts the first limit that is
// enough before what else would fit.
func (m *Model) moreMemory(fit *planner.FitError, o spillway.Options) {
	flag, limits, taken := "--max-memory", o.Limits(fit.Needed), m.s.guessing
	allow := func(limit units.Bytes) { o.MaxMemory = fmt.Sprintf("%dB", int64(limit)) }
	given, err := units.ParseBytes(m.s.MaxMemory)
	switch {
	case fit.Tier == plan.OnDevice && m.s.MaxMemory != "" && err == nil && given > 0:
	case fit.Tier != plan.OnDevice && m.s.MaxHost > 0 && taken == 0:
		flag, limits, given = "--max-host-memory", []int64{fit.NeededHost}, m.s.MaxHost
		allow = func(limit units.Bytes) { o.Machine.Host.Usable = limit }
	default:
		return
	}
	there := o.Machine.Host.Memory
	for _, n := range limits {
		limit := units.Bytes(n)
		if flag == "--max-memory" {
			limit += units.Bytes(fit.Context)
		}
		limit = (limit + units.MiB - 1) / units.MiB * units.MiB
		if allow(limit); limit <= given || flag == "--max-host-memory" && limit > there {
			continue
		}
		job, err := m.TryPlan(o)
		if err != nil {
			continue
		}
		fit.Options = slices.DeleteFunc(fit.Options, func(f planner.FitOption) bool { return strings.HasPrefix(f.Change, "a machine with") })
		fit.Options = append([]planner.FitOption{{Change: fmt.Sprintf("%s %dMiB", flag, (limit+taken+units.MiB-1)/units.MiB), Peak: job.Plan.Peak(), Device: job.Plan.Devices[0].Budget}}, fit.Options...)
		return
	}
}

// aboutDisk adds what a disk has to do with a model that does not fit in memory: none was named, or it
// is full.
func (m *Model) aboutDisk(fit *planner.FitError, err error) error {
	if m.s.Disk == "" {
		return fmt.Errorf("%w; or read weights from disk with --disk DIR", err)
	}
	free, asking := vfs.FreeSpace(vfs.ExistingParent(vfs.OS, m.s.Disk))
	if missing := fit.Needed - fit.Budget; asking == nil && free < missing {
		return fmt.Errorf("%w; weights that are read from disk may need copies there, and of the %v that are missing %v are free at %s: free space there or choose another disk", err, units.Bytes(missing), units.Bytes(free), m.s.Disk)
	}
	return err
}

// resident says whether all weights of a plan stay on the device.
func resident(p *plan.Plan) bool {
	return !slices.ContainsFunc(p.Slabs, func(s plan.Slab) bool { return p.TierOf(s.Weight) != plan.OnDevice })
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
	g, err := generate.New(e.Engine, e.tokenizer, r)
	return g, e.Model.tooLong(err)
}

// tooLong adds to an error about lengths what the model was made for.
func (m *Model) tooLong(err error) error {
	var long *generate.LengthError
	if errors.As(err, &long) {
		long.Most = int(m.Info.Context)
	}
	return err
}

// Batch begins to carry out many requests, several at once.
func (e *Engine) Batch(list []generate.Request) (*generate.Batch, error) {
	b, err := generate.NewBatch(e.Engine, e.tokenizer, list)
	return b, e.Model.tooLong(err)
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
