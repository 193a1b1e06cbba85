package convert_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spillway/arch"
	"spillway/convert"
	"spillway/dtype"
	"spillway/graph"
	"spillway/hf"
	"spillway/internal/runtest"
	"spillway/internal/vfs"
	"spillway/lora"
	"spillway/op"
	"spillway/quant"
	"spillway/quant/stored"
	"spillway/safetensors"
	"spillway/spec"
	"spillway/spec/spectest"
	"spillway/tensorfile"
)

// folders were made by transformers and bitsandbytes from the plain one; see
// tools/reference/quant.py.
const (
	folders = "../quant/stored/testdata"
	plain   = folders + "/plain"
	models  = "../testdata/reference"
	peft    = "../hf/testdata/adapters"
)

// keep leaves converted folders behind, for tools/reference/loads.py.
var keep = flag.String("keep", "", "an empty folder to write converted models to")

func open(t *testing.T, dir string) *hf.Folder {
	t.Helper()
	f, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// converted writes a folder and gives its path.
func converted(t *testing.T, from, name string, o convert.Options) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if *keep != "" && from == plain {
		dir = filepath.Join(*keep, name)
	}
	if _, err := convert.Folder(context.Background(), open(t, from), dir, o); err != nil {
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
func TestQuantizedFoldersAreWhatTransformersWrites(t *testing.T) {
	for name, kind := range map[string]dtype.Type{"nf4": quant.NF4, "int8": quant.RowI8} {
		ours, theirs := open(t, converted(t, plain, name, convert.Options{Linear: kind})), open(t, filepath.Join(folders, name))
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

// numbers reads a weight of a folder, however it is stored.
func numbers(t *testing.T, dir, name string) []float32 {
	t.Helper()
	list, err := stored.Collect(open(t, dir).Tensors())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range list {
		if w.Name == name {
			out := make([]float32, w.Shape.Elements())
			if err := w.ReadF32(out, 0); err != nil {
				t.Fatal(err)
			}
			return out
		}
	}
	t.Fatalf("%s has no weight %s", dir, name)
	return nil
}

const weight = "model.layers.0.mlp.down_proj.weight"

// Every format holds the numbers to its own precision, and is plain again afterwards.
func TestFormatsHoldTheNumbers(t *testing.T) {
	want := numbers(t, plain, weight)
	for _, c := range []struct {
		name  string
		o     convert.Options
		error float64 // half the widest gap between values, or the rounding of a type
	}{
		{"nf4", convert.Options{Linear: quant.NF4, Others: dtype.F32}, 0.16},
		{"fp4", convert.Options{Linear: quant.FP4, Others: dtype.F32, NoDoubleQuant: true}, 0.17},
		{"int8", convert.Options{Linear: quant.RowI8, Others: dtype.F32}, 0.5 / 127 * 1.001},
		{"fp8", convert.Options{Linear: quant.RowF8}, 1.0 / 28 * 1.001},
		{"f16", convert.Options{Linear: dtype.F16, Others: dtype.F16}, 0.0005},
	} {
		dir := converted(t, plain, c.name, c.o)
		leaveLogits(t, dir)
		coded := numbers(t, dir, weight)
		if d := runtest.Apart(coded, want); d > c.error || d == 0 {
			t.Errorf("%s is off by %v of the largest, want at most %v", c.name, d, c.error)
		}
		back := converted(t, dir, "back", convert.Options{Linear: dtype.F32, Others: dtype.F32})
		if d := runtest.Apart(numbers(t, back, weight), coded); d != 0 {
			t.Errorf("%s in f32 is off by %v", c.name, d)
		}
		if f := open(t, back); stored.Quantized(f.Config) || f.Config.Type != dtype.F32 {
			t.Errorf("%s in f32 has the type %v, quantized %v", c.name, f.Config.Type, stored.Quantized(f.Config))
		}
	}
}

// Merged, the weights are W + scale·B·A; taken away again, they are W, but for rounding.
func TestAdaptersAreMergedAndTakenAway(t *testing.T) {
	a := adapter(t, "llama")
	base := filepath.Join(models, "llama")
	merged := converted(t, base, "merged", convert.Options{Adapters: []lora.Weighted{{Adapter: a, Weight: 1}}})
	const name = "model.layers.1.self_attn.q_proj"
	before, after := numbers(t, base, name+".weight"), numbers(t, merged, name+".weight")
	down, up := values(t, a, name+".lora_A.weight"), values(t, a, name+".lora_B.weight")
	in := len(down) / 4
	for i, w := range after {
		want := float64(before[i])
		for r := range 4 {
			want += 2 * float64(up[i/in*4+r]) * float64(down[r*in+i%in]) // the scale is 8/4
		}
		if math.Abs(float64(w)-want) > 1e-6 {
			t.Fatalf("element %d is %v, want %v", i, w, want)
		}
	}
	undone := converted(t, merged, "undone", convert.Options{Adapters: []lora.Weighted{{Adapter: a, Weight: -1}}})
	if d := runtest.Apart(numbers(t, undone, name+".weight"), before); d > 1e-6 {
		t.Errorf("taken away again the weights are off by %v", d)
	}
	same(t, base, merged, "model.layers.1.mlp.up_proj.weight")
}

func same(t *testing.T, a, b, name string) {
	t.Helper()
	if !bytes.Equal(content(t, open(t, a), name), content(t, open(t, b), name)) {
		t.Errorf("%s changed", name)
	}
}

func adapter(t *testing.T, name string) *lora.Adapter {
	t.Helper()
	a, err := lora.Open(filepath.Join(peft, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func values(t *testing.T, a *lora.Adapter, param string) []float32 {
	t.Helper()
	out := make([]float32, a.Shape(param).Elements())
	if err := a.Read(param, 0, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// Into a quantized base adapters are merged weight by weight: decoded, added, coded again
// in the same format. What has no adapter stays as it lies.
func TestAdaptersAreMergedIntoQuantizedWeights(t *testing.T) {
	base := filepath.Join(models, "llama")
	a := adapter(t, "llama")
	const name = "model.layers.0.self_attn.q_proj.weight"
	for _, o := range []convert.Options{{Linear: quant.NF4}, {Linear: quant.FP4, NoDoubleQuant: true}, {Linear: quant.RowI8}, {Linear: quant.RowF8}} {
		quantized := converted(t, base, "quantized", o)
		merged := converted(t, quantized, "merged", convert.Options{Adapters: []lora.Weighted{{Adapter: a, Weight: 1}}})
		decoded := converted(t, quantized, "decoded", convert.Options{Linear: dtype.F32})
		added := converted(t, decoded, "added", convert.Options{Adapters: []lora.Weighted{{Adapter: a, Weight: 1}}})
		again := converted(t, added, "again", o)
		same(t, again, merged, name)
		same(t, quantized, merged, "model.layers.0.mlp.up_proj.weight")
		if d := runtest.Apart(numbers(t, merged, name), numbers(t, quantized, name)); d < 0.05 {
			t.Errorf("%v: merging changed the weights by %v", o.Linear, d)
		}
		if got, want := quantization(t, merged), quantization(t, quantized); got != want {
			t.Errorf("%v: quantization_config is %s, was %s", o.Linear, got, want)
		}
	}
}

func quantization(t *testing.T, dir string) string {
	t.Helper()
	text, _ := open(t, dir).Config.Value("quantization_config")
	return string(text)
}

// What cannot be converted is refused with a reason, and leaves nothing behind.
func TestRefusals(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "out")
	try := func(from string, o convert.Options) error {
		_, err := convert.Folder(context.Background(), open(t, from), dir, o)
		return err
	}
	once := func(name string, w float64) []lora.Weighted {
		return []lora.Weighted{{Adapter: adapter(t, name), Weight: w}}
	}
	llama := filepath.Join(models, "llama")
	for says, err := range map[string]error{
		"quantized already":                     try(folders+"/nf4", convert.Options{Linear: quant.NF4}),
		"[in out]":                              try(models+"/gpt2", convert.Options{Linear: quant.NF4}),
		"linear weights cannot be stored as i8": try(plain, convert.Options{Linear: dtype.I8}),
		"cannot be stored as nf4":               try(plain, convert.Options{Others: quant.NF4}),
		"no layer is named":                     try(llama, convert.Options{Adapters: once("gpt2", 1)}),
		"is it for another model?":              try(llama, convert.Options{Adapters: once("dora", 1)}),
		"changes magnitudes":                    try(models+"/qwen2", convert.Options{Adapters: once("dora", -1)}),
		"cannot be weighted":                    try(llama, convert.Options{Adapters: once("saved", 0.5)}),
	} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want an error with %q", err, says)
		}
	}
	empty(t, root)
}

func empty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("%v was left behind (%v)", left, err)
	}
}

// An interrupted conversion, and one on a disk that is full, leave nothing behind.
func TestNothingIsWrittenHalf(t *testing.T) {
	root := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	_, err := convert.Folder(ctx, open(t, plain), filepath.Join(root, "out"), convert.Options{Linear: quant.NF4, Progress: func(done, total int64) {
		if done > total/2 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "interrupted with") {
		t.Errorf("interrupted: %v", err)
	}
	empty(t, root)
	full := vfs.NewMemory(1000)
	_, err = convert.Folder(context.Background(), open(t, plain), "/out", convert.Options{Linear: quant.NF4, Disk: full})
	var space *vfs.SpaceError
	if !errors.As(err, &space) || space.Needed <= space.Free {
		t.Errorf("on a full disk: %v", err)
	}
	if names, err := full.List("/"); err != nil || len(names) > 0 {
		t.Errorf("%v was left behind (%v)", names, err)
	}
}

// A folder whose file is written to while it is converted gives none: the new one would be of two models.
func TestFilesThatChangeAreNotConverted(t *testing.T) {
	from, root := filepath.Join(t.TempDir(), "model"), t.TempDir()
	if err := os.CopyFS(from, os.DirFS(plain)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(from, "model.safetensors")
	if err := os.Chtimes(file, time.Time{}, time.Now().Add(-time.Hour)); err != nil { // clocks of files are coarse
		t.Fatal(err)
	}
	touched := false
	_, err := convert.Folder(context.Background(), open(t, from), filepath.Join(root, "out"), convert.Options{Linear: quant.NF4, Progress: func(done, total int64) {
		if touched || done < total/3 {
			return
		}
		touched = true
		if err := os.Chtimes(file, time.Time{}, time.Now()); err != nil {
			t.Error(err)
		}
	}})
	if err == nil || !strings.Contains(err.Error(), "changed while it was read") {
		t.Errorf("a file that changed: %v", err)
	}
	empty(t, root)
}

// leaveLogits writes what a folder's model says of twelve tokens, next to it, where folders
// are kept.
func leaveLogits(t *testing.T, dir string) {
	t.Helper()
	if *keep == "" {
		return
	}
	net, _, err := arch.New(open(t, dir).Config)
	if err != nil {
		t.Fatal(err)
	}
	m, err := spec.Trace("kept", "test", net, graph.Config{MicroBatchSize: 1, Seq: 12, DType: dtype.F32, Task: graph.Infer})
	if err != nil {
		t.Fatal(err)
	}
	in := spectest.Inputs{Params: map[string]op.Array{}, Batch: map[string]op.Array{}}
	for _, p := range m.Params {
		a := op.NewArray(p.Type)
		for i, f := range numbers(t, dir, p.Name) {
			a.F[i] = float64(f)
		}
		in.Params[p.Name] = a
	}
	for _, p := range m.Batch {
		a := op.NewArray(p.Type)
		for i := range a.I {
			a.I[i] = int32(i)
		}
		in.Batch[p.Name] = a
	}
	out, err := spectest.Forward(m, in)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := out[0].Encode()
	if err != nil {
		t.Fatal(err)
	}
	logits := tensorfile.Output{Name: "logits", Type: dtype.F32, Shape: out[0].Type.Shape, Write: func(w io.Writer) error { _, err := w.Write(raw); return err }}
	if err := safetensors.WriteFile(vfs.OS, filepath.Join(dir, "expect.safetensors"), []tensorfile.Output{logits}); err != nil {
		t.Fatal(err)
	}
}

// Linear weights that are skipped stay as they are, and the config tells transformers so.
func TestSkippedModulesAreLeft(t *testing.T) {
	dir := converted(t, plain, "skipped", convert.Options{Linear: quant.NF4, Skip: []string{"down_proj"}})
	out := open(t, dir)
	list, err := stored.Collect(out.Tensors())
	if err != nil {
		t.Fatal(err)
	}
	coded, left := 0, 0
	for _, w := range list {
		switch {
		case strings.Contains(w.Name, "down_proj"):
			left++
			if w.Type.Block() {
				t.Errorf("%s is %v", w.Name, w.Type)
			}
		case w.Type.Block():
			coded++
		}
	}
	raw, _ := out.Config.Value("quantization_config")
	if coded == 0 || left == 0 || !strings.Contains(string(raw), `"lm_head"`) || !strings.Contains(string(raw), `.mlp.down_proj"`) {
		t.Errorf("%d coded, %d left, %s", coded, left, raw)
	}
	for _, skip := range []string{"mlp", `re:model\.layers\.\d+\.mlp`} { // what is inside is left as it is, too
		around := open(t, converted(t, plain, "around"+skip[:2], convert.Options{Linear: quant.NF4, Skip: []string{skip}}))
		if w, ok := around.Tensor("model.layers.0.mlp.gate_proj.weight"); !ok || !w.Type.IsPlain() {
			t.Errorf("without %s: %v, %v", skip, w.Type, ok)
		}
	}
	_, err = convert.Folder(context.Background(), open(t, plain), filepath.Join(t.TempDir(), "no"), convert.Options{Linear: quant.NF4, Skip: []string{"nose"}})
	if err == nil || !strings.Contains(err.Error(), `none is named "nose"; there are down_proj`) {
		t.Errorf("a module that is not there: %v", err)
	}
}
