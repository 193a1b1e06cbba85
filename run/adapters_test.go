package run_test

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway"
	"spillway/checkpoint"
	"spillway/device"
	"spillway/executor"
	"spillway/hf"
	"spillway/lora"
	"spillway/quant"
	"spillway/safetensors"
	"spillway/train"
)

const adapterFolders = "../hf/testdata/adapters"

func openAdapter(t *testing.T, dir string) *lora.Adapter {
	t.Helper()
	a, err := lora.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// peftLoss is the loss PEFT has for a fixture, and the tokens it is of.
func peftLoss(t *testing.T, name string) (float64, *repeated) {
	t.Helper()
	f, err := safetensors.Open(filepath.Join(adapterFolders, name+".safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var loss [1]float32
	at, _ := f.Tensor("loss")
	if err := at.ReadF32(loss[:], 0); err != nil {
		t.Fatal(err)
	}
	logits, _ := f.Tensor("logits")
	ids, targets := make([]int32, 10), make([]int32, 10)
	for i := range ids {
		ids[i], targets[i] = int32(i*3)%int32(logits.Shape[1]), int32(i*3+3)%int32(logits.Shape[1])
	}
	targets[9] = -100
	return float64(loss[0]), tokens(ids, targets, 10)
}

// On a device, an adapter of PEFT's is gone on from: the first loss is PEFT's, later
// ones are lower, and what is saved is an adapter that goes on from there.
func TestTrainingGoesOnFromAdapters(t *testing.T) {
	for name, base := range map[string]string{"llama": "llama", "dora": "qwen2", "dora-gpt2": "gpt2", "bias-all": "qwen2", "bias-lora-only": "qwen2", "saved": "llama", "patterns": "llama"} {
		t.Run(name, func(t *testing.T) {
			want, feed := peftLoss(t, name)
			adapter := openAdapter(t, filepath.Join(adapterFolders, name))
			adapter.Options.Dropout = 0
			dir := filepath.Join(t.TempDir(), "run")
			losses, saved := trainAdapters(t, open(t, "../testdata/reference/"+base), adapter, feed, dir)
			if math.Abs(losses[0]-want) > 1e-5*want {
				t.Errorf("the loss begins at %v, PEFT's is %v", losses[0], want)
			}
			if last := losses[len(losses)-1]; !(last < 0.9*losses[0]) {
				t.Errorf("the loss went from %v to %v", losses[0], last)
			}
			again := openAdapter(t, saved)
			again.Options.Dropout = 0
			next, _ := trainAdapters(t, open(t, "../testdata/reference/"+base), again, feed, filepath.Join(t.TempDir(), "run"))
			if last := losses[len(losses)-1]; !(next[0] < last) {
				t.Errorf("from the saved adapter the loss begins at %v, it was %v", next[0], last)
			}
		})
	}
}

// trainAdapters trains for some iterations and gives the losses and where the last
// checkpoint is.
func trainAdapters(t *testing.T, m *spillway.Model, a *lora.Adapter, feed train.Feed, dir string) (losses []float64, saved string) {
	t.Helper()
	job, err := m.Plan(spillway.Options{Task: spillway.LoRA, MicroBatchSize: 1, Seq: 10, Adapter: a, Machine: parse(t, "cpu:1GiB,host:4GiB"), On: []device.Device{openDevice(t)}})
	if err != nil {
		t.Fatal(err)
	}
	job.Options.Optimizer.LR = 0.01
	r, err := train.Run(context.Background(), job, feed, train.Config{Iterations: 8, Save: &train.Save{Dir: checkpoint.Dir{Path: dir}},
		Report: func(r train.Report) { losses = append(losses, r.Loss) }})
	if err != nil {
		t.Fatal(err)
	}
	return losses, r.Checkpoint
}

// A fresh adapter of DoRA starts from the lengths of the weights, so that it changes
// nothing; one that starts at random does.
func TestFreshAdaptersAddNothing(t *testing.T) {
	for _, base := range []string{"llama", "gpt2"} {
		s := decoder(t, base)
		for _, c := range []struct {
			o    lora.Options
			same bool
		}{
			{lora.Options{DoRA: true}, true},
			{lora.Options{Init: hf.InitGaussian}, true},
			{lora.Options{Init: hf.InitRandom}, false},
		} {
			c.o.Rank, c.o.Alpha, c.o.Targets = 4, 8, []string{lora.AllLinear}
			o := s.options(spillway.LoRA)
			o.Adapters = c.o
			loss := lossOf(t, s.model, o, s.feed)
			if off := math.Abs(loss/s.Loss - 1); (off < 1e-5) != c.same {
				t.Errorf("%s with %+v has the loss %v, without adapters %v", base, c.o, loss, s.Loss)
			}
		}
	}
}

// lossOf is the loss of one iteration.
func lossOf(t *testing.T, m *spillway.Model, o spillway.Options, feed train.Feed) (loss float64) {
	t.Helper()
	o.Machine, o.On = parse(t, "cpu:1GiB,host:4GiB"), []device.Device{openDevice(t)}
	job, err := m.Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := train.Run(context.Background(), job, feed, train.Config{Iterations: 1,
		Report: func(r train.Report) { loss = r.Loss }}); err != nil {
		t.Fatal(err)
	}
	return loss
}

// Checkpoints of QLoRA have the adapters alone, and a run goes on from them bit for bit.
func TestQLoRAGoesOnFromItsCheckpoint(t *testing.T) {
	run := func(iterations int64, dir string) []float64 {
		s := decoder(t, "llama")
		o := s.options(spillway.QLoRA)
		o.Adapters = lora.Options{Targets: []string{lora.AllLinear}, Rank: 4, Alpha: 8, Dropout: 0.1}
		o.Machine, o.On = parse(t, "cpu:1GiB,host:4GiB"), []device.Device{openDevice(t)}
		job, err := s.model.Plan(o)
		if err != nil {
			t.Fatal(err)
		}
		var losses []float64
		if _, err := train.Run(context.Background(), job, s.feed, train.Config{Iterations: iterations,
			Save: &train.Save{Dir: checkpoint.Dir{Path: dir}}, Report: func(r train.Report) { losses = append(losses, r.Loss) }}); err != nil {
			t.Fatal(err)
		}
		return losses
	}
	whole := run(6, filepath.Join(t.TempDir(), "whole"))
	dir := filepath.Join(t.TempDir(), "halves")
	halves := append(run(3, dir), run(6, dir)...)
	for i := range whole {
		if whole[i] != halves[i] {
			t.Fatalf("losses %v in one run, %v in two", whole, halves)
		}
	}
	c, err := checkpoint.Dir{Path: dir}.Latest()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Adapter == nil || len(c.Adapter.Tensors()) != 28 || c.Adapter.Config.Rank != 4 {
		t.Errorf("the checkpoint is %+v", c)
	}
}

// Several adapters are open at once; a started job changes from one to the other.
func TestAdaptersAreSwitched(t *testing.T) {
	m := open(t, "../testdata/reference/llama")
	first, second := openAdapter(t, filepath.Join(adapterFolders, "llama")), openAdapter(t, otherAdapter(t))
	job, e := start(t, m, spillway.Options{Task: spillway.Infer, MicroBatchSize: 1, Seq: 10, Adapter: first, AllLogits: true})
	before := logitsOf(t, e)
	if err := job.SwitchAdapter(second); err != nil {
		t.Fatal(err)
	}
	between := logitsOf(t, e)
	if err := job.SwitchAdapter(first); err != nil {
		t.Fatal(err)
	}
	after := logitsOf(t, e)
	if !slices.Equal(after, before) {
		t.Error("back with the first adapter logits differ")
	}
	if d := apart(between, before); d < 1e-3 {
		t.Errorf("another adapter changes logits by %v", d)
	}
	_, fresh := start(t, m, spillway.Options{Task: spillway.Infer, MicroBatchSize: 1, Seq: 10, Adapter: second, AllLogits: true})
	if !slices.Equal(logitsOf(t, fresh), between) {
		t.Error("switched to the second adapter logits differ from starting with it")
	}
	if err := job.SwitchAdapter(openAdapter(t, filepath.Join(adapterFolders, "patterns"))); err == nil || !strings.Contains(err.Error(), "another model") {
		t.Errorf("an adapter that does not fit: %v", err)
	}
}

// otherAdapter is the folder of an adapter of the same options with other values.
func otherAdapter(t *testing.T) string {
	t.Helper()
	_, feed := peftLoss(t, "llama")
	_, saved := trainAdapters(t, open(t, "../testdata/reference/llama"), openAdapter(t, filepath.Join(adapterFolders, "llama")), feed, filepath.Join(t.TempDir(), "run"))
	return saved
}

// An adapter for another model is refused with a reason, before anything is written.
func TestAdaptersForOtherModelsAreRefused(t *testing.T) {
	for name, want := range map[string]string{"dora": "the model wants", "dora-gpt2": "no layer is named"} {
		m := open(t, "../testdata/reference/llama")
		a := openAdapter(t, filepath.Join(adapterFolders, name))
		o := spillway.Options{Task: spillway.Infer, MicroBatchSize: 1, Seq: 10, Adapter: a, Machine: parse(t, "cpu:1GiB,host:4GiB"), On: []device.Device{openDevice(t)}}
		job, err := m.Plan(o)
		if err == nil {
			err = job.Start()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s on a llama gives %v, want %q", name, err, want)
		}
	}
}

// logitsOf is what a started job gives for the tokens of the fixtures.
func logitsOf(t *testing.T, e *executor.Executor) []float32 {
	t.Helper()
	_, feed := peftLoss(t, "llama")
	if _, err := feed.Next(train.PartsOf(e)); err != nil {
		t.Fatal(err)
	}
	if err := e.Iterate(context.Background(), executor.IterationArgs{}); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(e.Result(0))
}

// Adapters of every kind, next to bases of every format, are the same bits wherever things
// rest and whatever is computed twice.
func TestPlacementOfAdaptersChangesNoBit(t *testing.T) {
	const iterations, seq = 3, 12
	for name, o := range map[string]lora.Options{
		"dora next to nf4":      {DoRA: true, Dropout: 0.1, Base: quant.NF4},
		"biases next to fp4":    {Bias: lora.AllBiases, LoRABias: true, Base: quant.FP4},
		"outliers next to int8": {Base: quant.RowI8, Outliers: 1},
		"fp8, head whole":       {Base: quant.RowF8, ModulesToSave: []string{"lm_head"}, RankPattern: map[string]int64{"up_proj": 5}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.Targets, o.Rank, o.Alpha = []string{lora.AllLinear}, 3, 6
			first := ""
			for way, choose := range strategies {
				job, e := start(t, open(t, configFile(t, tinyLlama(false, 0.1))), spillway.Options{Task: spillway.QLoRA, MicroBatchSize: 1, Seq: seq, MicroBatches: 2, Clip: 0.5, Packed: true, Adapters: o, Choose: choose})
				run, err := train.New(job, packedFeed(t, seq), train.Config{Seed: 3})
				if err != nil {
					t.Fatal(err)
				}
				for range iterations {
					if _, err := run.Step(); err != nil {
						t.Fatal(err)
					}
				}
				got := fingerprint(t, e)
				if first == "" {
					first = got
				}
				if got != first {
					t.Errorf("%s (%s): weights and state differ from those of another placement", way, job.Plan.Strategy)
				}
			}
		})
	}
}
