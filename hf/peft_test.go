package hf

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/internal/bounded"
	"spillway/internal/vfs"
	"spillway/safetensors"
	"spillway/shape"
	"spillway/tensorfile"
)

// Folders that PEFT made, see tools/reference/adapters.py.
var adapters = []string{"llama", "llama-all", "gpt2", "dora", "dora-gpt2", "bias-all", "bias-lora-only", "saved", "patterns", "layers"}

func adapterFolder(name string) string { return filepath.Join("testdata", "adapters", name) }

// What is read and written again has the bytes PEFT wrote: config and weights.
func TestAdaptersAreWrittenAsPEFTWritesThem(t *testing.T) {
	for _, name := range adapters {
		f, err := OpenAdapter(adapterFolder(name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		a := Adapter{Config: f.Config}
		for _, x := range f.Tensors() {
			a.Tensors = append(a.Tensors, tensorfile.Output{Name: x.Name, Type: x.Type, Shape: x.Shape, Write: func(w io.Writer) error {
				_, err := io.Copy(w, io.NewSectionReader(x, 0, x.Bytes))
				return err
			}})
		}
		dir := filepath.Join(t.TempDir(), "deep", "adapter")
		if err := a.Write(dir); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{AdapterConfigName, AdapterWeightsName} {
			got, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(filepath.Join(adapterFolder(name), file))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s of %s has other bytes:\n%s", file, name, got)
			}
		}
		if err := a.Write(dir); err == nil {
			t.Error("a folder was written over another")
		}
	}
}

// A config made here has the values of one made there.
func TestNewAdapterConfigs(t *testing.T) {
	c, err := NewAdapterConfig()
	if err != nil {
		t.Fatal(err)
	}
	c.BaseModel, c.Task, c.Rank, c.Alpha, c.Targets = "testdata/reference/llama", "CAUSAL_LM", 4, 8, Modules{Names: []string{"down_proj", "q_proj"}}
	got, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(adapterFolder("llama"), AdapterConfigName))
	if err != nil {
		t.Fatal(err)
	}
	lines := func(text []byte) []string { // targets come in any order, and how they start is no matter
		list := strings.Split(strings.ReplaceAll(string(text), ",", ""), "\n")
		list = slices.DeleteFunc(list, func(s string) bool { return strings.Contains(s, "init_lora_weights") })
		slices.Sort(list)
		return list
	}
	if !slices.Equal(lines(got), lines(want)) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAdapterConfigsAreRead(t *testing.T) {
	c, err := ParseAdapterConfig([]byte(`{"peft_type": "LORA", "r": 16, "lora_alpha": 32.5, "target_modules": "all-linear", "use_dora": true,
"rank_pattern": {"q_proj": 4}, "alpha_pattern": {"q_proj": 1}, "modules_to_save": ["lm_head"], "bias": "lora_only", "lora_dropout": 0.05,
"use_qalora": true, "trainable_token_indices": null, "something_new": 1}`))
	if err != nil {
		t.Fatal(err)
	}
	if c.Rank != 16 || c.Alpha != 32.5 || c.Targets.Pattern != "all-linear" || c.Targets.Names != nil || !c.DoRA || c.RankPattern["q_proj"] != 4 ||
		c.AlphaPattern["q_proj"] != 1 || c.ModulesToSave[0] != "lm_head" || c.Bias != "lora_only" || c.Dropout != 0.05 {
		t.Errorf("%+v", c)
	}
	if got := c.Variants(); !slices.Equal(got, []string{"something_new", "use_qalora"}) {
		t.Errorf("variants %q, want something_new and use_qalora", got)
	}
	text, err := c.Encode()
	if err != nil || !strings.Contains(string(text), `"something_new": 1`) {
		t.Errorf("an unknown key was lost: %v\n%s", err, text)
	}
}

func TestBadAdaptersAreRefused(t *testing.T) {
	for text, says := range map[string]string{
		`{}`:                                               "peft_type is null",
		`{"peft_type": "IA3"}`:                             "peft_type is \"IA3\"",
		`{"peft_type": "LORA", "r": 0}`:                    "r is 0",
		`{"peft_type": "LORA", "r": "8"}`:                  "r is \"8\"",
		`{"peft_type": "LORA", "r": 1, "r": 2}`:            "given twice",
		`{"peft_type": "LORA", "bias": "some"}`:            "bias is \"some\"",
		`{"peft_type": "LORA", "lora_dropout": 1}`:         "lora_dropout is 1",
		`{"peft_type": "LORA", "rank_pattern": {"a": -1}}`: "rank of a is -1",
		`{"peft_type": "LORA", "target_modules": 3}`:       "target_modules is 3",
	} {
		if _, err := ParseAdapterConfig([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s gives %v, want %q", text, err, says)
		}
	}
	dir := t.TempDir()
	if _, err := OpenAdapter(dir); err == nil || !strings.Contains(err.Error(), "not an adapter's folder") {
		t.Errorf("an empty folder: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, AdapterConfigName), []byte(`{"peft_type": "LORA"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenAdapter(dir); err == nil || !strings.Contains(err.Error(), "never loaded") {
		t.Errorf("a folder without weights: %v", err)
	}
	one := tensorfile.Output{Name: "w", Type: dtype.U8, Shape: shape.Of(1), Write: func(w io.Writer) error { _, err := w.Write([]byte{1}); return err }}
	if err := safetensors.WriteFile(vfs.OS, filepath.Join(dir, AdapterWeightsName), []tensorfile.Output{one}); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenAdapter(dir); err == nil || !strings.Contains(err.Error(), `"w"`) {
		t.Errorf("a tensor of another name: %v", err)
	}
}

// Whatever parses is written as something that parses to the same.
func FuzzAdapterConfig(f *testing.F) {
	for _, name := range adapters {
		raw, err := os.ReadFile(filepath.Join(adapterFolder(name), AdapterConfigName))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte(`{"peft_type": "LORA", "target_modules": "a", "rank_pattern": {"é": 2}, "lora_alpha": 1e30, "x": [null, {"y": "\ud83d"}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		bounded.Check(t, len(raw), func() { readAdapterConfig(t, raw) })
	})
}

// readAdapterConfig reads an adapter's config, writes it, and reads what it wrote.
func readAdapterConfig(t *testing.T, raw []byte) {
	c, err := ParseAdapterConfig(raw)
	if err != nil {
		return
	}
	text, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseAdapterConfig(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	second, err := again.Encode()
	if err != nil || !bytes.Equal(text, second) {
		t.Fatalf("%v\n%s\nbecame\n%s", err, text, second)
	}
}

// A whole model where an adapter is wanted is called what it is.
func TestWholeModelsAreNoAdapters(t *testing.T) {
	if _, err := OpenAdapter("../testdata/reference/llama"); err == nil || !strings.Contains(err.Error(), "is a whole model") {
		t.Error(err)
	}
	if _, err := OpenAdapter(t.TempDir()); err == nil || !strings.Contains(err.Error(), "is not an adapter's folder") {
		t.Error(err)
	}
}
