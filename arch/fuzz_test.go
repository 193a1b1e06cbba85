package arch

import (
	"testing"

	"spillway/dtype"
	"spillway/graph"
	"spillway/internal/bounded"
	"spillway/spec"
)

// FuzzFromConfig: any text gives a model that traces or an error.
func FuzzFromConfig(f *testing.F) {
	for _, name := range []string{"llama-3.2-1b", "mistral-7b", "qwen2.5-0.5b", "qwen3-0.6b", "gpt2", "tiny-llama"} {
		config, err := Preset(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(config)
	}
	f.Fuzz(func(t *testing.T, config []byte) {
		bounded.Check(t, len(config), func() {
			m, info, err := FromConfig(config)
			if err != nil || info.Layers > 200 {
				return // tracing thousands of layers is slow, not wrong
			}
			// A model that can be made can be traced, or says why not (a context shorter than the sequence).
			s, err := spec.Trace("fuzzed", info.Type, m, graph.Config{MicroBatchSize: 1, Seq: 2, DType: dtype.F32, Task: graph.Train})
			if err == nil && s.Count() <= 0 {
				t.Errorf("a model of %d params", s.Count())
			}
		})
	})
}
