package offload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/internal/vfs"
	"spillway/safetensors"
	"spillway/shape"
	"spillway/tensorfile"
)

// A folder is what package weights reads params from.
var _ interface {
	Tensors() []tensorfile.Tensor
	Tensor(name string) (tensorfile.Tensor, bool)
} = (*Folder)(nil)

// The folder that accelerate wrote gives PyTorch's numbers, and its bytes as they lie.
func TestFolderOfAccelerate(t *testing.T) {
	f, err := OpenOn(vfs.OS, "testdata/offload")
	must(t, err)
	raw, err := os.ReadFile("testdata/offload.json")
	must(t, err)
	var want map[string][]float64
	must(t, json.Unmarshal(raw, &want))
	if len(f.Tensors()) != 7 || len(want) != 5 {
		t.Fatalf("%d tensors, %d with numbers", len(f.Tensors()), len(want))
	}
	for _, tensor := range f.Tensors() {
		content, err := os.ReadFile(filepath.Join("testdata/offload", tensor.Name+".dat"))
		must(t, err)
		if raw := make([]byte, tensor.Bytes); !readAll(t, tensor, raw) || !bytes.Equal(raw, content) {
			t.Errorf("%s: its bytes differ", tensor.Name)
		}
		numbers, real := want[tensor.Name]
		if !real {
			continue
		}
		got := make([]float32, len(numbers))
		must(t, tensor.ReadF32(got, 0))
		for i := range got {
			if got[i] != float32(numbers[i]) {
				t.Errorf("%s %d: %v, want %v", tensor.Name, i, got[i], numbers[i])
			}
		}
	}
	must(t, f.Close())
}

func readAll(t *testing.T, from io.ReaderAt, p []byte) bool {
	t.Helper()
	n, err := from.ReadAt(p, 0)
	return n == len(p) && (err == nil || err == io.EOF)
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// sources are the tensors of a folder, to be written again.
func sources(f *Folder) (list []tensorfile.Output) {
	for _, t := range f.Tensors() {
		list = append(list, tensorfile.Output{Name: t.Name, Type: t.Type, Shape: t.Shape, Write: func(w io.Writer) error {
			_, err := io.Copy(w, io.NewSectionReader(t, 0, t.Bytes))
			return err
		}})
	}
	return list
}

// Written by us, a folder has the same bytes as written by accelerate.
func TestFolderWrittenLikeAccelerate(t *testing.T) {
	f, err := OpenOn(vfs.OS, "testdata/offload")
	must(t, err)
	dir := t.TempDir()
	must(t, Fill(vfs.OS, dir, sources(f)), f.Close())
	names, err := os.ReadDir("testdata/offload")
	must(t, err)
	if got, err := os.ReadDir(dir); err != nil || len(got) != len(names) {
		t.Errorf("%d files, accelerate wrote %d (%v)", len(got), len(names), err)
	}
	for _, n := range names {
		want, err := os.ReadFile(filepath.Join("testdata/offload", n.Name()))
		must(t, err)
		got, err := os.ReadFile(filepath.Join(dir, n.Name()))
		if must(t, err); !bytes.Equal(got, want) {
			t.Errorf("%s: %q, accelerate wrote %q", n.Name(), got, want)
		}
	}
}

// An index that links to safetensors files instead of holding bytes: files of its own folder, or
// of the model folder that it lies in, and no others, by whatever way.
func TestFolderOfLinks(t *testing.T) {
	values, err := os.ReadFile("../../safetensors/testdata/values.safetensors")
	must(t, err)
	outside, model := t.TempDir(), t.TempDir()
	dir := filepath.Join(model, "offload")
	must(t, os.Mkdir(dir, 0o700))
	for _, name := range []string{filepath.Join(outside, "w.safetensors"), filepath.Join(model, "w.safetensors"), filepath.Join(dir, "w.safetensors")} {
		must(t, os.WriteFile(name, values, 0o600))
	}
	must(t, os.Symlink(filepath.Join(outside, "w.safetensors"), filepath.Join(dir, "link.safetensors")), os.Symlink(outside, filepath.Join(dir, "folder")))
	must(t, os.WriteFile(filepath.Join(outside, "b.dat"), make([]byte, 8), 0o600), os.Symlink(filepath.Join(outside, "b.dat"), filepath.Join(dir, "b.dat")))
	linked := func(file string) string {
		return fmt.Sprintf(`{"a": {"safetensors_file": %q, "weight_name": "x.float32", "dtype": "float32"}}`, file)
	}
	open := func(index string) (*Folder, error) {
		must(t, os.WriteFile(filepath.Join(dir, IndexName), []byte(index), 0o600))
		return OpenOn(vfs.OS, dir)
	}
	for _, isModel := range []bool{false, true} {
		if isModel {
			must(t, os.WriteFile(filepath.Join(model, "config.json"), []byte("{}"), 0o600))
		}
		for _, c := range []struct {
			index string
			ok    bool
		}{
			{linked(filepath.Join(dir, "w.safetensors")), true}, {linked("w.safetensors"), true}, {linked(filepath.Join(model, "w.safetensors")), isModel}, {linked("../w.safetensors"), isModel},
			{linked(filepath.Join(outside, "w.safetensors")), false}, {linked("../../w.safetensors"), false}, {linked("link.safetensors"), false}, {linked("folder/w.safetensors"), false},
			{`{"b": {"dtype": "float32", "shape": [2]}}`, false},
		} {
			f, err := open(c.index)
			if !c.ok {
				if err == nil || !strings.Contains(err.Error(), "is outside of the folder") {
					t.Errorf("model folder %v, %s: %v", isModel, c.index, err)
				}
				continue
			}
			must(t, err)
			tensor, ok := f.Tensor("a")
			got := make([]float32, 17)
			must(t, tensor.ReadF32(got, 0))
			if !ok || tensor.Name != "a" || got[0] != -2 || got[16] != 2 {
				t.Errorf("%+v, %v", tensor.Name, got)
			}
			must(t, f.Close())
		}
	}
}

func TestBadFolders(t *testing.T) {
	for _, c := range []struct{ index, says string }{
		{`[]`, "object"},
		{`{"a": {"dtype": "float32", "shape": [2]}`, "EOF"},
		{`{"a": {"dtype": "float32", "shape": [2]}} {}`, "after its end"},
		{`{"a": {"dtype": "float32", "shape": [2]}, "a": {"dtype": "float32", "shape": [2]}}`, "twice"},
		{`{"a": {"dtype": "float33", "shape": [2]}}`, "float33"},
		{`{"a": {"dtype": "float32", "shape": [3]}}`, "12 bytes"},
		{`{"a": {"dtype": "float32", "shape": [-2]}}`, "-2"},
		{`{"a": {"dtype": "float32", "shape": [4611686018427387904, 4]}}`, "a"},
		{`{"a": {"dtype": "float32"}}`, "neither"},
		{`{"a": {"dtype": "float32", "safetensors_file": "/dev/zero", "weight_name": "a"}}`, "no .safetensors file"},
		{`{"../a": {"dtype": "float32", "shape": [2]}}`, "name"},
		{`{"": {"dtype": "float32", "shape": [2]}}`, "name"},
		{`{"b": {"dtype": "float32", "shape": [2]}}`, "b.dat"},
		{`{"a": {"dtype": "float32", "safetensors_file": "/nowhere.safetensors", "weight_name": "a"}}`, "nowhere"},
		{`{"a": {"dtype": "float32", "safetensors_file": "/w.safetensors", "weight_name": "b"}}`, "b"},
		{`{"a": {"dtype": "float16", "safetensors_file": "/w.safetensors", "weight_name": "w"}}`, "f16"},
	} {
		disk := vfs.NewMemory(1 << 20)
		put := func(name, text string) {
			must(t, vfs.WriteFile(disk, name, func(w io.Writer) error { _, err := io.WriteString(w, text); return err }))
		}
		must(t, safetensors.WriteFile(disk, "/w.safetensors", []tensorfile.Output{{Name: "w", Type: dtype.F32, Shape: shape.Of(1), Write: func(w io.Writer) error { _, err := w.Write(make([]byte, 4)); return err }}}))
		put("/a.dat", "12345678")
		put("/"+IndexName, c.index)
		if _, err := OpenOn(disk, "/"); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.index, err)
		}
	}
}

// Sources that are not what they say are refused.
func TestFillRefuses(t *testing.T) {
	eight := func(w io.Writer) error { _, err := w.Write(make([]byte, 8)); return err }
	for name, list := range map[string][]tensorfile.Output{
		"short":   {{Name: "a", Type: dtype.F32, Shape: shape.Of(3), Write: eight}},
		"long":    {{Name: "a", Type: dtype.F32, Shape: shape.Of(1), Write: eight}},
		"twice":   {{Name: "a", Type: dtype.F32, Shape: shape.Of(2), Write: eight}, {Name: "a", Type: dtype.F32, Shape: shape.Of(2), Write: eight}},
		"outside": {{Name: "../a", Type: dtype.F32, Shape: shape.Of(2), Write: eight}},
	} {
		disk := vfs.NewMemory(1 << 20)
		if Fill(disk, "/", list) == nil {
			t.Errorf("%s: written", name)
		}
	}
}

// FuzzFolder: no index makes the reader panic.
func FuzzFolder(f *testing.F) {
	f.Add(`{"a": {"dtype": "float32", "shape": [2]}}`)
	f.Add(`{"a": {"dtype": "bfloat16", "shape": []}, "b": {"safetensors_file": "/a.dat", "weight_name": "x", "dtype": "bool"}}`)
	f.Fuzz(func(t *testing.T, index string) {
		disk := vfs.NewMemory(1 << 20)
		for name, text := range map[string]string{"/a.dat": "12345678", "/" + IndexName: index} {
			must(t, vfs.WriteFile(disk, name, func(w io.Writer) error { _, err := io.WriteString(w, text); return err }))
		}
		folder, err := OpenOn(disk, "/")
		if err == nil {
			must(t, folder.Close())
		}
	})
}
