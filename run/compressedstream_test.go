package run_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"spillway"
	"spillway/convert"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/device/sim"
	"spillway/dtype"
	"spillway/hf"
	"spillway/lora"
	"spillway/plan"
	"spillway/quant"
	"spillway/run"
	"spillway/train"
)

// randomLlama is a folder of a random Llama in bf16.
func randomLlama(t *testing.T, layers, hidden int) string {
	t.Helper()
	config, err := hf.ParseConfig(fmt.Appendf(nil, `{"model_type":"llama","vocab_size":512,"hidden_size":%d,"num_hidden_layers":%d,"num_attention_heads":4,
"num_key_value_heads":2,"intermediate_size":%d,"rms_norm_eps":1e-5,"max_position_embeddings":128,"torch_dtype":"bfloat16"}`, hidden, layers, 3*hidden))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir() + "/model"
	if _, err := convert.Random(t.Context(), config, dir, 3, convert.Options{}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// streaming is options to generate next to a device that all layers do not fit on. Its kernels are the CPU's.
func streaming(t *testing.T, machine string, budget int64, c run.Compression) (spillway.Options, *sim.Capped) {
	dev := sim.NewCapped(cpu.Open(cpu.Options{}), budget, sim.Faults{})
	return spillway.Options{Task: spillway.Generate, Precision: dtype.BF16, CompressWeights: c, Generation: run.Generation{Context: 96, Streams: 5, Chunk: 16, Page: 8},
		Machine: parse(t, machine), Budget: budget, On: []device.Device{dev}}, dev
}

// Weights that stream to a device do so in 12 bits, and the CPU next to it multiplies by them as they are: in less host memory, over the link in
// fewer bytes, of which the plan has every one, and with the bits of the model in memory. A plan from a file does the same.
func TestCompressedWeightsStream(t *testing.T) {
	dir := randomLlama(t, 8, 64)
	resident, _ := start(t, open(t, dir), spillway.Options{Task: spillway.Generate, Precision: dtype.BF16, CompressWeights: run.CompressOff, Generation: run.Generation{Context: 96, Streams: 5}})
	want := logitBits(t, resident, 512)
	for _, c := range []struct {
		name, machine string
		strategies    []string
	}{
		{"over the link", "gpu:1GiB@25GB/s,host:4GiB@update=1MB/s", []string{"cpu-offload"}},
		{"and the CPU", "gpu:1GiB@1GB/s,host:4GiB@update=3GB/s", []string{"cpu-offload", "cpu-compute"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var homes [2]int64 // bytes of weights in host memory
			for i, compress := range []run.Compression{run.CompressOff, run.CompressOn} {
				o, dev := streaming(t, c.machine, 700<<10, compress)
				job, err := open(t, dir).Plan(o)
				if err != nil {
					t.Fatal(err)
				}
				if compress == run.CompressOn {
					job = again(t, dir, job, o)
				}
				if !slices.Equal(job.Plan.Strategies, c.strategies) || (compressedParams(job) > 0) != (compress == run.CompressOn) {
					t.Fatalf("%q: %d weights are compressed; the plan is %s", compress, compressedParams(job), job.Plan.Strategy)
				}
				homes[i] = bytesOfWeights(job.Plan, plan.Pinned)
				if err := job.Start(); err != nil {
					t.Fatal(err)
				}
				if taken, _ := dev.Allocated(); taken != job.Plan.Peak()[plan.OnDevice] {
					t.Errorf("%q: %d bytes are allocated, %d were planned", compress, taken, job.Plan.Peak()[plan.OnDevice])
				}
				// In bf16 a CPU next to a device adds in an order of its own.
				if got := logitBits(t, job, 512); !slices.Equal(got, want) && (compress == run.CompressOn || len(c.strategies) == 1) {
					t.Errorf("%q: other logits than in memory", compress)
				}
				if err := job.Close(); err != nil {
					t.Error(err)
				}
				if err := dev.Close(); err != nil {
					t.Error(err)
				}
			}
			if float64(homes[1]) > 0.85*float64(homes[0]) { // of which a seventh is embeddings and head
				t.Errorf("weights take %d bytes of host memory, %d in bf16", homes[1], homes[0])
			}
		})
	}
}

// Where all weights are on the device in 12 bits and it has memory left, those of some blocks stay in bf16, which need not be decoded: no
// block streams, and the bits are those of the model in memory.
func TestCompressedWeightsThatAllFit(t *testing.T) {
	dir := randomLlama(t, 8, 64)
	const machine = "gpu:1GiB@1MB/s,host:4GiB@update=1MB/s"
	resident, _ := start(t, open(t, dir), spillway.Options{Task: spillway.Generate, Precision: dtype.BF16, CompressWeights: run.CompressOff, Generation: run.Generation{Context: 96, Streams: 5}})
	want := logitBits(t, resident, 512)
	o, dev := streaming(t, machine, 1<<30, run.CompressOff)
	whole := planned(t, open(t, dir), o).Plan.Peak()[plan.OnDevice]
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
	o, dev = streaming(t, machine, whole-60<<10, run.CompressOn) // so that three blocks have to be compressed
	defer dev.Close()
	job := planned(t, open(t, dir), o)
	if n := compressedParams(job); n == 0 || n >= 8*7 || bytesOfWeights(job.Plan, plan.Pinned) > 1<<16 {
		t.Errorf("%d weights are compressed, %d bytes are off the device", n, bytesOfWeights(job.Plan, plan.Pinned))
	}
	if said := strings.Join(job.Notices, "\n"); !strings.Contains(said, "of the blocks before it, for which gpu0 has room") {
		t.Errorf("it says %q", said)
	}
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	defer job.Close()
	if got := logitBits(t, job, 512); !slices.Equal(got, want) {
		t.Error("other logits than in memory")
	}
}

// again is the run of a plan that went through a file.
func again(t *testing.T, dir string, job *spillway.Run, o spillway.Options) *spillway.Run {
	t.Helper()
	var file bytes.Buffer
	if err := job.Plan.Write(&file); err != nil {
		t.Fatal(err)
	}
	p, err := plan.Read(&file)
	if err == nil {
		job, err = open(t, dir).UsePlan(p, o)
	}
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// bytesOfWeights is how many bytes of weights are stored in a tier.
func bytesOfWeights(p *plan.Plan, tier plan.Tier) (bytes int64) {
	for _, s := range p.Slabs {
		if p.TierOf(s.Weight) == tier {
			bytes += s.WeightBytes
		}
	}
	return bytes
}

// Where weights stream to a device they are compressed if that is asked for, and only then; it says what is forecast. Where all stay on the device
// asking is an error, as it is in other types.
func TestCompressingForADeviceIsAskedFor(t *testing.T) {
	dir := randomLlama(t, 8, 64)
	const machine = "gpu:1GiB@1GB/s,host:4GiB@update=3GB/s"
	for _, c := range []struct {
		compress  run.Compression
		precision dtype.Type
		budget    int64
		said      string // of what goes well, a notice
		fails     string
	}{
		{run.CompressAuto, dtype.BF16, 700 << 10, "", ""},
		{run.CompressOn, dtype.BF16, 700 << 10, "of the last block, which has a step's logits (lm_head.weight); a step is forecast to take ", ""},
		{run.CompressOn, dtype.BF16, 1 << 30, "", "stay on gpu0 in bf16"},
		{run.CompressOn, dtype.F32, 700 << 10, "", "computed in f32"},
	} {
		o, dev := streaming(t, machine, c.budget, c.compress)
		o.Precision = c.precision
		job, err := open(t, dir).Plan(o)
		switch {
		case c.fails != "":
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%q, %v within %d bytes: %v; it should say %q", c.compress, c.precision, c.budget, err, c.fails)
			}
		case err != nil:
			t.Error(err)
		default:
			if said := strings.Join(job.Notices, "\n"); (compressedParams(job) > 0) != (c.said != "") || !strings.Contains(said, c.said) {
				t.Errorf("%q: %d weights are compressed; it says %q, not %q", c.compress, compressedParams(job), said, c.said)
			}
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A weight with more exponents than its parts had is held in bf16 after all, next to a device too.
func TestStreamedWeightsThatDoNotFitAreHeldAsTheyAre(t *testing.T) {
	dir := randomLlama(t, 2, 512)
	scatter(t, dir, "model.layers.1.mlp.up_proj.weight", 4096, 8192) // in no part that is looked at
	o, dev := streaming(t, "gpu:1GiB@25GB/s,host:4GiB@update=1MB/s", 12<<20, run.CompressOn)
	defer dev.Close()
	job, err := open(t, dir).Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	job.Notice = func(text string) { said = append(said, text) }
	before := compressedParams(job)
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	defer job.Close()
	if before == 0 || compressedParams(job) != 0 || !strings.Contains(fmt.Sprint(said), "held in bf16 instead of 12 bits") {
		t.Errorf("%d weights were planned in 12 bits, %d are; it says %q", before, compressedParams(job), said)
	}
}

// Adapters train next to frozen weights in bf16 that stream in 12 bits, with the losses and evaluations that they have in memory, to the last bit:
// with magnitudes (DoRA) too, and next to a module that is trained in full, which is not compressed.
func TestAdaptersTrainNextToCompressedWeights(t *testing.T) {
	dir := randomLlama(t, 8, 64)
	ids := make([]int32, 4*24)
	for i := range ids {
		ids[i] = int32(i*37+5) % 512
	}
	feed := tokens(ids, ids, 24)
	for _, adapters := range []lora.Options{{Targets: []string{lora.AllLinear}, Rank: 4, Alpha: 8}, {Targets: []string{"q_proj", "up_proj"}, Rank: 2, Alpha: 4, DoRA: true, ModulesToSave: []string{"down_proj"}}} {
		losses := func(machine string, budget int64, c run.Compression) (list []float64, job *spillway.Run) {
			dev := sim.NewCapped(cpu.Open(cpu.Options{}), budget, sim.Faults{})
			defer dev.Close()
			job, err := open(t, dir).Plan(spillway.Options{Task: spillway.LoRA, Adapters: adapters, Precision: dtype.BF16, MicroBatchSize: 2, MicroBatches: 2, Seq: 24, CompressWeights: c, Evaluates: true,
				Machine: parse(t, machine), Budget: budget, On: []device.Device{dev}})
			if err != nil {
				t.Fatal(err)
			}
			job.Options.Optimizer.LR = 0.02
			if _, err := train.Run(context.Background(), job, feed, train.Config{Iterations: 4, Report: func(r train.Report) { list = append(list, r.Loss) }}); err != nil {
				t.Fatal(err)
			}
			return list, job
		}
		want, _ := losses("gpu:1GiB,host:4GiB", 1<<30, run.CompressOff)
		got, job := losses("gpu:1GiB@25GB/s,host:4GiB@update=1MB/s", 1<<20, run.CompressOn)
		if !slices.Equal(got, want) || want[3] == want[0] {
			t.Errorf("DoRA %v: the losses are %v, in memory %v", adapters.DoRA, got, want)
		}
		var compressed, trained int
		for _, p := range job.Spec.Params {
			switch down := strings.HasSuffix(p.Name, "down_proj.weight"); {
			case p.Type.DType == quant.CompressedBF16:
				compressed++
			case down && !p.Frozen:
				trained++
			}
		}
		if most := 8 * 7; compressed+trained != most || (trained > 0) != adapters.DoRA {
			t.Errorf("DoRA %v: of %d linear weights %d are compressed, and %d trained", adapters.DoRA, most, compressed, trained)
		}
		if !slices.Contains(job.Plan.Strategies, "cpu-offload") {
			t.Errorf("nothing streams: %s", job.Plan.Strategy)
		}
	}
}
