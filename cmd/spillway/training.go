package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"spillway"
	"spillway/internal/term"
	"spillway/plan"
	"spillway/rig"
	"spillway/train"
	"spillway/units"
)

// training is a run on this computer that people watch.
type training struct {
	rig   *rig.Rig // its devices count what is allocated on them
	line  *term.Line
	log   io.Writer // for lines that stay
	start time.Time
	name  string // of the model
	// milestone is after how many iterations a line stays; 0 for never. patience
	// ends the run early, once the loss has halved; 0 for never.
	milestone int64
	patience  time.Duration
	stop      context.CancelFunc
	early     bool // patience ended the run

	reports         runLog
	first, last     train.Report
	tokens          float64 // trained on since the start
	busy            float64 // seconds spent on iterations
	pace            float64 // seconds of one, over the latest
	bound           float64 // seconds the binding resource alone would have needed
	evalLoss        float64 // loss of the last evaluation, 0 for none
	perplexity      float64 // of the last evaluation
	skipped         int64   // iterations that updated nothing
	resident        int64   // most memory of the process that was seen, bytes
	driverPeak      int64   // most memory of cards that their driver counted, bytes
	driverPredicted int64   // what their driver was expected to count, bytes
}

// newTraining is a run on devices that are open. Lines that stay go to log.
func newTraining(sh shell, log io.Writer, on *rig.Rig) *training {
	return &training{rig: on, line: term.NewLine(sh.err), log: log}
}

// run trains the job and shows how it goes.
func (t *training) run(ctx context.Context, job *spillway.Job, feed train.Feed, c train.Config) (train.Result, error) {
	ctx, t.stop = context.WithCancel(ctx)
	defer t.stop()
	t.start, t.driverPredicted = time.Now(), driverPredicted(t.rig, job.Plan)
	t.name, c.Report = job.Model.Name, t.report
	c.Notice = t.line.Print
	defer planAgainWhenAsked(job)()
	result, err := train.Run(ctx, job, feed, c)
	t.line.Done()
	return result, err
}

// planAgainWhenAsked has a training planned again for the memory that is free then, when
// the process is sent USR1; the function it gives ends that.
func planAgainWhenAsked(job *spillway.Job) (end func()) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	go func() {
		for range asked {
			job.RequestReplan(spillway.FreeNow)
		}
	}()
	return func() {
		signal.Stop(asked)
		close(asked)
	}
}

// report takes in what an iteration gave.
func (t *training) report(r train.Report) {
	if t.first.Iteration == 0 {
		t.first, t.pace = r, r.SecondsPerIteration
	}
	t.last = r
	t.tokens += r.TokensPerSecond * r.SecondsPerIteration
	t.busy += r.SecondsPerIteration
	t.bound += r.ShareOfRoofline * r.SecondsPerIteration
	t.pace += paceWeight * (r.SecondsPerIteration - t.pace)
	if n, err := rig.Resident(); err == nil {
		t.resident = max(t.resident, n)
	}
	if n, err := t.rig.DriverUsed(); err == nil {
		t.driverPeak = max(t.driverPeak, n)
	}
	t.reports.add(r, t.name, t.resident)
	if r.Skipped {
		t.skipped++
		t.line.Print(fmt.Sprintf("iteration %s updated nothing: its gradients overflowed at a loss scale of %g, which falls now", grouped(r.Iteration), r.LossScale))
	}
	t.show(r)
	if t.patience > 0 && time.Since(t.start) > t.patience && 2*r.Loss < t.first.Loss {
		t.early = true
		t.stop()
	}
}

// paceWeight is that of the newest iteration in the pace that people are shown.
const paceWeight = 0.2

func (t *training) show(r train.Report) {
	if r.EvalLoss != 0 {
		t.evalLoss = r.EvalLoss
		t.perplexity = r.Perplexity
		t.line.PrintTo(t.log, fmt.Sprintf("iteration %s  held-out loss %.4f, perplexity %.4g", grouped(r.Iteration), r.EvalLoss, r.Perplexity))
	}
	if t.milestone > 0 && r.Iteration%t.milestone == 0 {
		t.line.PrintTo(t.log, t.progress())
	} else {
		t.line.Show(t.fitting)
	}
}

// fitting is progress, shorter where the terminal is narrow: nothing is cut off.
func (t *training) fitting() string {
	if text := t.progress(); t.line.Fits(text) {
		return text
	}
	return t.brief()
}

// brief is the latest iteration within eighty columns.
func (t *training) brief() string {
	r := t.last
	text, faster := grouped(r.Iteration), r.SecondsPerIteration/t.pace
	if r.Iterations > 0 {
		text += "/" + grouped(r.Iterations)
	}
	text += fmt.Sprintf("  loss %.4f  %s tok/s %s of bound  %v", r.Loss, grouped(int64(faster*r.TokensPerSecond)), percent(faster*r.ShareOfRoofline), units.Bytes(r.MeasuredBytes))
	if r.MeasuredBytes != r.PredictedBytes {
		text += fmt.Sprintf(" of %v", units.Bytes(r.PredictedBytes))
	}
	return text + t.left()
}

// left is the time that the iterations to come will take.
func (t *training) left() string {
	if n := t.last.Iterations - t.last.Iteration; n > 0 {
		return "  " + seconds(float64(n)*t.pace) + " left"
	}
	return ""
}

// progress is the latest iteration in a line.
func (t *training) progress() string {
	r := t.last
	text, faster := "iteration "+grouped(r.Iteration), r.SecondsPerIteration/t.pace
	if r.Iterations > 0 {
		text += " of " + grouped(r.Iterations)
	}
	text += fmt.Sprintf("  loss %.4f  %s tokens/s, %s of the bound  memory %v, predicted %v", r.Loss, grouped(int64(faster*r.TokensPerSecond)),
		percent(faster*r.ShareOfRoofline), units.Bytes(r.MeasuredBytes), units.Bytes(r.PredictedBytes))
	return text + t.left()
}

// trainReport is the object of train --json.
type trainReport struct {
	Strategy    string  `json:"strategy"`
	Iterations  int64   `json:"iterations"` // done in all
	Interrupted bool    `json:"interrupted"`
	LossFirst   float64 `json:"loss_first"`
	LossLast    float64 `json:"loss_last"`
	EvalLoss    float64 `json:"loss_held_out,omitempty"`
	Perplexity  float64 `json:"perplexity_held_out,omitempty"`
	Skipped     int64   `json:"skipped,omitempty"` // iterations whose gradients overflowed in fp16
	Checkpoint  string  `json:"checkpoint,omitempty"`

	Stopped        bool        `json:"stopped_early,omitempty"` // evaluations became no better
	Best           *train.Best `json:"best,omitempty"`          // evaluation
	BestCheckpoint string      `json:"best_checkpoint,omitempty"`
	Data           *dataReport `json:"data,omitempty"`

	Budget    int64 `json:"budget_bytes"` // of the device
	Standard  int64 `json:"standard_peak_bytes"`
	Predicted int64 `json:"predicted_peak_bytes"`
	Measured  int64 `json:"measured_peak_bytes"`
	// What the driver of cards counts, of all programs, and what was expected of it:
	// what it counted before the run, the arenas, and its table of page-locked memory.
	Driver          int64 `json:"driver_peak_bytes,omitempty"`
	DriverPredicted int64 `json:"driver_predicted_bytes,omitempty"`

	Seconds       float64 `json:"seconds"`
	TokensPerSec  float64 `json:"tokens_per_second"`
	ShareOfBound  float64 `json:"share_of_bound"`
	SecondsPerIt  float64 `json:"seconds_per_iteration"`
	ForecastPerIt float64 `json:"forecast_seconds_per_iteration"`

	Notices []string `json:"notices,omitempty"` // of what was asked for and means nothing, or is done otherwise
}

// summary is what came of the run.
func (t *training) summary(job *spillway.Job, r train.Result) trainReport {
	s := trainReport{
		Strategy: job.Plan.Strategy, Iterations: r.Iterations, Interrupted: r.Interrupted && !t.early, LossFirst: t.first.Loss, LossLast: t.last.Loss,
		EvalLoss: t.evalLoss, Skipped: t.skipped, Checkpoint: r.Checkpoint, Budget: job.Plan.Devices[0].Budget, Standard: standardPeak(job.Plan),
		Predicted: job.Plan.Peak()[plan.OnDevice], Measured: t.rig.Allocated(), Seconds: time.Since(t.start).Seconds(), Notices: job.Notices,
	}
	s.Perplexity, s.Stopped, s.Best, s.BestCheckpoint = t.perplexity, r.Stopped, r.Best, r.BestCheckpoint
	if s.Driver = t.driverPeak; t.driverPeak > 0 {
		s.DriverPredicted = t.driverPredicted
	}
	if f := job.Plan.Forecast; f != nil {
		s.ForecastPerIt = f.StepSeconds
	}
	if done := t.last.Iteration - t.first.Iteration + 1; t.busy > 0 && t.first.Iteration > 0 {
		s.TokensPerSec, s.ShareOfBound, s.SecondsPerIt = t.tokens/t.busy, t.bound/t.busy, t.busy/float64(done)
	}
	return s
}

// write shows the summary to people.
func (s trainReport) write(p *page) {
	how := "done"
	switch {
	case s.Interrupted:
		how = "interrupted"
	case s.Stopped:
		how = "stopped early"
	}
	p.line(how, "%s iterations, %s; %s per iteration, %s tokens/s, %s of the bound", grouped(s.Iterations), seconds(s.Seconds),
		seconds(s.SecondsPerIt), grouped(int64(s.TokensPerSec)), percent(s.ShareOfBound))
	loss := fmt.Sprintf("%.4f at first, %.4f at last", s.LossFirst, s.LossLast)
	if s.EvalLoss > 0 {
		loss += fmt.Sprintf(", %.4f on held-out text (perplexity %.4g)", s.EvalLoss, s.Perplexity)
	}
	if s.Skipped > 0 {
		loss += fmt.Sprintf("; %s iterations overflowed and updated nothing", grouped(s.Skipped))
	}
	p.line("loss", "%s", loss)
	p.line("memory", "predicted %v, measured %v, budget %v; with everything on the device %v", units.Bytes(s.Predicted), units.Bytes(s.Measured),
		units.Bytes(s.Budget), units.Bytes(s.Standard))
	if s.Driver > 0 {
		p.line("driver", "counts %v of the card taken, %v expected", units.Bytes(s.Driver), units.Bytes(s.DriverPredicted))
	}
	if s.Checkpoint != "" {
		p.line("saved", "%s", s.Checkpoint)
	}
	if s.BestCheckpoint != "" {
		p.line("best", "%s, held-out loss %.4f", s.BestCheckpoint, s.Best.Loss)
	}
}
