package weights_test

import (
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"spillway/arch"
	"spillway/dtype"
	"spillway/graph"
	"spillway/hf"
	"spillway/internal/vfs"
	"spillway/op"
	"spillway/quant"
	"spillway/safetensors"
	"spillway/spec"
	"spillway/spec/spectest"
	"spillway/tensorfile"
	"spillway/weights"
)

const reference = "../testdata/reference"

// A config may say that lm_head is tied while the file has another one. Then transformers
// uses the file's, so the loss must be that; a copy of the embedding changes nothing.
func TestTiedModelsWithAHeadOfTheirOwn(t *testing.T) {
	var want map[string]map[string]float64
	raw, err := os.ReadFile(filepath.Join(reference, "tied.json"))
	must(t, err)
	must(t, json.Unmarshal(raw, &want))
	for name, losses := range want {
		for _, kind := range []string{"other", "same"} {
			dir := withHead(t, name, kind == "other")
			folder, err := hf.Open(dir)
			must(t, err)
			if got := lossOf(t, name, folder); math.Abs(got-losses[kind]) > 1e-5*got {
				t.Errorf("%s, the %s head: a loss of %v, transformers has %v", name, kind, got, losses[kind])
			}
			if text, err := folder.Config.Encode(); err != nil || folder.Config.Tied != (kind == "same") {
				t.Errorf("%s, the %s head: tied %v, %s, %v", name, kind, folder.Config.Tied, text, err)
			}
			must(t, folder.Close())
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// withHead copies a fixture into a folder and adds an lm_head: the embedding, or one that
// differs as tools/reference/tied.py makes it.
func withHead(t *testing.T, name string, other bool) string {
	t.Helper()
	from, err := hf.Open(filepath.Join(reference, name))
	must(t, err)
	dir := t.TempDir()
	config, err := os.ReadFile(filepath.Join(from.Dir, hf.ConfigName))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, hf.ConfigName), config, 0o600))
	var outputs []tensorfile.Output
	for _, x := range from.Tensors() {
		values := make([]float32, x.Shape.Elements())
		must(t, x.ReadF32(values, 0))
		plain := func(name string, values []float32) tensorfile.Output {
			return tensorfile.Output{Name: name, Type: dtype.F32, Shape: x.Shape, Write: func(w io.Writer) error {
				_, err := w.Write(quant.F32Bytes(values))
				return err
			}}
		}
		outputs = append(outputs, plain(x.Name, values))
		if x.Name == "model.embed_tokens.weight" || x.Name == "transformer.wte.weight" {
			head := make([]float32, len(values))
			for i, v := range values {
				if head[i] = v; other {
					head[i] = v/2 + float32(i%7)/64
				}
			}
			outputs = append(outputs, plain("lm_head.weight", head))
		}
	}
	must(t, safetensors.WriteFile(vfs.OS, filepath.Join(dir, safetensors.SingleName), outputs))
	must(t, from.Close())
	return dir
}

// lossOf is the loss of a folder's model on a fixture's batch.
func lossOf(t *testing.T, name string, folder *hf.Folder) float64 {
	t.Helper()
	expect, err := safetensors.Open(filepath.Join(reference, name, "expect.safetensors"))
	must(t, err)
	defer expect.Close()
	ids, targets := integers(t, expect, "input_ids"), integers(t, expect, "targets")
	positions, counted := ids.Clone(), 0
	for i := range positions.I {
		positions.I[i] = int32(i % int(ids.Type.Shape[1]))
		if targets.I[i] != op.IgnoreIndex {
			counted++
		}
	}
	net, info, err := arch.New(folder.Config)
	must(t, err)
	m, err := spec.Trace("model", info.Type, net, graph.Config{MicroBatchSize: ids.Type.Shape[0], Seq: ids.Type.Shape[1], DType: dtype.F32, Task: graph.Eval})
	must(t, err)
	values, err := weights.FromSource(folder, info, m.Params)
	must(t, err)
	in := spectest.Inputs{Params: map[string]op.Array{}, Batch: map[string]op.Array{
		"tokens": ids, "targets": targets, "positions": positions, "scale": {F: []float64{1 / float64(counted)}},
	}}
	for _, p := range m.Params {
		a := op.Array{Type: p.Type}
		for _, v := range numbers(t, values, p.Name, 0, int(p.Type.Shape.Elements())) {
			a.F = append(a.F, float64(v))
		}
		in.Params[p.Name] = a
	}
	out, err := spectest.Forward(m, in)
	must(t, err)
	return out[0].F[0]
}

// integers reads a tensor of 64-bit integers.
func integers(t *testing.T, f *safetensors.File, name string) op.Array {
	t.Helper()
	x, ok := f.Tensor(name)
	if !ok {
		t.Fatalf("no tensor %s", name)
	}
	raw := make([]byte, x.Bytes)
	if _, err := x.ReadAt(raw, 0); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	a := op.Array{Type: op.Type{DType: dtype.I32, Shape: x.Shape}}
	for i := 0; i < len(raw); i += 8 {
		a.I = append(a.I, int32(uint32(raw[i])|uint32(raw[i+1])<<8|uint32(raw[i+2])<<16|uint32(raw[i+3])<<24))
	}
	return a
}
