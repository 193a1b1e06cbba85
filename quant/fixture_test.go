package quant

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/safetensors"
	"spillway/tensorfile"
)

// fixture is a file of what bitsandbytes computed; see tools/reference/quant.py.
type fixture struct {
	t    *testing.T
	file *safetensors.File
}

func open(t *testing.T, name string) fixture {
	t.Helper()
	f, err := safetensors.Open(filepath.Join("testdata", name+".safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return fixture{t, f}
}

func (f fixture) tensor(name string) tensorfile.Tensor {
	f.t.Helper()
	x, ok := f.file.Tensor(name)
	if !ok {
		f.t.Fatalf("the fixture has no tensor %s", name)
	}
	return x
}

// numbers of a tensor of any real type.
func (f fixture) numbers(name string) []float32 {
	f.t.Helper()
	x := f.tensor(name)
	out := make([]float32, x.Shape.Elements())
	if err := x.ReadF32(out, 0); err != nil {
		f.t.Fatal(err)
	}
	return out
}

func (f fixture) bytes(name string) []byte {
	f.t.Helper()
	x := f.tensor(name)
	out := make([]byte, x.Bytes)
	if _, err := x.ReadAt(out, 0); err != nil {
		f.t.Fatal(err)
	}
	return out
}

// cases are the names of the inputs.
func (f fixture) cases() (names []string) {
	for _, x := range f.file.Tensors() {
		if !strings.Contains(x.Name, ".") {
			names = append(names, x.Name)
		}
	}
	if len(names) < 8 {
		f.t.Fatalf("only %d cases in the fixture", len(names))
	}
	return names
}

// sameBits compares to the bit, zeros of both signs excepted.
func sameBits(got, want []float32) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d numbers, want %d", len(got), len(want))
	}
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) && !(got[i] == 0 && want[i] == 0) {
			return fmt.Errorf("number %d is %v (%#08x), want %v (%#08x)", i, got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
	return nil
}

func sameCodes(got, want []byte) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d bytes, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("byte %d is %#02x, want %#02x", i, got[i], want[i])
		}
	}
	return nil
}

// rounded brings numbers to a narrower type and back.
func rounded(t dtype.Type, src []float32) []float32 {
	out := make([]float32, len(src))
	for i, f := range src {
		switch t {
		case dtype.BF16:
			out[i] = dtype.FromBF16(dtype.ToBF16(f))
		case dtype.F16:
			out[i] = dtype.FromF16(dtype.ToF16(f))
		default:
			out[i] = f
		}
	}
	return out
}
