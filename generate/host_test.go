package generate

import (
	"context"
	"fmt"
	"testing"
	"time"

	"spillway/executor"
	"spillway/graph"
	"spillway/op"
)

// What the host does for a decode step besides running it: rows are chosen, pages assigned and
// the batch is filled. It is to be little next to 4 ms of reading an 8B model.
func BenchmarkHostShare(b *testing.B) {
	for _, streams := range []int{1, 64, 128, 256} {
		b.Run(fmt.Sprintf("%d sequences", streams), func(b *testing.B) {
			const context = 32768
			s := hostOnly(b, streams, context)
			b.ReportAllocs()
			n := 1
			for b.Loop() {
				if n++; n == context {
					b.StopTimer()
					s, n = hostOnly(b, streams, context), 2
					b.StartTimer()
				}
				for _, q := range s.order {
					q.tokens = append(q.tokens, 3)
				}
				step := s.drawing(s.gather())
				if err := s.prepare(step); err != nil {
					b.Fatal(err)
				}
				for _, r := range s.rows {
					r.of.computed = r.position + 1
				}
			}
		})
	}
}

// hostOnly is a session with one step for all sequences, and nothing to run it on.
func hostOnly(tb testing.TB, streams, context int) *Session {
	tb.Helper()
	c := graph.KVCache{Streams: int64(streams), Context: int64(context), Page: 64, Chunk: 2048}
	table, err := newPageTable("pages", streams, int(c.Pages(0)), &c, 2)
	if err != nil {
		tb.Fatal(err)
	}
	rows := func() []byte { return make([]byte, 4*streams) }
	step := func() executor.Step {
		return executor.Step{Rows: int64(streams), Outputs: int64(streams), Batch: map[string][]byte{"tokens": rows(), "positions": rows(), "sequences": rows(), "pages": make([]byte, 4*len(table.entries))}}
	}
	drawing := step()
	drawing.Draws, drawing.Batch["sampling"], drawing.Result = true, make([]byte, 4*op.SampleSettings*streams), rows()
	s := &Session{cache: c, tables: []*pageTable{table}, slots: make([]*cachedSequence, streams), steps: []executor.Step{step()}, draws: []executor.Step{drawing}, firstPart: []int{0, 1}, parts: 2}
	for range streams {
		q, err := s.open(nil)
		if err != nil {
			tb.Fatal(err)
		}
		q.tokens = append(make([]int32, 0, context), 1)
		q.draws, q.drawing = true, op.Sampling{Temperature: 0.8}
	}
	return s
}

// drawnEngine is an engine whose tokens come from nowhere: what is left is what a Batch does.
type drawnEngine struct{ streams, context int }

func (e drawnEngine) Add(prompt []int32) (Sequence, error) {
	return &drawnSequence{tokens: append(make([]int32, 0, e.context), prompt...)}, nil
}
func (e drawnEngine) Step(context.Context) error            { return nil }
func (e drawnEngine) Advance(context.Context) (bool, error) { return false, nil }
func (e drawnEngine) Streams() int                          { return e.streams }
func (e drawnEngine) Context() int                          { return e.context }
func (e drawnEngine) Close() error                          { return nil }

type drawnSequence struct{ tokens []int32 }

func (q *drawnSequence) Ready() bool       { return true }
func (q *drawnSequence) Logits() []float32 { return nil }
func (q *drawnSequence) Append(tokens ...int32) error {
	q.tokens = append(q.tokens, tokens...)
	return nil
}
func (q *drawnSequence) Tokens() []int32         { return q.tokens }
func (q *drawnSequence) Len() int                { return len(q.tokens) }
func (q *drawnSequence) Truncate(int) error      { return nil }
func (q *drawnSequence) Fork() (Sequence, error) { return q, nil }
func (q *drawnSequence) Close() error            { return nil }
func (q *drawnSequence) Draw(*op.Sampling) bool  { return true }
func (q *drawnSequence) Drawn() (int32, bool)    { return 5, true }

// What a Batch does for a step besides the step: tokens are taken, appended and given to the reader.
func BenchmarkBatchShare(b *testing.B) {
	for _, streams := range []int{1, 64, 128} {
		b.Run(fmt.Sprintf("%d sequences", streams), func(b *testing.B) {
			b.ReportAllocs()
			const tokens = 1000
			steps := 0
			var took time.Duration
			for b.Loop() {
				var list []Request
				for range streams {
					list = append(list, Request{Prompt: []int32{1}, MaxNewTokens: tokens, Sampler: Sampler{Temperature: 0.8}})
				}
				batch, err := NewBatch(drawnEngine{streams, 2 * tokens}, nil, list)
				if err != nil {
					b.Fatal(err)
				}
				start := time.Now()
				for _, err := range batch.All(context.Background()) {
					if err != nil {
						b.Fatal(err)
					}
				}
				took, steps = took+time.Since(start), steps+tokens
			}
			b.ReportMetric(float64(took.Nanoseconds())/float64(steps), "ns/step")
		})
	}
}
