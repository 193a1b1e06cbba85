package run_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"spillway"
	"spillway/convert"
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/dtype"
	"spillway/generate"
	"spillway/hf"
	"spillway/plan"
	"spillway/planner"
	"spillway/quant"
	"spillway/run"
)

// compressing is options to generate in bf16.
func compressing(c run.Compression) spillway.Options {
	return spillway.Options{Task: spillway.Generate, Precision: dtype.BF16, CompressWeights: c, Generation: run.Generation{Context: 96, Streams: 5}}
}

// needsCompressed skips a test on a CPU that weights are not compressed for.
func needsCompressed(t *testing.T) {
	t.Helper()
	if !kernel.HasCompressed() {
		t.Skip("this CPU has no AVX2: weights are not compressed")
	}
}

// logitBits are those of a prompt and of some tokens after it, alone and of five texts at once.
func logitBits(t *testing.T, job *spillway.Run, vocab int32) (all []uint32) {
	t.Helper()
	e, err := generate.NewSession(job)
	if err != nil {
		t.Fatal(err)
	}
	prompt := []int32{1}
	for i := range int32(69) {
		prompt = append(prompt, (i*7+3)%vocab)
	}
	var texts []generate.Sequence
	for i := range 5 {
		q, err := e.Add(prompt[:len(prompt)-9*i])
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, q)
		for range 3 {
			if err := e.Step(context.Background()); err != nil {
				t.Fatal(err)
			}
			for _, q := range texts {
				logits := q.Logits()
				for _, f := range logits {
					all = append(all, math.Float32bits(f))
				}
				if err := q.Append(int32(slices.Index(logits, slices.Max(logits)))); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return all
}

// A model computes the same bits with its weights in 12 bits each as in bf16, in less memory, of which the plan has every byte: weights that were
// trained, and random ones.
func TestCompressedWeightsChangeNoBit(t *testing.T) {
	needsCompressed(t)
	for name, dir := range map[string]func(t *testing.T) string{"trained": func(t *testing.T) string { return openStories(t).dir }, "random": func(*testing.T) string { return "tiny-llama" }} {
		t.Run(name, func(t *testing.T) {
			var want []uint32
			var peak int64
			for _, c := range []run.Compression{run.CompressOff, run.CompressOn, run.CompressAuto} {
				m := open(t, dir(t))
				job, _ := start(t, m, compressing(c))
				count := compressedParams(job)
				taken, _ := job.Options.On[0].(device.Meter).Allocated()
				if (count > 0) != (c != run.CompressOff) || taken != job.Plan.Peak()[plan.OnDevice] {
					t.Errorf("%q: %d weights are compressed; %d bytes are allocated, %d were planned", c, count, taken, job.Plan.Peak()[plan.OnDevice])
				}
				got := logitBits(t, job, int32(m.Info.Vocab))
				if c == run.CompressOff {
					want, peak = got, taken
					continue
				}
				if !slices.Equal(got, want) || len(got) == 0 {
					t.Errorf("%q: other logits than with weights in bf16", c)
				}
				if taken >= peak {
					t.Errorf("%q: %d bytes, %d with weights in bf16", c, taken, peak)
				}
				if said := strings.Join(job.Notices, "\n"); (c == run.CompressOn) != strings.Contains(said, "bits each, exactly") {
					t.Errorf("%q: it says %q", c, said)
				} else {
					t.Log(said)
				}
			}
		})
	}
}

// compressedParams counts the weights that a run holds in 12 bits.
func compressedParams(r *spillway.Run) (n int) {
	for _, p := range r.Spec.Params {
		if p.Type.DType == quant.CompressedBF16 {
			n++
		}
	}
	return n
}

// Asking for compressed weights where they have no effect is an error that says why.
func TestCompressingIsRefusedWhereItHasNoEffect(t *testing.T) {
	needsCompressed(t)
	llama := open(t, "tiny-llama")
	for _, c := range []struct {
		m      *spillway.Model
		change func(o *spillway.Options)
		want   string
	}{
		{llama, func(o *spillway.Options) { o.Precision = dtype.F32 }, "f32"},
		{llama, func(o *spillway.Options) { o.Precision = dtype.F16 }, "f16"},
		{llama, func(o *spillway.Options) { o.Adapters.Base = quant.NF4 }, "in other types"},
		{llama, func(o *spillway.Options) {
			*o = spillway.Options{Task: spillway.Train, Precision: dtype.BF16, CompressWeights: run.CompressOn}
		}, "the task is train"},
		{llama, func(o *spillway.Options) {
			*o = spillway.Options{Task: spillway.Eval, Precision: dtype.BF16, CompressWeights: run.CompressOn}
		}, "the task is eval"},
		{llama, func(o *spillway.Options) { o.Machine = parse(t, "h200") }, "stay on gpu0 in bf16"},
		{quantizedLlama(t, convert.Options{Linear: quant.NF4}), func(*spillway.Options) {}, "in other types"},
	} {
		o := compressing(run.CompressOn)
		c.change(&o)
		if o.Machine.Devices == nil {
			o.Machine, o.On = parse(t, "cpu:1GiB,host:4GiB"), []device.Device{openDevice(t)}
		}
		if _, err := c.m.Plan(o); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "compressed weights") {
			t.Errorf("it should say %q: %v", c.want, err)
		}
	}
}

// Where a part of a weight that was not looked at has more exponents than there is room for, the weights are held in bf16 after all.
func TestWeightsThatDoNotFitAreHeldAsTheyAre(t *testing.T) {
	needsCompressed(t)
	config, err := hf.ParseConfig([]byte(`{"model_type":"llama","vocab_size":64,"hidden_size":512,"num_hidden_layers":1,"num_attention_heads":8,
"num_key_value_heads":8,"intermediate_size":512,"rms_norm_eps":1e-5,"max_position_embeddings":128,"torch_dtype":"bfloat16"}`))
	if err != nil {
		t.Fatal(err)
	}
	const name = "model.layers.0.mlp.up_proj.weight"
	for _, c := range []struct {
		first, count int
		looked       bool
	}{{0, 4096, true}, {4096, 4096, false}} {
		t.Run(fmt.Sprint(c.first), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "model")
			if _, err := convert.Random(t.Context(), config, dir, 1, convert.Options{}); err != nil {
				t.Fatal(err)
			}
			scatter(t, dir, name, c.first, c.count)
			job := planned(t, open(t, dir), compressing(run.CompressAuto))
			var said []string
			job.Notice = func(text string) { said = append(said, text) }
			before := compressedParams(job)
			if err := job.Start(); err != nil {
				t.Fatal(err)
			}
			defer job.Close()
			if after := compressedParams(job); before == 0 || c.looked != (after == before) || c.looked != (len(said) == 0) {
				t.Errorf("%d weights were planned in 12 bits, %d are; it says %q", before, after, said)
			}
			plain, _ := start(t, open(t, dir), compressing(run.CompressOff))
			if !slices.Equal(logitBits(t, job, 64), logitBits(t, plain, 64)) {
				t.Error("other logits than with weights in bf16")
			}
		})
	}
}

// Where nothing fits, what the smallest plan needs is that of compressed weights, where those need less, and changes that fit are
// those for them.
func TestTheSmallestPlanHasCompressedWeights(t *testing.T) {
	needsCompressed(t)
	m := open(t, "tiny-llama")
	lack := func(c run.Compression) *planner.FitError {
		o := compressing(c)
		o.On, o.Machine, o.Budget = []device.Device{openDevice(t)}, parse(t, "cpu:1GiB,host:4GiB"), 1000
		_, err := m.Plan(o)
		var fit *planner.FitError
		if !errors.As(err, &fit) {
			t.Fatalf("%q: %v", c, err)
		}
		return fit
	}
	on, off, auto := lack(run.CompressOn), lack(run.CompressOff), lack(run.CompressAuto)
	if on.Needed >= off.Needed || auto.Needed != on.Needed || !reflect.DeepEqual(auto.Options, on.Options) {
		t.Errorf("%d bytes are needed in 12 bits, %d in 16; by itself it says %d, %v", on.Needed, off.Needed, auto.Needed, auto.Options)
	}
}

// scatter gives some numbers of a stored weight in bf16 exponents of all sizes below 1.
func scatter(t *testing.T, dir, name string, first, count int) {
	t.Helper()
	m := open(t, dir)
	w, ok := m.Folder.Tensor(name)
	if !ok {
		t.Fatalf("there is no %s", name)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	halves := make([]byte, 2*count)
	for i := range count {
		binary.LittleEndian.PutUint16(halves[2*i:], uint16(rng.IntN(2))<<15|uint16(1+rng.IntN(120))<<7|uint16(rng.IntN(128)))
	}
	f, err := os.OpenFile(w.Path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(halves, w.Offset+int64(2*first)); err != nil {
		t.Fatal(err)
	}
}
