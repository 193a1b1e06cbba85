package stored_test

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/internal/vfs"
	"spillway/quant"
	"spillway/quant/stored"
	"spillway/safetensors"
	"spillway/shape"
	"spillway/tensorfile"
)

// rewritten is the nf4 folder's file with some tensors changed; change may return a
// source without a name to leave a tensor out.
func rewritten(t *testing.T, folder string, change func(s tensorfile.Output, content []byte) tensorfile.Output) []tensorfile.Tensor {
	t.Helper()
	f := open(t, filepath.Join("testdata", folder))
	var sources []tensorfile.Output
	for _, x := range f.Tensors() {
		b := content(t, f, x.Name)
		s := change(tensorfile.Output{Name: x.Name, Type: x.Type, Shape: x.Shape}, b)
		if s.Name == "" {
			continue
		}
		if s.Write == nil {
			s.Write = func(w io.Writer) error {
				_, err := w.Write(b)
				return err
			}
		}
		sources = append(sources, s)
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
	return file.Tensors()
}

const victim = "model.layers.0.self_attn.q_proj.weight"

// text replaces the description of the victim.
func text(old, new string) func(tensorfile.Output, []byte) tensorfile.Output {
	return func(s tensorfile.Output, b []byte) tensorfile.Output {
		if strings.HasPrefix(s.Name, victim+".quant_state") {
			changed := bytes.Replace(b, []byte(old), []byte(new), 1)
			s.Shape = shape.Of(len(changed))
			s.Write = func(w io.Writer) error {
				_, err := w.Write(changed)
				return err
			}
		}
		return s
	}
}

// without leaves out a part of the victim, or of its module.
func without(part string) func(tensorfile.Output, []byte) tensorfile.Output {
	return func(s tensorfile.Output, _ []byte) tensorfile.Output {
		if s.Name == part {
			s.Name = ""
		}
		return s
	}
}

func TestDamagedWeightsAreRefused(t *testing.T) {
	module := strings.TrimSuffix(victim, ".weight")
	for _, c := range []struct {
		folder, says string
		change       func(tensorfile.Output, []byte) tensorfile.Output
	}{
		{"nf4", "no tensor " + victim, without(victim)},
		{"nf4", "no tensor " + victim + ".absmax", without(victim + ".absmax")},
		{"nf4", "nested_quant_map", without(victim + ".nested_quant_map")},
		{"nf4", "want 4096", text("[64, 64]", "[64, 128]")},
		{"nf4", "quant_type is \"int4\"", text(`"nf4"`, `"int4"`)},
		{"nf4", "named nf4 and says fp4", text(`"nf4"`, `"fp4"`)},
		{"nf4", "blocksize is 63", text(`"blocksize": 64`, `"blocksize": 63`)},
		{"nf4", "absmax are u8[64], want 32 of u8", text(`"blocksize": 64`, `"blocksize": 128`)},
		{"nf4", "nested_blocksize is 128", text(`256`, `128`)},
		{"nf4", "description", text(`{`, ``)},
		{"nf4", "negative", text(`[64, 64]`, `[-64, -64]`)},
		{"fp4", "no tensor " + victim + ".nested_quant_map", text(`"shape"`, `"nested_blocksize": 256, "nested_offset": 1.0, "shape"`)},
		{"int8", "no tensor " + victim, without(victim)},
		{"int8", "an f32 for each row", func(s tensorfile.Output, _ []byte) tensorfile.Output {
			if s.Name == module+".SCB" {
				s.Shape = shape.Of(8)
				s.Write = func(w io.Writer) error { _, err := w.Write(make([]byte, 32)); return err }
			}
			return s
		}},
		{"int8", "weight_format is 1", func(s tensorfile.Output, _ []byte) tensorfile.Output {
			if s.Name == module+".weight_format" {
				s.Write = func(w io.Writer) error { _, err := w.Write([]byte{1}); return err }
			}
			return s
		}},
	} {
		_, err := stored.Collect(rewritten(t, c.folder, c.change))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("got %v, want an error with %q", err, c.says)
		}
	}
}

// A weight has one description: the file must not say two things of it.
func TestTwoDescriptionsAreRefused(t *testing.T) {
	const other = "model.layers.0.self_attn.k_proj.weight.quant_state.bitsandbytes__nf4"
	as := strings.NewReplacer("nf4", "fp4", "[32, 64]", "[64, 64]")
	tensors := rewritten(t, "nf4", func(s tensorfile.Output, b []byte) tensorfile.Output {
		if s.Name == other {
			s.Name = victim + ".quant_state.bitsandbytes__fp4"
			s.Write = func(w io.Writer) error { _, err := as.WriteString(w, string(b)); return err }
		}
		return s
	})
	if _, err := stored.Collect(tensors); err == nil || !strings.Contains(err.Error(), "two descriptions") {
		t.Errorf("got %v", err)
	}
}

func TestReadsPastTheEndAreRefused(t *testing.T) {
	w := collect(t, "testdata/nf4")[victim]
	for _, at := range []int64{-1, 4096, 5000} {
		if err := w.ReadF32(make([]float32, 1), at); err == nil {
			t.Errorf("read at %d", at)
		}
	}
}

func TestWeightsThatCannotBeWritten(t *testing.T) {
	broken := stored.Weight{Name: "a.weight", Shape: shape.Of(2, 2), From: func(int64, []float32) error { return errors.New("disk gone") }}
	for _, kind := range []dtype.Type{quant.NF4, quant.RowF8} {
		sources, err := broken.Outputs(stored.Options{Type: kind, Model: dtype.BF16, Double: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := sources[0].Write(io.Discard); err == nil || !strings.Contains(err.Error(), "disk gone") {
			t.Errorf("a source that fails gives %v", err)
		}
	}
	flat := stored.Weight{Name: "a.weight", Shape: shape.Of(4)}
	if _, err := flat.Outputs(stored.Options{Type: quant.RowI8, Model: dtype.BF16, Double: true}); err == nil || !strings.Contains(err.Error(), "only matrices") {
		t.Errorf("rows of a vector: %v", err)
	}
	if _, err := flat.Outputs(stored.Options{Type: dtype.BF16, Model: dtype.BF16, Double: true}); err == nil || !strings.Contains(err.Error(), "use "+strings.Join(stored.Written(), ", ")) {
		t.Errorf("bf16: %v", err)
	}
}

func TestCheckKnowsWhatIsRead(t *testing.T) {
	for name, ok := range map[string]bool{"plain": true, "nf4": true, "int8": true} {
		if err := stored.Check(open(t, filepath.Join("testdata", name)).Config); (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	c, err := open(t, "testdata/plain").Config.With("quantization_config", map[string]any{"quant_method": "gptq"})
	if err != nil {
		t.Fatal(err)
	}
	if err := stored.Check(c); err == nil || !strings.Contains(err.Error(), "gptq") {
		t.Errorf("gptq: %v", err)
	}
	if _, err := c.With("hidden_size", 1); err == nil {
		t.Error("With replaced a value that has a field")
	}
}

// Rows of 8-bit floats whose parts do not fit together are refused.
func TestMalformedFloatRows(t *testing.T) {
	for says, sources := range map[string][]tensorfile.Output{
		"want f8e4m3 with a scale for each row": {bytesOf("a.weight", dtype.F8E4M3, 3, 4), bytesOf("a.weight_scale", dtype.F32, 2, 1)},
		"it is i8[3 4]":                         {bytesOf("a.weight", dtype.I8, 3, 4), bytesOf("a.weight_scale", dtype.F32, 3, 1)},
		"there is no tensor a.weight":           {bytesOf("a.weight_scale", dtype.F32, 3, 1)},
	} {
		path := filepath.Join(t.TempDir(), "model.safetensors")
		if err := safetensors.WriteFile(vfs.OS, path, sources); err != nil {
			t.Fatal(err)
		}
		f, err := safetensors.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := stored.Collect(f.Tensors()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want an error with %q", err, says)
		}
	}
}

// bytesOf is a tensor of zeros.
func bytesOf(name string, kind dtype.Type, dims ...int) tensorfile.Output {
	s := shape.Of(dims...)
	return tensorfile.Output{Name: name, Type: kind, Shape: s, Write: func(w io.Writer) error {
		_, err := w.Write(make([]byte, kind.Bytes(s.Elements())))
		return err
	}}
}
