package generate

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"spillway/executor"
	"spillway/graph"
	"spillway/plan"
	"spillway/run"
)

// Plain is an engine without a cache: it computes the whole text for every token, on a run
// of the task infer. The text is on the left of a sequence of the plan and the rest is
// padding, which causal attention never reads. It is slow, and what faster engines are
// compared with.
type Plain struct {
	run *run.Run
	all []*plainSequence // the open ones
}

// plainStreams bounds the sequences of a Plain: each has a row of logits.
const plainStreams = 1 << 12

// NewPlain makes an engine of a started run of the task infer, with one sequence per batch.
// The run stays the caller's.
func NewPlain(r *run.Run) (*Plain, error) {
	p := r.Plan
	if p.Task != string(graph.Infer) || p.MicroBatchSize != 1 || p.MicroBatches != 1 {
		return nil, fmt.Errorf("generating with a plan for %s of %d sequences and %d micro-batches; plan the task infer with one of each", p.Task, p.MicroBatchSize, p.MicroBatches)
	}
	for _, part := range p.Batch {
		if !slices.Contains([]string{"tokens", "positions", "segments", "outputs"}, part.Name) {
			return nil, fmt.Errorf("generating with a model that reads the batch tensor %q, which a text does not have", part.Name)
		}
	}
	return &Plain{run: r}, nil
}

// Streams is as many sequences as there is memory for rows of logits.
func (e *Plain) Streams() int { return plainStreams }

// Context is the length of the plan's sequences.
func (e *Plain) Context() int { return int(e.run.Plan.Seq) }

// Close ends all sequences.
func (e *Plain) Close() error {
	e.all = nil
	return nil
}

// Add begins a sequence.
func (e *Plain) Add(prompt []int32) (Sequence, error) {
	if len(prompt) == 0 {
		return nil, errEmptyPrompt
	}
	return e.add(&plainSequence{engine: e}, prompt)
}

func (e *Plain) add(q *plainSequence, tokens []int32) (Sequence, error) {
	if len(e.all) == plainStreams {
		return nil, &FullError{plainStreams}
	}
	if err := q.Append(tokens...); err != nil {
		return nil, err
	}
	e.all = append(e.all, q)
	return q, nil
}

// Step computes every sequence that waits, one after the other.
func (e *Plain) Step(ctx context.Context) error {
	for _, q := range e.all {
		if q.ready || q.truncated {
			continue
		}
		if err := e.compute(ctx, q); err != nil {
			return fmt.Errorf("generating token %d: %w", len(q.tokens), err)
		}
	}
	return nil
}

func (e *Plain) compute(ctx context.Context, q *plainSequence) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := e.fill(q.tokens); err != nil {
		return err
	}
	if err := e.run.Executor().Iterate(ctx, executor.IterationArgs{}); err != nil {
		return err
	}
	all := e.run.Executor().Result(0)
	if !e.outputs() { // those of all positions are there
		vocab, last := len(all)/e.Context(), len(q.tokens)-1
		all = all[last*vocab:][:vocab]
	}
	q.logits, q.ready = append(q.logits[:0], all...), true
	return nil
}

// outputs says whether the run gives the logits of the position that its batch names.
func (e *Plain) outputs() bool {
	return slices.ContainsFunc(e.run.Plan.Batch, func(t plan.BatchTensor) bool { return t.Name == "outputs" })
}

// fill writes a text and its padding into the batch tensors.
func (e *Plain) fill(text []int32) error {
	for _, part := range e.run.Plan.Batch {
		to, err := e.run.Executor().BatchTensor(0, part.Name)
		if err != nil {
			return err
		}
		for i := range len(to) / 4 {
			value := int32(0) // of segments, and of tokens in the padding
			switch {
			case part.Name == "outputs":
				value = int32(len(text) - 1)
			case part.Name == "positions":
				value = int32(i)
			case part.Name == "tokens" && i < len(text):
				value = text[i]
			}
			binary.LittleEndian.PutUint32(to[4*i:], uint32(value))
		}
	}
	return e.run.Executor().CheckBatch()
}

// plainSequence is a text of a Plain.
type plainSequence struct {
	engine           *Plain
	tokens           []int32
	logits           []float32
	ready, truncated bool // logits are there; none are wanted before the next Append
}

func (q *plainSequence) Ready() bool       { return q.ready }
func (q *plainSequence) Logits() []float32 { return q.logits }
func (q *plainSequence) Tokens() []int32   { return q.tokens }
func (q *plainSequence) Len() int          { return len(q.tokens) }

func (q *plainSequence) Append(tokens ...int32) error {
	if n := len(q.tokens) + len(tokens); n > q.engine.Context() {
		return &ContextError{n, q.engine.Context()}
	}
	q.tokens = append(q.tokens, tokens...)
	q.ready, q.truncated = false, false
	return nil
}

func (q *plainSequence) Truncate(n int) error {
	if n < 0 || n > len(q.tokens) {
		return fmt.Errorf("truncating a text of %d tokens to %d", len(q.tokens), n)
	}
	q.tokens, q.ready, q.truncated = q.tokens[:n], false, true
	return nil
}

func (q *plainSequence) Fork() (Sequence, error) {
	f, err := q.engine.add(&plainSequence{engine: q.engine}, q.tokens)
	if err != nil {
		return nil, err
	}
	twin := f.(*plainSequence)
	twin.logits, twin.ready, twin.truncated = slices.Clone(q.logits), q.ready, q.truncated
	return twin, nil
}

func (q *plainSequence) Close() error {
	q.engine.all = slices.DeleteFunc(q.engine.all, func(other *plainSequence) bool { return other == q })
	return nil
}
