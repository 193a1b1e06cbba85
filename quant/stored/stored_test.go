package stored_test

import (
	"bytes"
	"encoding/binary"
	"io"
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
	"spillway/tensorfile"
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
	for name, kind := range map[string]dtype.Type{"nf4": quant.NF4, "fp4": quant.FP4, "int8": quant.RowI8} {
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
	if err := quant.Decode(w.Type, got, b, len(got)); err != nil || !sameBits(got, numbers(t, w, 0, n)) {
		t.Errorf("the storage decodes differently (%v)", err)
	}
	rows := collect(t, filepath.Join("testdata", "int8"))[name]
	if r, exact, ok = rows.Storage(); !ok || !exact {
		t.Fatalf("int8: ok %v, exact %v", ok, exact)
	}
	if b, err = io.ReadAll(r); err != nil {
		t.Fatal(err)
	}
	if err := quant.Decode(rows.Type, got, b, int(rows.Shape[1])); err != nil || !sameBits(got, numbers(t, rows, 0, n)) {
		t.Errorf("the storage of rows decodes differently (%v)", err)
	}
	for _, other := range []string{"fp4", "plain"} {
		if _, _, ok := collect(t, filepath.Join("testdata", other))[name].Storage(); ok {
			t.Errorf("%s has a storage", other)
		}
	}
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

// What is written is what package quant makes of the numbers, in any shape and form.
func TestWrittenWeightsAreTheCodecs(t *testing.T) {
	for _, s := range []shape.Shape{{1, 1}, {3, 43}, {1, 64}, {130, 129}} {
		n := s.Elements()
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(math.Sin(float64(i))) * 3
		}
		for _, kind := range []dtype.Type{quant.NF4, quant.FP4, quant.RowI8, quant.RowF8} {
			for _, double := range []bool{true, false} {
				w := written(t, s, x, kind, double)
				if w.Type != kind || !w.Shape.Equal(s) || w.DoubleQuantized() != (double && !kind.ByRows()) {
					t.Errorf("%v%v became %v%v, double %v", kind, s, w.Type, w.Shape, w.DoubleQuantized())
				}
				if !sameBits(numbers(t, w, 0, n), coded(t, kind, s, x, double)) {
					t.Errorf("%v%v: the numbers differ", kind, s)
				}
			}
		}
	}
}

// written is a weight after it was written and read.
func written(t *testing.T, s shape.Shape, x []float32, kind dtype.Type, double bool) stored.Tensor {
	t.Helper()
	w := stored.Weight{Name: "a.weight", Shape: s, From: func(first int64, dst []float32) error {
		copy(dst, x[first:])
		return nil
	}}
	sources, err := w.Outputs(stored.Options{Type: kind, Model: dtype.F16, Double: double})
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
	t.Cleanup(func() { file.Close() })
	list, err := stored.Collect(file.Tensors())
	if err != nil || len(list) != 1 || len(list[0].Parts) != len(file.Tensors()) {
		t.Fatalf("%d weights, %v", len(list), err)
	}
	return list[0]
}

// coded is numbers after package quant coded and decoded them.
func coded(t *testing.T, kind dtype.Type, s shape.Shape, x []float32, double bool) []float32 {
	t.Helper()
	out := make([]float32, len(x))
	var err error
	switch {
	case kind.ByRows():
		packed := make([]byte, s[0]*kind.Bytes(s[1]))
		if err = quant.Encode(kind, packed, x, int(s[1])); err == nil {
			err = quant.Decode(kind, out, packed, int(s[1]))
		}
	case double:
		packed := make([]byte, kind.Bytes(int64(len(x))))
		if err = quant.Encode(kind, packed, x, len(x)); err == nil {
			err = quant.Decode(kind, out, packed, len(out))
		}
	default:
		codes, absmax := make([]byte, (len(x)+1)/2), make([]float32, (len(x)+63)/64)
		quant.FourBitOf(kind).Encode(codes, absmax, x, 64)
		quant.FourBitOf(kind).Decode(out, codes, absmax, 64)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// pairs is a codec whose blocks of two lie one after another, as those of GGUF do: an f32
// scale, and a byte of sign for each element.
var pairs = quant.Register(quant.Codec{
	Name: "pairs", Block: 2, Bytes: func(n int64) int64 { return (n + 1) / 2 * 6 },
	Decode: func(dst []float32, storage []byte, _, _, first int) {
		for i := range dst {
			block := storage[(first+i)/2*6:]
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(block)) * (1 - 2*float32(block[4+(first+i)%2]))
		}
	},
})

// A file may have a weight as one tensor of a block type, which is read in any part.
func TestTensorsOfBlockTypes(t *testing.T) {
	var raw []byte
	want := make([]float32, 7)
	for i := range want {
		if i%2 == 0 {
			raw = append(binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(i+1))), 0, 1)
		}
		want[i] = float32(i/2*2+1) * float32(1-2*(i%2))
	}
	list, err := stored.Collect([]tensorfile.Tensor{{Name: "w", Type: pairs, Shape: shape.Of(1, 7), Bytes: pairs.Bytes(7), Data: bytes.NewReader(raw)}})
	if err != nil || len(list) != 1 {
		t.Fatalf("%d weights (%v)", len(list), err)
	}
	for first := range int64(7) {
		if got := numbers(t, list[0], first, 7-first); !slices.Equal(got, want[first:]) {
			t.Errorf("from %d on it is %v, want %v", first, got, want[first:])
		}
	}
	r, exact, ok := list[0].Storage()
	if got, err := io.ReadAll(r); err != nil || !exact || !ok || !bytes.Equal(got, raw) {
		t.Errorf("its storage is %v (%v)", got, err)
	}
}
