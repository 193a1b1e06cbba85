// Package inspect describes folders of models, adapters and checkpoints, and finds what is
// wrong with them: tensors that the architecture needs and the folder lacks, that it does not
// know, or that have another shape. Only headers are read, so that a folder of any size takes
// no time, unless a checkpoint is to be verified.
package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"spillway/arch"
	"spillway/checkpoint"
	"spillway/dtype"
	"spillway/graph"
	"spillway/hf"
	"spillway/hub"
	"spillway/nn"
	"spillway/quant"
	"spillway/quant/stored"
	"spillway/spec"
	"spillway/tensorfile"
	"spillway/tokenizer"
)

// Report is what a folder holds: the object of inspect --json.
type Report struct {
	Path      string          `json:"path"`
	Model     *Model          `json:"model,omitempty"` // absent where the architecture is not known
	Config    json.RawMessage `json:"config"`
	Types     []Type          `json:"types"`
	Files     []File          `json:"files"`
	Tokenizer Tokenizer       `json:"tokenizer"`
	Tensors   []Tensor        `json:"tensors,omitempty"`
	Quantized map[string]int  `json:"quantized,omitempty"` // weights by format
	Problems  []string        `json:"problems"`
	Notices   []string        `json:"notices,omitempty"` // of what is there and not used
	// Adapter, of a folder that holds one, is instead of Model.
	Adapter *Adapter `json:"adapter,omitempty"`
	// Checkpoint is absent where the folder is a model and nothing more.
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
}

// Type is how many of the weights have one element type.
type Type struct {
	Type    string `json:"type"`
	Tensors int    `json:"tensors"`
	Params  int64  `json:"params"`
	Bytes   int64  `json:"bytes"`
}

// File is one file of weights.
type File struct {
	Name    string `json:"name"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
}

// Tokenizer is the files of a tokenizer, and its size.
type Tokenizer struct {
	Files      []string `json:"files"`
	Vocabulary int      `json:"vocabulary,omitempty"` // of a tokenizer.json that could be read
}

// Tensor is one tensor of a file.
type Tensor struct {
	Name  string  `json:"name"`
	Type  string  `json:"type"`
	Shape []int64 `json:"shape"`
	Bytes int64   `json:"bytes"`
	File  string  `json:"file"`
}

// Options say what is read besides headers.
type Options struct {
	Tensors bool // list every tensor
	Verify  bool // compare all of a checkpoint with its checksums
}

// Folder reads a model's, an adapter's or a checkpoint's folder and collects what is wrong
// with it. Of a run's folder it reads the newest checkpoint.
func Folder(dir string, o Options) (*Report, error) {
	notices := hub.Notices(dir)
	dir, err := hub.Path(dir)
	if err != nil {
		return nil, fmt.Errorf("inspecting %w", err)
	}
	if dir = checkpoint.Newest(dir); hf.IsAdapter(dir) {
		return adapterFolder(dir, o)
	}
	f, err := hf.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("inspecting %s: %w", dir, err)
	}
	defer f.Close() // opened for reading
	r := &Report{Path: dir, Types: []Type{}, Files: []File{}, Problems: []string{}, Notices: notices}
	if r.Config, err = f.Config.Encode(); err != nil {
		return nil, fmt.Errorf("inspecting %s: %w", dir, err)
	}
	for _, t := range f.Tensors() {
		r.count(t, o.Tensors)
	}
	if err := f.NeedWeights(); err != nil {
		r.problem("%v", err)
	}
	r.inspectModel(f)
	r.inspectTokenizer(f)
	switch {
	case f.Dir == dir:
		r.inspectCheckpoint(o.Verify)
	case o.Verify:
		r.problem("it is a file: only checkpoints have checksums to verify")
	}
	return r, nil
}

func (r *Report) problem(format string, args ...any) {
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

// count adds a tensor to the sums by type and file.
func (r *Report) count(t tensorfile.Tensor, list bool) {
	i := slices.IndexFunc(r.Types, func(s Type) bool { return s.Type == t.Type.String() })
	if i < 0 {
		i = len(r.Types)
		r.Types = append(r.Types, Type{Type: t.Type.String()})
	}
	r.Types[i].Tensors++
	r.Types[i].Params += t.Shape.Elements()
	r.Types[i].Bytes += t.Bytes
	file := filepath.Base(t.Path)
	if n := len(r.Files); n == 0 || r.Files[n-1].Name != file { // tensors come file by file
		r.Files = append(r.Files, File{Name: file})
	}
	last := &r.Files[len(r.Files)-1]
	last.Tensors++
	last.Bytes += t.Bytes
	if list {
		r.Tensors = append(r.Tensors, Tensor{t.Name, t.Type.String(), t.Shape, t.Bytes, file})
	}
}

// inspectModel compares the tensors with what the architecture needs.
func (r *Report) inspectModel(f *hf.Folder) {
	net, info, err := arch.FromConfig(r.Config)
	if err != nil {
		r.problem("%v", err)
		return
	}
	name := filepath.Base(filepath.Clean(r.Path))
	traced, err := spec.Trace(name, info.Type, net, graph.Config{MicroBatchSize: 1, Seq: 1, DType: dtype.F32, Task: graph.Eval})
	if err != nil {
		r.problem("%v", err)
		return
	}
	m := DescribeModel(info, traced)
	r.Model = &m
	if f.NeedWeights() != nil {
		return
	}
	params, err := nn.Bind(net)
	if err != nil {
		r.problem("%v", err)
		return
	}
	r.compare(f, info, params)
}

// compare lists params without a tensor, and tensors without a param. The tensors of a
// quantized weight count as one.
func (r *Report) compare(f *hf.Folder, info arch.Info, params []*nn.Param) {
	list, err := stored.Collect(f.Tensors())
	if err := stored.CheckActivations(f.Config); err != nil {
		r.problem("%v", err)
	}
	if err = errors.Join(err, stored.Check(f.Config)); err != nil {
		r.problem("%v", err)
		return
	}
	byName, used := map[string]stored.Tensor{}, map[string]bool{}
	for _, t := range list {
		byName[t.Name] = t
	}
	for _, p := range params {
		i := slices.IndexFunc(info.FileNames(p.Name), func(name string) bool { _, ok := byName[name]; return ok })
		if i < 0 {
			r.problem("%s %v is missing", p.Name, p.Shape)
			continue
		}
		t := byName[info.FileNames(p.Name)[i]]
		used[t.Name] = true
		if !t.Shape.Equal(p.Shape) {
			r.problem("%s has the shape %v, the model wants %v", t.Name, t.Shape, p.Shape)
		}
		if err := t.CheckReal(); err != nil {
			r.problem("%v", err)
		}
		if t.Type.Block() {
			r.quantized(t.Type)
		}
	}
	for _, t := range list {
		if !used[t.Name] && !info.IsBuffer(t.Name) {
			r.problem("%s %v is not part of the model", t.Name, t.Shape)
		}
	}
}

// quantized counts a weight of a block type.
func (r *Report) quantized(t dtype.Type) {
	if r.Quantized == nil {
		r.Quantized = map[string]int{}
	}
	r.Quantized[quant.Of(t).Alias]++
}

// inspectTokenizer reads the tokenizer.json, if there is one.
func (r *Report) inspectTokenizer(f *hf.Folder) {
	r.Tokenizer.Files = append([]string{}, f.Tokenizer...)
	if !slices.Contains(f.Tokenizer, "tokenizer.json") {
		return
	}
	t, err := tokenizer.OpenFolder(f.Dir, int64(f.Config.VocabSize))
	if err != nil {
		r.problem("%v", err)
		return
	}
	r.Tokenizer.Vocabulary = t.VocabSize()
	if r.Model != nil && r.Model.Vocabulary > 0 && int64(r.Tokenizer.Vocabulary) > r.Model.Vocabulary {
		r.problem("the tokenizer has %d tokens, the model %d", r.Tokenizer.Vocabulary, r.Model.Vocabulary)
	}
}
