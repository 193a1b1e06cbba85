package generate_test

import (
	"context"
	"errors"
	"flag"
	"runtime"
	"strings"
	"testing"
	"time"

	"spillway"
	"spillway/generate"
	"spillway/run"
)

var longTokens = flag.Int("tokens", 3000, "how many `tokens` the long test generates")

// Many tokens, in sequences that come and go, take no more memory, goroutines or pages than
// the first ones.
func TestLongSessionsStayFlat(t *testing.T) {
	s := session(t, "mistral", run.Generation{Context: 64, Streams: 4, Chunk: 16, Page: 8})
	cycle := func() (done int) {
		for i := range 4 {
			q := add(t, s, text(uint64(i), 9+i))
			defer q.Close()
			step(t, s)
			for q.Len() < 60 {
				must(t, q.Append(int32(q.Len()%50)))
				step(t, s)
				done++
			}
		}
		return done
	}
	staysFlat(t, cycle)
}

// staysFlat wants cycles, which give how many tokens they computed, to take no more of the heap and no
// goroutine after the first one.
func staysFlat(t *testing.T, cycle func() int) {
	t.Helper()
	measure := func() (heap uint64, goroutines int) {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc, runtime.NumGoroutine()
	}
	cycle()
	heap, goroutines := measure()
	for done := 0; done < *longTokens; {
		done += cycle()
	}
	after, running := measure()
	if after > heap+256<<10 || running > goroutines {
		t.Errorf("the heap went from %d to %d bytes, %d goroutines became %d", heap, after, goroutines, running)
	}
}

// A decode step allocates nothing on the host.
func TestStepsAllocateNothing(t *testing.T) {
	s := session(t, "llama", run.Generation{Context: 512, Streams: 4, Chunk: 16, Page: 8})
	var all []generate.Sequence
	for i := range 4 {
		all = append(all, add(t, s, text(uint64(i), 5)))
	}
	step(t, s)
	allocatesNothing(t, s, all...)
}

// allocatesNothing wants steps that add a token to sequences to allocate nothing.
func allocatesNothing(t *testing.T, s generate.Engine, all ...generate.Sequence) {
	t.Helper()
	token, ctx := []int32{3}, context.Background()
	if n := testing.AllocsPerRun(100, func() {
		for _, q := range all {
			q.Logits()
			if err := q.Append(token...); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Step(ctx); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations a step", n)
	}
}

// A cancelled step is an error, and what was not computed waits on: the same bits come later.
func TestCancelledStepsWait(t *testing.T) {
	g := run.Generation{Context: 64, Streams: 2, Chunk: 8, Page: 8}
	s, tokens := session(t, "mistral", g), text(4, 50)
	want := logits(t, session(t, "mistral", g), tokens)
	q := add(t, s, tokens)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Step(cancelled); !errors.Is(err, context.Canceled) || q.Ready() {
		t.Fatalf("error %v, ready %v", err, q.Ready())
	}
	for range 20 { // somewhere in the middle
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Microsecond)
		_, err := s.Advance(ctx)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
	step(t, s)
	near(t, "after cancelled steps", q.Logits(), want, 0)
}

// A session whose run was closed says so.
func TestSessionsEndWithTheirRun(t *testing.T) {
	job := start(t, "../testdata/reference/llama", spillway.Options{Task: spillway.Generate, Generation: run.Generation{Context: 8, Streams: 2}})
	s, err := generate.NewSession(job)
	must(t, err)
	q := add(t, s, text(1, 4))
	step(t, s)
	must(t, job.Close())
	if q.Logits() != nil {
		t.Error("logits of a run that is closed")
	}
	must(t, q.Append(1))
	if err := s.Step(context.Background()); err == nil || !strings.Contains(err.Error(), "make a new session") {
		t.Error(err)
	}
	if _, err := q.Fork(); err != nil {
		t.Error(err)
	}
	must(t, s.Close())
	if _, err := generate.NewSession(job); err == nil {
		t.Error("a session on a run that is closed")
	}
}

// Sequences beyond the streams or the context, and tokens the model does not know, are refused
// with both numbers, and the session goes on.
func TestSessionRefuses(t *testing.T) {
	s := session(t, "llama", run.Generation{Context: 8, Streams: 1})
	var long *generate.ContextError
	if _, err := s.Add(text(1, 9)); !errors.As(err, &long) || *long != (generate.ContextError{Tokens: 9, Context: 8}) {
		t.Error(err)
	}
	if _, err := s.Add(nil); err == nil {
		t.Error("an empty prompt")
	}
	if _, err := s.Add([]int32{1 << 20}); err == nil {
		t.Error("a token that the model does not know")
	}
	q := add(t, s, text(1, 8))
	var full *generate.FullError
	if _, err := s.Add(text(1, 2)); !errors.As(err, &full) || full.Streams != 1 {
		t.Error(err)
	}
	if _, err := q.Fork(); !errors.As(err, &full) {
		t.Error(err)
	}
	step(t, s)
	if err := q.Append(1); !errors.As(err, &long) || !q.Ready() {
		t.Error(err)
	}
	if q.Truncate(9) == nil || q.Truncate(-1) == nil {
		t.Error("truncated to more than there is")
	}
	must(t, q.Close())
	must(t, q.Close()) // a second time is harmless
	add(t, s, text(1, 2))
}
