package main

import (
	"fmt"
	"io"
	"path/filepath"

	"spillway/finetune"
	"spillway/internal/term"
	"spillway/train"
	"spillway/units"
)

// progress shows how a run goes on.
type progress struct {
	*finetune.Monitor
	line *term.Line
	log  io.Writer // for lines that stay

	milestone int64  // steps after which a line stays; 0 for never
	now       string // what comes before the first step
}

// part shows how far something is that comes before the first step, each as soon as it begins.
func (p *progress) part(what string, done, total int64) {
	text := func() string { return partDone(what, done, total) }
	if what != p.now {
		p.now = what
		p.line.Begin(text)
		return
	}
	p.line.Show(text)
}

// report shows what a step gave; the monitor has it already.
func (p *progress) report(r train.Report) {
	if r.Skipped {
		p.line.Print(fmt.Sprintf("step %s updated nothing: its gradients overflowed at a loss scale of %g, which is lowered now", grouped(r.Iteration), r.LossScale))
	}
	if r.EvalLoss != 0 {
		p.line.PrintTo(p.log, fmt.Sprintf("step %s  eval loss %.4f, perplexity %.4g", grouped(r.Iteration), r.EvalLoss, r.Perplexity))
	}
	if p.milestone > 0 && r.Iteration%p.milestone == 0 {
		p.line.PrintTo(p.log, p.text())
	} else {
		p.line.Show(p.fitting)
	}
}

// partDone says how far something is that takes long, where that is known.
func partDone(what string, done, total int64) string {
	if total == 0 {
		return what
	}
	return fmt.Sprintf("%s  %s", what, percent(float64(done)/float64(total)))
}

// fitting is the text, or a shorter one where the terminal is narrow: nothing is cut off.
func (p *progress) fitting() string {
	if text := p.text(); p.line.Fits(text) {
		return text
	}
	return p.brief()
}

// text is the latest step in a line.
func (p *progress) text() string {
	r := p.Last
	text, faster := "step "+grouped(r.Iteration), r.SecondsPerIteration/p.Pace
	if r.Iterations > 0 {
		text += " of " + grouped(r.Iterations)
	}
	text += fmt.Sprintf("  loss %.4f  %s tokens/s, %s  memory %v, predicted %v", r.Loss, grouped(int64(faster*r.TokensPerSecond)),
		ofRoofline(faster*r.ShareOfRoofline), units.Bytes(r.MeasuredBytes), units.Bytes(r.PredictedBytes))
	if r.GradNorm > 0 {
		text += fmt.Sprintf("  grad norm %.3g", r.GradNorm)
	}
	return text + p.left()
}

// brief is the latest step within eighty columns.
func (p *progress) brief() string {
	r := p.Last
	text, faster := grouped(r.Iteration), r.SecondsPerIteration/p.Pace
	if r.Iterations > 0 {
		text += "/" + grouped(r.Iterations)
	}
	text += fmt.Sprintf("  loss %.4f  %s tok/s %s roofline  %v", r.Loss, grouped(int64(faster*r.TokensPerSecond)), briefShare(faster*r.ShareOfRoofline), units.Bytes(r.MeasuredBytes))
	if r.MeasuredBytes != r.PredictedBytes {
		text += fmt.Sprintf(" of %v", units.Bytes(r.PredictedBytes))
	}
	return text + p.left()
}

// ofRoofline is the share of the roofline in words. A share above it says that the computer was
// slower when its rates were measured, not that there is a faster one.
func ofRoofline(share float64) string {
	if share > 1 {
		return "faster than the measured roofline"
	}
	return percent(share) + " of roofline"
}

// briefShare is the same where there is little room.
func briefShare(share float64) string {
	if share > 1 {
		return "over"
	}
	return percent(share)
}

// left is the time that the remaining steps will take.
func (p *progress) left() string {
	if n := p.Last.Iterations - p.Last.Iteration; n > 0 {
		return "  " + units.Seconds(float64(n)*p.Pace) + " left"
	}
	return ""
}

// writeResult shows what came of a run.
func writeResult(p *page, r finetune.Result) {
	how := "done"
	switch {
	case r.Interrupted:
		how = "interrupted"
	case r.EarlyStop:
		how = "stopped early"
	}
	if r.SecondsPerStep == 0 && !r.Interrupted { // no step was taken, so nothing below is known
		more := "more --max-steps or --epochs"
		if r.EarlyStop { // whatever is left of the epochs
			more = "more --patience, or --patience 0"
		}
		p.line(how, "%s before this start, and nothing was left to do: give %s to go on", plural(int(r.Steps), "step"), more)
		p.line("saved", "%s", r.Checkpoint)
		return
	}
	p.line(how, "%s, %s; %s per step, %s tokens/s, %s", plural(int(r.Steps), "step"), units.Seconds(r.Seconds),
		units.Seconds(r.SecondsPerStep), grouped(int64(r.TokensPerSec)), ofRoofline(r.ShareOfRoofline))
	loss := fmt.Sprintf("%.4f at first, %.4f at last", r.LossFirst, r.LossLast)
	if r.EvalLoss > 0 {
		loss += fmt.Sprintf(", eval loss %.4f (perplexity %.4g)", r.EvalLoss, r.Perplexity)
	}
	if r.Skipped > 0 {
		loss += fmt.Sprintf("; %s overflowed and updated nothing", plural(int(r.Skipped), "step"))
	}
	p.line("loss", "%s", loss)
	p.line("memory", "predicted %v, measured %v, budget %v; everything on the device would need %v", units.Bytes(r.Predicted), units.Bytes(r.Measured),
		units.Bytes(r.Budget), units.Bytes(r.Standard))
	if r.Driver > 0 {
		p.line("driver", "counts %v for this program, predicted %v: %v reserved by the plan, the rest context, kernels and libraries", units.Bytes(r.Driver), units.Bytes(r.DriverPredicted), units.Bytes(r.Measured))
	}
	if r.Checkpoint != "" {
		p.line("saved", "%s", r.Checkpoint)
	}
	if r.Interrupted && r.Checkpoint != "" {
		p.line("to go on", "spillway train --resume --out %s", filepath.Dir(r.Checkpoint))
	}
	if r.BestCheckpoint != "" {
		p.line("best", "%s, eval loss %.4f", r.BestCheckpoint, r.Best.Loss)
	}
}
