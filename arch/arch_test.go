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

var train = graph.Config{Rows: 1, Seq: 512, DType: dtype.BF16, Task: graph.Train}

func BenchmarkTrace405b(b *testing.B) {
	config, err := Named("llama-3-405b")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		trace(b, string(config), train)
	}
}
