// Package generate continues texts token by token: an Engine computes the logits of next
// tokens, a Sampler picks from them, and a Generation makes text of what was picked.
//
//	plain, err := generate.NewPlain(run)
//	g, err := generate.New(plain, tokenizer, generate.Request{Prompt: ids, MaxNewTokens: 64})
//	for piece, err := range g.All(ctx) {
//		fmt.Print(piece.Text)
//	}
package generate

import (
	"context"
	"fmt"

	"spillway/op"
)

// Engine computes the logits of next tokens for several sequences at once. It is used from
// one goroutine.
type Engine interface {
	// Add begins a sequence with at least one token. The next Step computes it.
	Add(prompt []int32) (Sequence, error)
	// Step computes all tokens that wait. It returns early, with the error of ctx, when ctx is
	// done; what was not computed then waits on.
	Step(ctx context.Context) error
	// Streams is how many sequences there may be at once, Context how many tokens each may
	// have.
	Streams() int
	Context() int
	// Close ends all sequences.
	Close() error
}

// Sequence is one text of an engine.
type Sequence interface {
	// Ready says whether the logits of the token after the last are there.
	Ready() bool
	// Logits are those of the token after the last, one for each token of the vocabulary. They
	// are valid until the next Step of the engine.
	Logits() []float32
	// Append adds tokens, which the next Step computes.
	Append(tokens ...int32) error
	// Tokens is the text so far, the prompt included; the caller must not change it.
	Tokens() []int32
	Len() int
	// Truncate forgets all but the first n tokens. There are no logits until some are appended.
	Truncate(n int) error
	// Fork begins another sequence with the same tokens, and logits where they are there.
	Fork() (Sequence, error)
	// Close frees what the sequence holds.
	Close() error
}

// Drawer is a sequence whose tokens may be drawn where they are computed, so that no logits cross a
// link. Whoever draws gives the token that a Picker picks from the same logits.
type Drawer interface {
	// Draw asks for the tokens after those that are appended next, as said, until it is called again; nil
	// asks for logits. It says whether tokens can be drawn; steps may give logits all the same.
	Draw(as *op.Sampling) bool
	// Drawn is the token after the last; ok is false where it was not drawn. It is -1 where logits are
	// no numbers, or all -Inf.
	Drawn() (token int32, ok bool)
}

// ContextError says that a text is longer than an engine was made for.
type ContextError struct{ Tokens, Context int }

func (e *ContextError) Error() string {
	return fmt.Sprintf("the text has %d tokens, the context is %d; give a longer --context, or a shorter text", e.Tokens, e.Context)
}

// FullError says that an engine has no place for another sequence.
type FullError struct{ Streams int }

func (e *FullError) Error() string {
	return fmt.Sprintf("all %d streams are in use; close a sequence, or plan for more --streams", e.Streams)
}

// Extend makes the text of a sequence a prompt, and computes again only what differs: the
// tokens that both begin with are reused, but for the last of the prompt, whose logits are
// wanted. It returns how many are.
func Extend(q Sequence, prompt []int32) (reused int, err error) {
	if len(prompt) == 0 {
		return 0, errEmptyPrompt
	}
	have := q.Tokens()
	for reused < min(len(have), len(prompt)-1) && have[reused] == prompt[reused] {
		reused++
	}
	if reused < len(have) {
		if err := q.Truncate(reused); err != nil {
			return 0, err
		}
	}
	return reused, q.Append(prompt[reused:]...)
}

var errEmptyPrompt = fmt.Errorf("generating from an empty prompt; give at least the token that begins a text")
