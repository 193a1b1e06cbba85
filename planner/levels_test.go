package planner_test

import (
	"strings"
	"testing"

	"spillway/graph"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
)

// Each level keeps less than the one before and takes longer. What attention gives is small
// for the time it takes: keeping it costs less memory for a second saved than keeping
// matmuls does, the more so the longer the samples are.
func TestLevelsTradeMemoryForTime(t *testing.T) {
	r := named(t, "llama-3.2-1b", "h200,host:64GiB", 1, 16384, graph.Train)
	m, err := r.Trace(r.MicroBatchSize, r.Seq)
	if err != nil {
		t.Fatal(err)
	}
	var seconds, bytes []float64
	for level := strategy.SaveAll; level <= strategy.SaveNone; level++ {
		p, err := planner.Build(m, r.Goal, r.Site, strategy.Uniform(false, false, level, 1))
		if err != nil {
			t.Fatal(err)
		}
		seconds, bytes = append(seconds, p.Forecast.StepSeconds), append(bytes, float64(p.Peak()[plan.OnDevice]))
	}
	for i := range len(seconds) - 1 {
		if seconds[i] >= seconds[i+1] || bytes[i] <= bytes[i+1] {
			t.Errorf("from level %d to the next: %v s and %v s, %v and %v bytes", i, seconds[i], seconds[i+1], bytes[i], bytes[i+1])
		}
	}
	price := func(less, more strategy.Level) float64 {
		return (bytes[more] - bytes[less]) / (seconds[less] - seconds[more])
	}
	if attention, matmuls := price(strategy.SaveNone, strategy.SaveAttention), price(strategy.SaveAttention, strategy.SaveMatmuls); attention > matmuls/2 {
		t.Errorf("a second takes %.3g bytes of attention's outputs, and %.3g of matmuls", attention, matmuls)
	}
}

// The planner knows: where samples are long and memory short, only attention is kept; where
// attention takes no time, it is not asked about.
func TestLongSamplesKeepAttention(t *testing.T) {
	for seq, want := range map[int64]bool{32768: true, 256: false} {
		r := named(t, "llama-3-8b", "h200:24GiB,host:160GiB", 1, seq, graph.Train)
		p, _, err := r.Plan()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(p.Strategy, "(attention of") != want {
			t.Errorf("samples of %d tokens: %s", seq, p.Strategy)
		}
	}
}
