// Package tiny makes small models, devices and training goals for tests of plans. The
// models have every part of a real one, in a few kilobytes.
package tiny

import (
	"testing"
	"time"

	"spillway/arch"
	"spillway/device/sim"
	"spillway/dtype"
	"spillway/graph"
	"spillway/machine"
	"spillway/nn"
	"spillway/op"
	"spillway/optim"
	"spillway/planner"
	"spillway/quant"
	"spillway/spec"
)

// Llama is the config of a tiny Llama whose lm_head shares the embedding's weights.
const Llama = `{"model_type":"llama","vocab_size":61,"hidden_size":24,"num_hidden_layers":4,
"num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":40,"rms_norm_eps":1e-5,
"tie_word_embeddings":true,"max_position_embeddings":64}`

// Untied is the same with an lm_head of its own.
const Untied = `{"model_type":"llama","vocab_size":61,"hidden_size":24,"num_hidden_layers":4,
"num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":40,"rms_norm_eps":1e-5,
"tie_word_embeddings":false,"max_position_embeddings":64}`

// Model traces the model of a config.
func Model(t testing.TB, config string, c graph.Config) *spec.Model {
	t.Helper()
	return ModelWith(t, config, c, func(nn.Model) error { return nil })
}

// ModelWith traces the model of a config after a change to it.
func ModelWith(t testing.TB, config string, c graph.Config, change func(nn.Model) error) *spec.Model {
	t.Helper()
	m, info, err := arch.FromConfig([]byte(config))
	if err == nil {
		err = change(m)
	}
	if err != nil {
		t.Fatal(err)
	}
	if c.DType == dtype.Invalid {
		c.DType = dtype.F32
	}
	s, err := spec.Trace("tiny", info.Type, m, c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Device is an invented device whose link is slow enough for streaming to matter.
var Device = machine.Device{Name: "gpu0", Kind: machine.CPU, Compute: machine.Compute{F32: 1e12}, Bandwidth: 1e11, Link: machine.Link{In: 1e10, Out: 1e10, Latency: time.Microsecond}, Launch: time.Microsecond}

// Site is Device with the given number of bytes for a plan, and plenty of host memory.
func Site(budget int64) planner.Site {
	return planner.Site{Device: Device, DType: dtype.F32, Budget: budget, HostBudget: 1 << 40, Alignment: planner.Alignment,
		Kernels: sim.NewVirtual(Device, dtype.F32, 0, planner.Alignment), HostPinned: true}
}

// MixedStates gives params optimizer states of different types, chosen by their names:
// f32, bf16, f16 or 8 bits.
func MixedStates(names ...string) func(spec.Param) []op.State {
	return func(p spec.Param) []op.State {
		sum := 0
		for _, letter := range p.Name {
			sum += int(letter)
		}
		list := planner.FullStates(names...)(p)
		for i := range list {
			switch sum % 4 {
			case 1:
				list[i].Type.DType = dtype.BF16
			case 2:
				list[i].Type.DType = dtype.F16
			case 3:
				list[i].Type.DType = []dtype.Type{quant.Dyn8, quant.UDyn8}[i]
			}
		}
		return list
	}
}

// AdamW is the goal of training with AdamW.
func AdamW(microBatches int, clip bool) planner.Goal {
	return planner.Goal{MicroBatches: microBatches, Decay: func(string) bool { return true },
		Optimizer: &planner.Optimizer{Rule: optim.Adam, States: planner.FullStates("exp_avg", "exp_avg_sq"), Clip: clip}}
}
