package bench

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"spillway/arch"
)

// A run drawn at random is carried out as train would: its memory is what was predicted, and
// its forecast is held against steps that were timed.
func TestRandomRunsAreCarriedOut(t *testing.T) {
	r, err := Random(t.Context(), 8, 3, Options{Device: "cpu", Only: "5,7"})
	if err != nil || len(r.Results) != 2 || len(r.Notes) > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, row := range r.Results {
		if row.Measured != row.Predicted || row.Measured == 0 || row.Steps < 5 || !(row.Seconds > 0 && row.Forecast > 0) ||
			row.Off != (row.Seconds-row.Forecast)/row.Seconds || row.Strategy == "" {
			t.Errorf("%+v", row)
		}
	}
	if a, b := math.Abs(r.Results[0].Off), math.Abs(r.Results[1].Off); a < b || r.TimeOffWorst != a {
		t.Errorf("forecasts are off by %v, %v; the worst by %v", a, b, r.TimeOffWorst)
	}
}

// What was measured is reported when a measurement is interrupted, however long the run at hand
// would still take.
func TestInterruptedRandomRunsAreReported(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	row, err := interruptible(ctx, func() (*RandomRow, error) { return &RandomRow{Name: "done"}, nil })
	if err != nil || row.Name != "done" {
		t.Errorf("%+v, %v", row, err)
	}
	blocked := make(chan struct{})
	defer close(blocked)
	go interrupt()
	if _, err := interruptible(ctx, func() (*RandomRow, error) { <-blocked; return nil, nil }); err == nil {
		t.Error("an interrupted run counts")
	}
	r, err := Random(ctx, 3, 3, Options{Device: "cpu"})
	if err != nil || len(r.Results) > 0 || len(r.Notes) != 1 || r.Notes[0] != "interrupted in run 1 of 3" {
		t.Errorf("%+v, %v", r, err)
	}
}

// Runs depend on their seed and number alone, are of many kinds, and are models that can be
// built.
func TestRandomRunsAreDrawn(t *testing.T) {
	for _, gpu := range []bool{false, true} {
		kinds := map[string]int{}
		for i := range 60 {
			draw := func() *RandomRow { return drawing{Rand: rand.New(rand.NewPCG(9, uint64(i))), gpu: gpu}.run(i) }
			row := draw()
			if !reflect.DeepEqual(row, draw()) {
				t.Errorf("run %d is drawn in two ways", i)
			}
			_, info, err := arch.FromConfig(row.Model)
			if err != nil {
				t.Errorf("%s: %v", row.Name, err)
			}
			kinds[info.Type]++
			kinds[row.Settings["method"]]++
			kinds[row.Settings["precision"]]++
		}
		for _, kind := range []string{"llama", "gpt2", "mistral", "qwen2", "qwen3", "full", "lora", "qlora", "fp32", "bf16"} {
			if kinds[kind] == 0 {
				t.Errorf("gpu %v: no run of 60 is %s: %v", gpu, kind, kinds)
			}
		}
	}
}

// Documents are as long on average as the run says.
func TestRandomDocumentsHaveTheirLength(t *testing.T) {
	d := drawing{Rand: rand.New(rand.NewPCG(1, 2))}
	for _, mean := range []int{0, 40, 700} {
		raw := d.tokens(&RandomRow{Model: []byte(`{"vocab_size": 1000}`), Documents: mean})
		ends := 0
		for at := 0; at < len(raw); at += 4 {
			if binary.LittleEndian.Uint32(raw[at:]) == randomEnd {
				ends++
			}
		}
		if got := len(raw) / 4 / max(ends, 1); mean == 0 && ends > 0 || mean > 0 && math.Abs(float64(got-mean)) > 0.15*float64(mean) {
			t.Errorf("documents of %d tokens, want %d", got, mean)
		}
	}
}

// Steps in which other programs had some of the cores do not count, but for the five with the most.
func TestDisturbedStepsDoNotCount(t *testing.T) {
	for _, c := range []struct{ times, cores, want []float64 }{
		{[]float64{1, 2, 1.1, 3, 1, 1, 1.2}, []float64{1.99, 1.5, 1.98, 1, 2, 1.95, 1.97}, []float64{1, 1.1, 1, 1, 1.2}},
		{[]float64{1, 2}, []float64{0, 0}, []float64{1, 2}},                                                // not known here
		{[]float64{1, 2, 3, 4, 5, 6, 7}, []float64{1, 1.2, 2, 1.1, 1, 1.3, 1.4}, []float64{2, 3, 4, 6, 7}}, // disturbed mostly
	} {
		if got := undisturbed(c.times, c.cores); !slices.Equal(got, c.want) {
			t.Errorf("%v of %v cores: %v, want %v", c.times, c.cores, got, c.want)
		}
	}
}
