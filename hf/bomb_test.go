package hf

import (
	"fmt"
	"strings"
	"testing"

	"spillway/internal/bounded"
)

// Large configs of small parts take memory in proportion to their size.
func TestLargeConfigs(t *testing.T) {
	var keys strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&keys, `"%x":1,`, i)
	}
	for name, text := range map[string]string{
		"keys":    `{"model_type":"llama","peft_type":"LORA",` + keys.String() + `"x":1}`,
		"layers":  `{"model_type":"llama","layer_types":[` + strings.Repeat(`"",`, 250_000) + `""]}`,
		"eos":     `{"model_type":"llama","eos_token_id":[` + strings.Repeat(`1,`, 500_000) + `1]}`,
		"unknown": `{"model_type":"llama","peft_type":"LORA","x":[` + strings.Repeat(`{},`, 300_000) + `{}]}`,
		"targets": `{"peft_type":"LORA","target_modules":[` + strings.Repeat(`"",`, 250_000) + `""]}`,
		"ranks":   `{"peft_type":"LORA","rank_pattern":{` + strings.TrimSuffix(keys.String(), ",") + `}}`,
		"numbers": `{"peft_type":"LORA","layers_to_transform":[` + strings.Repeat(`1,`, 500_000) + `1]}`,
		"deep":    strings.Repeat("[", 1_000_000),
	} {
		bounded.Check(t, len(text), func() {
			_, _ = ParseConfig([]byte(text))
			_, _ = ParseAdapterConfig([]byte(text))
		})
		if t.Failed() {
			t.Fatal(name)
		}
	}
}
