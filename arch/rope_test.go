package arch

import (
	"encoding/json"
	"math"
	"testing"

	"spillway/hf"
)

// Frequencies of every type against transformers' own.
func TestRopesAgreeWithTransformers(t *testing.T) {
	var file struct {
		Cases map[string]struct {
			Config json.RawMessage
			Freq   []float64
			Scale  float64
		}
	}
	if err := json.Unmarshal(read(t, "testdata/rope.json"), &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) == 0 {
		t.Fatal("testdata/rope.json has no cases")
	}
	for name, c := range file.Cases {
		config, err := hf.ParseConfig(c.Config)
		if err != nil {
			t.Fatal(err)
		}
		got, err := rope(config)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(got.Freq) != len(c.Freq) {
			t.Fatalf("%s: %d frequencies, want %d", name, len(got.Freq), len(c.Freq))
		}
		for i, f := range c.Freq {
			if off := math.Abs(float64(got.Freq[i])/f - 1); off > 3e-7 { // a few roundings of float32
				t.Errorf("%s: frequency %d is %v, want %v", name, i, got.Freq[i], f)
			}
		}
		if scale := orElse(got.Scale, 1); math.Abs(scale-c.Scale) > 1e-12 {
			t.Errorf("%s: attention is scaled by %v, want %v", name, scale, c.Scale)
		}
	}
}
