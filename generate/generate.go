// Package generate continues texts token by token: a run computes the logits of the next
// token, and a Sampler picks one.
//
// A Generator computes a window of as many positions as the run's plan has. The text is on
// the left and the rest is padding, which causal attention never reads. When the text
// becomes longer than the window, only its end is used. Every token computes the whole
// window.
package generate

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"slices"

	"spillway/executor"
	"spillway/graph"
	"spillway/run"
)

// Options say how to continue a text.
type Options struct {
	Sampler Sampler
	// Stop are tokens that end the text without becoming part of it.
	Stop []int32
	// MaxNewTokens is the largest number of tokens to add; 0 means no limit.
	MaxNewTokens int
}

// Generator continues one text.
type Generator struct {
	run    *run.Run
	o      Options
	text   []int32
	prompt int // tokens of the text that are the prompt
	ended  bool
}

// New returns a generator on a started run of the task infer, with one sequence per
// batch. The prompt needs at least one token.
func New(r *run.Run, prompt []int32, o Options) (*Generator, error) {
	p := r.Plan
	if p.Task != string(graph.Infer) || p.MicroBatchSize != 1 || p.MicroBatches != 1 {
		return nil, fmt.Errorf("generating with a plan for %s of %d sequences and %d micro-batches; plan the task infer with one of each", p.Task, p.MicroBatchSize, p.MicroBatches)
	}
	if len(prompt) == 0 {
		return nil, fmt.Errorf("generating from an empty prompt; give at least the token that begins a text")
	}
	if err := o.Sampler.Check(); err != nil {
		return nil, err
	}
	return &Generator{run: r, o: o, text: slices.Clone(prompt), prompt: len(prompt)}, nil
}

// Text returns the prompt and the tokens added so far.
func (g *Generator) Text() []int32 { return g.text }

// Next adds a token and returns it. io.EOF says that the text has ended.
func (g *Generator) Next(ctx context.Context) (int32, error) {
	if added := len(g.text) - g.prompt; g.ended || g.o.MaxNewTokens > 0 && added >= g.o.MaxNewTokens {
		return 0, io.EOF
	}
	logits, err := g.Logits(ctx)
	if err != nil {
		return 0, err
	}
	token := g.o.Sampler.Pick(logits, uint64(len(g.text)))
	if slices.Contains(g.o.Stop, token) {
		g.ended = true
		return 0, io.EOF
	}
	g.text = append(g.text, token)
	return token, nil
}

// All yields tokens until the text ends. An error comes last.
func (g *Generator) All(ctx context.Context) iter.Seq2[int32, error] {
	return func(yield func(int32, error) bool) {
		for {
			token, err := g.Next(ctx)
			if err == io.EOF || !yield(token, err) || err != nil {
				return
			}
		}
	}
}

// Logits returns the logits of the token that follows the text. They are valid until
// the next call.
func (g *Generator) Logits(ctx context.Context) ([]float32, error) {
	seq := int(g.run.Plan.Seq)
	window := g.text[max(len(g.text)-seq, 0):]
	if err := g.fill(window, seq); err != nil {
		return nil, fmt.Errorf("generating token %d: %w", len(g.text), err)
	}
	if err := g.run.Executor().Iterate(ctx, executor.IterationArgs{}); err != nil {
		return nil, fmt.Errorf("generating token %d: %w", len(g.text), err)
	}
	all := g.run.Executor().Result(0)
	vocab := len(all) / seq
	last := len(window) - 1
	return all[last*vocab : (last+1)*vocab], nil
}

// fill writes the window and its padding into the batch tensors.
func (g *Generator) fill(window []int32, seq int) error {
	for _, part := range g.run.Plan.Batch {
		if !slices.Contains([]string{"tokens", "positions", "segments"}, part.Name) {
			return fmt.Errorf("the model reads the batch tensor %q, which a text does not have", part.Name)
		}
		to, err := g.run.Executor().BatchTensor(0, part.Name)
		if err != nil {
			return err
		}
		for i := range seq {
			value := int32(0) // of segments, and of tokens in the padding
			switch {
			case part.Name == "positions":
				value = int32(i)
			case part.Name == "tokens" && i < len(window):
				value = window[i]
			}
			binary.LittleEndian.PutUint32(to[4*i:], uint32(value))
		}
	}
	return g.run.Executor().CheckBatch()
}
