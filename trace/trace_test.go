package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

func sample() []Event {
	in, compute := Lane{"gpu0", "in"}, Lane{"gpu0", "compute"}
	return []Event{
		{Run, "layer 0 forward", compute, 2500, 7001, 0, 0, 1},
		{Move, "layer 0 weights", in, 0, 2500, 1 << 20, 0, None},
		{Update, "adamw \"head\"\n", Lane{"host", "cores"}, 7001, 9999, 64, None, None},
		{Free, "layer 0", compute, 7001, 7001, 1 << 20, 0, None},
		{Reduce, "loss", Lane{"gpu1", "compute"}, 1_234_567_890, 1_234_567_891, 4, None, 0},
	}
}

func TestWriteChromeGolden(t *testing.T) {
	var got bytes.Buffer
	if err := WriteChrome(&got, sample()); err != nil {
		t.Fatal(err)
	}
	const path = "testdata/chrome.json"
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("got\n%s\nwant\n%s(run with -update after looking)", got.Bytes(), want)
	}
}

// A JSON parser that is not ours must find every event, where it was put.
func TestWriteChromeIsJSON(t *testing.T) {
	var text bytes.Buffer
	if err := WriteChrome(&text, sample()); err != nil {
		t.Fatal(err)
	}
	var file struct {
		TraceEvents []struct {
			Ph, Cat, Name string
			Ts, Dur       float64
			Args          map[string]any
		}
	}
	if err := json.Unmarshal(text.Bytes(), &file); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	last := -1.0
	for _, e := range file.TraceEvents {
		if e.Ph != "X" {
			continue
		}
		if e.Ts < last {
			t.Errorf("%q starts at %v, after an event at %v", e.Name, e.Ts, last)
		}
		last = e.Ts
		for _, want := range sample() {
			near := math.Abs(e.Ts*1000-float64(want.Start)) < 1e-3 && math.Abs(e.Dur*1000-float64(want.End-want.Start)) < 1e-3
			if e.Name == want.Name && e.Cat == want.Verb.String() && near && e.Args["bytes"] == float64(want.Bytes) {
				found[e.Name] = true
			}
		}
	}
	if len(found) != len(sample()) {
		t.Errorf("found %v of %d events", found, len(sample()))
	}
	if err := WriteChrome(&text, nil); err != nil {
		t.Error(err)
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestWriteChromeReportsErrors(t *testing.T) {
	if WriteChrome(fullDisk{}, sample()) == nil {
		t.Error("a failed write went unnoticed")
	}
}

func TestRingKeepsTheLatest(t *testing.T) {
	r := NewRing(3)
	for n := range 8 {
		r.Record(Event{Start: int64(n)})
		events := r.Events()
		if len(events) != min(n+1, 3) || r.Dropped() != max(n-2, 0) {
			t.Fatalf("after %d: %d kept, %d dropped", n+1, len(events), r.Dropped())
		}
		for i, e := range events {
			if want := int64(n - len(events) + 1 + i); e.Start != want {
				t.Fatalf("after %d: event %d is number %d, want %d", n+1, i, e.Start, want)
			}
		}
	}
	if r.Reset(); len(r.Events()) != 0 || r.Dropped() != 0 {
		t.Error("Reset kept something")
	}
}

func TestRingFromManyGoroutines(t *testing.T) {
	r := NewRing(1000)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			for range 100 {
				r.Record(Event{Bytes: 1})
			}
		})
	}
	all.Wait()
	var sum int64
	for _, e := range r.Events() {
		sum += e.Bytes
	}
	if sum != 1000 {
		t.Errorf("%d events of 1000 kept", sum)
	}
}

func TestRecordAllocatesNothing(t *testing.T) {
	e := sample()[0]
	for name, sink := range map[string]Sink{"ring": NewRing(8), "discard": Discard} {
		if n := testing.AllocsPerRun(100, func() { sink.Record(e) }); n != 0 {
			t.Errorf("%s: %v allocations per event", name, n)
		}
	}
}

func TestVerbNames(t *testing.T) {
	if Move.String() != "move" || Free.String() != "free" || Verb(99).String() != "unknown" {
		t.Error("verbs print wrongly")
	}
}
