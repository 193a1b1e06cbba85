package train

// Best is the best evaluation of a run.
type Best struct {
	Loss      float64 `json:"loss"`
	Iteration int64   `json:"iteration"`
	// Since is how many evaluations there were after it, none of them better.
	Since int64 `json:"since,omitempty"`
}

// judge takes in the loss of an evaluation and says whether it is the best so far.
func (t *Trainer) judge(loss float64) bool {
	switch {
	case finite(loss) && (t.best == nil || loss < t.best.Loss):
		t.best = &Best{Loss: loss, Iteration: t.done}
		return true
	case t.best != nil:
		t.best.Since++
	}
	return false
}

// exhausted says that evaluations have not become better for too long.
func (t *Trainer) exhausted() bool {
	ev := t.c.Evaluate
	return ev != nil && ev.Patience > 0 && t.best != nil && t.best.Since >= ev.Patience
}

// keepsBest says whether the best checkpoint is kept.
func (t *Trainer) keepsBest() bool {
	return t.c.Save != nil && t.c.Evaluate != nil && t.c.Evaluate.KeepBest
}

// bestPath is where the best checkpoint is, "" where none is kept.
func (t *Trainer) bestPath() string {
	if !t.keepsBest() || t.best == nil {
		return ""
	}
	return t.c.Save.Dir.At(t.best.Iteration)
}
