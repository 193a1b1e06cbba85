package finetune

import (
	"time"

	"spillway"
	"spillway/eventlog"
	"spillway/plan"
	"spillway/planner/strategy"
	"spillway/rig"
	"spillway/run"
	"spillway/train"
)

// Result is what came of a run. As JSON it is the object of train --json.
type Result struct {
	Strategy    string  `json:"strategy"`
	Steps       int64   `json:"steps"`            // done in all
	Epochs      float64 `json:"epochs,omitempty"` // asked for; 0 where the number of steps was
	WarmupSteps int     `json:"warmup_steps,omitempty"`
	Interrupted bool    `json:"interrupted"`
	LossFirst   float64 `json:"loss_first"`
	LossLast    float64 `json:"loss_last"`
	EvalLoss    float64 `json:"eval_loss,omitempty"` // of the last evaluation
	Perplexity  float64 `json:"eval_perplexity,omitempty"`
	Skipped     int64   `json:"skipped,omitempty"` // steps whose gradients overflowed in fp16
	Checkpoint  string  `json:"checkpoint,omitempty"`

	EarlyStop      bool        `json:"stopped_early,omitempty"` // the eval loss no longer fell
	Best           *train.Best `json:"best,omitempty"`          // evaluation
	BestCheckpoint string      `json:"best_checkpoint,omitempty"`
	Data           *Summary    `json:"data,omitempty"`

	Memory
	Speed

	Profile *eventlog.Profile `json:"profile,omitempty"` // of a step, where Options asked for it
	Notices []string          `json:"notices,omitempty"` // of what was asked for and has no effect, or is done otherwise
}

// Memory is what a run used, in bytes.
type Memory struct {
	Budget    int64 `json:"budget_bytes"`        // of the device
	Standard  int64 `json:"standard_peak_bytes"` // with everything on the device
	Predicted int64 `json:"predicted_peak_bytes"`
	Measured  int64 `json:"measured_peak_bytes"`
	// Driver is what the driver of GPUs counted, of all programs, and DriverPredicted what it
	// was predicted to count: what it counted before the run, the arenas, and its table of
	// page-locked memory.
	Driver          int64 `json:"driver_peak_bytes,omitempty"`
	DriverPredicted int64 `json:"driver_predicted_bytes,omitempty"`
	// Resident is the most memory that the process was seen to have.
	Resident int64 `json:"-"`
}

// Speed is how fast a run was.
type Speed struct {
	Seconds         float64 `json:"seconds"`
	TokensPerSec    float64 `json:"tokens_per_second"`
	ShareOfRoofline float64 `json:"share_of_roofline"`
	SecondsPerStep  float64 `json:"seconds_per_step"`
	ForecastPerStep float64 `json:"forecast_seconds_per_step"`
}

// Monitor gathers what the steps of a run report.
type Monitor struct {
	// First and Last are the reports of the first and of the latest step.
	First, Last train.Report
	// Pace is the seconds of a step, averaged over the latest ones.
	Pace float64

	job        *spillway.Run
	rig        *rig.Rig
	start      time.Time
	tokens     float64 // trained on since the start
	busy       float64 // seconds spent on steps
	roofline   float64 // seconds that the limiting resource alone would have needed
	evalLoss   float64
	perplexity float64
	skipped    int64
	memory     Memory
}

// NewMonitor is for a job that is about to start on devices that are open.
func NewMonitor(job *spillway.Run, on *rig.Rig) *Monitor {
	m := &Monitor{job: job, rig: on, start: time.Now()}
	m.memory.DriverPredicted = run.DriverPredicted(on, job.Plan)
	return m
}

// paceWeight is the weight of the newest step in the pace.
const paceWeight = 0.2

// Report takes in what a step reports.
func (m *Monitor) Report(r train.Report) {
	if m.First.Iteration == 0 {
		m.First, m.Pace = r, r.SecondsPerIteration
	}
	m.Last = r
	m.tokens += r.TokensPerSecond * r.SecondsPerIteration
	m.busy += r.SecondsPerIteration
	m.roofline += r.ShareOfRoofline * r.SecondsPerIteration
	m.Pace += paceWeight * (r.SecondsPerIteration - m.Pace)
	if r.Skipped {
		m.skipped++
	}
	if r.EvalLoss != 0 {
		m.evalLoss, m.perplexity = r.EvalLoss, r.Perplexity
	}
	if n, err := rig.Resident(); err == nil {
		m.memory.Resident = max(m.memory.Resident, n)
	}
	if n, err := m.rig.DriverUsed(); err == nil {
		m.memory.Driver = max(m.memory.Driver, n)
	}
}

// Start begins to count the time.
func (m *Monitor) Start() { m.start = time.Now() }

// Elapsed is the time since the start.
func (m *Monitor) Elapsed() time.Duration { return time.Since(m.start) }

// Result is what came of the run.
func (m *Monitor) Result(r train.Result) Result {
	p := m.job.Plan
	s := Result{
		Strategy: p.Strategy, Steps: r.Iterations, Interrupted: r.Interrupted, LossFirst: m.First.Loss, LossLast: m.Last.Loss,
		EvalLoss: m.evalLoss, Perplexity: m.perplexity, Skipped: m.skipped, Checkpoint: r.Checkpoint,
		EarlyStop: r.Stopped, Best: r.Best, BestCheckpoint: r.BestCheckpoint, Memory: m.memory, Notices: m.job.Notices,
	}
	s.Budget, s.Standard, s.Predicted, s.Measured = p.Devices[0].Budget, StandardPeak(p), p.Peak()[plan.OnDevice], m.rig.Allocated()
	if s.Driver == 0 {
		s.DriverPredicted = 0
	}
	s.Seconds = m.Elapsed().Seconds()
	if p.Forecast != nil {
		s.ForecastPerStep = p.Forecast.StepSeconds
	}
	if done := m.Last.Iteration - m.First.Iteration + 1; m.busy > 0 && m.First.Iteration > 0 {
		s.TokensPerSec, s.ShareOfRoofline, s.SecondsPerStep = m.tokens/m.busy, m.roofline/m.busy, m.busy/float64(done)
	}
	return s
}

// StandardPeak is what the plan with everything on the device uses of it, in bytes: this
// plan, or the one it was preferred to.
func StandardPeak(p *plan.Plan) int64 {
	for _, o := range p.Rejected {
		if o.Strategies[0] == strategy.Standard.Name {
			return o.PeakBytes[plan.OnDevice]
		}
	}
	return p.Peak()[plan.OnDevice]
}
