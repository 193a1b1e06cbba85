package arch

import (
	"encoding/json"
	"math"
	"path/filepath"
	"testing"

	"spillway/dtype"
	"spillway/graph"
	"spillway/internal/reference"
	"spillway/op"
	"spillway/spec/spectest"
)

// The real model gives transformers' logits, its 64 greedy tokens, its loss and the
// norm of each gradient.
func TestStories260kAgreesWithTransformers(t *testing.T) {
	stories := reference.Asset(t, "stories260k")
	config := string(read(t, filepath.Join(stories, "config.json")))
	params := tensors(t, filepath.Join(stories, "model.safetensors"))
	var want struct {
		Prompt    []int32            `json:"prompt_ids"`
		Logits    []float64          `json:"logits_last"`
		Greedy    []int32            `json:"greedy_ids"`
		Loss      float64            `json:"loss_on_first_64_greedy_ids"`
		GradNorms map[string]float64 `json:"grad_norms"`
	}
	if err := json.Unmarshal(read(t, filepath.Join(stories, "reference.json")), &want); err != nil {
		t.Fatal(err)
	}
	run := func(ids []int32, task graph.Task) ([]op.Array, error) {
		c := graph.Config{MicroBatchSize: 1, Seq: int64(len(ids)), DType: dtype.F32, Task: task}
		return spectest.Forward(trace(t, config, c), spectest.Inputs{Params: params, Batch: textBatch(ids)})
	}

	logits, err := run(want.Prompt, graph.Infer)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "logits", row(logits[0], len(want.Prompt)-1), want.Logits)

	// One pass over the whole text shows that each token is the likeliest after those before.
	if logits, err = run(want.Greedy, graph.Infer); err != nil {
		t.Fatal(err)
	}
	for i := len(want.Prompt); i < len(want.Greedy); i++ {
		if got := argmax(row(logits[0], i-1)); got != want.Greedy[i] {
			t.Errorf("token %d is %d, want %d", i, got, want.Greedy[i])
		}
	}

	ids := want.Greedy[:64]
	m := trace(t, config, graph.Config{MicroBatchSize: 1, Seq: 64, DType: dtype.F32, Task: graph.Train})
	loss, grads, err := spectest.Gradients(m, spectest.Inputs{Params: params, Batch: textBatch(ids)})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "loss", []float64{loss}, []float64{want.Loss})
	if len(grads) != len(want.GradNorms) {
		t.Errorf("%d gradients, want %d", len(grads), len(want.GradNorms))
	}
	for name, norm := range want.GradNorms {
		near(t, "gradient norm of "+name, []float64{length(grads[name].F)}, []float64{norm})
	}
}

// textBatch is one document, each token to be predicted from those before.
func textBatch(ids []int32) map[string]op.Array {
	tokens := op.NewArray(op.Type{DType: dtype.I32, Shape: []int64{1, int64(len(ids))}})
	copy(tokens.I, ids)
	targets := tokens.Clone()
	copy(targets.I, ids[1:])
	targets.I[len(ids)-1] = op.IgnoreIndex
	return languageBatch(tokens, targets)
}

func row(a op.Array, i int) []float64 {
	n := int(a.Type.Shape.Last())
	return a.F[i*n : (i+1)*n]
}

func argmax(x []float64) (best int32) {
	for i, v := range x {
		if v > x[best] {
			best = int32(i)
		}
	}
	return best
}

func length(x []float64) float64 {
	var sum float64
	for _, v := range x {
		sum += v * v
	}
	return math.Sqrt(sum)
}
