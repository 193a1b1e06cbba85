package lora

import (
	"os"
	"path/filepath"
	"testing"

	"spillway/arch"
	"spillway/hf"
	"spillway/internal/bounded"
	"spillway/internal/vfs"
)

// tinyConfig is the model that adapters are attached to.
const tinyConfig = `{"model_type": "llama", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 64, "max_position_embeddings": 64}`

// Whatever the two files of an adapter hold: it is refused, or can be read and attached.
func FuzzAdapter(f *testing.F) {
	for _, name := range []string{"llama", "dora", "bias-all", "saved", "patterns", "layers"} {
		dir := filepath.Join("..", "hf", "testdata", "adapters", name)
		config, err := os.ReadFile(filepath.Join(dir, hf.AdapterConfigName))
		if err != nil {
			f.Fatal(err)
		}
		weights, err := os.ReadFile(filepath.Join(dir, hf.AdapterWeightsName))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(config, weights)
	}
	f.Fuzz(func(t *testing.T, config, weights []byte) {
		disk := vfs.NewMemory(1 << 30)
		write(t, disk, hf.AdapterConfigName, config)
		write(t, disk, hf.AdapterWeightsName, weights)
		bounded.Check(t, len(config)+len(weights), func() { readAdapter(t, disk) })
	})
}

// readAdapter opens an adapter, reads its params, and attaches it to a model.
func readAdapter(t *testing.T, disk vfs.FS) {
	folder, err := hf.OpenAdapterOn(disk, ".")
	if err != nil {
		return
	}
	a, err := fromFolder(folder)
	if err != nil {
		return
	}
	for _, name := range a.Params() {
		if values, err := a.values(name); err == nil && int64(len(values)) != a.Shape(name).Elements() {
			t.Errorf("%s has %d values, its shape is %v", name, len(values), a.Shape(name))
		}
	}
	net, _, err := arch.FromConfig([]byte(tinyConfig))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = a.AttachTo(net) // an error is an answer
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

func write(t *testing.T, disk vfs.FS, name string, content []byte) {
	t.Helper()
	file, err := disk.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}
