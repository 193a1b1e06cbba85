package train_test

import (
	"flag"
	"math"
	"testing"

	"spillway"
	"spillway/data"
	"spillway/optim"
	"spillway/train"
)

var learnt = flag.Int("learn", 90, "how many iterations quantized states are compared over")

// phrases are documents that have something to be learnt: each token follows from the
// one before it, but for one in five.
type phrases struct{}

func (phrases) Len() int64 { return 2000 }

func (phrases) Document(i int64) (data.Document, error) {
	list := make([]int32, 24)
	at := uint64(i)*0x9e3779b97f4a7c15 + 1
	for k := range list {
		at ^= at << 13
		at ^= at >> 7
		at ^= at << 17
		switch {
		case k == 0 || at%5 == 0:
			list[k] = int32((at >> 8) % 61)
		default:
			list[k] = (list[k-1]*7 + 3) % 61
		}
	}
	return data.Document{Tokens: list}, nil
}

const smallLlama = `{"model_type":"llama","vocab_size":61,"hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
"intermediate_size":176,"rms_norm_eps":1e-5,"tie_word_embeddings":false,"max_position_embeddings":64}`

// A small Llama learns as well with quantized states: after the same iterations the
// loss, over the last tenth, is within 1% of that with f32 states.
func TestQuantizedStatesLearnAsWell(t *testing.T) {
	for _, c := range []struct{ rule, options string }{{"adamw", ":lr=0.003"}, {"lion", ":lr=0.0005,weight_decay=0.1"}} {
		full := endLoss(t, c.rule+c.options)
		for _, storage := range []string{"_8bit", "_bf16", "_fp16"} {
			got := endLoss(t, c.rule+storage+c.options)
			t.Logf("%s%s: loss %.4f after %d iterations, with f32 states %.4f", c.rule, storage, got, *learnt, full)
			if !(math.Abs(got-full) <= 0.01*full) {
				t.Errorf("%s%s: loss %.4f after %d iterations, with f32 states %.4f", c.rule, storage, got, *learnt, full)
			}
		}
	}
}

func TestAdafactorLearns(t *testing.T) {
	for _, text := range []string{"adafactor:lr=0.01", "adafactor:lr=0.05,relative_step,scale_parameter", "adafactor_bf16:lr=0.01,beta1=0.9"} {
		endLoss(t, text)
	}
}

// Muon learns with both sizes of steps, embeddings and head by AdamW.
func TestMuonLearns(t *testing.T) {
	for _, text := range []string{"muon:lr=0.02", "muon:lr=0.02,match_rms_adamw,nesterov=false"} {
		endLoss(t, text)
	}
}

// endLoss is the mean loss of the last tenth of a training run.
func endLoss(t *testing.T, text string) (mean float64) {
	t.Helper()
	o := optimizer(t, text)
	l, err := data.NewLoader(phrases{}, data.Config{Length: seq, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	j := plan(t, smallLlama, spillway.Options{MicroBatchSize: 16, Packed: true, Optimizer: o})
	run := trainer(t, j, train.NewTokens(l), train.Config{Schedule: optim.Schedule{Kind: optim.Cosine, Warmup: 10, Total: *learnt}})
	losses := steps(t, run, *learnt)
	last := losses[len(losses)*9/10:]
	for _, r := range last {
		mean += r.Loss / float64(len(last))
	}
	if first := losses[0].Loss; mean > 0.8*first {
		t.Errorf("%s learns nothing: the loss goes from %.4f to %.4f", text, first, mean)
	}
	return mean
}
