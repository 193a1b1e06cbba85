// Package convert writes model folders from model folders: with weights quantized, in
// another type, or with adapters merged in; and new ones with random weights. Weights stream through, some rows at a time,
// so that a model may be far larger than memory, and the new folder is whole or absent.
//
// A weight of the old folder becomes one of three things in the new one. It is copied byte
// for byte where neither its numbers nor its type change; it is written in a plain type; or
// it is quantized, as transformers and the libraries behind it store quantized weights
// (package stored).
package convert

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"spillway/arch"
	"spillway/chat"
	"spillway/dtype"
	"spillway/hf"
	"spillway/internal/vfs"
	"spillway/lora"
	"spillway/nn"
	"spillway/op"
	"spillway/quant/stored"
	"spillway/spec"
	"spillway/tensorfile"
	"spillway/tokenizer"
	"spillway/weights"
)

// Options say how the new folder differs.
type Options struct {
	// Linear is the type of the linear weights, lm_head left out: one of quant.Weights or
	// a plain one. Invalid leaves them as they are.
	Linear dtype.Type
	// Skip names modules whose linear weights count as other weights: names or patterns,
	// as nn.NewModuleSet takes them.
	Skip []string
	// Others is the plain type of all other weights. Invalid leaves them as they are.
	Others dtype.Type
	// NoDoubleQuant leaves the scales of 4-bit weights in f32, instead of quantizing them
	// again. Weights that are quantized already, and stay so, keep their scales.
	NoDoubleQuant bool
	// Adapters are merged into the weights.
	Adapters []lora.Weighted

	ShardBytes int64  // where to split the weights; 0 is safetensors.DefaultShard
	Offloaded  bool   // write a file for each instead, as accelerate reads them from disk
	Disk       vfs.FS // nil is the real one
	// Progress, where it is not nil, is called now and then with how many bytes of how
	// many are written.
	Progress func(done, total int64)
	// GGUF is how the tensors of a GGUF file are stored, see gguf.Recipes; "" is the type of
	// the model. Only Export writes such files.
	GGUF string
	// Average has Export write the average of the weights that a run kept, instead of the weights.
	Average bool
	// Tokenizer is the file of the tokenizer that is written: a tokenizer.json or, into GGUF files alone, a
	// .bin of llama2.c; "" is the one of the model's folder.
	Tokenizer string
}

// Result is what was written.
type Result struct {
	Tensors int           // weights; a quantized one counts once
	Params  int64         // elements of the weights of a new model
	Changed int           // weights whose numbers or type changed
	Before  int64         // bytes of the weights before
	Bytes   int64         // and now
	Took    time.Duration // the writing
	Adapter bool          // the folder holds an adapter, not a model
	Notices []string      // of what was taken otherwise than one might expect
}

// Folder writes a new folder. It must not exist; after an error it does not.
func Folder(ctx context.Context, from *hf.Folder, dir string, o Options) (Result, error) {
	start := time.Now()
	c, err := prepare(from, o)
	if err != nil {
		return Result{}, fmt.Errorf("converting %s: %w", from.Path, err)
	}
	m := hf.Model{Config: c.config, Generation: from.Generation, Files: from.TokenizerPaths()}
	if o.Tokenizer != "" {
		m.Files = nil
		if m.Texts, err = tokenizerTexts(from, o.Tokenizer); err != nil {
			return Result{}, err
		}
	}
	for _, t := range c.list {
		outputs, err := c.outputs(t)
		if err != nil {
			return Result{}, fmt.Errorf("converting %s: %w", from.Path, err)
		}
		m.Tensors = append(m.Tensors, outputs...)
	}
	err = o.write(ctx, m, dir, &c.result)
	c.result.Took = time.Since(start)
	return c.result, err
}

// tokenizerTexts are the files of a folder that has the tokenizer of a file instead of its own, and its template for
// conversations still.
func tokenizerTexts(from *hf.Folder, path string) (map[string][]byte, error) {
	if filepath.Ext(path) == ".bin" {
		return nil, fmt.Errorf("the tokenizer %s is a .bin of llama2.c, which model folders do not have: name a tokenizer.json, or write a GGUF file", path)
	}
	raw, err := vfs.ReadFile(vfs.OS, path, maxTokenizer)
	if err != nil {
		return nil, err
	}
	t, err := tokenizer.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("the tokenizer %s: %w", path, err)
	}
	if n := from.Config.VocabSize; t.VocabSize() > n {
		return nil, fmt.Errorf("the tokenizer %s has %d tokens, the model %d: it is of another model", path, t.VocabSize(), n)
	}
	texts := map[string][]byte{"tokenizer.json": raw}
	template, err := chat.Open(from.Dir)
	if errors.Is(err, chat.ErrNoTemplate) {
		return texts, nil
	}
	if err != nil {
		return nil, err
	}
	texts["chat_template.jinja"] = []byte(template.Source)
	if template.WithTools != nil {
		texts[chat.ToolsFile] = []byte(template.WithTools.Source)
	}
	return texts, nil
}

// write writes a model folder as the options say, and counts its bytes.
func (o Options) write(ctx context.Context, m hf.Model, dir string, r *Result) (err error) {
	if r.Bytes, err = m.Bytes(); err != nil {
		return err
	}
	m.ShardBytes, m.Offloaded = o.ShardBytes, o.Offloaded
	m.Tensors = withProgress(ctx, m.Tensors, r.Bytes, o.Progress)
	disk := o.Disk
	if disk == nil {
		disk = vfs.OS
	}
	return m.WriteOn(disk, dir)
}

// conversion is a folder about to be converted.
type conversion struct {
	Options
	config    *hf.Config
	list      []stored.Tensor
	params    map[string]string // by the names of tensors
	linear    map[string]bool   // params that are linear weights
	skipped   []string          // modules taken out of linear
	merged    *lora.Merged      // nil where no adapters are merged
	plainType dtype.Type        // of weights that are not quantized
	result    Result
}

// prepare checks everything that can be wrong before anything is written.
func prepare(from *hf.Folder, o Options) (*conversion, error) {
	if err := errors.Join(from.NeedWeights(), stored.Check(from.Config), o.check(from.Config)); err != nil {
		return nil, err
	}
	build := func() (nn.Model, error) { net, _, err := arch.New(from.Config); return net, err }
	net, info, err := arch.New(from.Config)
	if err != nil {
		return nil, err
	}
	c := &conversion{Options: o, params: map[string]string{}}
	if c.linear, err = lora.LinearWeights(net); err != nil {
		return nil, err
	}
	if err := c.skip(); err != nil {
		return nil, err
	}
	if c.list, err = stored.Collect(from.Tensors()); err != nil {
		return nil, err
	}
	if o.Linear.Block() && slices.ContainsFunc(c.list, func(t stored.Tensor) bool { return t.Type.Block() }) {
		return nil, errQuantized
	}
	params, err := paramsOf(net)
	if err != nil {
		return nil, err
	}
	base, err := weights.FromSource(from, info, params)
	if err != nil {
		return nil, err
	}
	for _, p := range params {
		for _, name := range info.FileNames(p.Name) {
			c.params[name] = p.Name
		}
	}
	if len(o.Adapters) > 0 {
		if c.merged, err = lora.Merge(build, base, o.Adapters); err != nil {
			return nil, err
		}
	}
	if err := c.checkTransposed(info); err != nil {
		return nil, err
	}
	return c, c.configure(from.Config, net)
}

// skip takes modules out of the linear weights.
func (c *conversion) skip() error {
	chosen, err := nn.NewModuleSet(c.Skip)
	if err != nil {
		return err
	}
	for _, param := range slices.Sorted(maps.Keys(c.linear)) {
		if module := strings.TrimSuffix(param, ".weight"); nn.Within(module, chosen.Has) {
			c.skipped = append(c.skipped, module)
			delete(c.linear, param)
		}
	}
	if err := chosen.Unmatched(); err != nil {
		return fmt.Errorf("linear weights that are left as they are: %w", err)
	}
	return nil
}

var errQuantized = errors.New("it is quantized already: start from the original weights")

// check refuses types that make no sense.
func (o Options) check(c *hf.Config) error {
	quantized := o.Linear.Block()
	switch {
	case o.Linear != dtype.Invalid && !quantized && !o.Linear.IsPlain():
		return fmt.Errorf("linear weights cannot be stored as %v; use %s, f32, bf16 or f16", o.Linear, strings.Join(stored.Written(), ", "))
	case o.Others != dtype.Invalid && !o.Others.IsPlain():
		return fmt.Errorf("weights cannot be stored as %v; use f32, bf16 or f16", o.Others)
	case quantized && stored.Quantized(c):
		return errQuantized
	}
	return nil
}

// checkTransposed refuses to quantize weights that are stored as [in out]: the libraries
// store quantized weights as [out in].
func (c *conversion) checkTransposed(info arch.Info) error {
	if info.Transposed && c.Linear.Block() {
		return fmt.Errorf("it is a %s model, whose linear weights are stored as [in out]; quantized weights are [out in], and turning them is not supported", info.Type)
	}
	return nil
}

func paramsOf(net nn.Model) ([]spec.Param, error) {
	bound, err := nn.Bind(net)
	params := make([]spec.Param, len(bound))
	for i, p := range bound {
		params[i] = spec.Param{Name: p.Name, Type: op.Type{DType: dtype.F32, Shape: p.Shape}, Init: p.Init}
	}
	return params, err
}

// configure makes the new config.json.
func (c *conversion) configure(from *hf.Config, net nn.Model) (err error) {
	config := *from
	if c.Others != dtype.Invalid {
		config.Type = c.Others
	}
	c.config, c.plainType = &config, config.Type
	if c.plainType == dtype.Invalid {
		c.plainType = dtype.F32
	}
	switch {
	case c.Linear.Block():
		c.config, err = stored.Configure(&config, stored.Options{Type: c.Linear, Model: config.Type, Double: !c.NoDoubleQuant, Head: lmHead(net), Skip: c.skipped})
	case c.Linear != dtype.Invalid && stored.Quantized(from):
		c.config = stored.Unquantized(&config)
	}
	return err
}

// lmHead is the name of the module that makes the logits, "" where there is none.
func lmHead(net nn.Model) (name string) {
	h, ok := net.(interface{ Output() *nn.Linear })
	if !ok {
		return ""
	}
	// The error of a walk that visits everything is that of Bind, which has been done.
	_ = nn.Walk(net, func(at string, part any) error {
		if part == h.Output() {
			name = at
		}
		return nil
	})
	return name
}

// outputs are the tensors that a weight becomes.
func (c *conversion) outputs(t stored.Tensor) ([]tensorfile.Output, error) {
	param, known := c.params[t.Name]
	changed := known && c.merged != nil && c.merged.Changes(param)
	to := c.typeOf(t, param, known)
	c.result.Tensors++
	for _, p := range t.Parts {
		c.result.Before += p.Bytes
	}
	if !changed && to == t.Type {
		var parts []tensorfile.Output
		for _, p := range t.Parts {
			parts = append(parts, copied(p))
		}
		return parts, nil
	}
	c.result.Changed++
	read := t.ReadF32
	if changed {
		read = func(dst []float32, first int64) error { return c.merged.Read(param, first, dst) }
	}
	from := func(first int64, dst []float32) error { return read(dst, first) }
	if to.Block() {
		w := stored.Weight{Name: t.Name, Shape: t.Shape, From: from}
		return w.Outputs(stored.Options{Type: to, Model: c.plainType, Double: c.doubleQuant(t)})
	}
	return []tensorfile.Output{plain(t.Name, t.Shape, to, from)}, nil
}

// doubleQuant says whether the scales of a weight are quantized again.
func (c *conversion) doubleQuant(t stored.Tensor) bool {
	if t.Type.Block() {
		return t.DoubleQuantized()
	}
	return !c.NoDoubleQuant
}

// typeOf is the type a weight is written in. Tensors that are not weights stay as they are,
// but for types that only GGUF files have.
func (c *conversion) typeOf(t stored.Tensor, param string, known bool) dtype.Type {
	to := c.Others
	if c.linear[param] {
		to = c.Linear
	}
	if !known || to == dtype.Invalid || !t.Type.Float() || !strings.HasSuffix(t.Name, ".weight") && to.Block() {
		to = t.Type
	}
	if to.Block() && stored.Library(to) == "" {
		return c.plainType
	}
	return to
}
