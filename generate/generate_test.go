package generate_test

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"spillway"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/generate"
	"spillway/machine"
)

// tell starts a small model of random weights with a window of seq positions.
func tell(t *testing.T, o spillway.Options) *spillway.Run {
	t.Helper()
	m, err := spillway.Open("../testdata/reference/llama")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if o.Machine, err = machine.Parse("cpu:1GiB,host:4GiB"); err != nil {
		t.Fatal(err)
	}
	dev := cpu.Open(cpu.Options{})
	o.On = []device.Device{dev}
	job, err := m.Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(job.Close(), dev.Close()); err != nil {
			t.Error(err)
		}
	})
	return job
}

func generator(t *testing.T, job *spillway.Run, prompt []int32, o generate.Options) *generate.Generator {
	t.Helper()
	g, err := generate.New(job, prompt, o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func run(t *testing.T, g *generate.Generator) []int32 {
	t.Helper()
	for _, err := range g.All(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
	}
	return g.Text()
}

var prompt = []int32{5, 17, 3, 80}

// Padding after the text changes nothing: the logits are those of a window that just fits.
func TestPaddingIsHarmless(t *testing.T) {
	tight := tell(t, spillway.Options{Task: spillway.Infer, Seq: int64(len(prompt))})
	want, err := generator(t, tight, prompt, generate.Options{}).Logits(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	wide := tell(t, spillway.Options{Task: spillway.Infer, Seq: 24})
	got, err := generator(t, wide, prompt, generate.Options{}).Logits(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var top float64
	for _, w := range want {
		top = max(top, math.Abs(float64(w)))
	}
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > 1e-6*top {
			t.Fatalf("logit %d is %v in a wide window, %v in a tight one", i, got[i], want[i])
		}
	}
}

// A text longer than the window is continued as its end alone would be.
func TestTheWindowSlides(t *testing.T) {
	e := tell(t, spillway.Options{Task: spillway.Infer, Seq: 8})
	long := run(t, generator(t, e, prompt, generate.Options{MaxNewTokens: 20}))
	if len(long) != len(prompt)+20 {
		t.Fatalf("%d tokens", len(long))
	}
	for at := 8; at < len(long); at++ {
		g := generator(t, e, long[at-8:at], generate.Options{})
		if next, err := g.Next(context.Background()); err != nil || next != long[at] {
			t.Fatalf("token %d is %d, the eight before it alone give %d (%v)", at, long[at], next, err)
		}
	}
}

func TestTextsEnd(t *testing.T) {
	e := tell(t, spillway.Options{Task: spillway.Infer, Seq: 16, Packed: true})
	free := run(t, generator(t, e, prompt, generate.Options{MaxNewTokens: 6}))
	g := generator(t, e, prompt, generate.Options{MaxNewTokens: 6, Stop: []int32{free[6]}})
	at := slices.Index(free[4:], free[6]) + 4
	if got := run(t, g); !slices.Equal(got, free[:at]) {
		t.Errorf("stopping at token %d the text is %v, want %v", free[6], got, free[:at])
	}
	if _, err := g.Next(context.Background()); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
}

func TestSampledTextsRepeat(t *testing.T) {
	e := tell(t, spillway.Options{Task: spillway.Infer, Seq: 16})
	text := func(seed uint64) []int32 {
		return run(t, generator(t, e, prompt, generate.Options{MaxNewTokens: 10, Sampler: generate.Sampler{Temperature: 1.5, TopK: 40, Seed: seed}}))
	}
	if !slices.Equal(text(1), text(1)) {
		t.Error("one seed gave two texts")
	}
	if slices.Equal(text(1), text(2)) {
		t.Error("two seeds gave one text")
	}
}

func TestGeneratorsThatCannotWork(t *testing.T) {
	infer := tell(t, spillway.Options{Task: spillway.Infer, Seq: 8})
	for name, c := range map[string]struct {
		job    *spillway.Run
		prompt []int32
		o      generate.Options
		says   string
	}{
		"task":    {tell(t, spillway.Options{Task: spillway.Eval, Seq: 8}), prompt, generate.Options{}, "plan the task infer"},
		"rows":    {tell(t, spillway.Options{Task: spillway.Infer, Seq: 8, MicroBatchSize: 2}), prompt, generate.Options{}, "2 sequences"},
		"prompt":  {infer, nil, generate.Options{}, "empty prompt"},
		"sampler": {infer, prompt, generate.Options{Sampler: generate.Sampler{TopK: -1}}, "top-k -1"},
	} {
		if _, err := generate.New(c.job, c.prompt, c.o); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	g := generator(t, infer, []int32{5000}, generate.Options{})
	if _, err := g.Next(context.Background()); err == nil {
		t.Error("a token outside of the vocabulary was accepted")
	}
}
