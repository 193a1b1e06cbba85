package stored_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/hf"
	"spillway/internal/vfs"
	"spillway/quant"
	"spillway/quant/stored"
	"spillway/safetensors"
	"spillway/shape"
)

// Folders in testdata were made by transformers and bitsandbytes from the plain one; see
// tools/reference/quant.py.

func open(t *testing.T, dir string) *hf.Folder {
	t.Helper()
	f, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func collect(t *testing.T, dir string) map[string]stored.Tensor {
	t.Helper()
	list, err := stored.Collect(open(t, dir).Tensors())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]stored.Tensor{}
	for _, w := range list {
		all[w.Name] = w
	}
	return all
}

func numbers(t *testing.T, w interface {
	ReadF32(dst []float32, first int64) error
}, first, n int64) []float32 {
	t.Helper()
	out := make([]float32, n)
	if err := w.ReadF32(out, first); err != nil {
		t.Fatal(err)
	}
	return out
}

func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// What transformers saved decodes to what bitsandbytes decodes, bit for bit, in whole or
// in part.
func TestFoldersDecodeAsBitsandbytes(t *testing.T) {
	decoded, err := safetensors.Open(filepath.Join("testdata", "decoded.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer decoded.Close()
	for name, kind := range map[string]dtype.Type{"nf4": dtype.NF4, "fp4": dtype.FP4, "int8": dtype.I8} {
		all := collect(t, filepath.Join("testdata", name))
		if len(all) != 12 {
			t.Errorf("%s: %d weights, want those of the plain folder, 12", name, len(all))
		}
		for _, x := range decoded.Tensors() {
			module, ok := strings.CutPrefix(x.Name, name+".")
			if !ok {
				continue
			}
			w := all[module+".weight"]
			if w.Type != kind || !w.Shape.Equal(x.Shape) {
				t.Fatalf("%s is %v%v, want %v%v", module, w.Type, w.Shape, kind, x.Shape)
			}
			n := x.Shape.Elements()
			want := numbers(t, x, 0, n)
			if !sameBits(numbers(t, w, 0, n), want) {
				t.Errorf("%s of %s differs", module, name)
			}
			for first := int64(0); first < n; first += 577 {
				k := min(131, n-first)
				if !sameBits(numbers(t, w, first, k), want[first:first+k]) {
					t.Errorf("%s of %s: %d elements from %d differ", module, name, k, first)
				}
			}
		}
		if w := all["model.norm.weight"]; w.Type != dtype.BF16 || numbers(t, w, 3, 1)[0] != 1 {
			t.Errorf("%s: the norm is %v", name, w.Type)
		}
	}
}

// Coded absmax go over into our storage as they are; absmax in f32 do not.
func TestStorageDecodesTheSame(t *testing.T) {
	const name = "model.layers.0.mlp.down_proj.weight"
	w := collect(t, filepath.Join("testdata", "nf4"))[name]
	n := w.Shape.Elements()
	r, exact, ok := w.Storage()
	if !ok || !exact {
		t.Fatalf("ok %v, exact %v", ok, exact)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]float32, n)
	if err := quant.Decode(w.Type, got, b); err != nil || !sameBits(got, numbers(t, w, 0, n)) {
		t.Errorf("the storage decodes differently (%v)", err)
	}
	for _, other := range []string{"fp4", "int8", "plain"} {
		if _, _, ok := collect(t, filepath.Join("testdata", other))[name].Storage(); ok {
			t.Errorf("%s has a storage", other)
		}
	}
}

func products(name string) bool { return strings.HasSuffix(name, "_proj.weight") }

// keep leaves converted folders behind, for tools/reference/loads.py.
var keep = flag.String("keep", "", "an empty folder to write converted models to")

func convert(t *testing.T, kind dtype.Type) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "out")
	if *keep != "" {
		dir = filepath.Join(*keep, kind.String())
	}
	if err := stored.Convert(open(t, "testdata/plain"), dir, stored.Options{Kind: kind, Chosen: products}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func content(t *testing.T, f *hf.Folder, name string) []byte {
	t.Helper()
	x, ok := f.Tensor(name)
	if !ok {
		t.Fatalf("%s has no tensor %s", f.Dir, name)
	}
	b := make([]byte, x.Bytes)
	if _, err := x.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

// A folder quantized here has the tensors of one quantized by transformers: the same
// names, types and shapes, and the same bytes where nothing depends on the order of a
// sum. In 4 bits that leaves out the absmax, which transformers' CPU build codes only
// roughly, and everything that follows from their mean.
func TestConvertWritesWhatTransformersDoes(t *testing.T) {
	for name, kind := range map[string]dtype.Type{"nf4": dtype.NF4, "int8": dtype.I8} {
		ours, theirs := open(t, convert(t, kind)), open(t, filepath.Join("testdata", name))
		if a, b := len(ours.Tensors()), len(theirs.Tensors()); a != b {
			t.Errorf("%s: %d tensors, want %d", name, a, b)
		}
		for _, want := range theirs.Tensors() {
			got, ok := ours.Tensor(want.Name)
			described := strings.Contains(want.Name, "quant_state")
			if !ok || got.Type != want.Type || !described && !got.Shape.Equal(want.Shape) {
				t.Errorf("%s: %s is %v%v, want %v%v", name, want.Name, got.Type, got.Shape, want.Type, want.Shape)
				continue
			}
			a, b := content(t, ours, want.Name), content(t, theirs, want.Name)
			switch {
			case described:
				sameState(t, a, b)
			case strings.HasSuffix(want.Name, "absmax"):
			case !bytes.Equal(a, b):
				t.Errorf("%s: the bytes of %s differ", name, want.Name)
			}
		}
		sameConfig(t, ours, theirs)
	}
}

// sameState compares descriptions; spaces may follow ours.
func sameState(t *testing.T, ours, theirs []byte) {
	t.Helper()
	head := func(b []byte) string {
		text, _, _ := strings.Cut(string(b), `"nested_offset": `)
		return text
	}
	if head(ours) != head(theirs) {
		t.Errorf("description %s, want %s", ours, theirs)
	}
	var a, b struct {
		Offset float64 `json:"nested_offset"`
	}
	if err := json.Unmarshal(ours, &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(theirs, &b); err != nil || math.Abs(a.Offset-b.Offset) > 2e-7*b.Offset {
		t.Errorf("offset %v, want %v (%v)", a.Offset, b.Offset, err)
	}
}

func sameConfig(t *testing.T, ours, theirs *hf.Folder) {
	t.Helper()
	read := func(f *hf.Folder) map[string]string {
		text, _ := f.Config.Value("quantization_config")
		var values map[string]json.RawMessage
		if err := json.Unmarshal(text, &values); err != nil {
			t.Fatal(err)
		}
		m := map[string]string{}
		for k, v := range values {
			m[k] = string(v) // as it is spelled: transformers tells 6 from 6.0
		}
		delete(m, "bnb_4bit_compute_dtype") // a choice, not a property of the weights
		return m
	}
	if a, b := read(ours), read(theirs); !maps.Equal(a, b) {
		t.Errorf("quantization_config is %v, want %v", a, b)
	}
	if err := stored.Check(ours.Config); err != nil {
		t.Error(err)
	}
}

// What is written is what package quant makes of the numbers, in any shape.
func TestWrittenWeightsAreTheCodecs(t *testing.T) {
	for _, s := range []shape.Shape{{1, 1}, {3, 43}, {1, 64}, {130, 129}} {
		n := s.Elements()
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(math.Sin(float64(i))) * 3
		}
		w := stored.Weight{Name: "a.weight", Shape: s, From: func(first int64, dst []float32) error {
			copy(dst, x[first:])
			return nil
		}}
		sources, err := w.FourBit(dtype.FP4, dtype.F16)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "model.safetensors")
		if err := safetensors.WriteFile(vfs.OS, path, sources); err != nil {
			t.Fatal(err)
		}
		file, err := safetensors.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		list, err := stored.Collect(file.Tensors())
		if err != nil || len(list) != 1 {
			t.Fatalf("%d weights, %v", len(list), err)
		}
		packed, want := make([]byte, dtype.FP4.Bytes(n)), make([]float32, n)
		if err := quant.Encode(dtype.FP4, packed, x); err != nil {
			t.Fatal(err)
		}
		if err := quant.Decode(dtype.FP4, want, packed); err != nil || !sameBits(numbers(t, list[0], 0, n), want) {
			t.Errorf("%v: the numbers differ (%v)", s, err)
		}
	}
}
