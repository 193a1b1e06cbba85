package inference

import (
	"context"
	"errors"
	"fmt"

	"spillway/generate"
	"spillway/planner"
)

// questionStreams is how many choices are computed at once, where memory has place for them.
const questionStreams = 16

// startChoosing starts an engine with streams for all choices of the question that has most, and for
// more where they fit.
func (m *Model) startChoosing(ctx context.Context, longest, most int) (*Engine, error) {
	size := Size{Context: int64(longest), Streams: int64(max(questionStreams, most)), Outputs: choiceOutputs}
	e, err := m.Start(ctx, size)
	var fit *planner.FitError
	if errors.As(err, &fit) && size.Streams > int64(most) {
		size.Streams = int64(most)
		return m.Start(ctx, size)
	}
	return e, err
}

// choiceOutputs is how many tokens of choices get logits in one step.
const choiceOutputs = 32

// asked is a question whose choices are computed.
type asked struct {
	list   []pair
	shared int // tokens that all choices begin with and that no choice is rated by
	first  generate.Sequence
	open   []generate.Sequence
	sums   []float64
}

// sharedTokens is how many tokens all choices begin with, without the last before a choice, whose logits
// rate the choice's first token.
func sharedTokens(list []pair) int {
	n := list[0].start - 1
	for _, p := range list {
		n = min(n, p.start-1)
		for i := range n {
			if p.tokens[i] != list[0].tokens[i] {
				n = i
				break
			}
		}
	}
	return n
}

// cachedLikelihoods are the log-likelihoods of all choices: what the choices of a question share is
// computed once, and several questions at once.
func (e *Engine) cachedLikelihoods(ctx context.Context, questions [][]pair, report func(done int)) (sums []float64, err error) {
	for done := 0; done < len(questions); {
		report(done)
		var group []*asked
		for streams := e.Streams(); done < len(questions) && len(questions[done]) <= streams; done++ {
			streams -= len(questions[done])
			group = append(group, &asked{list: questions[done], shared: sharedTokens(questions[done]), sums: make([]float64, len(questions[done]))})
		}
		err := e.ask(ctx, group)
		for _, a := range group {
			for _, q := range a.open {
				err = errors.Join(err, q.Close())
			}
			sums = append(sums, a.sums...)
		}
		if err != nil {
			return nil, err
		}
	}
	return sums, nil
}

// ask computes a group of questions: first what choices share, then the choices.
func (e *Engine) ask(ctx context.Context, group []*asked) (err error) {
	for _, a := range group {
		if a.shared == 0 {
			continue
		}
		if a.first, err = e.Add(a.list[0].tokens[:a.shared]); err != nil {
			return err
		}
		a.open = append(a.open, a.first)
	}
	if err := e.Step(ctx); err != nil {
		return err
	}
	var failed error
	for _, a := range group {
		for k, p := range a.list {
			q := a.first
			switch {
			case a.shared == 0:
				q, err = e.Add(p.tokens[:1])
			case k > 0:
				q, err = a.first.Fork()
			}
			if err != nil {
				return err
			}
			if k > 0 || a.shared == 0 {
				a.open = append(a.open, q)
			}
		}
		for k, p := range a.list {
			q := a.open[k]
			each, ok := q.(interface {
				Each(func(position int, logits []float32))
			})
			if !ok {
				return errors.New("choices are rated by an engine that gives no logits of single tokens")
			}
			each.Each(func(position int, logits []float32) {
				if position+1 < p.start || position+1 >= len(p.tokens) || failed != nil {
					return
				}
				var one float64
				one, failed = generate.Logprob(p.tokens[position+1], logits)
				a.sums[k] += one
			})
			from := max(a.shared, 1)
			if err := q.Append(p.tokens[from : len(p.tokens)-1]...); err != nil {
				return err
			}
		}
	}
	if err := e.Step(ctx); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("rating choices: %w", failed)
	}
	return nil
}
