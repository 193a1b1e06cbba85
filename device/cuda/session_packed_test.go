package cuda_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"spillway"
	"spillway/device"
	"spillway/dtype"
	"spillway/generate"
	"spillway/machine"
	"spillway/nn"
	"spillway/quant"
	"spillway/run"
)

// packedAs holds the linear layers of a preset in the formats that a function names, by the names of
// their weights.
func packedAs(tb testing.TB, model string, format func(name string) dtype.Type) *spillway.Model {
	tb.Helper()
	m, err := spillway.Open(model)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { m.Close() })
	net, err := m.Build()
	if err == nil {
		_, err = nn.Bind(net)
	}
	if err == nil {
		err = nn.Walk(net, func(_ string, part any) error {
			if l, ok := part.(*nn.Linear); ok {
				if t := format(l.Weight.Name); t != dtype.Invalid {
					l.Weight.Storage, l.Weight.Frozen = t, true
				}
			}
			return nil
		})
	}
	if err != nil {
		tb.Fatal(err)
	}
	return m.WithNetwork(net)
}

// mixedK names the formats of what llama.cpp calls Q4_K_M, of 32 layers.
func mixedK(name string) dtype.Type {
	var layer int
	if _, after, ok := strings.Cut(name, "layers."); ok {
		fmt.Sscanf(after, "%d", &layer)
	}
	finer := layer < 4 || layer >= 28 || (layer-4)%3 == 2
	if strings.Contains(name, "lm_head") || finer && (strings.Contains(name, "v_proj") || strings.Contains(name, "down_proj")) {
		return quant.Q6_K
	}
	return quant.Q4_K
}

// uniformly is one format for all but lm_head.
func uniformly(t, head dtype.Type) func(string) dtype.Type {
	return func(name string) dtype.Type {
		if strings.Contains(name, "lm_head") {
			return head
		}
		return t
	}
}

// packedSession starts a session of a packed model.
func packedSession(tb testing.TB, m *spillway.Model, d device.Device, described string, g run.Generation) (*spillway.Run, *generate.Session) {
	tb.Helper()
	machine, err := machine.Parse(described)
	if err != nil {
		tb.Fatal(err)
	}
	job, err := m.Plan(spillway.Options{Task: spillway.Generate, Precision: dtype.BF16, Generation: g, Machine: machine, On: []device.Device{d}})
	if err == nil {
		err = job.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { job.Close() })
	s, err := generate.NewSession(job)
	if err != nil {
		tb.Fatal(err)
	}
	return job, s
}

// Tokens a second of whole sessions with packed weights of the Llama-3-8B shape, and of a prompt.
func BenchmarkPackedSession(b *testing.B) {
	for _, c := range []struct {
		name   string
		format func(string) dtype.Type
	}{{"q4_k_m", mixedK}, {"nf4", uniformly(quant.NF4, dtype.Invalid)}, {"fp8", uniformly(quant.RowF8, quant.RowF8)}, {"int8", uniformly(quant.RowI8, quant.RowI8)}} {
		b.Run(c.name, func(b *testing.B) {
			begin := time.Now()
			_, s := packedSession(b, packedAs(b, "llama-3-8b", c.format), lent(b), "h200,host:100GiB", run.Generation{Context: 4096, Streams: 1, Chunk: 2048})
			started := time.Since(begin).Seconds()
			next := func() {
				if err := s.Step(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
			q := prompted(b, s, 2048, 3)
			next()
			best := time.Hour
			for i := range 3 {
				if err := q.Close(); err != nil {
					b.Fatal(err)
				}
				q = prompted(b, s, 2048, 4+i)
				begin = time.Now()
				next()
				best = min(best, time.Since(begin))
			}
			decoded(b, q, next)
			b.ReportMetric(started, "s-to-start") // here, since a loop begins without metrics
			b.ReportMetric(2048/best.Seconds(), "prompt-tok/s")
		})
	}
}
