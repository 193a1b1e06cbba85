package metamorphic

import (
	"context"
	"errors"
	"testing"
	"time"

	"spillway/device"
	"spillway/device/cpu"
	"spillway/executor"
	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/planner"
	"spillway/units"
	"spillway/weights"
)

// wide is a Llama whose layers are large enough for copies and products to matter.
const wide = `{"model_type":"llama","vocab_size":256,"hidden_size":512,"num_hidden_layers":12,
"num_attention_heads":8,"num_key_value_heads":8,"intermediate_size":1536,"rms_norm_eps":1e-5,
"tie_word_embeddings":false,"max_position_embeddings":512}`

// BenchmarkStreamedTraining trains on the processor with everything streaming over a
// slowed link, and prints how much longer an iteration takes than the longer of its
// two parts alone: the same plan without the slowed link, and its bytes at the link's
// rate.
func BenchmarkStreamedTraining(b *testing.B) {
	m := tiny.Model(b, wide, graph.Config{Rows: 2, Seq: 256, Task: graph.Train})
	kernels := cpu.Open(cpu.Options{})
	site := tiny.Site(1 << 32)
	site.Kernels = kernels
	p, err := planner.Build(m, tiny.AdamW(1, false), site, planner.Alike(true, true, planner.KeepNone, 3))
	kernels.Close()
	if err != nil {
		b.Fatal(err)
	}
	best := func(link units.Rate) time.Duration {
		dev := cpu.Open(cpu.Options{Link: link})
		defer dev.Close()
		e, err := executor.New(p, []device.Device{dev})
		if err != nil {
			b.Fatal(err)
		}
		defer e.Close()
		source, _ := weights.Fresh(m.Params, 1)
		if err := errors.Join(e.Prepare(), weights.Load(e, source)); err != nil {
			b.Fatal(err)
		}
		least := time.Hour
		for i := range 6 {
			if err := fill(e, m, 1, i); err != nil {
				b.Fatal(err)
			}
			start := time.Now()
			if err := e.Iterate(context.Background(), numbers(1, i, p)); err != nil {
				b.Fatal(err)
			}
			least = min(least, time.Since(start))
		}
		return least
	}
	for b.Loop() {
		first := best(0)
		for name, share := range map[string]float64{"link-at-half": 0.5, "link-equal": 1, "link-twice": 2} {
			rate := units.Rate(float64(p.Forecast.BytesIn) / (share * first.Seconds()))
			compute, streamed := first, time.Duration(time.Hour)
			for range turns { // by turns: what else the machine does meets both
				compute, streamed = min(compute, best(0)), min(streamed, best(rate))
			}
			bound := max(compute, rate.Time(units.Bytes(p.Forecast.BytesIn)))
			b.ReportMetric(streamed.Seconds()/bound.Seconds(), name+"-over-bound")
		}
	}
	b.ReportMetric(0, "ns/op")
}

// turns each way is measured.
const turns = 2
