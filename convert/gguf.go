package convert

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"spillway/arch"
	"spillway/chat"
	"spillway/dtype"
	"spillway/gguf"
	"spillway/hf"
	"spillway/internal/vfs"
	"spillway/nn"
	"spillway/quant"
	"spillway/shape"
	"spillway/tensorfile"
	"spillway/tokenizer"
	"spillway/weights"
)

// ggufArch are the architectures that GGUF files can be written of, by model_type.
var ggufArch = map[string]string{"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}

// GGUF writes a model folder as one GGUF file, which must not exist, as a recipe says:
// "q4_k_m". The weights are streamed.
func GGUF(ctx context.Context, from *hf.Folder, path, recipe string, o Options) (r Result, err error) {
	start := time.Now()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return r, fmt.Errorf("%s exists already: name a new file, or remove it", path)
	}
	w, err := newGGUF(from, recipe, o.Tokenizer)
	if err != nil {
		return r, fmt.Errorf("converting %s: %w", from.Path, err)
	}
	for _, t := range from.Tensors() {
		r.Before += t.Bytes
	}
	r.Tensors, r.Changed = len(w.tensors), len(w.tensors)
	for _, t := range w.tensors {
		n, err := t.Bytes()
		if err != nil {
			return r, err
		}
		r.Bytes += n
	}
	release, err := vfs.Claim(path)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, release()) }()
	err = vfs.WithSpace(vfs.OS, filepath.Dir(path), r.Bytes, func() error {
		return gguf.Write(vfs.OS, path, w.metadata, withProgress(ctx, w.tensors, r.Bytes, o.Progress))
	})
	r.Took, r.Notices = time.Since(start), w.notices
	return r, err
}

// ggufModel is a model about to be written.
type ggufModel struct {
	config   *hf.Config
	net      nn.Model
	metadata gguf.Metadata
	recipe   gguf.Recipe
	values   weights.Values
	tensors  []tensorfile.Output
	notices  []string
}

func newGGUF(from *hf.Folder, recipe, tokenizer string) (w *ggufModel, err error) {
	c := from.Config
	name := ggufArch[c.ModelType]
	if name == "" {
		return nil, fmt.Errorf("it is a %s model; GGUF files are written of llama, mistral, qwen2 and qwen3", c.ModelType)
	}
	if err := from.NeedWeights(); err != nil {
		return nil, err
	}
	net, info, err := arch.New(c)
	if err != nil {
		return nil, err
	}
	params, err := paramsOf(net)
	if err != nil {
		return nil, err
	}
	if c.Activation != "silu" {
		return nil, fmt.Errorf("its activation is %s; a GGUF file cannot say that, and programs that read it compute silu", c.Activation)
	}
	if c.ModelType == "qwen3" && c.AttentionBias {
		return nil, errors.New("its attention has biases, which models of architecture qwen3 do not have in a GGUF file")
	}
	w = &ggufModel{config: c, net: net}
	if w.values, err = weights.FromSource(from, info, params); err != nil {
		return nil, err
	}
	if w.recipe, err = gguf.NewRecipe(recipe, c.Layers, c.Tied); err != nil {
		return nil, err
	}
	if err := w.describe(name, from, tokenizer); err != nil {
		return nil, err
	}
	for _, p := range params {
		if err := w.add(p.Name, p.Type.Shape); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// describe fills the metadata.
func (w *ggufModel) describe(name string, from *hf.Folder, tokenizer string) error {
	c := w.config
	m := gguf.Metadata{
		"general.architecture": name, "general.name": strings.TrimSuffix(filepath.Base(from.Path), gguf.Extension), "general.file_type": w.recipe.Number, "general.quantization_version": int64(2),
		name + ".vocab_size": int64(c.VocabSize), name + ".context_length": int64(c.MaxPositions), name + ".embedding_length": int64(c.HiddenSize),
		name + ".block_count": int64(c.Layers), name + ".feed_forward_length": int64(c.IntermediateSize),
		name + ".attention.head_count": int64(c.Heads), name + ".attention.head_count_kv": int64(c.KVHeads), name + ".attention.layer_norm_rms_epsilon": c.NormEps,
		name + ".attention.key_length": int64(c.HeadDim), name + ".attention.value_length": int64(c.HeadDim),
		name + ".rope.dimension_count": int64(c.HeadDim), name + ".rope.freq_base": c.Rope.Theta,
	}
	w.metadata = m
	for layer := range c.Layers {
		if window := c.Window(layer); window > 0 {
			if c.ModelType != "mistral" || c.Window(0) != window {
				return fmt.Errorf("layer %d has a window of %d tokens, which only a mistral model with windows on all layers can have in a GGUF file", layer, window)
			}
			m[name+".attention.sliding_window"] = int64(window)
		} else if c.Window(0) > 0 {
			return fmt.Errorf("only some layers have windows, which a GGUF file cannot say")
		}
	}
	if err := w.rope(name); err != nil {
		return err
	}
	if tokenizer == "" && !slices.Contains(from.Tokenizer, "tokenizer.json") {
		m["tokenizer.ggml.model"] = "none"
		w.notices = append(w.notices, fmt.Sprintf("%s has no tokenizer.json, so the file has no tokenizer and other programs cannot give it text; --tokenizer names one", from.Path))
		return w.ends(from)
	}
	words, err := w.vocabulary(from, tokenizer)
	if err != nil {
		return err
	}
	maps.Copy(m, words)
	if err := w.ends(from); err != nil {
		return err
	}
	template, err := chat.Open(from.Dir)
	if errors.Is(err, chat.ErrNoTemplate) {
		return nil
	}
	if err != nil {
		return err
	}
	m["tokenizer.chat_template"] = template.Source
	if template.WithTools != nil {
		m["tokenizer.chat_templates"] = []string{gguf.ToolsTemplate}
		m["tokenizer.chat_template."+gguf.ToolsTemplate] = template.WithTools.Source
	}
	return nil
}

// ends adds the tokens that begin and end a text: those of config.json, then those that only generation_config.json
// has, as of models that chat; and how tokens are drawn.
func (w *ggufModel) ends(from *hf.Folder) error {
	ends := slices.Clone(w.config.EOS)
	if from.Generation != nil {
		var more struct {
			EOS         hf.TokenIDs `json:"eos_token_id"`
			DoSample    bool        `json:"do_sample"`
			Temperature *float64    `json:"temperature"`
			TopK        *int64      `json:"top_k"`
			TopP        *float64    `json:"top_p"`
			MinP        *float64    `json:"min_p"`
			Penalty     *float64    `json:"repetition_penalty"`
		}
		if err := json.Unmarshal(from.Generation, &more); err != nil {
			return fmt.Errorf("reading %s of %s: %w", hf.GenerationName, from.Dir, err)
		}
		for _, id := range more.EOS {
			ends = append(ends, int(id))
		}
		if p := or(more.Penalty, 1); p != 1 { // the penalty that a file can have is of the last tokens of a text
			w.notices = append(w.notices, fmt.Sprintf("%s has repetition_penalty %v, for which a GGUF file has no place", hf.GenerationName, p))
		}
		if more.DoSample { // with the values that transformers has where some are not given, since llama.cpp has others
			w.metadata.Sampling(map[string]any{
				"temperature": or(more.Temperature, 1), "top_k": or(more.TopK, 50), "top_p": or(more.TopP, 1), "min_p": or(more.MinP, 0),
			})
		}
	}
	if over := w.metadata.Ends(w.config.BOS, ends); len(over) > 0 {
		w.notices = append(w.notices, fmt.Sprintf("texts of the model also end with tokens %v, for which a GGUF file has no place: it has three", over))
	}
	return nil
}

// or is a value that a config has, or what counts without it.
func or[V any](value *V, otherwise V) V {
	if value == nil {
		return otherwise
	}
	return *value
}

// vocabulary is the tokenizer of a file, or of the folder where none is named, as metadata.
func (w *ggufModel) vocabulary(from *hf.Folder, path string) (gguf.Metadata, error) {
	if path != "" {
		return openVocabulary(path, w.config.VocabSize)
	}
	raw, err := tokenizer.FolderFile(from.Dir, int64(w.config.VocabSize))
	if err != nil {
		return nil, err
	}
	m, err := gguf.TokenizerMetadata(raw, w.config.VocabSize)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(from.Dir, "tokenizer.json"), err)
	}
	return m, nil
}

// openVocabulary reads the file of a tokenizer as metadata.
func openVocabulary(path string, vocab int) (gguf.Metadata, error) {
	raw, err := vfs.ReadFile(vfs.OS, path, maxTokenizer)
	if err != nil {
		return nil, err
	}
	if filepath.Ext(path) != ".bin" {
		m, err := gguf.TokenizerMetadata(raw, vocab)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return m, nil
	}
	pieces, scores, err := tokenizer.Llama2CPieces(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return gguf.PiecesMetadata(pieces, scores, vocab)
}

// maxTokenizer bounds the file of a tokenizer, in bytes.
const maxTokenizer = 1 << 30

// rope adds how positions are scaled.
func (w *ggufModel) rope(name string) error {
	r := w.config.Rope
	scaling := func(kind string) {
		w.metadata[name+".rope.scaling.type"], w.metadata[name+".rope.scaling.factor"] = kind, r.Factor
	}
	original := cmp.Or(r.OriginalMaxPositions, w.config.MaxPositions)
	switch {
	case r.Type == "default":
	case r.Type == "linear":
		scaling("linear")
	case r.Type == "llama3" && name == "llama" && r.LowFreqFactor == 1 && r.HighFreqFactor == 4:
		factors := gguf.LlamaFactors(r.Theta, r.Factor, r.LowFreqFactor, r.HighFreqFactor, float64(original), w.config.HeadDim)
		raw := make([]byte, 4*len(factors))
		dtype.F32.Encode(raw, factors)
		w.tensors = append(w.tensors, tensorfile.Output{Name: "rope_freqs.weight", Type: dtype.F32, Shape: shape.Of(len(factors)), Write: func(out io.Writer) error { _, err := out.Write(raw); return err }})
	case r.Type == "yarn" && w.plainYarn(original):
		scaling("yarn")
		w.metadata[name+".rope.scaling.original_context_length"] = int64(original)
	default:
		return fmt.Errorf("its positions are scaled by %s with settings that a GGUF file cannot say", r.Type)
	}
	return nil
}

// plainYarn says whether positions are rotated as yarn does with a factor and a number of original positions alone, which is
// all that a file has of it.
func (w *ggufModel) plainYarn(original int) bool {
	plain := w.config.Without("rope_scaling").Without("rope_parameters") // mscale and truncate are only there
	plain.Rope.AttentionFactor, plain.Rope.BetaFast, plain.Rope.BetaSlow, plain.Rope.OriginalMaxPositions = 0, 0, 0, original
	net, _, err := arch.New(plain)
	if err != nil {
		return false
	}
	have, want := w.net.(*arch.Llama).Layers[0].Attention.Rope, net.(*arch.Llama).Layers[0].Attention.Rope
	return slices.Equal(have.Freq, want.Freq) && have.Scale == want.Scale
}

// add adds a weight under its name in the file, q and k of llama with their rows in its order.
func (w *ggufModel) add(param string, s shape.Shape) error {
	name, err := gguf.FileName(param)
	if err != nil {
		return err
	}
	read := func(first int64, dst []float32) error { return w.values.Read(param, first, dst) }
	if heads := w.permutedHeads(param); heads > 0 {
		read = permutedRows(read, s, s[0]/heads)
	}
	kind := w.recipe.Type(name, s)
	out := tensorfile.Output{Name: name, Type: kind, Shape: s}
	if kind.Block() {
		out.Write = func(to io.Writer) error {
			r, err := quant.Storage(kind, s.Rows(), s.Last(), read)
			if err == nil {
				_, err = io.Copy(to, r)
			}
			return err
		}
	} else {
		out.Write = plain(name, s, kind, read).Write
	}
	w.tensors = append(w.tensors, out)
	return nil
}

// permutedHeads is how many heads the rows of a weight are in that a file of architecture llama
// has in another order; 0 for none.
func (w *ggufModel) permutedHeads(param string) int64 {
	if ggufArch[w.config.ModelType] != "llama" {
		return 0
	}
	switch end := filepath.Ext(param[:max(len(param)-len(filepath.Ext(param)), 0)]); end {
	case ".q_proj":
		return int64(w.config.Heads)
	case ".k_proj":
		return int64(w.config.KVHeads)
	}
	return 0
}

// permutedRows reads rows in the order of the file.
func permutedRows(read quant.ReadFunc, s shape.Shape, headRows int64) quant.ReadFunc {
	cols := s.Elements() / s[0]
	return func(first int64, dst []float32) error {
		for len(dst) > 0 {
			row, skip := first/cols, first%cols
			n := min(int64(len(dst)), cols-skip)
			if err := read(gguf.PermutedRow(row, headRows)*cols+skip, dst[:n]); err != nil {
				return err
			}
			dst, first = dst[n:], first+n
		}
		return nil
	}
}
