package dashboard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"path"
	"strconv"
	"sync"
	"time"

	"spillway/plan"
	"spillway/planner/goal"
	"spillway/run"
	"spillway/view"
)

// Replan makes the plan that a run would have with another limit of device memory, in bytes. A
// limit that is too small is a goal.FitError. It is called by one browser at a time, and should
// not take cores from a run.
type Replan func(ctx context.Context, dir string, memory int64) (Replanned, error)

// Replanned is what a Replan made: a plan and, where it generates texts, how fast tokens come.
type Replanned struct {
	Plan       *plan.Plan              `json:"plan,omitempty"`
	Generation *run.GenerationForecast `json:"generation,omitempty"`
}

// tokenSeconds is how long a text waits for its next token, half of its context being full; 0 of
// plans that generate none.
func (r Replanned) tokenSeconds() float64 {
	if r.Generation == nil || len(r.Generation.Decode) == 0 {
		return 0
	}
	return r.Generation.Decode[0].Half.Seconds
}

// Plans are the plan of a run among others, and what may be asked.
type Plans struct {
	List []plan.Alternative `json:"plans"`
	// Low and High are limits of device memory worth asking for; Budget is the
	// limit that the run had, as --max-memory counts it.
	Low    int64 `json:"low_bytes"`
	High   int64 `json:"high_bytes"`
	Budget int64 `json:"budget_bytes"`
	// Generates: the run generates texts, so that plans are told apart by the time of a token. Weights is
	// where the run's own stores them.
	Generates bool             `json:"generates"`
	Weights   []view.TierBytes `json:"weights"`
	// Closed says why no other plans can be asked for; "" where they can.
	Closed string `json:"closed,omitempty"`
}

// limitOf is the limit of device memory that a plan was made for.
func limitOf(p *plan.Plan) int64 { return p.Devices[0].Budget + p.Devices[0].Context }

// plansOf are a run's.
func (s *Server) plansOf(p *plan.Plan) Plans {
	l := Plans{List: view.PlansOf(p), Low: math.MaxInt64, Budget: limitOf(p), Generates: p.Cache != nil, Weights: view.WeightsOf(p)}
	for _, a := range l.List {
		if n := a.PeakBytes[plan.OnDevice]; n > 0 {
			l.Low, l.High = min(l.Low, n), max(l.High, n)
		}
	}
	l.Low, l.High = max(l.Low/4, 1), l.High+l.High/4
	if s.o.Replan == nil {
		l.Closed = "this page cannot ask the planner; spillway plan --max-memory SIZE does"
	}
	return l
}

// WhatIf is what the planner answers for a limit of device memory.
type WhatIf struct {
	Limit   int64               `json:"limit_bytes"`
	Fits    bool                `json:"fits"`
	Reason  string              `json:"reason"` // why this plan, or why none
	Plan    string              `json:"plan,omitempty"`
	Seconds float64             `json:"step_seconds,omitempty"`
	Tokens  float64             `json:"tokens_per_second,omitempty"`
	Bound   string              `json:"bound,omitempty"`
	Peak    map[plan.Tier]int64 `json:"peak_bytes,omitempty"`
	Weights []view.TierBytes    `json:"weights,omitempty"`      // where they are stored
	Needed  int64               `json:"needed_bytes,omitempty"` // that the smallest plan takes
	*Speaking
	Took float64 `json:"planning_seconds"`
}

// Speaking is how fast a plan generates texts: Seconds and Tokens are then of one text, half of whose
// context is full.
type Speaking struct {
	Context       int64   `json:"context"`
	Streams       int64   `json:"streams"`            // texts at once, at most
	All           float64 `json:"all_tokens_per_sec"` // of so many texts together
	PromptTokens  int64   `json:"prompt_tokens"`
	PromptSeconds float64 `json:"prompt_seconds"` // until the first token after such a prompt
}

// speaking is what a plan of a run that generates does.
func (a *WhatIf) speaking(g *run.GenerationForecast) {
	if g == nil || len(g.Decode) == 0 {
		return
	}
	one, all := g.Decode[0].Half, g.Decode[len(g.Decode)-1]
	a.Seconds, a.Tokens, a.Bound = one.Seconds, one.TokensPerSec, one.Bound
	a.Speaking = &Speaking{g.Context, all.Streams, all.Half.TokensPerSec, g.PromptTokens, g.PromptSeconds}
}

// whatIfs are answers of the planner that were asked for, the same for everybody.
type whatIfs struct {
	turn chan struct{} // holds who asks the planner now
	mu   sync.Mutex
	runs map[string]*whatIfsOfRun // by id
}

// whatIfsOfRun are those of one plan.
type whatIfsOfRun struct {
	version int // number of plans that the run had
	answers map[int64]WhatIf
	plans   map[int64]Replanned
}

// maxAsked is how many answers are kept of a run.
const maxAsked = 64

// of gives the answers of a run. The caller holds the lock.
func (a *whatIfs) of(id string, version int) *whatIfsOfRun {
	if a.runs == nil {
		a.runs = map[string]*whatIfsOfRun{}
	}
	w := a.runs[id]
	if w == nil || w.version != version || len(w.answers) >= maxAsked {
		if len(a.runs) >= maxOpen {
			clear(a.runs)
		}
		w = &whatIfsOfRun{version, map[int64]WhatIf{}, map[int64]Replanned{}}
		a.runs[id] = w
	}
	return w
}

// plans are those that were asked for.
func (a *whatIfs) plans(id string, version int) map[int64]Replanned {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := map[int64]Replanned{}
	for limit, p := range a.of(id, version).plans {
		list[limit] = p
	}
	return list
}

// planWithin is how long the planner may take.
const planWithin = 2 * time.Minute

// whatIf asks the planner for a run's plan with another limit of memory.
func (s *Server) whatIf(w http.ResponseWriter, r *http.Request) {
	limit, err := strconv.ParseInt(r.URL.Query().Get("memory"), 10, 64)
	if err != nil || limit <= 0 {
		http.Error(w, "memory is a number of bytes", http.StatusBadRequest)
		return
	}
	id := r.PathValue("id")
	var version int
	err = s.with(id, func(o *openRun) error {
		version = len(o.run.Plans)
		return nil
	})
	if err == nil && s.o.Replan == nil {
		err = errors.New("this page cannot ask the planner; spillway plan --max-memory SIZE does")
	}
	if err != nil {
		answerJSON(w, r, nil, err)
		return
	}
	s.asked.mu.Lock()
	found, has := s.asked.of(id, version).answers[limit]
	s.asked.mu.Unlock()
	if !has {
		found, err = s.replan(r.Context(), id, version, limit)
	}
	answerJSON(w, r, found, err)
}

// replan asks the planner, when nobody else does.
func (s *Server) replan(ctx context.Context, id string, version int, limit int64) (WhatIf, error) {
	ctx, cancel := context.WithTimeout(ctx, planWithin)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	select {
	case s.asked.turn <- struct{}{}:
		defer func() { <-s.asked.turn }()
	case <-ctx.Done():
		return WhatIf{}, context.Cause(ctx)
	}
	began := time.Now()
	made, err := s.o.Replan(ctx, s.roll.dir(id), limit)
	p := made.Plan
	a := WhatIf{Limit: limit, Took: time.Since(began).Seconds()}
	var misfit *goal.FitError
	switch {
	case errors.As(err, &misfit):
		a.Reason, a.Needed = misfit.Lack(), misfit.Needed
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return a, fmt.Errorf("the planner was stopped after %v", planWithin)
	case err != nil:
		return a, err
	default:
		a.Fits, a.Plan, a.Reason, a.Peak = true, p.Strategy, p.Reason, p.Peak()
		if f := p.Forecast; f != nil {
			a.Seconds, a.Tokens, a.Bound = f.StepSeconds, f.TokensPerSec, f.Bound
		}
		a.Weights = view.WeightsOf(p)
		a.speaking(made.Generation)
	}
	s.asked.mu.Lock()
	defer s.asked.mu.Unlock()
	w := s.asked.of(id, version)
	if w.answers[limit] = a; p != nil {
		w.plans[limit] = made
	}
	return a, nil
}

// tradeoff writes the plans of a run, those that were asked for among them.
func (s *Server) tradeoff(w http.ResponseWriter, r *http.Request) {
	s.answerAsked(w, r, func(p *plan.Plan, asked map[int64]Replanned) (any, error) {
		if p.Cache == nil {
			plans := map[int64]*plan.Plan{}
			for limit, a := range asked {
				plans[limit] = a.Plan
			}
			return view.TradeoffOf(p, plans), nil
		}
		var list []view.TradeoffPoint
		for limit, a := range asked {
			kind := view.Asked
			if limit == limitOf(p) {
				kind = view.OfRun
			}
			list = append(list, view.TradeoffPoint{Plan: a.Plan.Strategy, Kind: kind, Limit: limit, Memory: a.Plan.Peak()[plan.OnDevice], Seconds: a.tokenSeconds(), Fits: true})
		}
		return view.TokenTradeoff(list), nil
	})
}

// askedMemory writes the memory of a plan that was asked for.
func (s *Server) askedMemory(w http.ResponseWriter, r *http.Request) {
	s.answerAsked(w, r, func(_ *plan.Plan, asked map[int64]Replanned) (any, error) {
		limit, _ := strconv.ParseInt(r.PathValue("limit"), 10, 64) // 0 was never asked for
		p := asked[limit].Plan
		if p == nil {
			return nil, errNoPlan
		}
		return view.MemoryOf(p), nil
	})
}

// answerAsked writes what do makes of a run's plan and those that were asked for.
func (s *Server) answerAsked(w http.ResponseWriter, r *http.Request, do func(*plan.Plan, map[int64]Replanned) (any, error)) {
	var a answer
	id := r.PathValue("id")
	err := s.with(id, func(o *openRun) error {
		made, err := ofPlan(func(p *plan.Plan) any { return p })(o.run)
		if err == nil {
			made, err = do(made.(*plan.Plan), s.asked.plans(id, len(o.run.Plans)))
		}
		if err == nil {
			a, err = answerOf(path.Ext(r.PathValue("file")), made, schemeOf(r))
		}
		return err
	})
	a.send(w, r, err)
}
