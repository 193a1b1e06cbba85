// Package train is the training loop over a run: it feeds batches, iterates, reports,
// evaluates and saves.
//
// Training is deterministic. The batch of iteration i depends on the data and its seed
// alone, the learning rate is a function of i, and random streams derive from the seed and
// i. Between two iterations the weights, the optimizer states, i and the position in the
// data are all the state there is. That is what a checkpoint holds, so a run that is
// resumed goes on bit for bit.
package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"spillway/dtype"
	"spillway/executor"
	"spillway/op"
	"spillway/optim"
	"spillway/plan"
	"spillway/run"
	"spillway/trace"
)

// Config holds the settings of the training loop. Settings that the plan depends on, such
// as the optimizer and clipping, are in the options of the run.
type Config struct {
	// Iterations is the total number, including those before a resume; 0 means until the
	// feed ends.
	Iterations int64
	Schedule   optim.Schedule // of the learning rate; zero means constant; its Total defaults to Iterations
	// LossScale is the initial one, for plans that compute in fp16; zero means the default.
	LossScale optim.LossScale
	Seed      uint64 // of dropout

	// Report is called after every ReportEvery-th iteration (0: each) and the last.
	Report      func(Report)
	ReportEvery int64
	// Started is called by the function Run when everything is ready for the first iteration,
	// with the number of those done before.
	Started func(done int64) error
	// Notice is called when something differs from what was asked for: a damaged checkpoint
	// was skipped, the plan changed.
	Notice func(string)

	Save     *Save       // nil saves no checkpoints
	Journal  Journal     // nil means the run's own, if it has one
	Evaluate *Evaluation // nil evaluates nothing
	// AllowChanges lets a run resume with another learning rate, schedule, clipping, batch
	// size or seed than it had; a notice says what has changed. Else that is an error.
	AllowChanges bool
	// JournalEvery is the number of iterations that one commit makes durable; 0 counts as 1.
	JournalEvery int64

	// Timeline is called with the instructions of an iteration and their times on the
	// devices, from its start: of the third of this run, or of the last if that is earlier,
	// and of every one before which TraceNext, if not nil, returns true.
	Timeline  func(iteration int64, instructions []trace.Event)
	TraceNext func() bool
	// TraceLast has Timeline and Profile called of the last two iterations instead of early ones: a GPU that has
	// been at work has another clock.
	TraceLast bool
	// Profile is called likewise, with the ops within them too: of the fourth iteration of this run,
	// or of the last if that is earlier. Each op is timed by itself, which takes longer.
	Profile func(iteration int64, instructions []trace.Event, ops []executor.OpTime)
	// Saved is called after a checkpoint was saved.
	Saved func(iteration int64, path string)
}

// Trainer is the state of a training run between two iterations.
type Trainer struct {
	run  *run.Run
	feed Feed
	c    Config
	pace pace

	scale     *optim.LossScale // nil if the loss is not scaled
	startedAt int64            // iterations done before this run
	done      int64            // iterations done
	saved     int64            // iterations done at the last checkpoint
	journaled int64            // iterations done at the last commit of the journal
	last      string           // path of the last checkpoint
	damaged   []string         // checkpoints that were skipped
	failures  int              // saves in a row that failed
	retryAt   int64            // iterations done when a save is tried again; 0 for none
	best      *Best            // best evaluation so far, nil if none
	evaluated int64            // the last iteration that was evaluated
	traced    bool             // the timeline of the last iteration was recorded

	ahead  *prefetched // the batch of the next iteration, where it was made already; else nil
	missed error       // what going back to it in the feed gave

	rates rates         // that were set, instead of the optimizer's
	held  heldGradients // what was done since the last update, in a loop of one's own

	compression optim.Compression // of the plan's states
	wanted      optim.Compression // what the policy says after the last iteration
}

// New prepares training on a started run. If there is a folder to save to, it resumes
// from the newest checkpoint there, or from the run's journal if that is at least as
// new.
func New(r *run.Run, feed Feed, c Config) (*Trainer, error) {
	c, err := c.complete(r.Options.Optimizer.LR)
	if err != nil {
		return nil, fmt.Errorf("preparing to train: %w", err)
	}
	policy := r.Options.StatePolicy
	t := &Trainer{run: r, feed: feed, c: c, journaled: noneJournaled, compression: policy.Begin()}
	t.compression.Active = t.compression.Active || r.StatesCompressed()
	t.wanted = t.compression
	if err := errors.Join(policy.Check(), r.Options.Optimizer.Check(), t.checkPlan()); err != nil {
		return nil, fmt.Errorf("preparing to train: %w", err)
	}
	if scalesLoss(r.Plan.Optimizer) {
		t.scale = &c.LossScale
	}
	if err := t.resume(); err != nil {
		return nil, fmt.Errorf("resuming: %w", err)
	}
	t.startedAt = t.done
	return t, nil
}

// complete fills in defaults and refuses settings that cannot work, where lr is the peak learning rate.
func (c Config) complete(lr float64) (_ Config, err error) {
	if c.Schedule, err = c.Schedule.Over(int(c.Iterations), lr); err != nil {
		return c, err
	}
	c.ReportEvery, c.JournalEvery = max(c.ReportEvery, 1), max(c.JournalEvery, 1)
	if c.Notice == nil {
		c.Notice = func(string) {}
	}
	if c.LossScale == (optim.LossScale{}) {
		c.LossScale = optim.DefaultLossScale()
	}
	if c.Iterations < 0 {
		return c, fmt.Errorf("%d iterations; there cannot be fewer than 0", c.Iterations)
	}
	return c, errors.Join(c.Schedule.Check(), c.LossScale.Check())
}

// checkPlan checks that the plan fits the run's options, because a plan may come from a
// file.
func (t *Trainer) checkPlan() error {
	p, o := t.run.Plan, t.run.Options.Optimizer
	u := p.Optimizer
	if u == nil {
		return fmt.Errorf("the plan for %s is for %s and has no optimizer; plan the task train", p.Model, p.Task)
	}
	kind, err := o.Kind()
	if err != nil {
		return err
	}
	if u.Rule != kind {
		return fmt.Errorf("the plan was made for another optimizer than %s; plan again with it", o)
	}
	if t.compression.Active {
		o = t.run.Options.StatePolicy.Compressed(o)
	}
	if err := checkStates(t.run.Options, o, p); err != nil {
		return err
	}
	if _, err := p.Phase(plan.Evaluate); err != nil && t.c.Evaluate != nil {
		return fmt.Errorf("there is data to evaluate on, and %w; plan with Options.Evaluates", err)
	}
	if n := t.run.Options.MaxNorm(); n > 0 && !u.Clip && !u.Held {
		return fmt.Errorf("gradients are to be clipped to %v, the plan computes no norm; plan again with clipping", n)
	}
	if scalesLoss(u) && !u.Clip {
		return fmt.Errorf("gradients in fp16 may overflow, the plan computes no norm to tell; plan again with clipping")
	}
	return nil
}

// scalesLoss reports whether a plan computes in fp16, whose range is too small for
// unscaled gradients.
func scalesLoss(u *plan.Optimizer) bool { return u != nil && u.Attr.To == dtype.F16 }

// checkStates refuses a plan whose states differ from the optimizer's in name or type.
func checkStates(all run.Options, o optim.Config, p *plan.Plan) error {
	states, err := all.StatesFor(o)
	if err != nil {
		return err
	}
	for _, s := range p.Slabs {
		for _, q := range s.Params {
			if q.Frozen() {
				continue
			}
			same := func(a, b op.State) bool { return a.Name == b.Name && a.Type.Equal(b.Type) }
			if want := run.Statistic(q.Momentum, states(q.Name, q.Type.Shape)); !slices.EqualFunc(q.States, want, same) {
				return fmt.Errorf("the plan has the states %v of param %s, optimizer %s has %v; plan again with it", q.States, q.Name, o, want)
			}
		}
	}
	return nil
}

// Result says how a training run ended.
type Result struct {
	Iterations int64   // done in all
	Loss       float64 // of the last iteration; NaN when there was none
	// Interrupted says that the context ended the run before its last iteration; Stopped
	// that the evaluations did, because they no longer improved.
	Interrupted, Stopped bool
	Checkpoint           string // path of the last one, "" if none was saved
	Best                 *Best  // best evaluation, nil if there was none
	BestCheckpoint       string // its path, "" when it was not saved
}

// DivergedError says that an iteration gave infinities or NaNs. If the plan computes
// the norm of the gradients, nothing was updated. Else the weights are damaged, and the
// last checkpoint is from before.
type DivergedError struct {
	Iteration      int64
	Loss, GradNorm float64
	Param          string // that was to be saved and has a NaN, "" when it showed before
	Checkpoint     string
}

func (e *DivergedError) Error() string {
	checkpoint := "no checkpoint was saved"
	if e.Checkpoint != "" {
		checkpoint = "the last checkpoint is " + e.Checkpoint
	}
	what := fmt.Sprintf("the loss is %v", e.Loss)
	if e.GradNorm != 0 { // it is known where gradients are clipped, or the norm is asked for
		what += fmt.Sprintf(" and the norm of the gradients %v", e.GradNorm)
	}
	if e.Param != "" {
		what = fmt.Sprintf("param %s has NaNs or infinities", e.Param)
	}
	return fmt.Sprintf("iteration %d: %s; lower the learning rate or clip, or look for such numbers in the batch; %s", e.Iteration, what, checkpoint)
}

// RefusedError says that an iteration was refused before it changed anything: weights, states and gradients are as
// they were, and the next batch may follow.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }
func (e *RefusedError) Unwrap() error { return e.Err }

// nothingToLearn refuses a batch whose targets are all left out of the loss.
func (t *Trainer) nothingToLearn() error {
	return &RefusedError{fmt.Errorf("the batch of iteration %d has nothing to learn: none of its targets is in the loss", t.done+1)}
}

// Run trains to the end. When the context is cancelled, it finishes the current
// iteration, saves and returns without an error.
func (t *Trainer) Run(ctx context.Context) (Result, error) {
	// A run that was killed between an iteration and its evaluation makes up for it.
	best, err := t.evaluate(&Report{})
	if err == nil {
		err = t.save(best && t.keepsBest())
	}
	r := t.result(nan)
	if err != nil {
		return r, err
	}
	for t.c.Iterations == 0 || t.done < t.c.Iterations {
		if ctx.Err() != nil || t.outOfPatience() {
			r.Interrupted, r.Stopped = !t.outOfPatience(), t.outOfPatience()
			break
		}
		report, err := t.Step()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return t.result(r.Loss), err
		}
		r.Loss = report.Loss
		if err = t.afterStep(report); t.done != t.c.Iterations {
			err = errors.Join(err, t.run.AnswerRequest())
		}
		if err != nil {
			return t.result(r.Loss), err
		}
	}
	err = errors.Join(t.DropPrefetched(), t.commit(), t.saveLast())
	ended := t.result(r.Loss)
	ended.Interrupted, ended.Stopped = r.Interrupted, r.Stopped
	return ended, err
}

func (t *Trainer) result(loss float64) Result {
	return Result{Iterations: t.done, Loss: loss, Checkpoint: t.last, Best: t.best, BestCheckpoint: t.bestPath()}
}

// afterStep evaluates, reports and saves when they are due.
func (t *Trainer) afterStep(r Report) error {
	last := t.done == t.c.Iterations
	best, err := t.evaluate(&r)
	if err != nil {
		return err
	}
	if t.c.Report != nil && (r.EvalLoss != 0 || t.done%t.c.ReportEvery == 0 || last) {
		t.c.Report(t.complete(r))
	}
	return t.save(best && t.keepsBest())
}

// Iterations returns the number of iterations done.
func (t *Trainer) Iterations() int64 { return t.done }

// SetIterations sets the number of iterations done, for a run whose weights and states
// come from elsewhere. The learning rate, Adam's bias correction and the random streams
// depend on it.
func (t *Trainer) SetIterations(iterations int64) error {
	if iterations < 0 {
		return fmt.Errorf("%d iterations done: it cannot be negative", iterations)
	}
	t.done = iterations
	return nil
}

// Step runs one iteration. io.EOF means that the feed has ended.
func (t *Trainer) Step() (Report, error) {
	if t.run.Plan.Optimizer.Held {
		return t.heldStep()
	}
	t.pace.start()
	filled, err := t.nextBatch()
	t.pace.fed()
	if err != nil {
		return Report{}, err
	}
	args, err := t.args(filled, 1)
	if err != nil {
		return Report{}, err
	}
	if err := t.begin(t.done + 1); err != nil {
		return Report{}, err
	}
	args.Meanwhile = t.prefetch
	if err := t.iterate(args); err != nil {
		return Report{}, err
	}
	t.pace.ran()
	report, err := t.check(t.run.Options.Optimizer.Rate(t.updates(), t.scheduledRate()))
	if err == nil {
		// Whether to compress the optimizer states is part of the state that becomes durable,
		// so a run that is killed before it does so does it when it is resumed.
		if !report.Skipped {
			t.wanted = t.run.Options.StatePolicy.Next(t.wanted, t.done, report.Loss)
		}
		if t.done%t.c.JournalEvery == 0 {
			err = t.commit()
		}
	}
	t.pace.stop(filled.Tokens)
	if err == nil {
		err = t.applyPolicy()
	}
	return report, err
}

// args returns the numbers that the next iteration gets, whose gradients are multiplied by a weight.
func (t *Trainer) args(f Filled, weight float64) (executor.IterationArgs, error) {
	a := executor.IterationArgs{HeldPasses: t.held.passes, Seed: t.c.Seed, Iteration: uint64(t.done), FirstSequence: uint64(f.FirstSequence), MaxNorm: float32(t.maxNorm()), LossScale: t.lossScale()}
	changed, err := t.setBatchScalars(f, weight)
	if err != nil {
		return a, err
	}
	if changed { // since the batch was sent
		t.run.Executor().DropUpload()
	}
	return a, t.setOptimizer(&a)
}

// setOptimizer fills in the optimizer's numbers of the next update.
func (t *Trainer) setOptimizer(a *executor.IterationArgs) (err error) {
	o := t.run.Options
	if a.Optimizer, a.NoDecay, err = t.scalars(o.Optimizer, t.rates.of(0, o.Optimizer.LR)); err != nil {
		return err
	}
	for i, group := range o.Groups {
		of, err := group.Of(o.Optimizer)
		if err != nil {
			return err
		}
		var g executor.GroupScalars
		if g.Decay, g.NoDecay, err = t.scalars(of, t.rates.of(i+1, of.LR)); err != nil {
			return err
		}
		a.Groups = append(a.Groups, g)
	}
	if a.AverageKeep = float32(o.Average); t.updates() == 1 {
		a.AverageKeep = 0
	}
	return nil
}

// scalars of an optimizer with a rate, for params that decay and for those that do not.
func (t *Trainer) scalars(o optim.Config, lr float64) (decay, noDecay op.Scalars, err error) {
	lr *= t.factor()
	if decay, err = o.Scalars(t.updates(), lr, true); err != nil {
		return decay, noDecay, err
	}
	noDecay, err = o.Scalars(t.updates(), lr, false)
	return decay, noDecay, err
}

// rates are learning rates that a loop has set, by group; the optimizer's own is that of group 0.
type rates map[int]float64

// of is the rate of a group, where lr is that of its options.
func (r rates) of(group int, lr float64) float64 {
	if set, ok := r[group]; ok {
		return set
	}
	return lr
}

// SetLR changes a learning rate from the next update on, that of a group of params, counted from 1, or with 0
// that of all others. The schedule multiplies it as before.
func (t *Trainer) SetLR(group int, lr float64) error {
	if n := len(t.run.Options.Groups); group < 0 || group > n || !(lr >= 0) || math.IsInf(lr, 0) {
		return fmt.Errorf("a learning rate of %v for group %d; rates are not negative, and there are %d groups, counted from 1, 0 is the rest", lr, group, n)
	}
	if t.rates == nil {
		t.rates = rates{}
	}
	t.rates[group] = lr
	return nil
}

// maxNorm is what the gradients of an iteration are clipped to: 0 for nothing where they are held.
func (t *Trainer) maxNorm() float64 {
	if t.run.Plan.Optimizer.Held {
		return 0
	}
	return t.run.Options.MaxNorm()
}

// updates counts the optimizer's updates, the next one included; skipped ones do not count.
func (t *Trainer) updates() int {
	if t.scale != nil {
		return int(t.done + 1 - t.scale.Skipped)
	}
	return int(t.done + 1)
}

// scheduledRate is the learning rate of the next iteration.
func (t *Trainer) scheduledRate() float64 {
	return t.rates.of(0, t.run.Options.Optimizer.LR) * t.factor()
}

// factor is that of the schedule for the next iteration. As in transformers, an iteration of fp16 that was skipped
// does not count.
func (t *Trainer) factor() float64 { return t.c.Schedule.Factor(t.updates() - 1) }

// samplesOf is how many samples the batch of a plan has.
func samplesOf(e *executor.Executor) int64 {
	return e.Plan().MicroBatchSize * int64(e.Plan().MicroBatches)
}

// meanOver returns the factor that turns a sum of n numbers into their mean; 0 if n is
// 0.
func meanOver(n int64) float32 {
	if n == 0 {
		return 0
	}
	return float32(1 / float64(n))
}

// check reads the loss and the norm of an iteration, and counts the iteration as done
// if they are finite.
func (t *Trainer) check(lr float64) (Report, error) {
	e := t.run.Executor()
	norm, err := e.Norm()
	if err != nil {
		return Report{}, err
	}
	loss := e.Loss()
	if !t.run.Plan.Optimizer.Clip {
		norm = 0
	}
	r := Report{Iteration: t.done + 1, Loss: loss, GradNorm: norm, LR: lr}
	if sound := finite(loss) && finite(norm); t.scale != nil {
		r.LossScale, r.Skipped = t.scale.Scale, !sound
		if !sound {
			r.GradNorm = 0
		}
		if !finite(loss) {
			r.Loss = 0
		}
		*t.scale = t.scale.Next(sound)
	} else if !sound {
		return Report{}, t.diverged(r)
	}
	if t.scale != nil && t.scale.Exhausted() {
		return Report{}, t.diverged(r)
	}
	t.done++
	return r, nil
}

func (t *Trainer) diverged(r Report) error {
	return &DivergedError{Iteration: r.Iteration, Loss: r.Loss, GradNorm: r.GradNorm, Checkpoint: t.last}
}
