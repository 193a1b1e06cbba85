package stored

import (
	"fmt"
	"io"

	"spillway/dtype"
	"spillway/hf"
	"spillway/internal/vfs"
	"spillway/safetensors"
)

// Options of Convert.
type Options struct {
	Kind dtype.Type // NF4, FP4, or I8 for rows of 8 bits
	// Chosen says which weights are quantized: the products of the model, the output one
	// excepted. The others are copied.
	Chosen func(name string) bool
	Skip   []string // modules besides the output one that Chosen leaves out
	// ShardBytes is where to split the weights; 0 is safetensors.DefaultShard. Scales of
	// one shard are in memory at a time: a 30th of it at most.
	ShardBytes int64
}

// Convert writes a model folder with quantized weights, which transformers loads as it
// is. Weights stream through: none is in memory as a whole.
func Convert(from *hf.Folder, dir string, o Options) error { return ConvertOn(vfs.OS, from, dir, o) }

// ConvertOn is Convert on a given disk.
func ConvertOn(disk vfs.FS, from *hf.Folder, dir string, o Options) error {
	if err := from.NeedWeights(); err != nil {
		return err
	}
	if _, quantized := from.Config.Value(configKey); quantized {
		return fmt.Errorf("%s is quantized already: start from the original weights", from.Dir)
	}
	if transposed[from.Config.ModelType] {
		return fmt.Errorf("%s is a %s model, whose products are kept as [in out]; bitsandbytes has them the other way round, which is not written here", from.Dir, from.Config.ModelType)
	}
	config, err := Configure(from.Config, o.Kind, o.Skip)
	if err != nil {
		return err
	}
	m := hf.Model{Config: config, Generation: from.Generation, Files: from.TokenizerPaths(), ShardBytes: o.ShardBytes}
	for _, t := range from.Tensors() {
		sources, err := o.sources(t)
		if err != nil {
			return err
		}
		m.Tensors = append(m.Tensors, sources...)
	}
	return m.WriteOn(disk, dir)
}

// transposed are the model types whose products transformers turns round before it
// quantizes them.
var transposed = map[string]bool{"gpt2": true}

func (o Options) sources(t safetensors.Tensor) ([]safetensors.Source, error) {
	if !o.Chosen(t.Name) {
		return []safetensors.Source{copied(t)}, nil
	}
	w := Weight{t.Name, t.Shape, func(first int64, dst []float32) error { return t.ReadF32(dst, first) }}
	if o.Kind == dtype.I8 {
		return w.Rows()
	}
	return w.FourBit(o.Kind, t.Type)
}

func copied(t safetensors.Tensor) safetensors.Source {
	return safetensors.Source{Name: t.Name, Type: t.Type, Shape: t.Shape, Write: func(w io.Writer) error {
		_, err := io.Copy(w, io.NewSectionReader(t, 0, t.Bytes))
		return err
	}}
}
