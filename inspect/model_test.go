package inspect

import (
	"os"
	"path/filepath"
	"testing"

	"spillway"
	"spillway/machine"
)

// Layers with and without a window are counted together: they are of one size.
func TestLayersOfTwoKindsAreCounted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "window.json")
	config := `{"model_type":"qwen2","vocab_size":64,"hidden_size":16,"num_hidden_layers":5,"num_attention_heads":2,"num_key_value_heads":2,"intermediate_size":32,
"use_sliding_window":true,"sliding_window":7,"max_window_layers":3,"tie_word_embeddings":true,"max_position_embeddings":64}`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := spillway.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	here, err := machine.Parse("cpu:1GiB")
	if err != nil {
		t.Fatal(err)
	}
	run, err := m.Plan(spillway.Options{Task: spillway.Infer, Machine: here})
	if err != nil {
		t.Fatal(err)
	}
	if got := DescribeModel(m.Info, run.Spec); len(run.Spec.Kinds) != 4 || got.Blocks != 5 {
		t.Errorf("%d kinds of blocks, %d layers counted, want 4 and 5", len(run.Spec.Kinds), got.Blocks)
	}
}
