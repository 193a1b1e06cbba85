package cuda_test

import (
	"fmt"
	"os"
	"testing"

	"spillway"
	"spillway/arch"
	"spillway/device"
	"spillway/dtype"
	"spillway/nn"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner/strategy"
	"spillway/units"
)

// llama134M has as many params as the model that torch-optstate shows its savings on.
const llama134M = `{"model_type":"llama","vocab_size":32000,"hidden_size":768,"num_hidden_layers":12,"num_attention_heads":12,
"intermediate_size":2048,"rms_norm_eps":1e-6,"tie_word_embeddings":false,"max_position_embeddings":2048}`

// planStates plans a training run of that model in f32, 4 × 512 tokens, with what AdamW keeps
// under a policy, within so much of the device; 0 is all of it.
func planStates(tb testing.TB, on device.Device, policy string, budget int64) *spillway.Run {
	tb.Helper()
	_, info, err := arch.FromConfig([]byte(llama134M))
	if err != nil {
		tb.Fatal(err)
	}
	m := spillway.Define("llama-134m", func() (nn.Model, error) {
		made, _, err := arch.FromConfig([]byte(llama134M))
		return made, err
	})
	m.Info = info
	o := spillway.Options{Task: spillway.Train, MicroBatchSize: 4, Seq: 512, Precision: dtype.F32, Machine: smallMachine(tb), Budget: budget, Constraints: strategy.Constraints{Updates: strategy.ByDevice}}
	if on != nil {
		o.On = []device.Device{on}
	}
	if o.Optimizer, err = optim.Parse("adamw:lr=3e-4"); err != nil {
		tb.Fatal(err)
	}
	if o.StatePolicy, err = optim.ParsePolicy(policy); err != nil {
		tb.Fatal(err)
	}
	job, err := m.Plan(o)
	if err != nil {
		tb.Fatal(err)
	}
	return job
}

// kept is how many bytes the optimizer keeps.
func kept(p *plan.Plan) (sum int64) {
	for _, s := range p.Slabs {
		for _, w := range s.Params {
			for _, state := range w.States {
				sum += state.Type.Bytes()
			}
		}
	}
	return sum
}

// torch-optstate's demonstration: ten iterations of AdamW, plain, and with its states
// compressed from the start as the usual policy does, in less and less of the GPU.
func BenchmarkStatePolicy(b *testing.B) {
	d := lent(b)
	plain := planStates(b, d, "", 0)
	all := plain.Plan.Peak()[plan.OnDevice]
	for b.Loop() {
		before := trainSmallest(b, plain, 10, nil)
		for _, share := range []float64{1, 0.8, 0.6} {
			job := planStates(b, d, "auto:warmup=0", int64(share*float64(all)))
			after := trainSmallest(b, job, 10, nil)
			fmt.Fprintf(os.Stderr, "states %+.1f%% (%v), device %+.1f%% (%v of %v), iteration %.2f × (%.2f ms), last loss %.4f against %.4f\n",
				100*(float64(kept(job.Plan))/float64(kept(plain.Plan))-1), units.Bytes(kept(job.Plan)),
				100*(float64(job.Plan.Peak()[plan.OnDevice])/float64(all)-1), units.Bytes(job.Plan.Peak()[plan.OnDevice]), units.Bytes(all),
				after.middle()/before.middle(), 1e3*after.middle(), after.Losses[9], before.Losses[9])
		}
		b.ReportMetric(1e3*before.middle(), "ms-plain")
	}
}
