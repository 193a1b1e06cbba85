package monitor

import (
	"time"

	"spillway/eventlog"
	"spillway/executor"
	"spillway/generate"
	"spillway/plan"
	"spillway/planner"
	"spillway/run"
	"spillway/trace"
)

// GenerationRecorder writes what a session does into the event log of a folder: it is the
// session's watcher. Steps are written as stretches of some tens of milliseconds, so that a
// recorded step costs a few additions.
type GenerationRecorder struct {
	chronicle
	rules rules
	// Profile asks for the profile of a step with a prompt and of one without, Profiled is
	// called with each. Line is called with every stretch that is written. Both may be nil.
	Profile  bool
	Profiled func(eventlog.Profile)
	Line     func(*eventlog.Generation)

	phases     map[string]*phaseSteps
	cacheBytes int64
	// What follows is of the stretch at hand.
	now      eventlog.Generation
	began    time.Time
	roofline float64 // seconds that its decode steps take at least
	tracing  bool    // the instructions of a step were timed, of the phase traced
	traced   string
	profiled [2]bool // a step with a prompt, one without
	due      bool    // the stretch is written once all tokens are known that came of its last step
}

// phaseSteps is what is known of the steps of a phase.
type phaseSteps struct {
	count    int // of those without prompts
	forecast run.StepForecast
}

// stretchEvery is how long steps are added up before they are written.
const stretchEvery = 50 * time.Millisecond

// The decode steps of a phase that are looked at closely: in the first, caches are cold.
const profiledStep, tracedStep = 2, 3

// Begin begins to record a run that generates, in a folder that exists. A log that is there is
// continued; one that is damaged is put aside.
func (g *GenerationRecorder) Begin(r *run.Run, dir string, o RecordOptions) {
	if s, err := eventlog.Summarize(eventlog.PathOf(dir)); err == nil && s.Generated != nil {
		o.Done = s.Generated.Step
	}
	g.open(r, dir, o)
	g.phases = map[string]*phaseSteps{}
	for i, b := range r.Plan.Buffers {
		if b.Class == plan.Cache && r.Plan.TierOf(i) != "" {
			g.cacheBytes += b.Bytes
		}
	}
	g.now = eventlog.Generation{Step: o.Done, PredictedBytes: r.Plan.Peak()[plan.OnDevice], Tiers: tiersOf(r.Plan)}
	g.began = time.Now()
	g.rules = rules{alert: g.alert}
	g.log.Plan(o.Done, r.Plan)
	g.watchSamples(g.rules.sampled)
}

// phase is what is known of a phase. The first time its steps are forecast, at half of the context.
func (g *GenerationRecorder) phase(r *generate.StepReport) *phaseSteps {
	p := g.phases[r.Phase]
	if p == nil {
		p = &phaseSteps{}
		if c := g.run.Plan.Cache; c != nil {
			p.forecast, _ = g.run.ForecastStep(int64(r.Rows), max(c.Context/2, 1)) // without one, nothing is compared
		}
		g.phases[r.Phase] = p
	}
	return p
}

// Before says how closely to look at a step.
func (g *GenerationRecorder) Before(r *generate.StepReport) generate.Look {
	if g.due { // of the step before, all is known
		g.write()
	}
	if r.Prompt > 0 {
		if g.Profile && !g.profiled[0] {
			return generate.AtOps
		}
		return generate.AtStep
	}
	p := g.phase(r)
	p.count++
	switch {
	case g.Profile && !g.profiled[1] && p.count >= profiledStep:
		return generate.AtOps
	case g.TraceNext() || !g.tracing && p.count == tracedStep:
		return generate.AtInstructions
	}
	return generate.AtStep
}

// Traced writes the times of a step.
func (g *GenerationRecorder) Traced(r *generate.StepReport, events []trace.Event, ops []executor.OpTime) {
	g.now.Traced = true
	positions := int64(r.Positions + 1)
	if ops != nil {
		g.profile(r, positions, events, ops)
		return
	}
	step := g.now.Step + 1
	measured := trace.FromZero(events)
	forecast, err := g.run.StepTimeline(r.Phase, positions)
	if err == nil && (!g.tracing || g.traced != r.Phase) {
		g.log.Trace(eventlog.Trace{Step: step, Forecast: true, Events: trace.FromZero(forecast), Phase: r.Phase})
	}
	g.tracing, g.traced = true, r.Phase
	g.log.Trace(eventlog.Trace{Step: step, Events: measured, Phase: r.Phase})
	g.rules.traced(step, measured, forecast)
}

// profile writes what the ops of a step took.
func (g *GenerationRecorder) profile(r *generate.StepReport, positions int64, events []trace.Event, ops []executor.OpTime) {
	which := 1
	if r.Prompt > 0 {
		which = 0
	}
	g.profiled[which] = true
	view, err := planner.AtPositions(g.run.Plan, r.Phase, positions)
	if err != nil {
		return // the phase has just run
	}
	f := ProfileOf(view, g.run.Site(), events, ops)
	f.Step, f.Phase = g.now.Step+1, r.Phase
	g.log.Profile(f)
	if g.Profiled != nil {
		g.Profiled(f)
	}
}

// After adds a step to the stretch, and writes it when it is time.
func (g *GenerationRecorder) After(r *generate.StepReport) {
	n, seconds := &g.now, r.Took.Seconds()
	n.Step++
	n.Steps++
	n.Seconds += seconds
	n.PromptTokens += int64(r.Prompt)
	n.NewTokens += int64(r.New)
	n.TotalPrompt += int64(r.Prompt)
	n.TotalNew += int64(r.New)
	if r.Prompt > 0 {
		n.PrefillSeconds += seconds
	} else {
		p := g.phase(r)
		n.DecodeSeconds += seconds
		n.Forecast, n.Bound = p.forecast.Seconds, boundOf(p.forecast.Bound)
		g.roofline += p.forecast.Roofline
	}
	n.Sequences, n.Waiting, n.Finished, n.Positions = int64(r.Sequences), int64(r.Waiting), int64(r.Closed), int64(r.Stored)
	n.PagesUsed, n.Pages, n.PageTokens = int64(r.PagesUsed), int64(r.Pages), int64(r.PageTokens)
	if r.Pages > 0 {
		n.CacheBytes = g.cacheBytes * int64(r.PagesUsed) / int64(r.Pages)
	}
	now := time.Now()
	n.UnixNano = now.UnixNano()
	// A stretch is of prompts or of new tokens, so that each has its rate.
	if now.Sub(g.began) >= stretchEvery || r.Prompt > 0 && r.Waiting == 0 {
		if g.due = r.Guesses > 0 || r.Prompt > 0; !g.due {
			g.write()
		}
	}
	g.tell()
}

// Guessed adds tokens that were guessed right to the stretch of their step.
func (g *GenerationRecorder) Guessed(right int) {
	g.now.NewTokens += int64(right)
	g.now.TotalNew += int64(right)
}

// Shared adds the first tokens of texts that begin with the same prompt.
func (g *GenerationRecorder) Shared(tokens int) {
	g.now.NewTokens += int64(tokens)
	g.now.TotalNew += int64(tokens)
}

// boundOf is a resource by the name that forecasts of steps have.
func boundOf(name string) eventlog.Resource {
	if name == "launches" {
		name = "kernel launches"
	}
	return eventlog.ResourceOf(name)
}

// write writes the stretch and begins the next.
func (g *GenerationRecorder) write() {
	n := &g.now
	n.MeasuredBytes = g.run.Allocated()
	if n.DecodeSeconds > 0 {
		n.ShareOfRoofline = g.roofline / n.DecodeSeconds
	}
	g.log.Generation(n)
	if g.Line != nil {
		g.Line(n)
	}
	g.began, g.roofline, g.due = time.Now(), 0, false
	n.Steps, n.Seconds, n.PromptTokens, n.NewTokens, n.PrefillSeconds, n.DecodeSeconds, n.ShareOfRoofline, n.Traced = 0, 0, 0, 0, 0, 0, 0, false
}

// Close writes the last stretch and how the run ended, and closes the log.
func (g *GenerationRecorder) Close(interrupted bool, err error) {
	if g == nil || g.run == nil {
		return
	}
	e := eventlog.End{Time: time.Now(), Step: g.now.Step, How: eventlog.Done}
	switch {
	case interrupted:
		e.How = eventlog.Interrupted
	case err != nil:
		e.How, e.Error = eventlog.Failed, err.Error()
	}
	if g.now.Step > g.o.Done {
		g.now.Finished, g.now.Sequences, g.now.Waiting = g.now.Finished+g.now.Sequences, 0, 0
		g.write()
	}
	g.end(e)
}
