package arch

import (
	"testing"

	"spillway/dtype"
	"spillway/graph"
	"spillway/spec"
)

// trace makes and traces the model of a config, or ends the test.
func trace(t testing.TB, config string, c graph.Config) *spec.Model {
	t.Helper()
	m, info, err := FromConfig([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Trace("model", info.Type, m, c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const llama405b = `{"model_type":"llama","vocab_size":128256,"hidden_size":16384,"intermediate_size":53248,
"num_hidden_layers":126,"num_attention_heads":128,"num_key_value_heads":8,"rope_theta":500000.0,
"rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192}}`

func TestLlamaIsThreeKinds(t *testing.T) {
	for _, d := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F16} {
		s := trace(t, llama405b, graph.Config{Rows: 1, Seq: 2048, DType: d, Task: graph.Train})
		if s.Count() != 405_853_388_800 {
			t.Errorf("%d params, published are 405,853,388,800", s.Count())
		}
		if len(s.Kinds) != 3 || len(s.Blocks) != 128 {
			t.Errorf("%d blocks of %d kinds, want 128 of 3", len(s.Blocks), len(s.Kinds))
		}
	}
}

func BenchmarkTrace405b(b *testing.B) {
	for b.Loop() {
		trace(b, llama405b, graph.Config{Rows: 1, Seq: 2048, DType: dtype.BF16, Task: graph.Train})
	}
}
