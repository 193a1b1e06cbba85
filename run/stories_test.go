package run_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"spillway"
	"spillway/checkpoint"
	"spillway/data"
	"spillway/device"
	"spillway/executor"
	"spillway/generate"
	"spillway/internal/reference"
	"spillway/optim"
	"spillway/train"
)

// stories is a small Llama that really was trained, and what transformers says of it.
type stories struct {
	dir    string
	Prompt []int32            `json:"prompt_ids"`
	Logits []float32          `json:"logits_last"` // of the prompt's last position
	Greedy []int32            `json:"greedy_ids"`
	Loss   float64            `json:"loss_on_first_64_greedy_ids"`
	Norms  map[string]float64 `json:"grad_norms"`
}

func openStories(t *testing.T) stories {
	t.Helper()
	s := stories{dir: reference.Asset(t, "stories260k")}
	raw, err := os.ReadFile(filepath.Join(s.dir, "reference.json"))
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStoriesAreThoseOfTransformers(t *testing.T) {
	s := openStories(t)
	job, _ := start(t, open(t, s.dir), spillway.Options{Task: spillway.Infer, Seq: 80})
	e, err := generate.NewPlain(job)
	if err != nil {
		t.Fatal(err)
	}
	q, err := e.Add(s.Prompt)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Step(context.Background()); err != nil {
		t.Fatal(err)
	}
	if d := apart(q.Logits(), s.Logits); d > reference.OneRun {
		t.Errorf("the logits are off by %.2g of the largest", d)
	}
	g, err := generate.New(e, nil, generate.Request{Prompt: s.Prompt, MaxNewTokens: len(s.Greedy) - len(s.Prompt)})
	if err != nil {
		t.Fatal(err)
	}
	text := slices.Clone(s.Prompt)
	for piece, err := range g.All(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		for _, token := range piece.Tokens {
			text = append(text, token.ID)
		}
	}
	if !slices.Equal(text, s.Greedy) {
		t.Errorf("the text is\n%v, want\n%v", text, s.Greedy)
	}
}

func TestStoriesHaveTransformersLossAndGradients(t *testing.T) {
	s := openStories(t)
	job, e := start(t, open(t, s.dir), spillway.Options{Task: spillway.Train, Seq: 64})
	seen := 0
	e.OnGradient(func(g executor.Tensor) error {
		seen++
		norm := math.Sqrt(optim.SumSquares(read(t, e, g)))
		if want := s.Norms[g.Param.Name]; math.Abs(norm-want) > 1e-4*want {
			t.Errorf("the gradient of %s has norm %v, want %v", g.Param.Name, norm, want)
		}
		return nil
	})
	ids := s.Greedy[:64]
	run, err := train.New(job, tokens(ids, append(slices.Clone(ids[1:]), -100), 64), train.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := run.Step()
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(r.Loss-s.Loss) > 1e-4*s.Loss {
		t.Errorf("loss %v, want %v", r.Loss, s.Loss)
	}
	if seen != len(s.Norms) {
		t.Errorf("%d gradients, want %d", seen, len(s.Norms))
	}
}

// A text in a language the model does not know: counting in steps.
type counting int

func (c counting) Len() int64 { return int64(c) }

func (c counting) Document(i int64) (data.Document, error) {
	list := make([]int32, 20)
	for k := range list {
		list[k] = int32(3 + (i*17+int64(k)*(1+i%5))%500)
	}
	return data.Document{Tokens: list}, nil
}

// Fine-tuning lowers the loss on what is trained and on what is held out, and what
// it saves is a folder that says the same.
func TestFineTuningStories(t *testing.T) {
	s := openStories(t)
	learn, hold, err := data.Split(counting(300), 0.1, 1)
	if err != nil {
		t.Fatal(err)
	}
	feed := func(from data.Source, epochs int64) train.Feed {
		l, err := data.NewLoader(from, data.Config{Length: 40, Seed: 2, Epochs: epochs})
		if err != nil {
			t.Fatal(err)
		}
		return train.NewTokens(l)
	}
	dev := openDevice(t)
	options := spillway.Options{Task: spillway.Train, MicroBatchSize: 2, MicroBatches: 2, Seq: 40, Packed: true, Evaluates: true, Clip: 1, Machine: parse(t, "cpu:1GiB,host:4GiB"), On: []device.Device{dev}}
	job, err := open(t, s.dir).Plan(options)
	if err != nil {
		t.Fatal(err)
	}
	var reports []train.Report
	result, err := train.Run(context.Background(), job, feed(learn, 0), train.Config{
		Iterations: 40, Schedule: optim.Schedule{Kind: optim.Cosine, Warmup: 4},
		Report:   func(r train.Report) { reports = append(reports, r) },
		Notice:   func(text string) { t.Error(text) },
		Evaluate: &train.Evaluation{Every: 20, Feed: feed(hold, 1)},
		Save:     &train.Save{Dir: checkpoint.Dir{Path: t.TempDir()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	first, last := reports[0], reports[len(reports)-1]
	if !(last.Loss < 0.8*first.Loss) || !(last.EvalLoss < 0.8*first.Loss) {
		t.Errorf("the loss went from %v to %v, held out %v", first.Loss, last.Loss, last.EvalLoss)
	}
	again := evaluated(t, result.Checkpoint, feed(hold, 1), options)
	if again != last.EvalLoss {
		t.Errorf("the saved model has loss %v where the trained one had %v", again, last.EvalLoss)
	}
}

// evaluated is the loss of a folder's model.
func evaluated(t *testing.T, dir string, feed train.Feed, o spillway.Options) float64 {
	t.Helper()
	o.Task, o.MicroBatches, o.Evaluates = spillway.Eval, 1, false
	job, _ := start(t, open(t, dir), o)
	loss, err := (&train.Evaluation{Feed: feed}).Loss(job.Executor())
	if err != nil {
		t.Fatal(err)
	}
	return loss
}
