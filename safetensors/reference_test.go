package safetensors

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"spillway/dtype"
	"spillway/internal/vfs"
	"spillway/shape"
	"spillway/tensorfile"
)

// The files in testdata come from Hugging Face's library
// (tools/reference/safetensors_files.py).

// pattern is the content that script gives to tensors.
func pattern(n int64) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte((int64(i)*31 + n) % 251)
	}
	return p
}

func open(t *testing.T, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func content(t *testing.T, x tensorfile.Tensor) []byte {
	t.Helper()
	p, err := io.ReadAll(io.NewSectionReader(x, 0, x.Bytes))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// source writes back what was read.
func source(x tensorfile.Tensor) tensorfile.Output {
	return tensorfile.Output{Name: x.Name, Type: x.Type, Shape: x.Shape, Write: func(w io.Writer) error {
		_, err := io.Copy(w, io.NewSectionReader(x, 0, x.Bytes))
		return err
	}}
}

func TestReadsEveryType(t *testing.T) {
	f := open(t, "testdata/mixed.safetensors")
	shapes := map[string]shape.Shape{
		"scalar": {}, "empty": {0, 7}, "quote \" backslash \\ tab \t bell \x07 é 漢 🙂 <&>": {5},
	}
	types := map[string]dtype.Type{"scalar": dtype.F32, "empty": dtype.F16}
	for ty := dtype.F64; ty <= dtype.Bool; ty++ {
		types["t."+ty.Torch()], shapes["t."+ty.Torch()] = ty, shape.Of(2, 3)
	}
	if got := len(f.Tensors()); got != len(shapes) {
		t.Fatalf("found %d tensors, want %d", got, len(shapes))
	}
	for name, want := range shapes {
		x, ok := f.Tensor(name)
		if !ok || !x.Shape.Equal(want) {
			t.Errorf("%q: found %v, shape %v, want %v", name, ok, x.Shape, want)
			continue
		}
		if ty, given := types[name]; given && x.Type != ty {
			t.Errorf("%q: type %v, want %v", name, x.Type, ty)
		}
		if !bytes.Equal(content(t, x), pattern(x.Bytes)) {
			t.Errorf("%q: other bytes", name)
		}
	}
	if f.header.Metadata["format"] != "pt" {
		t.Errorf("metadata %v", f.header.Metadata)
	}
	if _, ok := f.Tensor("none"); ok {
		t.Error("found a tensor that is not there")
	}
}

func TestWritesTheSameBytes(t *testing.T) {
	const path = "testdata/mixed.safetensors"
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var sources []tensorfile.Output
	for _, x := range open(t, path).Tensors() {
		sources = append(sources, source(x))
	}
	slices.Reverse(sources) // the order given must not matter
	out := filepath.Join(t.TempDir(), "out.safetensors")
	if err := WriteFile(vfs.OS, out, sources); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("wrote\n%q\nwant\n%q", got, want)
	}
}

func TestReadF32(t *testing.T) {
	f := open(t, "testdata/values.safetensors")
	for _, x := range f.Tensors() {
		got := make([]float32, 17)
		if err := x.ReadF32(got, 0); err != nil {
			t.Fatal(err)
		}
		for i, v := range got {
			if want := float32(i-8) / 4; v != want {
				t.Errorf("%s[%d] = %v, want %v", x.Name, i, v, want)
			}
		}
		if err := x.ReadF32(got[:2], 15); err != nil || got[0] != 7./4 || got[1] != 2 {
			t.Errorf("%s[15:17] = %v, %v", x.Name, got[:2], err)
		}
		for _, bad := range []int64{-1, 1, 18} {
			if x.ReadF32(got, bad) == nil {
				t.Errorf("%s: 17 elements from %d on were read", x.Name, bad)
			}
		}
	}
	x, _ := open(t, "testdata/mixed.safetensors").Tensor("t.int32")
	if x.ReadF32(make([]float32, 6), 0) == nil {
		t.Error("integers were converted")
	}
}

// A tensor of several chunks, in the 16-bit types, against conversion one by one.
func TestReadF32InChunks(t *testing.T) {
	const n = 3*(64<<10)/2 + 5
	raw := make([]byte, 2*n)
	for i := range n {
		raw[2*i], raw[2*i+1] = byte(i), byte(i>>8)
	}
	for ty, widen := range map[dtype.Type]func(uint16) float32{dtype.F16: dtype.FromF16, dtype.BF16: dtype.FromBF16} {
		disk := vfs.NewMemory(1 << 20)
		err := WriteFile(disk, "/x", []tensorfile.Output{{Name: "x", Type: ty, Shape: shape.Of(n), Write: func(w io.Writer) error {
			_, err := w.Write(raw)
			return err
		}}})
		if err != nil {
			t.Fatal(err)
		}
		f, err := OpenOn(disk, "/x")
		if err != nil {
			t.Fatal(err)
		}
		x, _ := f.Tensor("x")
		got := make([]float32, n-3)
		if err := x.ReadF32(got, 3); err != nil {
			t.Fatal(err)
		}
		for i, v := range got {
			if want := widen(uint16(i + 3)); v != want && want == want {
				t.Fatalf("%v element %d: %v, want %v", ty, i+3, v, want)
			}
		}
	}
}

func TestNoTensors(t *testing.T) {
	f := open(t, "testdata/none.safetensors")
	if n := len(f.Tensors()); n != 0 || f.header.FileBytes() != 16 {
		t.Errorf("%d tensors in %d bytes", n, f.header.FileBytes())
	}
	var out bytes.Buffer
	h, err := Layout(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := write(&out, h, nil); err != nil {
		t.Fatal(err)
	}
	want, _ := os.ReadFile("testdata/none.safetensors")
	if !bytes.Equal(out.Bytes(), want) {
		t.Errorf("wrote %q, want %q", out.Bytes(), want)
	}
}

func TestShardsLikeTheHub(t *testing.T) {
	const dir = "testdata/sharded"
	set, err := OpenSetOn(vfs.OS, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	var sources []tensorfile.Output
	for _, name := range []string{
		"layer.0.weight", "layer.0.bias", "layer.1.weight", "layer.1.bias", "layer.2.weight", "layer.2.bias",
		"layer.3.weight", "layer.3.bias", "large",
	} {
		x, ok := set.Tensor(name)
		if !ok {
			t.Fatalf("%s is missing", name)
		}
		sources = append(sources, source(x))
	}
	if len(set.Tensors()) != len(sources) || len(set.files) != 5 {
		t.Errorf("%d tensors in %d files", len(set.Tensors()), len(set.files))
	}
	out := t.TempDir()
	if err := WriteSet(vfs.OS, out, sources, 100); err != nil {
		t.Fatal(err)
	}
	compareFolders(t, out, dir)
}

func compareFolders(t *testing.T, got, want string) {
	t.Helper()
	names, err := vfs.OS.List(want)
	if err != nil {
		t.Fatal(err)
	}
	if have, _ := vfs.OS.List(got); !slices.Equal(have, names) {
		t.Errorf("wrote %v, want %v", have, names)
	}
	for _, n := range names {
		g, _ := os.ReadFile(filepath.Join(got, n))
		w, _ := os.ReadFile(filepath.Join(want, n))
		if !bytes.Equal(g, w) {
			t.Errorf("%s holds\n%q\nwant\n%q", n, g, w)
		}
	}
}
