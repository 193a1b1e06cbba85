package finetune

import (
	"context"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"spillway"
	"spillway/convert"
	"spillway/dtype"
	"spillway/generate"
	"spillway/hf"
	"spillway/internal/vfs"
	"spillway/quant"
	"spillway/rig"
	"spillway/safetensors"
	"spillway/shape"
	"spillway/tensorfile"
)

// saved leaves what runs save behind, for tools/reference/loads.py.
var saved = flag.String("keep", "", "an empty folder to write trained models to")

// What is trained from quantized folders is saved as models and adapters that mean the same when
// they are opened again, here and, by tools/reference/loads.py, in other libraries.
func TestSavedRunsLoad(t *testing.T) {
	const plain = "../quant/stored/testdata/plain"
	dir := *saved
	if dir == "" {
		dir = t.TempDir()
	}
	here, err := rig.Open("cpu", rig.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close() // nothing depends on it
	tokens := filepath.Join(t.TempDir(), "tokens.bin")
	var raw []byte
	for i := range 64 {
		raw = append(raw, byte(i*i%31), 0)
	}
	if err := os.WriteFile(tokens, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	fine := func(model, method, out string) string {
		_, r := losses(t, settings(t, map[string]string{"model": model, "data": tokens, "device": "cpu", "seq-len": "16", "max-steps": "3", "learning-rate": "1e-3", "method": method, "out": out}), Options{Rig: rig.Options{Machine: here.Machine}})
		return r.Checkpoint
	}
	bases := map[string]string{"plain": plain}
	for name, kind := range map[string]dtype.Type{"nf4": quant.NF4, "int8": quant.RowI8, "fp8": quant.RowF8} {
		from, err := hf.Open(plain)
		if err != nil {
			t.Fatal(err)
		}
		bases[name] = filepath.Join(dir, "base-"+name)
		if _, err := convert.Folder(t.Context(), from, bases[name], convert.Options{Linear: kind, Others: dtype.F32}); err != nil {
			t.Fatal(err)
		}
		from.Close() // opened for reading
		leaveLogits(t, here, bases[name])
	}
	for name, base := range bases {
		leaveLogits(t, here, fine(base, "full", filepath.Join(dir, "full-"+name)))
		if name == "fp8" {
			continue // qlora holds 4-bit and int8 folders as they are
		}
		adapter := fine(base, "qlora", filepath.Join(dir, "qlora-"+name))
		for into, options := range map[string]convert.Options{"kept": {}, "plain": {Linear: dtype.F32, Others: dtype.F32}} {
			merged := filepath.Join(dir, "merged-"+name+"-"+into)
			if _, err := convert.Merge(t.Context(), base, []convert.AdapterRef{{Dir: adapter, Weight: 1}}, merged, options); err != nil {
				t.Fatal(err)
			}
			leaveLogits(t, here, merged)
		}
		if _, err := convert.Export(t.Context(), adapter, filepath.Join(dir, "adapter-"+name), convert.Options{}); err != nil {
			t.Fatal(err)
		}
	}
}

// leaveLogits writes the logits of a folder for the tokens 0 to 11 into it.
func leaveLogits(t *testing.T, here *rig.Rig, dir string) {
	t.Helper()
	m, err := spillway.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close() // opened for reading
	job, err := m.Plan(spillway.Options{Task: spillway.Infer, Seq: 12, Precision: dtype.F32, Machine: here.Machine, Device: here.Machine.Devices[0].Name, On: here.Devices})
	if err == nil {
		err = job.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer job.Close() // nothing depends on it
	e, err := generate.NewPlain(job)
	if err != nil {
		t.Fatal(err)
	}
	var bits []byte
	for n := range int32(12) {
		prompt := make([]int32, n+1)
		for i := range prompt {
			prompt[i] = int32(i)
		}
		q, err := e.Add(prompt)
		if err == nil {
			err = e.Step(context.Background())
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range q.Logits() {
			if math.IsNaN(float64(f)) {
				t.Fatalf("%s gives NaN", dir)
			}
			u := math.Float32bits(f)
			bits = append(bits, byte(u), byte(u>>8), byte(u>>16), byte(u>>24))
		}
	}
	logits := tensorfile.Output{Name: "logits", Type: dtype.F32, Shape: shape.Of(12, len(bits)/48), Write: func(w io.Writer) error { _, err := w.Write(bits); return err }}
	if err := safetensors.WriteFile(vfs.OS, filepath.Join(dir, "expect.safetensors"), []tensorfile.Output{logits}); err != nil {
		t.Fatal(err)
	}
}
