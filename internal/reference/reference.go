// Package reference reads what others say of a model, for tests: the fixtures in testdata/reference,
// which its README describes, made by PyTorch; and models and data sets that are not part of the repository.
package reference

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"spillway/safetensors"
	"spillway/tensorfile"
)

// Model is a model folder and what PyTorch computed with it.
type Model struct {
	Name string
	Dir  string // of the model
	Loss float64
	Mask string // that gradients of an encoder were made with
	// AdamW and Cosine are ten iterations with constant rate, and with clipping and a
	// schedule.
	AdamW  Ten `json:"adamw"`
	Cosine Ten `json:"adamw_clipped_cosine"`

	tensors *safetensors.File
}

// Ten is ten iterations of training.
type Ten struct {
	Losses          []float64
	Rates           []float64
	GradientNorms   []float64 `json:"gradient_norms"`
	FinalLoss       float64   `json:"final_loss"`
	FinalWeightNorm float64   `json:"final_weight_norm"`
}

// Bounds of differences to PyTorch, relative to a tensor's largest number.
const (
	OneRun  = 1e-5 // logits, loss and gradients
	TenRuns = 1e-4 // losses of ten iterations
)

// Root is the folder of the module, above the package that is tested.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Skip("not in the module's folders")
		}
		dir = filepath.Dir(dir)
	}
}

// Asset is the path of a model or data set in shared/assets, next to any folder above the package that is
// tested. Where it is not, the test is skipped.
func Asset(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, "shared", "assets", name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
		if dir == filepath.Dir(dir) {
			t.Skipf("no shared/assets/%s in any folder above: this test needs the real thing", name)
		}
	}
}

// Open opens a fixture, closed when the test ends.
func Open(t testing.TB, name string) *Model {
	t.Helper()
	m := &Model{Name: name, Dir: filepath.Join(Root(t), "testdata", "reference", name)}
	raw, err := os.ReadFile(filepath.Join(m.Dir, "expect.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, m); err != nil {
		t.Fatal(err)
	}
	if m.tensors, err = safetensors.Open(filepath.Join(m.Dir, "expect.safetensors")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.tensors.Close() })
	return m
}

// Tensor finds one by name.
func (m *Model) Tensor(t testing.TB, name string) tensorfile.Tensor {
	t.Helper()
	found, ok := m.tensors.Tensor(name)
	if !ok {
		t.Fatalf("%s has no tensor %s", m.Dir, name)
	}
	return found
}

// Floats of a tensor.
func (m *Model) Floats(t testing.TB, name string) []float32 {
	t.Helper()
	from := m.Tensor(t, name)
	out := make([]float32, from.Shape.Elements())
	if err := from.ReadF32(out, 0); err != nil {
		t.Fatal(err)
	}
	return out
}

// Ints of a tensor of 32- or 64-bit integers.
func (m *Model) Ints(t testing.TB, name string) []int32 {
	t.Helper()
	from := m.Tensor(t, name)
	raw := make([]byte, from.Bytes)
	if _, err := from.ReadAt(raw, 0); err != nil {
		t.Fatal(err)
	}
	out := make([]int32, from.Shape.Elements())
	for i := range out {
		if from.Bytes == 8*int64(len(out)) {
			out[i] = int32(binary.LittleEndian.Uint64(raw[8*i:]))
		} else {
			out[i] = int32(binary.LittleEndian.Uint32(raw[4*i:]))
		}
	}
	return out
}
