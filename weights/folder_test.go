package weights_test

import (
	"encoding/binary"
	"io"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"spillway/arch"
	"spillway/dtype"
	"spillway/internal/vfs"
	"spillway/nn"
	"spillway/op"
	"spillway/quant"
	"spillway/safetensors"
	"spillway/shape"
	"spillway/spec"
	"spillway/tensorfile"
	"spillway/weights"
)

// file writes tensors whose element i is i/4, which every type holds exactly.
func file(t *testing.T, infos ...safetensors.Info) *safetensors.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.safetensors")
	var sources []tensorfile.Output
	for _, x := range infos {
		sources = append(sources, tensorfile.Output{Name: x.Name, Type: x.Type, Shape: x.Shape, Write: func(w io.Writer) error {
			for i := range x.Shape.Elements() {
				if _, err := w.Write(encoded(x.Type, float32(i)/4)); err != nil {
					return err
				}
			}
			return nil
		}})
	}
	if err := safetensors.WriteFile(vfs.OS, path, sources); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func encoded(t dtype.Type, v float32) []byte {
	switch t {
	case dtype.F64:
		return binary.LittleEndian.AppendUint64(nil, math.Float64bits(float64(v)))
	case dtype.BF16:
		return binary.LittleEndian.AppendUint16(nil, dtype.ToBF16(v))
	case dtype.F16:
		return binary.LittleEndian.AppendUint16(nil, dtype.ToF16(v))
	}
	return binary.LittleEndian.AppendUint32(nil, math.Float32bits(v))
}

func param(name string, dims ...int64) spec.Param {
	return spec.Param{Name: name, Type: op.Type{DType: dtype.F32, Shape: dims}}
}

func tensor(name string, t dtype.Type, dims ...int) safetensors.Info {
	return safetensors.Info{Name: name, Type: t, Shape: shape.Of(dims...)}
}

func TestTensorsOfAnyPrecisionAreWidened(t *testing.T) {
	f := file(t, tensor("f64", dtype.F64, 6), tensor("f32", dtype.F32, 6), tensor("f16", dtype.F16, 6), tensor("bf16", dtype.BF16, 6))
	s, err := weights.FromSource(f, arch.Info{}, []spec.Param{param("f64", 6), param("f32", 6), param("f16", 6), param("bf16", 6)})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"f64", "f32", "f16", "bf16"} {
		if got := numbers(t, s, name, 2, 3); got[0] != 0.5 || got[1] != 0.75 || got[2] != 1 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// GPT-2 folders come with and without the head, old ones with tables that are no
// weights, tied ones with a second copy of the embedding.
func TestFoldersNameTheirTensorsDifferently(t *testing.T) {
	gpt2 := arch.Info{Prefix: "transformer.", Tied: true, Buffers: []string{".attn.bias"}}
	params := []spec.Param{param("transformer.wte.weight", 4, 2), param("transformer.h.0.ln_1.weight", 2)}
	for name, f := range map[string]*safetensors.File{
		"whole": file(t, tensor("transformer.wte.weight", dtype.F32, 4, 2), tensor("transformer.h.0.ln_1.weight", dtype.F32, 2)),
		"bare":  file(t, tensor("wte.weight", dtype.F32, 4, 2), tensor("h.0.ln_1.weight", dtype.F32, 2)),
		"old": file(t, tensor("wte.weight", dtype.F32, 4, 2), tensor("h.0.ln_1.weight", dtype.F32, 2),
			tensor("h.0.attn.bias", dtype.F32, 1, 1, 4, 4), tensor("lm_head.weight", dtype.F32, 4, 2)),
	} {
		s, err := weights.FromSource(f, gpt2, params)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := numbers(t, s, "transformer.wte.weight", 4, 1); got[0] != 1 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestWrongFoldersAreRefused(t *testing.T) {
	params := []spec.Param{param("a", 2), param("b", 2, 3)}
	for name, c := range map[string]struct {
		infos []safetensors.Info
		says  []string
	}{
		"missing": {[]safetensors.Info{tensor("a", dtype.F32, 2)}, []string{"lacks b"}},
		"wrapped": {[]safetensors.Info{tensor("_orig_mod.a", dtype.F32, 2), tensor("_orig_mod.b", dtype.F32, 2, 3)}, []string{"lacks a, b; it has them with _orig_mod. before", "save the state_dict"}},
		"unknown": {[]safetensors.Info{tensor("a", dtype.F32, 2), tensor("b", dtype.F32, 2, 3), tensor("c", dtype.F32, 1)}, []string{"has c", "no use"}},
		"shape":   {[]safetensors.Info{tensor("a", dtype.F32, 2), tensor("b", dtype.F32, 3, 2)}, []string{"b in", "[3 2]", "[2 3]"}},
	} {
		_, err := weights.FromSource(file(t, c.infos...), arch.Info{}, params)
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		for _, text := range c.says {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %q does not say %q", name, err, text)
			}
		}
	}
}

func TestJoin(t *testing.T) {
	base, err := weights.FromSource(file(t, tensor("a", dtype.F32, 5)), arch.Info{}, []spec.Param{param("a", 5)})
	if err != nil {
		t.Fatal(err)
	}
	zero := spec.Param{Name: "lora", Init: spec.Init{Dist: "constant", Scale: 9}}
	adapters, err := weights.Random([]spec.Param{zero}, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := weights.Join(func(name string) bool { return name == "lora" }, adapters, base)
	if a, b := numbers(t, s, "a", 4, 1), numbers(t, s, "lora", 4, 1); a[0] != 1 || b[0] != 9 {
		t.Errorf("%v and %v, want 1 and 9", a, b)
	}
}

// What is written from a source reads back as the same numbers, in pieces or whole.
func TestFilesReadBack(t *testing.T) {
	params := []spec.Param{
		{Name: "a", Type: op.Type{DType: dtype.F32, Shape: shape.Of(300, 70)}, Init: nn.Normal(1)},
		{Name: "b", Type: op.Type{DType: dtype.BF16, Shape: shape.Of(7)}, Init: nn.Normal(1)},
	}
	source, err := weights.Random(params, 3)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.safetensors")
	if err := safetensors.WriteFile(vfs.OS, path, weights.Outputs(params, source)); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	stored, err := weights.FromSource(f, arch.Info{}, params)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range params {
		n := int(p.Type.Shape.Elements())
		want, got := numbers(t, source, p.Name, 0, n), numbers(t, stored, p.Name, 0, n)
		for i := range want {
			if p.Type.DType == dtype.BF16 {
				want[i] = dtype.FromBF16(dtype.ToBF16(want[i]))
			}
			if got[i] != want[i] {
				t.Fatalf("element %d of %s is %v, was %v", i, p.Name, got[i], want[i])
			}
		}
	}
	params[1].Type.DType = quant.NF4
	if err := weights.Outputs(params, source)[1].Write(io.Discard); err == nil {
		t.Error("a block format was written from plain numbers")
	}
}
