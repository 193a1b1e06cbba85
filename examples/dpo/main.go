// Dpo prefers one answer to another: direct preference optimization of a small language model against itself as it
// was, with the log-probabilities of the reference computed once, by the model before it is trained.
//
//	go run ./examples/dpo
package main

import (
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"

	"spillway"
	"spillway/dtype"
	"spillway/graph"
	"spillway/nn"
	"spillway/op"
	"spillway/optim"
)

const vocabulary, width, length, pairs, beta = 20, 32, 6, 16, 0.2

// Model gives each next token from the one before. A sample is a pair: the chosen text, then the rejected one.
type Model struct {
	Embed *nn.Embedding `hf:"embed"`
	Inner *nn.Linear    `hf:"inner"`
	Head  *nn.Linear    `hf:"head"`
}

// Blocks of the model: its result is the log-probabilities of both texts [B 2], or the loss of the pairs.
func (m *Model) Blocks() []nn.Block {
	return []nn.Block{
		{Name: "embed", Forward: func(b *graph.Builder, _ []graph.Value) []graph.Value {
			return []graph.Value{m.Embed.Forward(b, b.Part("tokens", dtype.I32, b.MicroBatchSize, 2, length))}
		}},
		{Name: "inner", Forward: func(b *graph.Builder, in []graph.Value) []graph.Value {
			return []graph.Value{b.Add(in[0], nn.GELU.Forward(b, m.Inner.Forward(b, in[0])))}
		}},
		{Name: "head", Forward: func(b *graph.Builder, in []graph.Value) []graph.Value {
			n := b.MicroBatchSize
			logits := b.Reshape(m.Head.Forward(b, in[0]), 2*n, length, vocabulary)
			answers := b.Part("answers", dtype.I32, n, 2, length)
			texts := b.Reshape(nn.SequenceLogProb(b, logits, b.Reshape(answers, 2*n, length)), n, 2)
			if b.Task == graph.Infer {
				return []graph.Value{texts}
			}
			of := func(x graph.Value, i int64) graph.Value { return b.Reshape(b.Slice(x, 1, i, i+1, 1), n) }
			before := b.Part("reference", dtype.F32, n, 2)
			return []graph.Value{nn.Mean(b, nn.DPO(b, of(texts, 0), of(texts, 1), of(before, 0), of(before, 1), beta, 0))}
		}},
	}
}

// draw makes pairs: chosen texts count upwards, rejected ones are random.
func draw(r *rand.Rand) spillway.Batch {
	tokens, answers := spillway.Ints(nil, pairs, 2, length), spillway.Ints(nil, pairs, 2, length)
	for range pairs {
		first := r.IntN(vocabulary)
		for which := range 2 {
			at := first
			answers.Ints = append(answers.Ints, op.IgnoreIndex) // of the prompt
			for i := range length {
				next := (at + 1) % vocabulary
				if which == 1 {
					next = r.IntN(vocabulary)
				}
				if tokens.Ints = append(tokens.Ints, int32(at)); i > 0 {
					answers.Ints = append(answers.Ints, int32(next))
				}
				at = next
			}
		}
	}
	return spillway.Batch{"tokens": tokens, "answers": answers}
}

func main() {
	if err := run(os.Stdout, 60); err != nil {
		log.Fatal(err)
	}
}

// run trains and counts how often the chosen text became likelier.
func run(out io.Writer, steps int) error {
	adam, err := optim.Parse("adamw:lr=5e-3")
	if err != nil {
		return err
	}
	model, err := spillway.Wrap(&Model{nn.NewEmbedding(vocabulary, width), nn.NewLinear(width, width), nn.NewLinear(width, vocabulary)},
		spillway.Config{Options: spillway.Options{Optimizer: adam, Groups: []optim.Group{{Params: []string{"biases"}, Options: "weight_decay=0"}}}})
	if err != nil {
		return err
	}
	defer model.Close() // the memory goes with the process
	b := draw(rand.New(rand.NewPCG(1, 1)))
	before, err := model.Forward(b)
	if err != nil {
		return err
	}
	train := spillway.Batch{"tokens": b["tokens"], "answers": b["answers"], "reference": before}
	for i := range steps {
		if loss, err := model.Step(train); err != nil {
			return err
		} else if i == 0 || i == steps-1 {
			fmt.Fprintf(out, "step %2d  loss %.4f\n", i+1, loss)
		}
	}
	after, err := model.Forward(b)
	preferred := 0
	for i := 0; err == nil && i < len(after.Floats); i += 2 {
		if after.Floats[i]-before.Floats[i] > after.Floats[i+1]-before.Floats[i+1] {
			preferred++
		}
	}
	fmt.Fprintf(out, "preferred: %d of %d\n", preferred, pairs)
	return err
}
