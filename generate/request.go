package generate

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"spillway/tokenizer"
)

// Request asks for continuations of a prompt.
type Request struct {
	Prompt []int32
	// Sequence, if not nil, is made the prompt and continued: what both begin with is not
	// computed again. It stays open. Without it the engine begins a new one.
	Sequence Sequence

	Sampler Sampler
	// MaxNewTokens is the largest number of tokens to add; 0 means as many as the context has
	// room for.
	MaxNewTokens int
	// StopTokens and Stop end a text, and are not part of it. Stop strings may begin and end
	// within tokens.
	StopTokens []int32
	Stop       []string
	// Samples is how many continuations are wanted, 1 if zero. Each draws its own random numbers.
	Samples int
	// Beams, if not nil, searches for the most likely continuations instead of sampling.
	Beams *BeamSearch

	// Logprobs asks for the log-probabilities of tokens, by the model's logits as they are, and
	// TopLogprobs for those of so many most likely tokens in each place. PromptLogprobs asks for those
	// of the prompt, which is then computed in chunks of as many tokens as a step has outputs.
	Logprobs, PromptLogprobs bool
	TopLogprobs              int
	// KeepSpecial writes special tokens such as <|eot_id|> into the text.
	KeepSpecial bool
	// Speculation, if not nil, guesses tokens and has several computed in a step. The text is the same.
	Speculation *Speculation
}

// Reason says why a text ended.
type Reason string

// The reasons.
const (
	Stopped   Reason = "stop"      // by a stop token or string
	Length    Reason = "length"    // it has as many tokens as it may
	Cancelled Reason = "cancelled" // by the context
)

// Piece is some text, as soon as it is complete.
type Piece struct {
	Sample int // of the continuations, from 0
	Text   string
	Tokens []Token // since the piece before
	End    Reason  // "" while the text goes on
}

// Token is a token of a text.
type Token struct {
	ID int32
	// Logprob is the natural logarithm of the token's probability, and Top are the most likely
	// tokens of its place, the most likely first. Both are there where they were asked for; the
	// first token of a prompt has none.
	Logprob float64
	Top     []Alternative
}

// Alternative is a token that may have stood in the place of another.
type Alternative struct {
	ID      int32
	Logprob float64
}

// Result is a continuation.
type Result struct {
	Text   string
	Tokens []Token // without a stop token
	End    Reason
	// StopString is the stop string that ended the text, and StopToken the token, -1 for none.
	StopString string
	StopToken  int32
	// Score is what beams are ordered by: the sum of log-probabilities, divided by the length
	// to the power of the length penalty.
	Score float64
}

// Statistics count tokens and time.
type Statistics struct {
	Prompts      int
	Texts        int // samples or beams of all prompts
	PromptTokens int // those of all prompts
	ReusedTokens int // of them, those that were there from before
	NewTokens    int // of all continuations, stop tokens and those of stop strings too
	Unwritten    int // of them, those that the tokenizer does not have, which write nothing
	// Guessed tokens were computed before they were known to be right, and Accepted are those that were.
	Guessed, Accepted int
	// Passes are steps of a text with guesses, and Branches the continuations that were guessed in all of them.
	Passes, Branches int
	Prefill          time.Duration
	Decode           time.Duration
	decoded          int // tokens that took decode time
}

// PrefillRate is how many tokens of the prompt were computed in a second.
func (s Statistics) PrefillRate() float64 {
	return perSecond(s.PromptTokens-s.ReusedTokens, s.Prefill)
}

// DecodeRate is how many tokens were added in a second, after the first of each text, which
// comes with the prompt.
func (s Statistics) DecodeRate() float64 { return perSecond(s.decoded, s.Decode) }

// Steps is how many steps added tokens, after the prompts.
func (s Statistics) Steps() int { return max(s.NewTokens-s.Texts-s.Accepted, 0) }

// PerStep is how many tokens a step of decoding gave on average, for each text; 0 where there was none.
func (s Statistics) PerStep() float64 {
	if s.Steps() == 0 {
		return 0
	}
	return float64(s.NewTokens-s.Texts) / float64(s.Steps())
}

// PerPass is how many continuations were guessed at once on average; 0 where none were.
func (s Statistics) PerPass() float64 {
	if s.Passes == 0 {
		return 0
	}
	return float64(s.Branches) / float64(s.Passes)
}

func perSecond(n int, d time.Duration) float64 {
	if n <= 0 || d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// check refuses requests that cannot be carried out, and settings that have no effect.
func (r *Request) check(e Engine, t *tokenizer.Tokenizer) error {
	if len(r.Prompt) == 0 {
		return errEmptyPrompt
	}
	if r.Samples < 0 || r.MaxNewTokens < 0 || r.TopLogprobs < 0 {
		return fmt.Errorf("%d samples of %d new tokens with %d alternatives; none may be negative", r.Samples, r.MaxNewTokens, r.TopLogprobs)
	}
	if t == nil && len(r.Stop) > 0 {
		return errors.New("stop strings need a tokenizer; give stop tokens instead")
	}
	if slices.Contains(r.Stop, "") {
		return errors.New("a stop string is empty, so that every text would end at once; leave it out")
	}
	if r.TopLogprobs > 0 && !r.Logprobs && !r.PromptLogprobs {
		return errors.New("the log-probabilities of most likely tokens are wanted, those of the text are not; ask for both")
	}
	if r.PromptLogprobs && r.Sequence != nil {
		return errors.New("the log-probabilities of a prompt need a sequence of their own; do not give one")
	}
	if n := len(r.Prompt) + max(r.MaxNewTokens, 1); n > e.Context() {
		return &LengthError{Prompt: len(r.Prompt), New: max(r.MaxNewTokens, 1), Context: e.Context()}
	}
	if t != nil {
		for _, id := range r.Prompt {
			if _, ok := t.Token(id); !ok {
				return fmt.Errorf("token %d of the prompt is not one of the tokenizer's %d; tokens are counted from 0", id, t.VocabSize())
			}
		}
	}
	if s := r.Speculation; s != nil && (s.Drafter == nil || s.Most < 1 || s.Branches < 0) {
		return fmt.Errorf("guessing %d tokens at once in %d more branches, by %v; give a drafter and at least one", s.Most, s.Branches, s.Drafter)
	}
	if r.Speculation != nil && r.Beams != nil {
		return errors.New("guessed tokens have no effect on beams, which need all of their logits; leave one out")
	}
	r.Samples = max(r.Samples, 1)
	if r.Beams != nil {
		return r.Beams.check(r)
	}
	if r.Samples > e.Streams() {
		return fmt.Errorf("%d samples are wanted at once: %w", r.Samples, &FullError{e.Streams()})
	}
	if r.Samples > 1 && r.Sampler.Temperature == 0 {
		return fmt.Errorf("%d samples at temperature 0 would all be the same text; give a temperature, or one sample", r.Samples)
	}
	return r.Sampler.Check()
}

// LengthError says that a prompt and what is to be added are more than the context.
type LengthError struct {
	Prompt, New, Context int
	Most                 int // the longest context that the model was made for, 0 where that is not known
}

func (e *LengthError) Error() string {
	need := e.Prompt + e.New
	s := fmt.Sprintf("the prompt has %d tokens and %d more are wanted, together %d; the context is %d", e.Prompt, e.New, need, e.Context)
	if e.Most > 0 && need > e.Most {
		return s + fmt.Sprintf(", and the model was made for %d: give fewer --max-new-tokens or a shorter prompt", e.Most)
	}
	return s + fmt.Sprintf(": give --context %d, fewer --max-new-tokens, or a shorter prompt", need)
}
