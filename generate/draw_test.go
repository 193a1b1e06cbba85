package generate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"spillway"
	"spillway/device"
	"spillway/device/devicetest"
	"spillway/dtype"
	"spillway/generate"
	"spillway/machine"
	"spillway/op"
	"spillway/run"
	"spillway/shape"
)

// A device draws the tokens that a picker picks from the same logits, ties included.
func TestDrawingsArePicks(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 5))
	const vocab = 700
	for n := range 600 {
		s := generate.Sampler{Temperature: []float64{0, 1, 0.6, 2.5}[n%4], Seed: uint64(n)}
		if n%3 > 0 {
			s.TopK = 1 + random.IntN(2*vocab/(1+n%7))
		}
		if n%5 > 1 {
			s.TopP = 0.05 + 0.95*random.Float64()
		}
		if n%7 > 3 {
			s.MinP = 0.3 * random.Float64()
		}
		logits := op.NewArray(op.Type{DType: dtype.BF16, Shape: shape.Of(1, 1, vocab)})
		list := make([]float32, vocab)
		for i := range list {
			logits.F[i] = random.NormFloat64() * []float64{0.01, 1, 6}[n%3]
		}
		logits.Round()
		for i := range list {
			list[i] = float32(logits.F[i])
		}
		p, err := s.Picker(nil, uint32(n%3))
		if err != nil {
			t.Fatal(err)
		}
		want, err := p.Pick(list, n)
		if err != nil {
			t.Fatal(err)
		}
		drawing := s.Drawing(uint32(n % 3))
		drawing.Position = uint64(n)
		settings := op.NewArray(op.Type{DType: dtype.I32, Shape: shape.Of(1, 1, op.SampleSettings)})
		drawing.Put(settings.I)
		call, err := op.Make(op.Sample, op.Attr{}, logits.Type, settings.Type)
		if err != nil {
			t.Fatal(err)
		}
		out := []op.Array{op.NewArray(call.Out[0])}
		if err := call.Reference([]op.Array{logits, settings}, out, op.Args{}); err != nil {
			t.Fatal(err)
		}
		if got := out[0].I[0]; got != want {
			t.Errorf("%+v: the device draws %d, the host picks %d", s, got, want)
		}
	}
	for _, s := range []generate.Sampler{{RepetitionPenalty: 1.1}, {PresencePenalty: 0.5}, {FrequencyPenalty: 0.5}, {LogitBias: map[int32]float64{3: 1}}} {
		if s.Drawing(0) != nil {
			t.Errorf("%+v would be drawn without its penalty or bias", s)
		}
	}
}

// A session on a GPU gives the texts of one on a CPU, without logits but for the first token; a request
// that needs logits gets them.
func TestDrawnTexts(t *testing.T) {
	session := func(described string) (*generate.Session, *spillway.Run) {
		m, err := spillway.Open("../testdata/reference/llama")
		if err != nil {
			t.Fatal(err)
		}
		o := spillway.Options{Task: spillway.Generate, Generation: run.Generation{Context: 48, Streams: 3, Chunk: 8}, On: []device.Device{fusing{devicetest.NewPlain(0)}}}
		if o.Machine, err = machine.Parse(described); err != nil {
			t.Fatal(err)
		}
		job, err := m.Plan(o)
		if err == nil {
			err = job.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := errors.Join(job.Close(), m.Close()); err != nil {
				t.Error(err)
			}
		})
		s, err := generate.NewSession(job)
		if err != nil {
			t.Fatal(err)
		}
		return s, job
	}
	host, _ := session("cpu:1GiB,host:4GiB")
	gpu, job := session("gpu:1GiB,host:4GiB")
	draws := 0
	for _, ph := range job.Plan.Phases {
		if ph.Name == "draw of 1" || ph.Name == "draw of 2" || ph.Name == "draw of 3" {
			draws++
		}
	}
	if draws != 3 {
		t.Errorf("%d phases draw tokens", draws)
	}
	for _, r := range []generate.Request{
		{},
		{Sampler: generate.Sampler{Temperature: 1, Seed: 4}},
		{Sampler: generate.Sampler{Temperature: 0.8, TopK: 20, TopP: 0.9, MinP: 0.01, Seed: 9}, Samples: 3},
		{Sampler: generate.Sampler{RepetitionPenalty: 1.3}},
		{Sampler: generate.Sampler{Temperature: 1, Seed: 2}, Logprobs: true, TopLogprobs: 2},
	} {
		r.Prompt, r.MaxNewTokens = text(1, 7), 20
		results := func(e generate.Engine) (list []string) {
			for _, one := range finished(t, e, r).Results() {
				ids := ""
				for _, token := range one.Tokens {
					ids += fmt.Sprint(" ", token.ID, len(token.Top))
				}
				list = append(list, ids)
			}
			return list
		}
		want, got := results(host), results(gpu)
		if !slices.Equal(got, want) {
			t.Errorf("%+v:\n%v with tokens drawn\n%v without", r.Sampler, got, want)
		}
		// Many requests at once, more than there are streams, give each its text too.
		b, err := generate.NewBatch(gpu, nil, slices.Repeat([]generate.Request{r}, 5))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		for _, err := range b.All(ctx) {
			if err != nil {
				t.Fatalf("%+v: %v, after %+v", r.Sampler, err, b.Statistics())
			}
		}
		cancel()
		for i := range 5 {
			var list []string
			for _, one := range b.Results(i) {
				ids := ""
				for _, token := range one.Tokens {
					ids += fmt.Sprint(" ", token.ID, len(token.Top))
				}
				list = append(list, ids)
			}
			if !slices.Equal(list, want) {
				t.Errorf("%+v, request %d of a batch:\n%v\n%v alone", r.Sampler, i, list, want)
			}
		}
	}
}
