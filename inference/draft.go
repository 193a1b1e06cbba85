package inference

import (
	"context"
	"errors"
	"fmt"

	"spillway/generate"
	"spillway/plan"
	"spillway/planner"
	"spillway/quant"
	"spillway/run"
	"spillway/units"
)

// Names of drafters that need no other model.
const (
	DraftLookup = "ngram" // the text itself: generate.Lookup
	DraftSelf   = "self"  // the model in 4 bits
)

// Draft is who guesses the next tokens of texts, in memory.
type Draft struct {
	Name string
	Most int // tokens one after the other
	// Branches is how many continuations are guessed next to the first.
	Branches int
	Engine   *Engine // of a model that guesses; nil for none
	drafter  generate.Drafter
}

// StartGuessing prepares who guesses tokens, and the engine that they are guessed for. Where nobody guesses, name is "" and the draft nil. With fewer, both have
// no branches where branches do not fit in memory.
func (m *Model) StartGuessing(ctx context.Context, name string, size Size, fewer bool) (d *Draft, e *Engine, err error) {
	before := m.s
	if name != "" {
		d, err = m.StartDraft(ctx, name, size)
	}
	if err == nil {
		if e, err = m.Start(ctx, size); err == nil {
			return d, e, nil
		}
		err = errors.Join(err, d.Close())
	}
	var fit *planner.FitError
	var limit limitError
	if fewer && size.Branches > 0 && (errors.As(err, &fit) || errors.As(err, &limit)) {
		m.s, size.Branches = before, 0
		return m.StartGuessing(ctx, name, size, false)
	}
	return nil, nil, err
}

// limitError says that a model that guesses leaves no memory for the other one.
type limitError struct{ error }

// StartDraft prepares who guesses tokens of texts of a size, which says how many: DraftLookup,
// DraftSelf, or another model by its folder, which must have the same tokens. A model that guesses is
// loaded before the one it guesses for, which gets what it leaves of the limits. It is never read from
// disk, from where guesses would not pay. The caller closes it, after the engine that it guesses for.
func (m *Model) StartDraft(ctx context.Context, name string, size Size) (d *Draft, err error) {
	d = &Draft{Name: name, Most: int(size.Drafts), Branches: int(size.Branches)}
	if name == DraftLookup {
		d.drafter = generate.Lookup{}
		return d, nil
	}
	s := m.s
	s.Model, s.Key, s.Value, s.Disk, s.guesses = name, 0, 0, "", true
	if s.CompressWeights == run.CompressOn { // which is about the model that decides
		s.CompressWeights = run.CompressAuto
	}
	if name == DraftSelf {
		s.Model, s.quantized = m.s.Model, quant.NF4
	} else {
		s.Adapters, s.Tokenizer, s.ChatTemplate = nil, "", ""
	}
	small, err := Open(s)
	if err != nil && name != DraftSelf {
		return nil, fmt.Errorf("the model that guesses (%s needs none, %s is the model itself): %w", DraftLookup, DraftSelf, err)
	}
	if err != nil {
		return nil, fmt.Errorf("the model that guesses: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, small.Close())
		}
	}()
	if small.Info.Vocab != m.Info.Vocab {
		return nil, fmt.Errorf("%s knows %d tokens, %s knows %d: a model can guess for another one that has the same tokens", small.Name, small.Info.Vocab, m.Name, m.Info.Vocab)
	}
	size.Context = m.contextOf(size)
	size.Context = min(size.Context+size.Drafts, max(small.Info.Context, size.Context))
	if size.Branches > 0 {
		size.Apart = size.Drafts + 1
	}
	size.Drafts, size.Outputs = 0, 0
	e, err := small.Start(ctx, size)
	if err != nil {
		return nil, fmt.Errorf("the model that guesses: %w", err)
	}
	if err := m.leaveMemory(e, small.Name); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	d.Engine, d.drafter = e, generate.NewModelDrafter(e.Engine)
	return d, nil
}

// leaveMemory takes what a model that guesses takes off the limits of the one it guesses for.
func (m *Model) leaveMemory(guesses *Engine, name string) error {
	if m.s.MaxMemory != "" {
		limit, err := units.ParseBytes(m.s.MaxMemory)
		taken := units.Bytes(guesses.PredictedPeak())
		switch {
		case err != nil:
			return fmt.Errorf("max memory %q and a model that guesses: give one size, which is for both", m.s.MaxMemory)
		case taken >= limit:
			return limitError{fmt.Errorf("%s takes %v to guess, and both models may take %v; allow more, or guess with %s, which takes none", name, taken, limit, DraftLookup)}
		}
		m.s.MaxMemory, m.s.guessing = fmt.Sprintf("%dB", int64(limit-taken)), taken
	}
	if limit := m.s.MaxHost; limit > 0 {
		peak := guesses.Run.Plan.Peak()
		taken := units.Bytes(peak[plan.Pinned] + peak[plan.OnHost])
		if guesses.Rig.Machine.Devices[0].Shared { // a CPU's memory is the host's
			taken += units.Bytes(peak[plan.OnDevice])
		}
		if taken >= limit {
			return limitError{fmt.Errorf("%s takes %v of host memory to guess, and both models may take %v; allow more, or guess with %s, which takes none", name, taken, limit, DraftLookup)}
		}
		m.s.MaxHost -= taken
	}
	return nil
}

// Speculation is how an engine's texts are guessed: no more tokens than pay, by forecast.
func (d *Draft) Speculation(e *Engine) *generate.Speculation {
	if d == nil {
		return nil
	}
	s := &generate.Speculation{Drafter: d.drafter, Most: d.Most, Branches: d.Branches, Seconds: e.stepSeconds()}
	if d.Branches > 0 {
		s.BranchSeconds = e.Run.ForecastBranch()
	}
	if d.Engine != nil {
		s.DraftSeconds = d.Engine.stepSeconds()
	}
	return s
}

// stepSeconds forecasts steps of so many rows over texts that are half as long as they may be.
func (e *Engine) stepSeconds() func(rows int) float64 {
	known := map[int]float64{}
	positions := max(int64(e.Context())/2, 1)
	return func(rows int) float64 {
		if _, ok := known[rows]; !ok {
			f, err := e.Run.ForecastStep(int64(rows), positions)
			if known[rows] = f.Seconds; err != nil {
				known[rows] = 1 // a step is a step
			}
		}
		return known[rows]
	}
}

// Close frees the model that guesses.
func (d *Draft) Close() error {
	if d == nil || d.Engine == nil {
		return nil
	}
	return errors.Join(d.Engine.Close(), d.Engine.Model.Close())
}
