package weights_test

import (
	"bytes"
	"io"
	"math"
	"slices"
	"testing"

	"spillway/dtype"
	"spillway/nn"
	"spillway/op"
	"spillway/quant"
	"spillway/shape"
	"spillway/spec"
	"spillway/weights"
)

func noise(t *testing.T, seed uint64, init nn.Init, n int) weights.Values {
	t.Helper()
	s, err := weights.Noise([]spec.Param{{Name: "w", Type: op.Type{DType: quant.NF4, Shape: shape.Of(n)}, Init: init}}, seed)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// packedNoise is the storage and what it stands for.
func packedNoise(t *testing.T, s weights.Values, kind dtype.Type, n int) (storage []byte, values []float32) {
	t.Helper()
	r, ok := s.(weights.Packed).Packed("w", kind)
	if !ok {
		t.Fatalf("no %v", kind)
	}
	storage, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	values = make([]float32, n)
	if err := quant.Decode(kind, values, storage, len(values)); err != nil {
		t.Fatal(err)
	}
	return storage, values
}

// Noise has the spread of random initial values, as plain numbers and packed, at every size.
func TestNoiseHasItsSpread(t *testing.T) {
	const n = 300_001
	for name, init := range map[string]nn.Init{"normal": nn.Normal(0.02), "uniform": nn.Uniform(0.02 * math.Sqrt(3))} {
		s := noise(t, 5, init, n)
		lists := map[string][]float32{"plain": numbers(t, s, "w", 0, n)}
		for _, kind := range []dtype.Type{quant.NF4, quant.FP4} {
			_, lists[kind.String()] = packedNoise(t, s, kind, n)
		}
		for as, list := range lists {
			if mean, std, _ := moments(list); math.Abs(mean) > 1e-3 || math.Abs(std-0.02) > 2e-4 {
				t.Errorf("%s as %s: mean %v, deviation %v", name, as, mean, std)
			}
		}
	}
}

// However it is read, the bytes and the numbers are the same.
func TestPackedNoiseIsReadInAnyParts(t *testing.T) {
	const n = 200<<10 + 256*3
	s := noise(t, 3, nn.Normal(1), n)
	for _, kind := range []dtype.Type{quant.NF4, quant.Q4_K} {
		whole, _ := packedNoise(t, s, kind, n)
		for _, step := range []int{3, 8, 1001, 70_000, 1 << 20} {
			r, _ := s.(weights.Packed).Packed("w", kind)
			var parts []byte
			for len(parts) < len(whole) {
				part := make([]byte, min(step, len(whole)-len(parts)))
				if _, err := io.ReadFull(r, part); err != nil {
					t.Fatal(err)
				}
				parts = append(parts, part...)
			}
			if !bytes.Equal(parts, whole) {
				t.Errorf("%v: in parts of %d the bytes differ", kind, step)
			}
		}
	}
	plain := numbers(t, s, "w", 0, 64)
	for first := range 9 {
		for end := first; end < 20; end++ {
			if !slices.Equal(numbers(t, s, "w", int64(first), end-first), plain[first:end]) {
				t.Errorf("numbers from %d to %d differ", first, end)
			}
		}
	}
}

// It depends on the seed and the name alone; constants are themselves.
func TestNoiseIsRepeatable(t *testing.T) {
	const n = 1000
	first, _ := packedNoise(t, noise(t, 1, nn.Normal(1), n), quant.NF4, n)
	again, _ := packedNoise(t, noise(t, 1, nn.Normal(1), n), quant.NF4, n)
	other, _ := packedNoise(t, noise(t, 2, nn.Normal(1), n), quant.NF4, n)
	if !bytes.Equal(first, again) || bytes.Equal(first, other) {
		t.Error("noise is not a function of its seed")
	}
	s := noise(t, 1, nn.Constant(3), n)
	if _, ok := s.(weights.Packed).Packed("w", quant.NF4); ok || numbers(t, s, "w", 7, 1)[0] != 3 {
		t.Error("a constant became noise")
	}
	if _, err := weights.Noise([]spec.Param{{Name: "w", Init: nn.Init{Dist: "cauchy"}}}, 0); err == nil {
		t.Error("an unknown distribution was accepted")
	}
}
