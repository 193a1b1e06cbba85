package pickle

import (
	"archive/zip"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway/internal/vfs"
	"spillway/safetensors"
	"spillway/tensorfile"
)

// The sharded files have the tensors of the safetensors file they were made from.
func TestShardsAreTheModel(t *testing.T) {
	got, err := Format.OpenFolder(vfs.OS, "testdata/sharded")
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	want, err := safetensors.Open("../testdata/reference/qwen3/model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer want.Close()
	if len(got.Tensors()) != len(want.Tensors()) {
		t.Errorf("%d tensors, want %d", len(got.Tensors()), len(want.Tensors()))
	}
	for _, w := range want.Tensors() {
		g, ok := got.Tensor(w.Name)
		if !ok || !g.Shape.Equal(w.Shape) || g.Type != w.Type || !slices.Equal(numbers(t, g), numbers(t, w)) {
			t.Errorf("tensor %s is %v%v, want %v%v with the same numbers", w.Name, g.Type, g.Shape, w.Type, w.Shape)
		}
	}
}

func numbers(t *testing.T, x tensorfile.Tensor) []float32 {
	t.Helper()
	list := make([]float32, x.Shape.Elements())
	if x.CheckReal() != nil {
		return nil
	}
	if err := x.ReadF32(list, 0); err != nil {
		t.Fatal(err)
	}
	return list
}

// Tensors of all types, parts of a storage, parameters and a module's state are read.
func TestKinds(t *testing.T) {
	for _, name := range []string{"kinds.bin", "legacy.bin"} { // the second as PyTorch wrote it before 1.6
		t.Run(name, func(t *testing.T) { checkKinds(t, "testdata/"+name) })
	}
	m, err := OpenOn(vfs.OS, "testdata/module.bin")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if x, _ := m.Tensor("weight"); !slices.Equal(numbers(t, x), []float32{0, 1, 2, 3, 4, 5}) {
		t.Errorf("the weight of a module is %v", numbers(t, x))
	}
}

func checkKinds(t *testing.T, path string) {
	f, err := OpenOn(vfs.OS, path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for name, want := range map[string][]float32{
		"part": {5, 6, 7, 8, 9, 10}, "scalar": {7}, "empty": {}, "parameter": {0, 1, 2, 3}, "one row": {0, 1, 2, 3, 4, 5},
	} {
		x, ok := f.Tensor(name)
		if !ok || !slices.Equal(numbers(t, x), want) {
			t.Errorf("%s is %v, want %v", name, numbers(t, x), want)
		}
	}
	for name, kind := range map[string]string{"f32": "f32", "bf16": "bf16", "f16": "f16", "f64": "f64", "i64": "i64"} {
		x, _ := f.Tensor(name)
		if got := numbers(t, x); x.Type.String() != kind || got != nil && (len(got) != 24 || got[23] != 23) {
			t.Errorf("%s is %v %v", name, x.Type, got)
		}
	}
}

// What is not a dictionary of tensors is refused, and says what it is.
func TestOtherFilesAreRefused(t *testing.T) {
	for file, say := range map[string]string{
		"transposed.bin": "contiguous", "nested.bin": "save the model's state_dict", "whole-module.bin": "torch.nn.modules.linear.Linear",
	} {
		if _, err := OpenOn(vfs.OS, "testdata/"+file); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v, want an error with %q", file, err, say)
		}
	}
}

// Files of the old form that are cut or changed are refused.
func TestDamagedLegacyFiles(t *testing.T) {
	whole, err := os.ReadFile("testdata/legacy.bin")
	if err != nil {
		t.Fatal(err)
	}
	disk := vfs.NewMemory(1 << 20)
	for n := range whole {
		if err := vfs.ReplaceBytes(disk, "x.bin", whole[:n]); err != nil {
			t.Fatal(err)
		}
		if f, err := OpenOn(disk, "x.bin"); err == nil {
			f.Close()
			t.Fatalf("the first %d of %d bytes are read", n, len(whole))
		}
	}
	for from, to := range map[string]string{"little_endian": "middle_endian", "_rebuild_tensor_v2": "_rebuild_tensor_v9"} {
		if err := vfs.ReplaceBytes(disk, "x.bin", []byte(strings.Replace(string(whole), from, to, 1))); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenOn(disk, "x.bin"); err == nil {
			t.Errorf("%s for %s is read", to, from)
		}
	}
}

// archive is a file of PyTorch with a given pickle.
func archive(t *testing.T, pickle []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.bin")
	if err := os.WriteFile(path, zipped(t, pickle), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// zipped is what such a file contains.
func zipped(t *testing.T, pickle []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range map[string][]byte{"m/data.pkl": pickle, "m/data/0": make([]byte, 16)} {
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Programs in pickles are refused by the name of what they would call.
func TestProgramsAreRefused(t *testing.T) {
	for pickle, say := range map[string]string{
		"\x80\x02cos\nsystem\nq\x00X\x02\x00\x00\x00lsq\x01\x85q\x02Rq\x03.": `"os.system"`,
		"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x02ls\x85R.":            `"posix.system"`,
		"\x80\x02cbuiltins\neval\nX\x01\x00\x00\x001\x85R.":                  `"builtins.eval"`,
		"\x80\x02ctorch\nload\n.":                                            `"torch.load"`,
		"\x80\x02ctorch._utils\n_rebuild_tensor\n.":                          `"torch._utils._rebuild_tensor"`,
		"\x80\x02i0\n.":   "opcode 0x69",
		"\x80\x02(K\x01.": "not a dictionary",
		"\x80\x02}X\x01\x00\x00\x00xctorch\nFloatStorage\ns.":     "torch.FloatStorage",
		"\x80\x02ctorch\nFloatStorage\n)R.":                       "a call of",
		"\x80\x02X\xff\xff\xff\x7f.":                              "text of",
		"\x80\x02h\x07.":                                          "not stored",
		"\x80\x02":                                                "are left",
		"\x80\x02.":                                               "empty",
		"\x80\x02ccollections\nOrderedDict\n(K\x01K\x02tR.":       "2 values",
		"\x80\x02]K\x01K\x02s.":                                   "for a list",
		"\x80\x02}ctorch\nFloatStorage\nX\x01\x00\x00\x00y\x86Q.": "not to a storage",
		"\x80\x02}X\x01\x00\x00\x00x(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x009X\x03\x00\x00\x00cpuK\x04tQs.": "not a tensor",
	} {
		if _, err := OpenOn(vfs.OS, archive(t, []byte(pickle))); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%q: %v, want an error with %s", pickle, err, say)
		}
	}
}

// tensorPickle describes a tensor of some elements at an offset of a storage of four.
func tensorPickle(key string, offset, elements byte) []byte {
	return []byte("\x80\x02}X\x01\x00\x00\x00xctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x00" + key + "X\x03\x00\x00\x00cpuK\x04tQK" +
		string([]byte{offset}) + "K" + string([]byte{elements}) + "\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtRs.")
}

// A tensor beyond its storage, or in none, is refused.
func TestTensorsStayInTheirStorage(t *testing.T) {
	f, err := OpenOn(vfs.OS, archive(t, tensorPickle("0", 1, 3)))
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	for name, pickle := range map[string][]byte{"long": tensorPickle("0", 0, 5), "late": tensorPickle("0", 2, 3), "far": tensorPickle("0", 200, 0), "elsewhere": tensorPickle("7", 0, 1)} {
		if _, err := OpenOn(vfs.OS, archive(t, pickle)); err == nil || !strings.Contains(err.Error(), "storage") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
