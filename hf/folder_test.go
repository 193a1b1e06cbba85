package hf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/internal/reference"
	"spillway/internal/vfs"
	"spillway/shape"
	"spillway/tensorfile"
)

func openFolder(t *testing.T, dir string) *Folder {
	t.Helper()
	f, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// again is a model that writes what a folder holds.
func again(f *Folder) Model {
	m := Model{Config: f.Config, Generation: f.Generation, Files: f.TokenizerPaths()}
	for _, x := range f.Tensors() {
		m.Tensors = append(m.Tensors, tensorfile.Output{Name: x.Name, Type: x.Type, Shape: x.Shape, Write: func(w io.Writer) error {
			_, err := io.Copy(w, io.NewSectionReader(x, 0, x.Bytes))
			return err
		}})
	}
	return m
}

func sameFile(t *testing.T, a, b string) {
	t.Helper()
	x, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.ReadFile(b)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(x, y) {
		t.Errorf("%s and %s differ", a, b)
	}
}

func TestFolderComesBack(t *testing.T) {
	const dir = "testdata/tiny"
	f := openFolder(t, dir)
	if f.NeedWeights() != nil || !slices.Equal(f.Tokenizer, []string{"tokenizer.json"}) || f.Config.HiddenSize != 4 {
		t.Errorf("%+v", f)
	}
	x, ok := f.Tensor("transformer.wpe.weight")
	got := make([]float32, 32)
	if err := x.ReadF32(got, 0); !ok || err != nil || !x.Shape.Equal(shape.Of(8, 4)) || got[31] != 31./4 {
		t.Errorf("%v %v %v %v", ok, err, x.Shape, got)
	}
	out := filepath.Join(t.TempDir(), "a", "b") // parents are made
	if err := again(f).Write(out); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"config.json", "generation_config.json", "tokenizer.json", "model.safetensors"} {
		sameFile(t, filepath.Join(out, n), filepath.Join(dir, n))
	}
	if err := again(f).Write(out); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("writing over a folder: %v", err)
	}
}

// A trained Llama: every tensor its shape, and the same bytes when written.
func TestStories(t *testing.T) {
	dir := reference.Asset(t, "stories260k")
	f := openFolder(t, dir)
	c := f.Config
	if c.ModelType != "llama" || c.Layers != 5 || c.Heads != 8 || c.KVHeads != 4 || c.HeadDim != 8 || !c.Tied || c.Type != dtype.F32 || c.Rope.Theta != 10000 {
		t.Errorf("%+v", c)
	}
	elements := int64(0)
	for _, x := range f.Tensors() {
		elements += x.Shape.Elements()
	}
	if elements != 260032 {
		t.Errorf("%d parameters, want 260032", elements)
	}
	x, ok := f.Tensor("model.layers.4.self_attn.k_proj.weight")
	if !ok || !x.Shape.Equal(shape.Of(c.KVHeads*c.HeadDim, c.HiddenSize)) {
		t.Errorf("k_proj: %v, shape %v", ok, x.Shape)
	}
	out := filepath.Join(t.TempDir(), "out")
	if err := again(f).Write(out); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"config.json", "generation_config.json", "model.safetensors"} {
		sameFile(t, filepath.Join(out, n), filepath.Join(dir, n))
	}
	m := again(f)
	m.ShardBytes = 300_000
	shards := filepath.Join(t.TempDir(), "shards")
	if err := m.Write(shards); err != nil {
		t.Fatal(err)
	}
	s := openFolder(t, shards)
	files := map[string]bool{}
	for _, x := range s.Tensors() {
		files[x.Path] = true
	}
	if len(s.Tensors()) != len(f.Tensors()) || len(files) != 4 {
		t.Errorf("%d tensors in %d shards", len(s.Tensors()), len(files))
	}
}

func TestFoldersWithoutWeights(t *testing.T) {
	disk := vfs.NewMemory(1 << 20)
	if _, err := OpenOn(disk, "/"); err == nil || !strings.Contains(err.Error(), "not a model folder") {
		t.Errorf("an empty folder: %v", err)
	}
	writeBytes(disk, "/config.json", []byte(`{"model_type":"llama"}`))
	f, err := OpenOn(disk, "/")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := f.Tensor("x"); ok || f.Tensors() != nil || f.Close() != nil {
		t.Error("tensors without weights")
	}
	if err := f.NeedWeights(); err == nil || !strings.Contains(err.Error(), "no weights") {
		t.Errorf("%v", err)
	}
	writeBytes(disk, "/consolidated.00.pth", []byte("PK"))
	writeBytes(disk, "/tokenizer.bin", []byte("x"))
	f, err = OpenOn(disk, "/")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.NeedWeights(); err == nil || !strings.Contains(err.Error(), "only as consolidated.00.pth") {
		t.Errorf("%v", err)
	}
	writeBytes(disk, "/model.safetensors.index.json", []byte(`{"weight_map":{"x":"model-1.safetensors"}}`))
	if _, err = OpenOn(disk, "/"); err == nil || !strings.Contains(err.Error(), "model-1.safetensors") {
		t.Errorf("a missing shard: %v", err)
	}
	writeBytes(disk, "/generation_config.json", []byte("[]"))
	if _, err = OpenOn(disk, "/"); err == nil || !strings.Contains(err.Error(), "generation_config.json") {
		t.Errorf("a broken generation config: %v", err)
	}
}

// A folder of the hub's cache whose fetching was interrupted says how to go on.
func TestHalfFetchedFolders(t *testing.T) {
	disk, commit := vfs.NewMemory(1<<20), strings.Repeat("0a", 20)
	dir := "/hub/models--org--tiny/snapshots/" + commit
	if err := vfs.MkdirAll(disk, dir); err != nil {
		t.Fatal(err)
	}
	writeBytes(disk, dir+"/config.json", []byte(`{"model_type":"llama"}`))
	f, err := OpenOn(disk, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.NeedWeights(); err == nil || !strings.Contains(err.Error(), "spillway pull org/tiny@"+commit) {
		t.Errorf("%v", err)
	}
}

// A folder with PyTorch's own files has the weights of the one they were made from.
func TestFoldersWithPickles(t *testing.T) {
	dir := t.TempDir()
	for name, from := range map[string]string{
		"config.json": "../testdata/reference/qwen3/config.json", "pytorch_model.bin.index.json": "../pickle/testdata/sharded/pytorch_model.bin.index.json",
		"pytorch_model-00001-of-00002.bin": "../pickle/testdata/sharded/pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin": "../pickle/testdata/sharded/pytorch_model-00002-of-00002.bin",
	} {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want, err := Open("../testdata/reference/qwen3")
	if err != nil {
		t.Fatal(err)
	}
	defer want.Close()
	for _, w := range want.Tensors() {
		if x, ok := f.Tensor(w.Name); !ok || !x.Shape.Equal(w.Shape) {
			t.Errorf("tensor %s is %v, want %v", w.Name, x.Shape, w.Shape)
		}
	}
	if err := f.NeedWeights(); err != nil {
		t.Error(err)
	}
}

// small is a model of two shards.
func small(t *testing.T) Model {
	config, err := newConfig("llama")
	if err != nil {
		t.Fatal(err)
	}
	m := Model{Config: config, Generation: []byte("{}"), Files: []string{"/tokenizer.json"}, ShardBytes: 4000}
	for i, name := range []string{"a", "b", "c"} {
		m.Tensors = append(m.Tensors, tensorfile.Output{Name: name, Type: dtype.F32, Shape: shape.Of(400), Write: func(w io.Writer) error {
			return binary.Write(w, binary.LittleEndian, slices.Repeat([]float32{float32(i)}, 400))
		}})
	}
	return m
}

func diskWithTokenizer(t *testing.T, capacity int64) *vfs.Memory {
	disk := vfs.NewMemory(capacity)
	if err := writeBytes(disk, "/tokenizer.json", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if err := disk.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	return disk
}

func checkSmall(t *testing.T, disk vfs.FS) {
	t.Helper()
	f, err := OpenOn(disk, "/out")
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"a", "b", "c"} {
		x, ok := f.Tensor(name)
		got := make([]float32, 400)
		if err := x.ReadF32(got, 0); !ok || err != nil || !slices.Equal(got, slices.Repeat([]float32{float32(i)}, 400)) {
			t.Fatalf("tensor %s: %v, %v", name, ok, err)
		}
	}
}

// Killed or without power at any call, the folder is whole or absent, and failing
// calls are reported.
func TestWriteIsAllOrNothing(t *testing.T) {
	count := &vfs.Faults{Disk: diskWithTokenizer(t, 1<<20)}
	if err := small(t).WriteOn(count, "/out"); err != nil {
		t.Fatal(err)
	}
	checkSmall(t, count.Disk)
	boom := errors.New("boom")
	for at := 1; at <= count.Calls(); at++ {
		failing := &vfs.Faults{Disk: diskWithTokenizer(t, 1<<20), FailAt: at, Err: boom}
		if err := small(t).WriteOn(failing, "/out"); !errors.Is(err, boom) {
			t.Errorf("call %d failed and Write gave %v", at, err)
		}
		disk := diskWithTokenizer(t, 1<<20)
		if err := small(t).WriteOn(&vfs.Faults{Disk: disk, CrashAt: at}, "/out"); !errors.Is(err, vfs.ErrCrashed) {
			t.Fatalf("crash at call %d: %v", at, err)
		}
		for seed := range uint64(4) {
			after := disk.AfterPowerLoss(rand.New(rand.NewPCG(seed, uint64(at))))
			if whole, _ := vfs.Exists(after, "/out"); !whole {
				if err := small(t).WriteOn(after, "/out"); err != nil {
					t.Fatal(err)
				}
			}
			checkSmall(t, after)
		}
	}
}

func TestWriteWithoutSpace(t *testing.T) {
	for _, capacity := range []int64{3000, 5500} { // too small to begin, and to end
		disk := diskWithTokenizer(t, capacity)
		err := small(t).WriteOn(disk, "/out")
		var space *vfs.SpaceError
		if !errors.As(err, &space) || space.Needed != 4800 {
			t.Errorf("capacity %d: %v", capacity, err)
		}
		if names, _ := disk.List("/"); !slices.Equal(names, []string{"tokenizer.json"}) {
			t.Errorf("capacity %d: left %v", capacity, names)
		}
	}
}

// accelerate looks the head of a tied model up under its own name, so an offload folder has
// it; read here again it is the embedding.
func TestOffloadedTiedModelsHaveTheirHead(t *testing.T) {
	from, err := Open("../testdata/reference/llama2-tied")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	m := Model{Config: from.Config, Offloaded: true}
	for _, x := range from.Tensors() {
		m.Tensors = append(m.Tensors, tensorfile.Output{Name: x.Name, Type: x.Type, Shape: x.Shape, Write: func(w io.Writer) error {
			_, err := io.Copy(w, io.NewSectionReader(x, 0, x.Bytes))
			return err
		}})
	}
	dir := filepath.Join(t.TempDir(), "offload")
	if err := m.Write(dir); err != nil {
		t.Fatal(err)
	}
	again, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, ok := again.Tensor("lm_head.weight"); !ok || !again.Config.Tied {
		t.Errorf("lm_head is there: %v, tied: %v", ok, again.Config.Tied)
	}
}

// A tied model whose one tensor is called lm_head is the model that it is with the embedding's name, as transformers reads it; one that is
// not tied lacks its embedding.
func TestTiedModelsWithTheirHeadAlone(t *testing.T) {
	want, err := Open("../testdata/reference/llama2-tied")
	if err != nil {
		t.Fatal(err)
	}
	defer want.Close()
	for _, tied := range []bool{true, false} {
		config := *want.Config
		config.Tied = tied
		m := Model{Config: &config}
		for _, x := range want.Tensors() {
			name := x.Name
			if name == "model.embed_tokens.weight" {
				name = "lm_head.weight"
			}
			m.Tensors = append(m.Tensors, tensorfile.Output{Name: name, Type: x.Type, Shape: x.Shape, Write: func(w io.Writer) error {
				_, err := io.Copy(w, io.NewSectionReader(x, 0, x.Bytes))
				return err
			}})
		}
		dir := filepath.Join(t.TempDir(), "model")
		if err := m.Write(dir); err != nil {
			t.Fatal(err)
		}
		got, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer got.Close()
		if len(got.Tensors()) != len(want.Tensors()) {
			t.Errorf("%d tensors, want %d", len(got.Tensors()), len(want.Tensors()))
		}
		for _, w := range want.Tensors() {
			g, ok := got.Tensor(w.Name)
			if w.Name == "model.embed_tokens.weight" && !tied {
				if ok {
					t.Error("a model that is not tied has an embedding that its files lack")
				}
				continue
			}
			if !ok {
				t.Fatalf("tied %v: no %s", tied, w.Name)
			}
			if same, err := tensorfile.SameNumbers(g, w); err != nil || !same {
				t.Errorf("tied %v: %s differs (%v)", tied, w.Name, err)
			}
		}
		if _, ok := got.Tensor("lm_head.weight"); ok == tied {
			t.Errorf("tied %v: lm_head is there: %v", tied, ok)
		}
	}
}
