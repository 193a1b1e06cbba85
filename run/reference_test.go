package run_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"spillway"
	"spillway/executor"
	"spillway/internal/reference"
	"spillway/optim"
	"spillway/train"
)

var decoders = []string{"gpt2", "llama", "llama2-tied", "mistral", "qwen2", "qwen3"}

var encoders = []string{"encoder-post-relu", "encoder-post-gelu", "encoder-pre-relu", "encoder-pre-gelu"}

// subject is a fixture with the batch it was made with.
type subject struct {
	*reference.Model
	model     *spillway.Model
	feed      *repeated
	rows, seq int64
	output    string // tensor with what the model gives
}

// decoder is a language model of testdata/reference.
func decoder(t *testing.T, name string) subject {
	r := reference.Open(t, name)
	s := r.Tensor(t, "input_ids").Shape
	feed := tokens(r.Ints(t, "input_ids"), r.Ints(t, "targets"), int(s[1]))
	return subject{r, open(t, r.Dir), feed, s[0], s[1], "logits"}
}

// encoder is a TransformerEncoder under the masks that its gradients were made with.
// Which masks batches bring is part of our config, not of PyTorch's constructor.
func encoder(t *testing.T, name, mask string) subject {
	r := reference.Open(t, name)
	dir := t.TempDir()
	raw, err := os.ReadFile(filepath.Join(r.Dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	config := map[string]any{}
	if err := json.Unmarshal(raw, &config); err != nil {
		t.Fatal(err)
	}
	config["src_mask"] = mask == "src_mask" || mask == "both"
	config["src_key_padding_mask"] = mask == "src_key_padding_mask" || mask == "both"
	if raw, err = json.Marshal(config); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o644); err != nil {
		t.Fatal(err)
	}
	copyFile(t, filepath.Join(r.Dir, "model.safetensors"), filepath.Join(dir, "model.safetensors"))
	visible := r.Ints(t, "src_key_padding_mask")
	for i, hidden := range visible {
		visible[i] = 1 - hidden
	}
	src := r.Tensor(t, "src").Shape
	feed := &repeated{counted: src.Elements(), whole: map[string]bool{"mask": true}, parts: map[string][]byte{
		"input": floatBytes(r.Floats(t, "src")), "target": floatBytes(r.Floats(t, "target")),
		"mask": floatBytes(r.Floats(t, "src_mask")), "key_mask": intBytes(visible)}}
	return subject{r, open(t, dir), feed, src[0], src[1], "output." + mask}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	raw, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, raw, 0o644); err != nil {
		t.Fatal(err)
	}
}

// each runs a test for every fixture, encoders under the masks of their gradients.
func each(t *testing.T, test func(t *testing.T, s subject)) {
	for _, name := range decoders {
		t.Run(name, func(t *testing.T) { test(t, decoder(t, name)) })
	}
	for _, name := range encoders {
		t.Run(name, func(t *testing.T) { test(t, encoder(t, name, reference.Open(t, name).Mask)) })
	}
}

func (s subject) options(task spillway.Task) spillway.Options {
	return spillway.Options{Task: task, MicroBatchSize: s.rows, Seq: s.seq, Clip: math.Inf(1)}
}

// outputs of an inference.
func (s subject) outputs(t *testing.T) []float32 {
	t.Helper()
	o := s.options(spillway.Infer)
	o.AllLogits = true
	_, e := start(t, s.model, o)
	if _, err := s.feed.Next(train.PartsOf(e)); err != nil {
		t.Fatal(err)
	}
	if err := e.Iterate(context.Background(), executor.IterationArgs{}); err != nil {
		t.Fatal(err)
	}
	return e.Result(0)
}

func TestOutputsAgreeWithPyTorch(t *testing.T) {
	each(t, func(t *testing.T, s subject) {
		if d := apart(s.outputs(t), s.Floats(t, s.output)); d > reference.OneRun {
			t.Errorf("%s are off by %.2g of the largest", s.output, d)
		}
	})
	for _, name := range encoders {
		for _, mask := range []string{"none", "src_mask", "src_key_padding_mask", "both"} {
			t.Run(name+"/"+mask, func(t *testing.T) {
				s := encoder(t, name, mask)
				if d := apart(s.outputs(t), s.Floats(t, s.output)); d > reference.OneRun {
					t.Errorf("%s are off by %.2g of the largest", s.output, d)
				}
			})
		}
	}
}

func TestGradientsAgreeWithPyTorch(t *testing.T) {
	each(t, func(t *testing.T, s subject) {
		job, e := start(t, s.model, s.options(spillway.Train))
		seen, worst := 0, 0.0
		e.OnGradient(func(g executor.Tensor) error {
			seen++
			d := apart(read(t, e, g), s.Floats(t, "grad."+g.Param.Name))
			worst = max(worst, d)
			if d > reference.OneRun {
				t.Errorf("the gradient of %s is off by %.2g of its largest", g.Param.Name, d)
			}
			return nil
		})
		run, err := train.New(job, s.feed, train.Config{})
		if err != nil {
			t.Fatal(err)
		}
		report, err := run.Step()
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(report.Loss-s.Loss) > reference.OneRun*s.Loss {
			t.Errorf("loss %v, PyTorch's is %v", report.Loss, s.Loss)
		}
		t.Logf("%d gradients, off by %.2g of their largest at most", seen, worst)
		if want := len(e.Weights()); seen != want {
			t.Errorf("%d gradients of %d params", seen, want)
		}
	})
}

func TestTenIterationsFollowPyTorch(t *testing.T) {
	each(t, func(t *testing.T, s subject) {
		t.Run("adamw", func(t *testing.T) { follow(t, s, s.AdamW, math.Inf(1), optim.Schedule{}) })
		t.Run("clipped cosine", func(t *testing.T) {
			follow(t, s, s.Cosine, 1, optim.Schedule{Kind: optim.Cosine, Warmup: 3, Total: 10})
		})
	})
}

// follow trains ten iterations and compares each, then the weights.
func follow(t *testing.T, s subject, want reference.Ten, clip float64, schedule optim.Schedule) {
	o := s.options(spillway.Train)
	o.Clip = clip
	job, e := start(t, s.model, o)
	run, err := train.New(job, s.feed, train.Config{Schedule: schedule})
	if err != nil {
		t.Fatal(err)
	}
	var worst float64
	defer func() { t.Logf("off by %.2g at most", worst) }()
	near := func(what string, got, want float64) {
		if want != 0 {
			worst = max(worst, math.Abs(got-want)/math.Abs(want))
		}
		if !(math.Abs(got-want) <= reference.TenRuns*math.Abs(want)) {
			t.Errorf("%s is %v, PyTorch's %v", what, got, want)
		}
	}
	for i := range want.Losses {
		r, err := run.Step()
		if err != nil {
			t.Fatal(err)
		}
		near("loss", r.Loss, want.Losses[i])
		near("norm", r.GradNorm, want.GradientNorms[i])
		near("rate", r.LR, want.Rates[i])
	}
	var squares float64
	for _, w := range e.Weights() {
		squares += optim.SumSquares(read(t, e, w))
	}
	near("norm of the weights", math.Sqrt(squares), want.FinalWeightNorm)
	r, err := run.Step()
	if err != nil {
		t.Fatal(err)
	}
	near("final loss", r.Loss, want.FinalLoss)
}
