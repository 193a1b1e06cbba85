package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway"
	"spillway/checkpoint"
	"spillway/data"
	"spillway/dtype"
	"spillway/finetune"
	"spillway/generate"
	"spillway/internal/term"
	"spillway/machine"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner"
	"spillway/recipe"
	"spillway/rig"
	"spillway/tokenizer"
	"spillway/train"
	"spillway/units"
)

// The model of the demonstration reads bytes; demo/README.md says where the text is from.
var (
	//go:embed demo/config.json
	demoConfig []byte
	//go:embed demo/moby-dick.txt
	demoText string
)

// What the demonstration does: enough to see the loss fall, in less than a minute on two
// cores.
const (
	demoBatch      = 16
	demoSeq        = 128
	demoIterations = 240
	demoLR         = 5e-3
	demoSlack      = 50 // the device has what the smallest plan needs, and a fiftieth of the way from there to the standard plan
	demoPatience   = 35 * time.Second
	demoPrompt     = "The whale "
	demoSample     = 240 // characters
)

// What must hold afterwards.
const (
	demoFall  = 0.6  // the last loss is below so much of the first
	demoExact = 0.01 // predicted and measured memory of the device differ by at most so much
	// The process may differ from the arenas by so much and a constant: buffers of
	// files, the Go heap, and what the system rounds to pages.
	residentShare = 0.1
	residentExtra = 16 * units.MiB
)

func newDemo(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "train a small model in less memory than it needs, in a minute, with nothing but this binary",
		Long: `Trains a small Llama that reads bytes on forty chapters of Moby-Dick, on a device with far
less memory than the model needs with everything on the device. You see the plan that makes
it fit, the loss falling, the predicted and the measured memory, and a few lines that the
model wrote.

Afterwards it checks what it claims: the loss fell, the memory limit was below what the
standard plan needs, the memory was as predicted, and the process grew by no more than the
arenas. The exit code is 1 if anything does not hold.`,
		Example: `  spillway demo
  spillway demo --json
  spillway demo --out keep      keep the trained model: a folder that other programs can load`,
		Args: noArguments,
	}
	asJSON := jsonFlag(cmd)
	out := cmd.Flags().String("out", "", "keep the trained model in `DIR` (default: it is thrown away)")
	on := cmd.Flags().String("device", "", recipe.DeviceHelp)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d := &demo{sh: sh, out: *out, device: *on, text: sh.out, iterations: demoIterations, patience: demoPatience}
		if *asJSON {
			d.text = io.Discard
		}
		r, err := d.run(cmd.Context())
		if err != nil {
			return err
		}
		if *asJSON {
			err = writeJSON(sh.out, r)
		}
		if err == nil && len(r.Failed) > 0 {
			err = fmt.Errorf("%s", strings.Join(r.Failed, "; "))
		}
		return err
	}
	return cmd
}

// demoReport is the object of demo --json.
type demoReport struct {
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

// demo is one demonstration.
type demo struct {
	sh         shell
	out        string
	device     string    // as of --device
	text       io.Writer // for people
	iterations int64
	patience   time.Duration // after which it ends once the loss has fallen enough
}

func (d *demo) run(ctx context.Context) (r demoReport, err error) {
	dir, err := os.MkdirTemp("", "spillway-demo-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	m, err := demoModel(dir)
	if err != nil {
		return r, err
	}
	defer m.Close() // opened for reading
	folder := d.out
	if folder == "" {
		folder = filepath.Join(dir, "trained")
	}
	if r, err = d.train(ctx, m, folder); err != nil {
		return r, err
	}
	if r.Sample, err = d.sample(ctx, r.Checkpoint); err != nil {
		return r, err
	}
	if d.out == "" {
		r.Checkpoint = "" // it goes with the temporary folder
	}
	r.check()
	return r, d.conclude(r)
}

// demoModel is a config alone: its weights are random.
func demoModel(dir string) (*spillway.Model, error) {
	path := filepath.Join(dir, "moby-llama.json")
	if err := os.WriteFile(path, demoConfig, 0o644); err != nil {
		return nil, err
	}
	return spillway.Open(path)
}

// train shows the plan, trains, and measures the process meanwhile.
func (d *demo) train(ctx context.Context, m *spillway.Model, folder string) (r demoReport, err error) {
	optimizer, err := optim.Parse("adamw")
	if err != nil {
		return r, err
	}
	optimizer.LR = demoLR
	here, err := d.sh.open(d.device, rig.Options{})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, here.Close()) }()
	o := demoOn(spillway.Options{Task: spillway.Train, MicroBatchSize: demoBatch, Seq: demoSeq, Packed: true, Optimizer: optimizer}, here)
	budget, err := demoBudget(m, o)
	if err != nil {
		return r, err
	}
	o.Budget = budget
	job, err := m.Plan(o)
	if err != nil {
		return r, err
	}
	if err := showPlan(d.text, job, here.Reason); err != nil {
		return r, err
	}
	loader, err := data.NewLoader(texts(strings.SplitAfter(demoText, "\n\n\n")), data.Config{Length: demoSeq})
	if err != nil {
		return r, err
	}
	debug.FreeOSMemory() // so that what follows is due to the run
	if r.ResidentBefore, err = rig.Resident(); err != nil {
		return r, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	shown := &progress{Monitor: finetune.NewMonitor(job, here), line: term.NewLine(d.sh.err), log: d.text, milestone: max(d.iterations/10, 1), patience: d.patience, stop: stop}
	result, err := train.Run(ctx, job, train.NewTokens(loader), train.Config{
		Iterations: d.iterations, Schedule: optim.Schedule{Kind: optim.Cosine, Warmup: 10, Floor: 0.1},
		Save:   &train.Save{Dir: checkpoint.Dir{Path: folder, Keep: 1}},
		Report: func(report train.Report) { shown.Monitor.Report(report); shown.report(report) }, Notice: shown.line.Print,
	})
	shown.line.Done()
	if err != nil {
		return r, err
	}
	r.Result = shown.Monitor.Result(result)
	r.Interrupted = r.Interrupted && !shown.stopped
	r.ResidentPeak = r.Resident
	for tier, bytes := range job.Plan.Peak() {
		if tier != plan.OnDevice || here.Machine.Devices[0].Shared {
			r.ResidentPredicted += bytes
		}
	}
	r.ResidentAllowance = int64(residentShare*float64(r.ResidentPredicted)) + int64(residentExtra)
	return r, nil
}

// demoOn is the goal on devices that are open, in the precision that suits them.
func demoOn(o spillway.Options, here *rig.Rig) spillway.Options {
	o.Machine, o.Device, o.On = here.Machine, here.Machine.Devices[0].Name, here.Devices
	if here.Machine.Devices[0].Kind == machine.GPU {
		o.Precision = dtype.BF16
	}
	return o
}

// demoBudget is the memory of the demonstration's device, in bytes: little more than the
// smallest plan needs, and far less than the standard plan does. Both depend on the device,
// since kernels have workspace.
func demoBudget(m *spillway.Model, o spillway.Options) (int64, error) {
	o.Budget = 1
	var misfit *planner.FitError
	if _, err := m.Plan(o); !errors.As(err, &misfit) {
		return 0, fmt.Errorf("looking for the smallest plan: %w", err)
	}
	job, err := m.Standard(o)
	if err != nil {
		return 0, err
	}
	return misfit.Needed + (finetune.StandardPeak(job.Plan)-misfit.Needed)/demoSlack, nil
}

// sample has the trained model continue a prompt.
func (d *demo) sample(ctx context.Context, path string) (text string, err error) {
	m, err := spillway.Open(path)
	if err != nil {
		return "", err
	}
	defer m.Close() // opened for reading
	here, err := d.sh.open(d.device, rig.Options{})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, here.Close()) }()
	job, err := m.Plan(demoOn(spillway.Options{Task: spillway.Infer, Seq: demoSeq}, here))
	if err != nil {
		return "", err
	}
	prompt, err := tokenizer.Bytes().Encode(demoPrompt, false)
	if err != nil {
		return "", err
	}
	if err := job.Start(); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, job.Close()) }()
	g, err := generate.New(job, prompt, generate.Options{Sampler: generate.Sampler{Temperature: 0.7, Seed: 1}, MaxNewTokens: demoSample})
	if err != nil {
		return "", err
	}
	for _, err := range g.All(ctx) {
		if err != nil {
			return "", err
		}
	}
	return byteText(g.Text()), nil
}

// check lists what should hold and does not.
func (r *demoReport) check() {
	r.Failed = []string{}
	hold := func(ok bool, format string, args ...any) {
		if !ok {
			r.Failed = append(r.Failed, fmt.Sprintf(format, args...))
		}
	}
	hold(r.LossLast < demoFall*r.LossFirst, "the loss fell from %.4f to %.4f, not below %v of the first", r.LossFirst, r.LossLast, demoFall)
	hold(r.Budget < r.Standard, "the budget of %d bytes is not below the %d of the standard plan", r.Budget, r.Standard)
	off := math.Abs(float64(r.Measured - r.Predicted))
	hold(off <= demoExact*float64(r.Predicted), "%d bytes of the device were predicted and %d measured", r.Predicted, r.Measured)
	if r.Driver > 0 { // the libraries of a GPU take memory of the process as they like
		hold(r.Driver >= r.Predicted && r.Driver <= r.DriverPredicted, "the driver of the GPU counts %d bytes, %d to %d were predicted", r.Driver, r.Predicted, r.DriverPredicted)
		return
	}
	grown := r.ResidentPeak - r.ResidentBefore
	hold(math.Abs(float64(grown-r.ResidentPredicted)) <= float64(r.ResidentAllowance),
		"the process grew by %d bytes, %d were predicted and %d more or less allowed", grown, r.ResidentPredicted, r.ResidentAllowance)
}

// conclude shows what came of it.
func (d *demo) conclude(r demoReport) error {
	var p page
	p.WriteString("\n")
	writeResult(&p, r.Result)
	if r.Driver == 0 {
		p.line("process", "grew by %v with arenas of %v on device and host; %v ± are allowed", units.Bytes(r.ResidentPeak-r.ResidentBefore),
			units.Bytes(r.ResidentPredicted), units.Bytes(r.ResidentAllowance))
	}
	if len(r.Failed) == 0 {
		p.line("holds", "loss below %v of the first, budget below the standard plan, memory as predicted", demoFall)
	}
	p.WriteString("\n")
	p.list("it writes", strings.Split(strings.TrimSpace(r.Sample), "\n"))
	_, err := io.WriteString(d.text, p.String())
	return err
}

// texts are documents of bytes in memory.
type texts []string

// Len is the number of texts.
func (t texts) Len() int64 { return int64(len(t)) }

// Document is a text as bytes.
func (t texts) Document(i int64) (data.Document, error) {
	ids, err := tokenizer.Bytes().Encode(t[i], false)
	return data.Document{Tokens: ids}, err
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
