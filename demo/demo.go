// Package demo is a demonstration that needs nothing but itself: it trains a small Llama that
// reads bytes, on a device with far less memory than the standard plan needs, has it write a
// text, and checks that the loss fell and the memory was as predicted.
package demo

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"spillway"
	"spillway/checkpoint"
	"spillway/data"
	"spillway/dtype"
	"spillway/finetune"
	"spillway/generate"
	"spillway/internal/vfs"
	"spillway/machine"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner"
	"spillway/rig"
	"spillway/train"
	"spillway/units"
)

// The model of the demonstration reads bytes; README.md says where the text is from.
var (
	//go:embed config.json
	config []byte
	// Text is forty chapters of Moby-Dick.
	//
	//go:embed moby-dick.txt
	Text string
)

// What the demonstration does: enough to see the loss fall, in less than a minute on two
// cores.
const (
	batch        = 16
	seq          = 128
	steps        = 240
	lr           = 5e-3
	slack        = 50 // the device has what the smallest plan needs, and a fiftieth of the way from there to the standard plan
	patience     = 35 * time.Second
	Prompt       = "The whale " // that the trained model continues
	SampleLength = 240          // characters
)

// What must hold afterwards.
const (
	Fall  = 0.6  // the last loss is below so much of the first
	exact = 0.01 // predicted and measured memory of the device differ by at most so much
	// The process may differ from the arenas by so much and a constant: buffers of
	// files, the Go heap, and what the system rounds to pages.
	residentShare = 0.1
	residentExtra = 16 * units.MiB
)

// Report is what came of a demonstration: the object of demo --json.
type Report struct {
	finetune.Result
	// The process as the system sees it: before the arenas were made, at most, and
	// what the arenas of device and host together should have added.
	ResidentBefore    int64 `json:"resident_before_bytes"`
	ResidentPeak      int64 `json:"resident_peak_bytes"`
	ResidentPredicted int64 `json:"resident_predicted_bytes"`
	ResidentAllowance int64 `json:"resident_allowance_bytes"`

	Sample string   `json:"sample"`
	Failed []string `json:"failed"` // what should hold and does not
}

// Options of a demonstration. All may be left out.
type Options struct {
	Rig    rig.Options
	Device string // as of --device
	Out    string // folder for the trained model; "" throws it away
	Steps  int64  // 0 is 240
	// Patience ends it once the loss has halved; 0 is 35 seconds.
	Patience time.Duration
	// Planned is called before the first step, with what will gather its reports.
	Planned func(*spillway.Run, *rig.Rig, *finetune.Monitor) error
	Report  func(train.Report) // of every step
	Notice  func(string)
}

// Run trains the model, has it write a text, and checks what the plan promised.
func Run(ctx context.Context, o Options) (r Report, err error) {
	o.Steps, o.Patience = cmp.Or(o.Steps, steps), cmp.Or(o.Patience, patience)
	dir, remove, err := vfs.TempDir("spillway-demo")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if found, err := (checkpoint.Dir{Path: o.Out}).List(); o.Out != "" && err == nil && len(found) > 0 {
		return r, fmt.Errorf("%s has a trained model already, of %d steps: name another folder, or remove this one", o.Out, found[0].Iteration)
	}
	path := filepath.Join(dir, "moby-llama.json") // a config alone: the weights are random
	if err := os.WriteFile(path, config, 0o644); err != nil {
		return r, err
	}
	m, err := spillway.Open(path)
	if err != nil {
		return r, err
	}
	defer m.Close() // opened for reading
	if r, err = o.train(ctx, m, cmp.Or(o.Out, filepath.Join(dir, "trained"))); err != nil {
		return r, err
	}
	if r.Sample, err = o.sample(ctx, r.Checkpoint); err != nil {
		return r, err
	}
	if o.Out == "" {
		r.Checkpoint = "" // it goes with the temporary folder
	}
	r.check()
	return r, nil
}

// Milestone is after how many steps a line of progress is worth keeping: ten in all.
func Milestone(o Options) int64 { return max(cmp.Or(o.Steps, steps)/10, 1) }

// train shows the plan, trains, and measures the process meanwhile.
func (d Options) train(ctx context.Context, m *spillway.Model, folder string) (r Report, err error) {
	optimizer, err := optim.Parse("adamw")
	if err != nil {
		return r, err
	}
	optimizer.LR = lr
	here, err := rig.Open(d.Device, d.Rig)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, here.Close()) }()
	o := onDevices(spillway.Options{Task: spillway.Train, MicroBatchSize: batch, Seq: seq, Packed: true, Optimizer: optimizer}, here)
	if o.Budget, err = budgetOf(m, o); err != nil {
		return r, err
	}
	job, err := m.Plan(o)
	if err != nil {
		return r, err
	}
	monitor := finetune.NewMonitor(job, here)
	if d.Planned != nil {
		if err := d.Planned(job, here, monitor); err != nil {
			return r, err
		}
	}
	loader, err := data.NewLoader(texts(strings.SplitAfter(Text, "\n\n\n")), data.Config{Length: seq})
	if err != nil {
		return r, err
	}
	debug.FreeOSMemory() // so that what follows is due to the run
	if r.ResidentBefore, err = rig.Resident(); err != nil {
		return r, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	monitor.Start()
	stopped := false
	result, err := train.Run(ctx, job, train.NewTokens(loader), train.Config{
		Iterations: d.Steps, Schedule: optim.Schedule{Kind: optim.Cosine, Warmup: 10, Floor: 0.1}, Notice: d.Notice,
		Save: &train.Save{Dir: checkpoint.Dir{Path: folder, Keep: 1}},
		Report: func(report train.Report) {
			monitor.Report(report)
			if d.Report != nil {
				d.Report(report)
			}
			if monitor.Elapsed() > d.Patience && 2*report.Loss < monitor.First.Loss {
				stopped = true
				stop()
			}
		},
	})
	if err != nil {
		return r, err
	}
	r.Result = monitor.Result(result)
	r.Interrupted = r.Interrupted && !stopped
	r.ResidentPeak = r.Resident
	for tier, bytes := range job.Plan.Peak() {
		if tier != plan.OnDevice || here.Machine.Devices[0].Shared {
			r.ResidentPredicted += bytes
		}
	}
	r.ResidentAllowance = int64(residentShare*float64(r.ResidentPredicted)) + int64(residentExtra)
	return r, nil
}

// onDevices is the goal on devices that are open, in the precision that suits them.
func onDevices(o spillway.Options, here *rig.Rig) spillway.Options {
	o.Machine, o.Device, o.On = here.Machine, here.Machine.Devices[0].Name, here.Devices
	if here.Machine.Devices[0].Kind == machine.GPU {
		o.Precision = dtype.BF16
	}
	return o
}

// budgetOf is the memory of the demonstration's device, in bytes: little more than the
// smallest plan needs, and far less than the standard plan does. Both depend on the device,
// since kernels have workspace.
func budgetOf(m *spillway.Model, o spillway.Options) (int64, error) {
	o.Budget = 1
	var misfit *planner.FitError
	if _, err := m.Plan(o); !errors.As(err, &misfit) {
		return 0, fmt.Errorf("looking for the smallest plan: %w", err)
	}
	job, err := m.Standard(o)
	if err != nil {
		return 0, err
	}
	return misfit.Needed + (finetune.StandardPeak(job.Plan)-misfit.Needed)/slack, nil
}

// sample has the trained model continue a prompt.
func (d Options) sample(ctx context.Context, path string) (text string, err error) {
	m, err := spillway.Open(path)
	if err != nil {
		return "", err
	}
	defer m.Close() // opened for reading
	here, err := rig.Open(d.Device, d.Rig)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, here.Close()) }()
	job, err := m.Plan(onDevices(spillway.Options{Task: spillway.Infer, Seq: int64(len(Prompt) + SampleLength)}, here))
	if err != nil {
		return "", err
	}
	if err := job.Start(); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, job.Close()) }()
	engine, err := generate.NewPlain(job)
	if err != nil {
		return "", err
	}
	ids := byteIDs(Prompt)
	g, err := generate.New(engine, nil, generate.Request{Prompt: ids, Sampler: generate.Sampler{Temperature: 0.7, Seed: 1}})
	if err != nil {
		return "", err
	}
	for piece, err := range g.All(ctx) {
		if err != nil {
			return "", err
		}
		for _, token := range piece.Tokens {
			ids = append(ids, token.ID)
		}
	}
	return byteText(ids), nil
}

// check lists what should hold and does not.
func (r *Report) check() {
	r.Failed = []string{}
	hold := func(ok bool, format string, args ...any) {
		if !ok {
			r.Failed = append(r.Failed, fmt.Sprintf(format, args...))
		}
	}
	hold(r.LossLast < Fall*r.LossFirst, "the loss fell from %.4f to %.4f, not below %v of the first", r.LossFirst, r.LossLast, Fall)
	hold(r.Budget < r.Standard, "the budget of %d bytes is not below the %d of the standard plan", r.Budget, r.Standard)
	off := math.Abs(float64(r.Measured - r.Predicted))
	hold(off <= exact*float64(r.Predicted), "%d bytes of the device were predicted and %d measured", r.Predicted, r.Measured)
	if r.Driver > 0 { // the libraries of a GPU take memory of the process as they like
		hold(r.Driver >= r.Predicted && r.Driver <= r.DriverPredicted, "the driver of the GPU counts %d bytes, %d to %d were predicted", r.Driver, r.Predicted, r.DriverPredicted)
		return
	}
	grown := r.ResidentPeak - r.ResidentBefore
	hold(math.Abs(float64(grown-r.ResidentPredicted)) <= float64(r.ResidentAllowance),
		"the process grew by %d bytes, %d were predicted and %d more or less allowed", grown, r.ResidentPredicted, r.ResidentAllowance)
}

// texts are documents of bytes in memory.
type texts []string

// Len is the number of texts.
func (t texts) Len() int64 { return int64(len(t)) }

// Document is a text as bytes.
func (t texts) Document(i int64) (data.Document, error) {
	return data.Document{Tokens: byteIDs(t[i])}, nil
}

// byteIDs are the tokens of a text for a model that reads bytes.
func byteIDs(text string) []int32 {
	ids := make([]int32, len(text))
	for i := range ids {
		ids[i] = int32(text[i])
	}
	return ids
}

// byteText is what generated bytes say, anything unprintable as a dot.
func byteText(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		if id != '\n' && (id < ' ' || id > '~') {
			id = '.'
		}
		b.WriteByte(byte(id))
	}
	return b.String()
}
