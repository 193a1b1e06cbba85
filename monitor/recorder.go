// Package monitor watches: it records a run in its event log, with alerts, and looks at the
// GPUs, the memory and the runs of this computer.
package monitor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"spillway/eventlog"
	"spillway/executor"
	"spillway/internal/nvml"
	"spillway/internal/vfs"
	"spillway/machine"
	"spillway/plan"
	"spillway/run"
	"spillway/trace"
	"spillway/train"
)

// Recorder writes what happens to a training run into the event log in its folder. Its
// methods are hooks of train.Config, and are called from the loop's goroutine. Nothing that
// goes wrong with the log stops a run. One that has not begun, and a nil one, write nothing.
type Recorder struct {
	chronicle
	rules     rules
	plan      *plan.Plan // that was written last
	tiers     eventlog.Tiers
	forecast  []trace.Event // of the plan; nil while it is not known
	iteration eventlog.Iteration
	executor  *executor.Executor // whose counters were looked at, after the step before
	before    int64
}

// chronicle is an event log that is being written, and what all runs have in theirs.
type chronicle struct {
	run     *run.Run
	o       RecordOptions
	dir     string
	log     *eventlog.Writer
	id      string // of the run
	listing listing
	asked   atomic.Bool // a trace, by a file in the folder
	gpus    gpuSource   // of the log's goroutine; nil where the run has no GPU
	// sampled is called with every sample, from the log's goroutine; nil until everything is set.
	sampled atomic.Pointer[func(eventlog.Sample)]

	mu      sync.Mutex
	pending []eventlog.Alert // that nobody was given yet
}

// RecordOptions say what a log has beyond what the run itself knows.
type RecordOptions struct {
	Settings []eventlog.Setting
	Program  string // version of the program that trains
	Done     int64  // steps before this process; 0 when not known
	Steps    int64  // of the run, in all; 0 when not known
	// SaveEvery is the number of steps between checkpoints that was asked for, 0 for none, and Keep how
	// many there are at most, 0 for all.
	SaveEvery int64
	Keep      int64
	// Alert is called for each alert, from the loop's goroutine; nil is fine.
	Alert func(eventlog.Alert)
	// Notice is called when the log cannot be written; nil is fine.
	Notice func(string)
	// Cache is the user's cache folder, in which the runs of this computer are listed; "" lists
	// nothing.
	Cache string
}

// TraceRequest is the name of a file whose appearance in the folder of a run asks for the
// trace of a step.
const TraceRequest = "trace.request"

// Begin begins to record a run that is about to iterate, in a folder that exists. A log that
// is there is continued; one that is damaged is put aside.
func (rec *Recorder) Begin(r *run.Run, dir string, o RecordOptions) {
	rec.open(r, dir, o)
	rec.writePlan(o.Done)
	rec.rules = rules{alert: rec.alert, saveEvery: o.SaveEvery, lastSave: o.Done, checkpoint: train.CheckpointBytes(r)}
	rec.rules.keep = o.Keep
	rec.watchSamples(rec.rules.sampled)
}

// open opens the log and writes who runs what where.
func (c *chronicle) open(r *run.Run, dir string, o RecordOptions) {
	if o.Notice == nil {
		o.Notice = func(string) {}
	}
	c.run, c.o, c.dir = r, o, dir
	path := filepath.Join(dir, eventlog.FileName)
	c.id = runID(dir, path)
	options := eventlog.Options{Sample: c.sample, Failed: func(err error) {
		if c.sampled.Load() != nil {
			c.alert(eventlog.Alert{Level: eventlog.Warning, Name: "event-log", Text: err.Error()})
		}
	}}
	if r.Site().Device.Kind == machine.GPU {
		if library, err := nvml.Open(); err == nil {
			c.gpus = library
		}
	}
	var err error
	if c.log, err = eventlog.Open(path, options); unreadable(err) {
		aside := filepath.Join(dir, fmt.Sprintf("events-%d.damaged", time.Now().Unix()))
		o.Notice(fmt.Sprintf("%v; it is kept as %s, and a new one begins", err, aside))
		if err = vfs.OS.Rename(path, aside); err == nil {
			c.log, err = eventlog.Open(path, options)
		}
	}
	if err != nil {
		o.Notice(fmt.Sprintf("%v; the run goes on without one", err))
	}
	host, _ := os.Hostname() // "" where it is not known
	c.log.Start(eventlog.Start{Time: time.Now(), Run: c.id, Model: r.Model.Name, Task: string(r.Options.Task), Host: host, PID: os.Getpid(), Program: o.Program, Step: o.Done, MaxSteps: o.Steps})
	c.log.Settings(o.Settings)
	c.log.Machine(r.Options.Machine)
	c.listing = register(o.Cache, dir)
}

// watchSamples has a function called with every sample from now on, from the log's goroutine.
func (c *chronicle) watchSamples(f func(eventlog.Sample)) { c.sampled.Store(&f) }

// unreadable says whether a log is there that cannot be continued.
func unreadable(err error) bool {
	var damaged *eventlog.DamagedError
	var version *eventlog.VersionError
	var format *eventlog.FormatError
	return errors.As(err, &damaged) || errors.As(err, &version) || errors.As(err, &format)
}

// runID is the id that the log of the run has, or a new one: the folder and the time.
func runID(dir, path string) string {
	if s, err := eventlog.Summarize(path); err == nil && s.Start.Run != "" {
		return s.Start.Run
	}
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return fmt.Sprintf("%s-%s", filepath.Base(dir), time.Now().Format("20060102-150405"))
}

// ID is the run's, the same after it was continued.
func (r *Recorder) ID() string {
	if r == nil {
		return ""
	}
	return r.chronicle.ID()
}

// ID is the run's, the same after it was continued.
func (r *chronicle) ID() string { return r.id }

// tiersOf are the bytes that a plan reserves.
func tiersOf(p *plan.Plan) eventlog.Tiers {
	peak := p.Peak()
	return eventlog.Tiers{Device: peak[plan.OnDevice], Pinned: peak[plan.Pinned], Host: peak[plan.OnHost], Disk: peak[plan.OnDisk]}
}

// writePlan writes the plan and its forecast, once per plan.
func (r *Recorder) writePlan(done int64) {
	p := r.run.Plan
	if p == r.plan {
		return
	}
	r.plan, r.forecast, r.tiers = p, nil, tiersOf(p)
	r.log.Plan(done, p)
	if events, err := r.run.Timeline(); err == nil {
		r.forecast = trace.FromZero(events)
		r.log.Trace(eventlog.Trace{Step: done, Forecast: true, Events: r.forecast})
	}
}

// Report writes an iteration, and gives it as it was written; the next call overwrites it.
// driver is what the drivers of GPUs count for the program, in bytes; 0 where nobody counts.
func (r *Recorder) Report(report train.Report, driver int64) *eventlog.Iteration {
	if r == nil || r.run == nil {
		it := iterationOf(report)
		return &it
	}
	r.writePlan(report.Iteration - 1)
	it := &r.iteration
	*it = iterationOf(report)
	it.UnixNano, it.Tiers, it.DriverBytes = time.Now().UnixNano(), r.tiers, driver
	if f := r.plan.Forecast; f != nil {
		it.Forecast, it.Bound = f.StepSeconds, eventlog.ResourceOf(f.Bound)
	}
	r.log.Iteration(it)
	r.rules.iteration(it)
	r.counted(it)
	r.tell()
	return it
}

// counted compares what crossed the links with what the plan says.
func (r *Recorder) counted(it *eventlog.Iteration) {
	e, f := r.run.Executor(), r.plan.Forecast
	if e == nil || f == nil {
		return
	}
	if e != r.executor { // a new plan counts anew
		r.executor, r.rules.placement = e, placement{}
	}
	c := e.Counters()
	clean := it.EvalLoss == 0 && !it.Skipped && it.Step == r.before+1 && r.rules.lastSave != r.before
	r.before = it.Step
	r.rules.placed(it.Step, clean, c.BytesIn, c.BytesOut, f.BytesIn, f.BytesOut)
}

// iterationOf is a training report as event logs have it.
func iterationOf(r train.Report) eventlog.Iteration {
	return eventlog.Iteration{Step: r.Iteration, MaxSteps: r.Iterations, Loss: r.Loss, GradNorm: r.GradNorm, LR: r.LR, EvalLoss: r.EvalLoss, Perplexity: r.Perplexity,
		LossScale: r.LossScale, Skipped: r.Skipped, StateBytes: r.StateBytes, Compressed: r.Compressed, Seconds: r.SecondsPerIteration, TokensPerSecond: r.TokensPerSecond,
		ShareOfRoofline: r.ShareOfRoofline, PredictedBytes: r.PredictedBytes, MeasuredBytes: r.MeasuredBytes, ETA: r.ETA, Tokens: r.Tokens, FeedSeconds: r.FeedSeconds, Traced: r.Traced}
}

// TraceNext says whether a trace was asked for.
func (r *chronicle) TraceNext() bool { return r.asked.Load() && r.asked.Swap(false) }

// Timeline writes the trace of a step.
func (r *Recorder) Timeline(step int64, events []trace.Event) {
	r.log.Trace(eventlog.Trace{Step: step, Events: events})
	r.rules.traced(step, events, r.forecast)
}

// Profile writes what the ops of a step took.
func (r *Recorder) Profile(p eventlog.Profile) {
	if r != nil && r.run != nil {
		r.log.Profile(p)
	}
}

// Saved writes that a checkpoint was saved.
func (r *Recorder) Saved(step int64, path string) {
	r.rules.lastSave = step
	r.log.Checkpoint(eventlog.Checkpoint{Time: time.Now(), Step: step, Path: path})
}

// Close writes how the run ended, with err if it failed, and closes the log.
func (r *Recorder) Close(result train.Result, err error) {
	if r == nil || r.run == nil {
		return
	}
	e := eventlog.End{Time: time.Now(), Step: result.Iterations, How: eventlog.Done}
	var diverged *train.DivergedError
	switch {
	case errors.As(err, &diverged):
		r.alert(eventlog.Alert{Step: diverged.Iteration, Level: eventlog.Serious, Name: "diverged", Text: err.Error()})
		fallthrough
	case err != nil:
		e.How, e.Error = eventlog.Failed, err.Error()
	case result.Interrupted:
		e.How = eventlog.Interrupted
	}
	r.end(e)
}

// end writes how the run ended and closes the log.
func (r *chronicle) end(e eventlog.End) {
	r.log.End(e)
	if err := r.log.Close(); err != nil {
		r.o.Notice(err.Error())
	}
	if r.gpus != nil {
		r.gpus.Close() // nothing depends on it
	}
	r.tell()
	r.listing.end()
}

// alert writes an alert. Whoever listens is given it with the next step, since it may come
// from the log's goroutine.
func (r *chronicle) alert(a eventlog.Alert) {
	a.Time = time.Now()
	r.log.Alert(a)
	r.mu.Lock()
	r.pending = append(r.pending, a)
	r.mu.Unlock()
}

// tell gives alerts to whoever listens.
func (r *chronicle) tell() {
	r.mu.Lock()
	list := r.pending
	r.pending = nil
	r.mu.Unlock()
	for _, a := range list {
		if r.o.Alert != nil {
			r.o.Alert(a)
		}
	}
}

// sample looks at memory, and whether a trace is asked for. It is called from the log's
// goroutine.
func (r *chronicle) sample() eventlog.Sample {
	s := memorySample(r.dir)
	s.Time = time.Now()
	if r.gpus != nil {
		s.GPUs = gpuSamples(r.gpus)
	}
	request := filepath.Join(r.dir, TraceRequest)
	if _, err := os.Lstat(request); err == nil && os.Remove(request) == nil {
		r.asked.Store(true)
	}
	if f := r.sampled.Load(); f != nil {
		(*f)(s)
	}
	return s
}

// gpuSamples are the states of all GPUs; none where the driver does not answer.
func gpuSamples(from gpuSource) (samples []eventlog.GPUSample) {
	list, _ := from.All()
	for _, g := range list {
		samples = append(samples, eventlog.GPUSample{Busy: g.Busy, MemoryUsed: g.MemoryUsed, In: g.Received, Out: g.Sent, LinkWidth: g.LinkWidth, LinkBest: g.LinkMax[1], Generation: g.LinkGeneration, BestGen: g.LinkMax[0],
			Clock: g.Clock, ClockBest: g.ClockMax, Lowered: g.Lowered, Temperature: g.Temperature, Power: g.Power})
	}
	return samples
}

// RequestTrace asks the process that trains in a folder for the trace of its next step.
func RequestTrace(dir string) error {
	return vfs.ReplaceBytes(vfs.OS, filepath.Join(dir, TraceRequest), nil)
}
