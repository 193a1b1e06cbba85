package cuda_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"spillway"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/dtype"
	"spillway/generate"
	"spillway/machine"
	"spillway/op"
	"spillway/quant"
	"spillway/run"
)

// sessionOn starts a session of a preset, with random weights, on a device.
func sessionOn(tb testing.TB, model string, d device.Device, described string, g run.Generation) (*spillway.Run, *generate.Session) {
	tb.Helper()
	m, err := machine.Parse(described)
	if err != nil {
		tb.Fatal(err)
	}
	job := opened(tb, model, spillway.Options{Task: spillway.Generate, Precision: dtype.BF16, Generation: g, Machine: m, On: []device.Device{d}})
	if err := job.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { job.Close() })
	s, err := generate.NewSession(job)
	if err != nil {
		tb.Fatal(err)
	}
	return job, s
}

// prompted adds a sequence.
func prompted(tb testing.TB, s *generate.Session, n, seed int) generate.Sequence {
	tb.Helper()
	prompt := make([]int32, n)
	for i := range prompt {
		prompt[i] = int32((i*37 + seed*11) % 200)
	}
	q, err := s.Add(prompt)
	if err != nil {
		tb.Fatal(err)
	}
	return q
}

// Sessions on the GPU, with fused ops in their steps, give the logits of the CPU up to
// rounding: prompts in chunks, then tokens of two sequences at once.
func TestSessionsAgreeWithTheCPU(t *testing.T) {
	gpu, host := lent(t), cpu.Open(cpu.Options{})
	defer host.Close()
	logits := func(d device.Device, described string) (list [][]float32) {
		job, s := sessionOn(t, "small-llama", d, described, run.Generation{Context: 192, Streams: 2, Chunk: 64})
		fused := 0
		for _, p := range job.Plan.Programs {
			for _, n := range p.Graph.Nodes {
				if n.Kind == op.NormHeads {
					fused++
				}
			}
		}
		if (fused > 0) != (described != "cpu:4GiB,host:8GiB") {
			t.Errorf("%s: %d programs have fused ops", described, fused)
		}
		sequences := []generate.Sequence{prompted(t, s, 70, 1), prompted(t, s, 110, 2)}
		for i := range 5 {
			if err := s.Step(context.Background()); err != nil {
				t.Fatal(err)
			}
			for _, q := range sequences {
				list = append(list, append([]float32(nil), q.Logits()...))
				if err := q.Append(int32(9 + 7*i)); err != nil {
					t.Fatal(err)
				}
			}
		}
		return list
	}
	want, got := logits(host, "cpu:4GiB,host:8GiB"), logits(gpu, "h200,host:16GiB")
	for i := range want {
		var off, most float64
		for k := range want[i] {
			off, most = max(off, math.Abs(float64(want[i][k]-got[i][k]))), max(most, math.Abs(float64(want[i][k])))
		}
		t.Logf("logits %d: off by %.3g of %.3g", i, off, most)
		if !(off <= 0.04*most) { // a few units in the last place of bf16
			t.Errorf("logits %d are off by %g of %g", i, off, most)
		}
	}
}

// Exact sessions give a sequence the same logits, bit for bit, alone, with others, and with its
// prompt in other chunks.
func TestExactSessions(t *testing.T) {
	gpu := lent(t)
	const lengths, tokens = 3, 4
	logits := func(chunk int64, which ...int) (list [lengths][][]float32) {
		_, s := sessionOn(t, "small-llama", gpu, "h200,host:16GiB", run.Generation{Context: 704, Streams: 12, Chunk: chunk, Exact: true})
		var all []generate.Sequence
		for _, n := range which {
			all = append(all, prompted(t, s, []int{600, 70, 9}[n], n))
		}
		for i := range tokens {
			if err := s.Step(context.Background()); err != nil {
				t.Fatal(err)
			}
			for k, q := range all {
				if k < lengths {
					list[which[k]] = append(list[which[k]], append([]float32(nil), q.Logits()...))
				}
				if err := q.Append(int32(9 + 7*i)); err != nil {
					t.Fatal(err)
				}
			}
		}
		return list
	}
	want := logits(512, 0, 1, 2)
	for name, got := range map[string][lengths][][]float32{"in chunks of 64": logits(64, 0, 1, 2), "in chunks of 8": logits(8, 1, 2), "first alone": logits(512, 0), "second alone": logits(512, 1), "third alone": logits(32, 2),
		"with many": logits(512, 0, 1, 2, 1, 1, 2, 2, 2, 2, 2, 1)} {
		for n := range got {
			for i := range got[n] {
				if !slices.Equal(got[n][i], want[n][i]) {
					t.Errorf("%s: logits %d of sequence %d are others", name, i, n)
				}
			}
		}
	}
}

// Forks share pages until one of them writes: each goes on as a sequence of its own with the same tokens, bit for
// bit, in every type of cache.
func TestForksOnTheGPU(t *testing.T) {
	gpu := lent(t)
	for _, cache := range []dtype.Type{dtype.BF16, quant.RowI8, quant.RowI4} {
		_, s := sessionOn(t, "small-llama", gpu, "h200,host:16GiB", run.Generation{Context: 256, Streams: 4, Chunk: 64, Exact: true, Key: cache, Value: cache})
		step := func() {
			if err := s.Step(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		first := prompted(t, s, 100, 1) // ends within a page
		step()
		second, err := first.Fork()
		if err != nil {
			t.Fatal(err)
		}
		forks := []generate.Sequence{first, second}
		var got [2][][]float32
		for i := range 4 {
			for k, q := range forks {
				if err := q.Append(int32(3 + 5*i + 50*k)); err != nil {
					t.Fatal(err)
				}
			}
			step()
			for k, q := range forks {
				got[k] = append(got[k], slices.Clone(q.Logits()))
			}
		}
		for k, q := range forks {
			alone, err := s.Add(q.Tokens()[:100])
			if err != nil {
				t.Fatal(err)
			}
			step()
			for i := range 4 {
				if err := alone.Append(int32(3 + 5*i + 50*k)); err != nil {
					t.Fatal(err)
				}
				step()
				if !slices.Equal(alone.Logits(), got[k][i]) {
					t.Errorf("%v: token %d of fork %d has other logits than alone", cache, i, k)
				}
			}
			alone.Close()
		}
	}
}

// decoded reports the tokens a second of a sequence from 960 tokens on; next computes a step.
func decoded(b *testing.B, q generate.Sequence, next func()) {
	const tokens, warm = 64, 4
	var took time.Duration
	for b.Loop() {
		if err := q.Truncate(960); err != nil {
			b.Fatal(err)
		}
		var begin time.Time
		for i := range tokens + warm {
			if i == warm {
				begin = time.Now()
			}
			if err := q.Append(int32(5 + i)); err != nil {
				b.Fatal(err)
			}
			next()
		}
		took = time.Since(begin)
	}
	b.ReportMetric(tokens/took.Seconds(), "tok/s")
}

// Tokens a second of a whole session, with what the host does between steps.
func BenchmarkSession(b *testing.B) {
	for _, model := range []string{"llama-3.2-1b", "llama-3-8b"} {
		b.Run(model, func(b *testing.B) {
			d := lent(b)
			_, s := sessionOn(b, model, d, "h200,host:100GiB", run.Generation{Context: 2048, Streams: 1, Chunk: 1024})
			q := prompted(b, s, 960, 3)
			next := func() {
				if err := s.Step(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
			begin := time.Now()
			next()
			prompt := time.Since(begin)
			decoded(b, q, next)
			b.ReportMetric(960/prompt.Seconds(), "prompt-tok/s") // here, since a loop begins without metrics
		})
	}
}

// A step of decoding allocates nothing on the host, of one sequence or many, with tokens that the GPU draws.
func TestStepsOnTheGPUAllocateNothing(t *testing.T) {
	d := lent(t)
	for _, n := range []int{1, 64} {
		_, s := sessionOn(t, "small-llama", d, "h200,host:16GiB", run.Generation{Context: 256, Streams: int64(n), Chunk: 64})
		var list []generate.Sequence
		for i := range n {
			list = append(list, prompted(t, s, 140, i)) // after a few steps there is room for all tokens
		}
		ctx := context.Background()
		token, as := make([]int32, 1), &op.Sampling{}
		var appending time.Duration
		next := func() {
			begin := time.Now()
			for _, q := range list {
				d := q.(generate.Drawer)
				var ok bool
				if token[0], ok = d.Drawn(); !ok {
					token[0] = 5
					d.Draw(as)
				}
				if err := q.Append(token...); err != nil {
					t.Fatal(err)
				}
			}
			appending += time.Since(begin)
			if err := s.Step(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Step(ctx); err != nil {
			t.Fatal(err)
		}
		for range 6 {
			next()
		}
		begin := time.Now()
		appending = 0
		if allocations := testing.AllocsPerRun(100, next); allocations > 0 {
			t.Errorf("%d sequences: %v allocations a step", n, allocations)
		}
		t.Logf("%d sequences: %v a step, of which tokens are taken and given in %v", n, time.Since(begin)/101, appending/101)
		for _, q := range list {
			q.Close()
		}
	}
}

// Many sequences of one session: prompts of 4 × 4096 tokens, then tokens of 1, 16 and 128
// sequences at a context of 1K.
func BenchmarkManySequences(b *testing.B) {
	d := lent(b)
	begin := time.Now()
	_, s := sessionOn(b, "llama-3-8b", d, "h200,host:100GiB", run.Generation{Context: 4352, Streams: 128, Chunk: 4096})
	b.Logf("started in %.1f s", time.Since(begin).Seconds())
	step := func() {
		if err := s.Step(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	const long, short, tokens = 4096, 960, 48
	for b.Loop() {
		for range 3 {
			var list []generate.Sequence
			for i := range 4 {
				list = append(list, prompted(b, s, long, i))
			}
			begin = time.Now()
			step()
			b.ReportMetric(4*long/time.Since(begin).Seconds(), "prompt-tok/s")
			for _, q := range list {
				q.Close()
			}
		}
		var list []generate.Sequence
		for _, n := range []int{1, 16, 128} {
			for len(list) < n {
				list = append(list, prompted(b, s, short, len(list)))
			}
			step()
			for i := range tokens + 4 {
				if i == 4 {
					begin = time.Now()
				}
				for _, q := range list {
					d := q.(generate.Drawer)
					token, ok := d.Drawn()
					if !ok {
						token = int32(5 + i)
						d.Draw(&op.Sampling{})
					}
					if err := q.Append(token); err != nil {
						b.Fatal(err)
					}
				}
				step()
			}
			b.ReportMetric(float64(tokens*n)/time.Since(begin).Seconds(), fmt.Sprintf("tok/s-of-%d", n))
		}
		for _, q := range list {
			q.Close()
		}
	}
}
