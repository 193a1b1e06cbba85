package generate_test

import (
	"testing"

	"spillway/executor"
	"spillway/generate"
	"spillway/run"
	"spillway/trace"
)

// counting adds up what it hears, and looks at steps as closely as look says.
type counting struct {
	look                                        generate.Look
	steps, rows, prompt, decoded, traced, timed int
	fresh, guesses, right, shared               int
	last                                        generate.StepReport
	events                                      []trace.Event
	ops                                         []executor.OpTime
}

func (c *counting) Before(*generate.StepReport) generate.Look { return c.look }

func (c *counting) After(r *generate.StepReport) {
	c.steps++
	c.rows, c.prompt, c.decoded, c.last = c.rows+r.Rows, c.prompt+r.Prompt, c.decoded+r.Rows-r.Prompt, *r
	c.fresh, c.guesses = c.fresh+r.New, c.guesses+r.Guesses
	if r.Took > 0 {
		c.timed++
	}
}

func (c *counting) Guessed(right int) { c.right += right }
func (c *counting) Shared(tokens int) { c.shared += tokens }

func (c *counting) Traced(_ *generate.StepReport, events []trace.Event, ops []executor.OpTime) {
	c.traced++
	c.events, c.ops = events, ops
}

// A watcher hears of every token once, prompts apart from what was generated, and of the cache;
// however closely it looks, no bit changes.
func TestWatchedSteps(t *testing.T) {
	g := run.Generation{Context: 64, Streams: 2, Chunk: 8, Page: 8}
	var want []float32
	for _, look := range []generate.Look{generate.AtStep, generate.AtInstructions, generate.AtOps} {
		s, w := session(t, "llama", g), &counting{look: look}
		s.Watch(w)
		a, b := add(t, s, text(1, 13)), add(t, s, text(2, 5))
		step(t, s)
		for n := range 10 {
			must(t, a.Append(int32(3+n)))
			must(t, b.Append(int32(5+n)))
			step(t, s)
		}
		if w.prompt != 18 || w.decoded != 20 || w.rows != 38 || w.timed != w.steps || w.steps < 12 {
			t.Errorf("%+v", w)
		}
		if l := w.last; l.Sequences != 2 || l.Waiting != 0 || l.Stored != 38 || l.PagesUsed != 5 || l.Pages != 16 || l.PageTokens != 8 || l.New != 2 || l.Positions != 22 {
			t.Errorf("%+v", l)
		}
		if want == nil {
			want = append(want, a.Logits()...)
		}
		near(t, "watched", a.Logits(), want, 0)
		if (look == generate.AtStep) != (w.traced == 0) || look != generate.AtStep && (w.traced != w.steps || len(w.events) == 0) || (look == generate.AtOps) != (len(w.ops) > 0) {
			t.Errorf("look %d: %d of %d steps traced, %d events, %d ops", look, w.traced, w.steps, len(w.events), len(w.ops))
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestWatchingAllocatesNothing(t *testing.T) {
	s, w := session(t, "llama", run.Generation{Context: 512, Streams: 1, Chunk: 16, Page: 8}), &counting{}
	q := add(t, s, text(1, 5))
	step(t, s)
	s.Watch(w)
	allocatesNothing(t, s, q)
}

// A watcher hears of every token that came of guesses, however many a step has, and takes none for a
// prompt. The first tokens of both texts come of one prompt.
func TestWatchedGuesses(t *testing.T) {
	for _, most := range []int{3, 24} {
		size := run.Generation{Context: 96, Streams: 2, Chunk: 32, Page: 8, Drafts: int64(most)}
		r := generate.Request{Prompt: text(3, 9), MaxNewTokens: 50, Samples: 2, Sampler: generate.Sampler{Temperature: 0.9}}
		_, tokens, plain := spoken(t, session(t, "llama", size), r)
		for _, wrong := range []int{0, 1, 7} {
			s, w := session(t, "llama", size), &counting{}
			s.Watch(w)
			r.Speculation = &generate.Speculation{Drafter: &oracle{text: tokens, wrong: wrong}, Most: most}
			_, _, got := spoken(t, s, r)
			if w.fresh+w.right+w.shared != plain.NewTokens || w.shared != 1 || w.right != got.Accepted || w.guesses != got.Guessed || w.prompt != 9 {
				t.Errorf("%d guesses, wrong every %d: %d tokens and %d guessed right, %d guesses, a prompt of %d; the text has %d tokens, %+v", most, wrong, w.fresh, w.right, w.guesses, w.prompt, plain.NewTokens, got)
			}
		}
	}
}
