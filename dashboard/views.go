package dashboard

import (
	"fmt"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"spillway/eventlog"
	"spillway/monitor"
	"spillway/plan"
	"spillway/view"
)

// Now is a run as it is: its newest step, how it stands to its plan, and its alerts.
type Now struct {
	Name    string              `json:"name"`
	State   monitor.State       `json:"state"`
	Start   *eventlog.Start     `json:"start,omitempty"`
	Last    *eventlog.Iteration `json:"last,omitempty"`
	Metrics []string            `json:"metrics"` // that its steps have, the most telling first
	Making
	Alerts   []eventlog.Alert     `json:"alerts"` // the newest, newest first
	Saved    *eventlog.Checkpoint `json:"checkpoint,omitempty"`
	End      *eventlog.End        `json:"end,omitempty"`
	Strategy string               `json:"strategy,omitempty"`
	Reason   string               `json:"reason,omitempty"`
	Tiers    []Tier               `json:"tiers"`
	Damaged  string               `json:"damaged,omitempty"`
}

// Making is how a run that generates texts is doing. Rates are of the newest stretches.
type Making struct {
	Generated    *eventlog.Generation `json:"generated,omitempty"`
	DecodeRate   float64              `json:"decode_rate,omitempty"`
	PrefillRate  float64              `json:"prefill_rate,omitempty"`
	TokenSeconds float64              `json:"token_seconds,omitempty"` // that a sequence waits for its next token
}

// makingOf looks at the newest stretches of generating: the last with prompts, and those without
// of the last second.
func makingOf(list []eventlog.Generation) (m Making) {
	if len(list) == 0 {
		return m
	}
	m.Generated = &list[len(list)-1]
	var tokens, steps int64
	var seconds float64
	for i := len(list) - 1; i >= 0 && (seconds < 1 || m.PrefillRate == 0); i-- {
		g := &list[i]
		if g.PromptTokens > 0 {
			if m.PrefillRate == 0 {
				m.PrefillRate = g.PrefillRate()
			}
		} else if seconds < 1 {
			tokens, steps, seconds = tokens+g.NewTokens, steps+g.Steps, seconds+g.DecodeSeconds
		}
	}
	if steps > 0 && seconds > 0 {
		m.DecodeRate, m.TokenSeconds = float64(tokens)/seconds, seconds/float64(steps)
	}
	return m
}

// telling are metrics in the order in which people look at them.
var telling = []string{"loss", "seconds", "decode_rate", "cache_used", "sequences", "tokens_per_second", "eval_loss", "decode_seconds", "prefill_rate", "share_of_roofline", "grad_norm", "lr", "device_bytes", "resident_bytes"}

// metricsOf are those that a run has.
func metricsOf(r *view.Run) []string {
	list := []string{}
	for _, name := range telling {
		if m, err := view.FindMetric(name); err == nil && m.Of(r) {
			list = append(list, name)
		}
	}
	return list
}

// memoryOf is the memory of a run's plan, while a phase of it runs.
func memoryOf(run *view.Run, phase string) (any, error) {
	p, err := run.Plan()
	if err == nil && p == nil {
		err = errNoPlan
	}
	if err == nil && phase != "" {
		p, err = p.Phase(phase)
	}
	if err != nil {
		return nil, err
	}
	return view.MemoryOf(p).Measured(run), nil
}

// phase is a list of instructions of a plan.
type phase struct {
	Name  string `json:"name"`
	Title string `json:"title"`
}

func phasesOf(p *plan.Plan) []phase {
	main := "training step"
	if p.Cache != nil {
		main = "prefill"
	} else if p.Optimizer == nil {
		main = "pass"
	}
	list := []phase{{"", main}}
	for _, ph := range p.Phases {
		list = append(list, phase{ph.Name, ph.Name})
	}
	return list
}

// motionOf is what the cells of the map do during a step.
func motionOf(run *view.Run) (any, error) {
	p, err := run.Plan()
	if err == nil && p == nil {
		err = errNoPlan
	}
	if err != nil {
		return nil, err
	}
	t, err := run.Timeline()
	if err != nil {
		return nil, err
	}
	m := view.MapOf(p)
	if t.Phase != "" {
		if p, err = p.Phase(t.Phase); err != nil {
			return nil, err
		}
	}
	return view.MotionOf(p, m, t), nil
}

// Tier is the memory of a tier: what the plan reserves, and what was measured of it.
type Tier struct {
	Name     string `json:"name"`
	Reserved int64  `json:"reserved_bytes"`
	Measured int64  `json:"measured_bytes"` // 0 where nobody counts
	Budget   int64  `json:"budget_bytes"`   // the most the plan may take; 0 where there is no limit
}

// maxAlerts is how many are shown.
const maxAlerts = 20

// nowOf is the state of a run.
func nowOf(r *view.Run) Now {
	n := Now{Name: r.Name, State: monitor.Look(strings.TrimSuffix(r.Path, eventlog.FileName)).State, Alerts: []eventlog.Alert{}, Tiers: []Tier{}, End: r.End}
	if k := len(r.Starts); k > 0 {
		n.Start = &r.Starts[k-1]
	}
	if k := len(r.Iterations); k > 0 {
		n.Last = &r.Iterations[k-1]
	}
	n.Making, n.Metrics = makingOf(r.Generations), metricsOf(r)
	if k := len(r.Checkpoints); k > 0 {
		n.Saved = &r.Checkpoints[k-1]
	}
	for i := len(r.Alerts) - 1; i >= 0 && len(n.Alerts) < maxAlerts; i-- {
		n.Alerts = append(n.Alerts, r.Alerts[i])
	}
	if r.Damaged != nil {
		n.Damaged = r.Damaged.Error()
	}
	p, err := r.Plan()
	if err != nil && n.Damaged == "" {
		n.Damaged = err.Error() // the rest of the run is shown
	}
	if err != nil || p == nil {
		return n
	}
	n.Strategy, n.Reason = p.Strategy, p.Reason
	peak := p.Peak()
	for _, name := range []plan.Tier{plan.OnDevice, plan.Pinned, plan.OnHost, plan.OnDisk} {
		if peak[name] == 0 {
			continue
		}
		tier := Tier{Name: string(name), Reserved: peak[name]}
		if name == plan.OnDevice {
			tier.Budget = p.Devices[0].Budget
			if n.Last != nil {
				tier.Measured = n.Last.MeasuredBytes
			} else if n.Generated != nil {
				tier.Measured = n.Generated.MeasuredBytes
			}
		}
		n.Tiers = append(n.Tiers, tier)
	}
	return n
}

// points is how many a chart may have: those of the address, or one per pixel.
func points(r *http.Request) int {
	if n, err := strconv.Atoi(r.URL.Query().Get("points")); err == nil && n >= 0 {
		return n
	}
	return view.DefaultPoints
}

// metricOf is the chart that an address asks for: loss.svg, seconds.json.
func metricOf(r *http.Request, runs ...*view.Run) (view.Chart, error) {
	file := r.PathValue("file")
	m, err := view.FindMetric(strings.TrimSuffix(file, path.Ext(file)))
	if err != nil {
		return view.Chart{}, err
	}
	return view.Curves(runs, m, points(r)), nil
}

// maxCompared is how many runs are laid over each other.
const maxCompared = 12

// compare answers with tables of several runs (all.json, all.csv), or a metric of them
// (loss.svg).
func (s *Server) compare(w http.ResponseWriter, r *http.Request) {
	ids := r.URL.Query()["run"]
	if len(ids) == 0 || len(ids) > maxCompared {
		http.Error(w, fmt.Sprintf("%d runs are named, it takes 1 to %d", len(ids), maxCompared), http.StatusBadRequest)
		return
	}
	file := r.PathValue("file")
	var made any
	var do func(left []string, runs []*view.Run) error
	do = func(left []string, runs []*view.Run) (err error) {
		if len(left) == 0 {
			s.work <- struct{}{}
			defer func() { <-s.work }()
			if strings.HasPrefix(file, "all.") {
				made, err = view.Compare(runs)
			} else {
				made, err = metricOf(r, runs...)
			}
			return err
		}
		return s.with(left[0], func(o *openRun) error { return do(left[1:], append(runs, o.run)) })
	}
	err := do(unique(ids), nil)
	var a answer
	if err == nil {
		a, err = answerOf(path.Ext(file), made, schemeOf(r))
	}
	a.send(w, r, err)
}

// unique sorts ids, so that whoever locks several runs locks them in the same order.
func unique(ids []string) []string { return slices.Compact(slices.Sorted(slices.Values(ids))) }

// requestTrace asks a run for the trace of its next step.
func (s *Server) requestTrace(w http.ResponseWriter, r *http.Request) {
	dir := s.roll.dir(r.PathValue("id"))
	if dir == "" {
		answerJSON(w, r, nil, errNoRun)
		return
	}
	answerJSON(w, r, map[string]bool{"asked": true}, monitor.RequestTrace(dir))
}
