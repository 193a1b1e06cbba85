package convert_test

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"runtime"
	"testing"

	"spillway/arch"
	"spillway/convert"
	"spillway/dtype"
	"spillway/hf"
	"spillway/lora"
	"spillway/nn"
	"spillway/quant"
	"spillway/tensorfile"
)

// largeConfig is of a model whose weights take 31 MB in bf16.
const largeConfig = `{"model_type":"llama","hidden_size":1024,"intermediate_size":4096,"num_hidden_layers":1,"num_attention_heads":16,
	"num_key_value_heads":4,"vocab_size":512,"max_position_embeddings":64,"torch_dtype":"bfloat16"}`

// patterned writes a model of bf16, every weight a pattern.
func patterned(t testing.TB, text string) string {
	t.Helper()
	config, err := hf.ParseConfig([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	net, _, err := arch.New(config)
	if err != nil {
		t.Fatal(err)
	}
	params, err := nn.Bind(net)
	if err != nil {
		t.Fatal(err)
	}
	m := hf.Model{Config: config}
	row := bytes.Repeat([]byte{0x12, 0x3c, 0x80, 0xbb, 0x00, 0x3d, 0x77, 0x3a}, 1024) // four numbers below 0.1
	for _, p := range params {
		m.Tensors = append(m.Tensors, tensorfile.Output{Name: p.Name, Type: dtype.BF16, Shape: p.Shape, Write: func(w io.Writer) error {
			for left := dtype.BF16.Bytes(p.Shape.Elements()); left > 0; left -= int64(len(row)) {
				if _, err := w.Write(row[:min(left, int64(len(row)))]); err != nil {
					return err
				}
			}
			return nil
		}})
	}
	dir := filepath.Join(t.TempDir(), "large")
	if err := m.Write(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// peak runs a conversion and gives the most memory it held of the Go heap meanwhile, in
// bytes, garbage aside: how much of that there is depends on when it is collected.
func peak(t *testing.T, from string, o convert.Options) uint64 {
	t.Helper()
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var most uint64
	look := int64(0)
	o.Progress = func(done, _ int64) {
		if done < look {
			return
		}
		look = done + 1<<20
		runtime.GC()
		runtime.ReadMemStats(&now)
		most = max(most, now.HeapInuse)
	}
	if _, err := convert.Folder(context.Background(), open(t, from), filepath.Join(t.TempDir(), "out"), o); err != nil {
		t.Fatal(err)
	}
	return most - min(most, before.HeapInuse)
}

// A conversion holds some rows of a weight, never a weight: 31 MB pass through a few.
func TestMemoryStaysFlat(t *testing.T) {
	dir := patterned(t, largeConfig)
	allowed := uint64(3<<20 + runtime.GOMAXPROCS(0)<<20) // each core works on some rows
	a := adapterFor(t, dir)
	for name, o := range map[string]convert.Options{
		"nf4": {Linear: quant.NF4}, "int8": {Linear: quant.RowI8}, "f32": {Linear: dtype.F32, Others: dtype.F32},
		"merged": {Adapters: []lora.Weighted{{Adapter: a, Weight: 1}}},
	} {
		if got := peak(t, dir, o); got > allowed {
			t.Errorf("%s: the heap grew by %d bytes, %d are allowed", name, got, allowed)
		}
	}
}

// adapterFor writes an adapter of rank 4 for the large model and opens it.
func adapterFor(t *testing.T, base string) *lora.Adapter {
	t.Helper()
	o := lora.Options{Targets: []string{"up_proj", "down_proj"}, Rank: 4, Alpha: 4}
	config, err := o.PEFT(base, false)
	if err != nil {
		t.Fatal(err)
	}
	out := hf.Adapter{Config: config}
	for name, s := range map[string][2]int64{"up_proj": {1024, 4096}, "down_proj": {4096, 1024}} {
		for part, dims := range map[string][]int64{"lora_A": {4, s[0]}, "lora_B": {s[1], 4}} {
			out.Tensors = append(out.Tensors, tensorfile.Output{Name: "model.layers.0.mlp." + name + "." + part + ".weight", Type: dtype.F32, Shape: dims, Write: func(w io.Writer) error {
				_, err := w.Write(bytes.Repeat([]byte{0, 0, 0x80, 0x3c}, int(dims[0]*dims[1])))
				return err
			}})
		}
	}
	dir := filepath.Join(t.TempDir(), "adapter")
	if err := out.Write(dir); err != nil {
		t.Fatal(err)
	}
	a, err := lora.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}
