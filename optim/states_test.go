package optim

import (
	"fmt"
	"testing"

	"spillway/quant"
	"spillway/shape"
)

// Every name people know is the optimizer it means.
func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"adamw": "adamw", "AdamW": "adamw", "adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_hf": "adamw", "adamw_apex_fused": "adamw",
		"adamw_8bit": "adamw_8bit", "adamw_bnb_8bit": "adamw_8bit", "adamw_torch_8bit": "adamw_8bit", "paged_adamw_8bit": "adamw_8bit", "paged_adamw": "adamw",
		"paged_adamw_32bit": "adamw", "adamw_bf16": "adamw_bf16", "adamw_fp16": "adamw_fp16", "lion": "lion", "lion_8bit": "lion_8bit", "lion_32bit": "lion",
		"paged_lion_8bit": "lion_8bit", "paged_lion_32bit": "lion", "sgd": "sgd", "sgd_8bit": "sgd_8bit", "adam_8bit": "adam_8bit", "FusedAdam": "adam",
		"torch.optim.AdamW": "adamw", "bitsandbytes.optim.PagedAdamW8bit": "adamw_8bit", "bitsandbytes.optim.AdamW32bit": "adamw", "bitsandbytes.optim.Lion8bit": "lion_8bit",
		" paged_adamw_8bit : lr=0.1, states_of=norms:bf16": "adamw_8bit:lr=0.1,states_of=norms:bf16",
	} {
		c, err := Parse(name)
		if err != nil || c.String() != want {
			t.Errorf("%s is %v, want %s (%v)", name, c, want, err)
		}
		if again, err := Parse(c.String()); err != nil || again != c {
			t.Errorf("%s writes itself %s, which reads as %+v (%v)", name, c, again, err)
		}
	}
}

// States are in the type that size, name and exceptions say.
func TestStatesFor(t *testing.T) {
	large, small := shape.Of(64, 64), shape.Of(63, 64)
	for _, c := range []struct {
		optimizer, param string
		shape            shape.Shape
		want             string
	}{
		{"adamw", "w", large, "[{exp_avg f32[64 64]} {exp_avg_sq f32[64 64]}]"},
		{"adamw_bf16", "w", small, "[{exp_avg bf16[63 64]} {exp_avg_sq bf16[63 64]}]"},
		{"adamw_8bit", "w", large, "[{exp_avg dyn8[64 64]} {exp_avg_sq udyn8[64 64]}]"},
		{"adamw_8bit", "w", small, "[{exp_avg f32[63 64]} {exp_avg_sq f32[63 64]}]"},
		{"adamw_8bit:min_8bit_size=1", "w", shape.Of(1), "[{exp_avg dyn8[1]} {exp_avg_sq udyn8[1]}]"},
		{"lion_8bit", "w", large, "[{exp_avg dyn8[64 64]}]"},
		{"rmsprop_8bit", "w", large, "[{square_avg udyn8[64 64]}]"},
		{"adagrad_8bit", "w", large, "[{sum udyn8[64 64]}]"},
		{"adagrad:codecs=sum:fp16", "w", large, "[{sum f16[64 64]}]"},
		{"sgd_8bit:momentum=0.9", "w", large, "[{momentum_buffer dyn8[64 64]}]"},
		{"sgd_8bit", "w", large, "[]"},
		{"lion_8bit:states_of=embeddings:f32;lm_head:fp16", "model.embed_tokens.weight", large, "[{exp_avg f32[64 64]}]"},
		{"lion_8bit:states_of=embeddings:f32;lm_head:fp16", "lm_head.weight", large, "[{exp_avg f16[64 64]}]"},
		{"lion_8bit:states_of=embeddings:f32;lm_head:fp16", "w", large, "[{exp_avg dyn8[64 64]}]"},
		{"lion:states_of=^(?i:W)$:8bit", "w", large, "[{exp_avg dyn8[64 64]}]"},
	} {
		states, err := parse(t, c.optimizer).StatesFor(nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(states(c.param, c.shape)); got != c.want {
			t.Errorf("%s keeps %s of %s, want %s", c.optimizer, got, c.param, c.want)
		}
	}
}

func TestStorageErrors(t *testing.T) {
	for _, c := range []Config{{Name: "adamw", Storage: quant.NF4}, {Name: "adamw", Min8BitSize: -1}, {Name: "adamw", StateExceptions: ":"}} {
		if c.Check() == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}
