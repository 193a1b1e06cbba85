package generate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"spillway/dtype"
	"spillway/generate"
	"spillway/quant"
	"spillway/run"
)

// wild guesses anything, as the seed says: some of it right, in more branches than there may be.
type wild struct {
	text   []int32
	random *rand.Rand
}

func (w wild) Follow(_ context.Context, text []int32, after [][]int32, most int, _ *generate.Picker) (list [][]generate.Candidate, err error) {
	for _, path := range after {
		var guessed []generate.Candidate
		for range w.random.IntN(most + 1) {
			id := int32(w.random.IntN(70))
			if at := len(text) + len(path); at < len(w.text) && w.random.IntN(2) == 0 {
				id = w.text[at]
			}
			if !slices.ContainsFunc(guessed, func(c generate.Candidate) bool { return c.Token == id }) {
				guessed = append(guessed, generate.Candidate{Token: id, Chance: w.random.Float64()})
			}
		}
		list = append(list, guessed)
	}
	return list, nil
}

func (wild) Close() error { return nil }

// Trees of guesses change no bit of a text: over random models, windows, pages, chunks, streams, types of the cache, shapes of
// trees, forecasts, drafters and ways to sample, alone and in batches; and nothing of them stays behind.
func TestTreesChangeNoText(t *testing.T) {
	random := rand.New(rand.NewPCG(18, 3))
	trees, cases := 0, 30
	if testing.Short() {
		cases = 10
	}
	for n := range cases {
		model := []string{"llama", "mistral", "qwen3"}[random.IntN(3)]
		g := run.Generation{Context: 32 + random.Int64N(60), Streams: 1 + random.Int64N(3), Chunk: 4 + random.Int64N(28), Page: 1 + random.Int64N(12)}
		if random.IntN(3) == 0 {
			g.Key, g.Value = dtype.BF16, dtype.F32
		}
		samples := 1 + random.IntN(int(g.Streams))
		r := generate.Request{Prompt: text(uint64(n), 3+random.IntN(12)), MaxNewTokens: 10 + random.IntN(int(g.Context)-25), Samples: samples, Logprobs: random.IntN(4) == 0}
		if samples > 1 || random.IntN(2) == 0 {
			r.Sampler = generate.Sampler{Temperature: 0.3 + random.Float64(), Seed: uint64(n), TopK: random.IntN(2) * 20, RepetitionPenalty: 1 + float64(random.IntN(2))*0.2}
		}
		want, tokens, _ := spoken(t, session(t, model, g), r)
		guessing := g
		guessing.Drafts, guessing.Branches = 1+random.Int64N(9), random.Int64N(6)
		e := session(t, model, guessing)
		s := &generate.Speculation{Most: int(guessing.Drafts), Branches: int(guessing.Branches)}
		switch random.IntN(4) {
		case 0:
			s.Drafter = generate.Lookup{Longest: 2, Shortest: 1}
		case 1:
			small := run.Generation{Context: g.Context, Streams: g.Streams, Page: g.Page, Branches: guessing.Branches, Key: quant.RowI4, Value: quant.RowI4} // mostly right
			if guessing.Branches > 0 {
				small.Apart = guessing.Drafts
			}
			s.Drafter = generate.NewModelDrafter(session(t, model, small))
		default:
			s.Drafter = wild{tokens, random}
		}
		if random.IntN(3) == 0 {
			price := random.Float64() / 10
			s.Seconds = func(rows int) float64 { return 1 + price*float64(rows) }
			s.DraftSeconds = func(continuations int) float64 { return 0.05 * float64(continuations) }
			s.BranchSeconds = price
		}
		about := fmt.Sprintf("case %d: %s, %+v, %+v with %T in %+v", n, model, guessing, r, s.Drafter, *s)
		r.Speculation = s
		for range 2 { // a second text finds everything as the first did
			got, _, counted := spoken(t, e, r)
			if got != want {
				t.Fatalf("%s:\n%s, want\n%s", about, got, want)
			}
			if counted.Branches > counted.Passes {
				trees++
			}
		}
		b, err := generate.NewBatch(e, nil, []generate.Request{r, r, r})
		must(t, err)
		for _, err := range b.All(context.Background()) {
			must(t, err)
		}
		for i := range 3 {
			said := ""
			for _, result := range b.Results(i) {
				said += fmt.Sprintln(result.Tokens, result.End, result.StopToken)
			}
			if said != want {
				t.Fatalf("%s, text %d of a batch:\n%s, want\n%s", about, i, said, want)
			}
		}
		empty(t, about, e)
	}
	if trees == 0 {
		t.Error("no case had a tree")
	}
}

// empty checks that a session has no sequence, branch or page in use.
func empty(t *testing.T, about string, s *generate.Session) {
	t.Helper()
	w := &counting{}
	s.Watch(w)
	defer s.Watch(nil)
	q := add(t, s, text(1, 1))
	step(t, s)
	if l := w.last; l.Sequences != 1 || l.Stored != 1 || l.PagesUsed > 2 { // one in each table
		t.Fatalf("%s: %+v is left", about, l)
	}
	must(t, q.Close())
	for range s.Streams() { // all slots are free
		defer add(t, s, text(1, 1)).Close()
	}
}

// The sequence of the caller has the text after a request with trees, and no branch: the next request goes on from there, also
// after one that was cancelled.
func TestTreesKeepTheCallersSequence(t *testing.T) {
	s := session(t, "mistral", run.Generation{Context: 96, Chunk: 16, Page: 4, Drafts: 5, Branches: 3})
	w := &counting{}
	prompt := text(2, 10)
	_, tokens, _ := spoken(t, session(t, "mistral", run.Generation{Context: 96, Chunk: 16}), generate.Request{Prompt: prompt, MaxNewTokens: 80})
	q := add(t, s, prompt)
	s.Watch(w)
	for n := 20; n <= 80; n += 15 {
		r := generate.Request{Prompt: tokens[:n-10], MaxNewTokens: 15, Sequence: q, Speculation: &generate.Speculation{Drafter: &oracle{text: tokens, wrong: 3}, Most: 5, Branches: 3}}
		before := w.rows
		_, got, counted := spoken(t, s, r)
		if !slices.Equal(got, tokens[:n+5]) || counted.ReusedTokens < n-12 && n > 20 {
			t.Fatalf("%v after %d reused tokens, want %v", got, counted.ReusedTokens, tokens[:n+5])
		}
		if w.last.Sequences != 1 || w.rows == before {
			t.Errorf("%+v", w.last)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	g, err := generate.New(s, nil, generate.Request{Prompt: tokens[:30], Sequence: q, Speculation: &generate.Speculation{Drafter: &oracle{text: tokens, wrong: 3}, Most: 5, Branches: 3}})
	must(t, err)
	for _, err := range g.All(ctx) {
		if cancel(); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	must(t, q.Close())
	s.Watch(nil)
	empty(t, "after a cancelled request", s)
}

// Many tokens in trees take no more memory, pages or sequences than the first ones, also in layers with a window.
func TestTreesStayFlat(t *testing.T) {
	s := session(t, "mistral", run.Generation{Context: 256, Streams: 2, Chunk: 16, Page: 8, Drafts: 7, Branches: 3})
	small := session(t, "mistral", run.Generation{Context: 256, Streams: 2, Page: 8, Branches: 3, Apart: 8})
	drafter := generate.NewModelDrafter(small)
	cycle := func() int {
		g := finished(t, s, generate.Request{Prompt: text(3, 9), Samples: 2, Sampler: generate.Sampler{Temperature: 0.8}, Speculation: &generate.Speculation{Drafter: drafter, Most: 7, Branches: 3}})
		return g.Statistics().NewTokens
	}
	staysFlat(t, cycle)
	empty(t, "after all", s)
}
