package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"spillway/arch"
	"spillway/checkpoint"
	"spillway/dtype"
	"spillway/graph"
	"spillway/hf"
	"spillway/internal/term"
	"spillway/nn"
	"spillway/quant"
	"spillway/quant/stored"
	"spillway/spec"
	"spillway/tensorfile"
	"spillway/tokenizer"
	"spillway/units"
)

func newInspect(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect DIR",
		Short: "what is in a model or adapter folder, and what is wrong with it",
		Long: `Shows what a model folder holds: the model its config describes, the files, element
types and number of its weights, and its tokenizer. Every tensor is held against
what the architecture needs; missing, unknown and misshapen ones are listed as
problems, and the exit code is 1 if there are any.

An adapter's folder, as PEFT and train --task lora write it, is shown with its options.
Of a training checkpoint it also shows the state to go on from. DIR may be the folder of a
run: then its newest checkpoint is meant.

Only headers are read, so a folder of any size takes no time; --verify reads all of a
checkpoint and holds it against its checksums.`,
		Example: `  spillway inspect ./model
  spillway inspect ./model --tensors     with every tensor, its type, shape and file
  spillway inspect ./run --verify        the newest checkpoint of a run, every byte checked
  spillway inspect ./model --json`,
		Args: exactly(1, "DIR"),
	}
	asJSON := jsonFlag(cmd)
	tensors := cmd.Flags().Bool("tensors", false, "list every tensor")
	verify := cmd.Flags().Bool("verify", false, "read all of a checkpoint and compare it with its checksums")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		r, err := inspect(args[0], *tensors, *verify)
		if err != nil {
			return err
		}
		if *asJSON {
			err = writeJSON(sh.out, r)
		} else {
			err = r.write(sh.out)
		}
		if err == nil && len(r.Problems) > 0 {
			err = errReported
		}
		return err
	}
	return cmd
}

// folderReport is the object of inspect --json.
type folderReport struct {
	Path      string          `json:"path"`
	Model     *modelReport    `json:"model,omitempty"` // absent where the architecture is not known
	Config    json.RawMessage `json:"config"`
	Types     []typeReport    `json:"types"`
	Files     []fileReport    `json:"files"`
	Tokenizer tokenizerReport `json:"tokenizer"`
	Tensors   []tensorReport  `json:"tensors,omitempty"`
	Quantized map[string]int  `json:"quantized,omitempty"` // weights by format
	Problems  []string        `json:"problems"`
	// Adapter, of a folder that holds one, is instead of Model.
	Adapter *adapterReport `json:"adapter,omitempty"`
	// Checkpoint is absent where the folder is a model and nothing more.
	Checkpoint *checkpointReport `json:"checkpoint,omitempty"`
}

// typeReport is how much of the weights is of one element type.
type typeReport struct {
	Type    string `json:"type"`
	Tensors int    `json:"tensors"`
	Params  int64  `json:"params"`
	Bytes   int64  `json:"bytes"`
}

// fileReport is one file of weights.
type fileReport struct {
	Name    string `json:"name"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
}

type tokenizerReport struct {
	Files      []string `json:"files"`
	Vocabulary int      `json:"vocabulary,omitempty"` // of a tokenizer.json that could be read
}

type tensorReport struct {
	Name  string  `json:"name"`
	Type  string  `json:"type"`
	Shape []int64 `json:"shape"`
	Bytes int64   `json:"bytes"`
	File  string  `json:"file"`
}

// inspect reads what there is and collects what is wrong.
func inspect(dir string, listTensors, verify bool) (*folderReport, error) {
	if dir = checkpoint.Newest(dir); isAdapter(dir) {
		return inspectAdapter(dir, listTensors, verify)
	}
	f, err := hf.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("inspecting %s: %w", dir, err)
	}
	defer f.Close() // opened for reading
	r := &folderReport{Path: dir, Types: []typeReport{}, Files: []fileReport{}, Problems: []string{}}
	if r.Config, err = f.Config.Encode(); err != nil {
		return nil, fmt.Errorf("inspecting %s: %w", dir, err)
	}
	for _, t := range f.Tensors() {
		r.count(t, listTensors)
	}
	if err := f.NeedWeights(); err != nil {
		r.problem("%v", err)
	}
	r.inspectModel(f)
	r.inspectTokenizer(f)
	r.inspectCheckpoint(verify)
	return r, nil
}

func (r *folderReport) problem(format string, args ...any) {
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

// count adds a tensor to the sums by type and file.
func (r *folderReport) count(t tensorfile.Tensor, list bool) {
	i := slices.IndexFunc(r.Types, func(s typeReport) bool { return s.Type == t.Type.String() })
	if i < 0 {
		i = len(r.Types)
		r.Types = append(r.Types, typeReport{Type: t.Type.String()})
	}
	r.Types[i].Tensors++
	r.Types[i].Params += t.Shape.Elements()
	r.Types[i].Bytes += t.Bytes
	file := filepath.Base(t.Path)
	if n := len(r.Files); n == 0 || r.Files[n-1].Name != file { // tensors come file by file
		r.Files = append(r.Files, fileReport{Name: file})
	}
	last := &r.Files[len(r.Files)-1]
	last.Tensors++
	last.Bytes += t.Bytes
	if list {
		r.Tensors = append(r.Tensors, tensorReport{t.Name, t.Type.String(), t.Shape, t.Bytes, file})
	}
}

// inspectModel holds the tensors against the architecture.
func (r *folderReport) inspectModel(f *hf.Folder) {
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
	m := describeModel(info, traced)
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

// compare lists params without their tensor, and tensors without a param. Those that
// are one quantized weight count as one.
func (r *folderReport) compare(f *hf.Folder, info arch.Info, params []*nn.Param) {
	list, err := stored.Collect(f.Tensors())
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

// quantized counts a weight of a block format.
func (r *folderReport) quantized(t dtype.Type) {
	if r.Quantized == nil {
		r.Quantized = map[string]int{}
	}
	r.Quantized[quant.Of(t).Alias]++
}

// inspectTokenizer reads the tokenizer.json, if there is one.
func (r *folderReport) inspectTokenizer(f *hf.Folder) {
	r.Tokenizer.Files = append([]string{}, f.Tokenizer...)
	if !slices.Contains(f.Tokenizer, "tokenizer.json") {
		return
	}
	t, err := tokenizer.Open(filepath.Join(f.Dir, "tokenizer.json"))
	if err != nil {
		r.problem("%v", err)
		return
	}
	r.Tokenizer.Vocabulary = t.VocabSize()
	if r.Model != nil && r.Model.Vocabulary > 0 && int64(r.Tokenizer.Vocabulary) > r.Model.Vocabulary {
		r.problem("the tokenizer has %d tokens, the model %d", r.Tokenizer.Vocabulary, r.Model.Vocabulary)
	}
}

// shownProblems is how many are told to people; --json has all.
const shownProblems = 12

// write shows the folder to people.
func (r *folderReport) write(w io.Writer) error {
	var p page
	p.line("folder", "%s", r.Path)
	if r.Model != nil {
		p.line("model", "%s, %v, context %s", r.Model.Arch, r.Model, grouped(r.Model.Context))
	}
	if r.Adapter != nil {
		p.line("adapter", "%v", r.Adapter)
	}
	p.list("weights", r.weightLines())
	if r.Adapter == nil {
		p.line("tokenizer", "%s", r.Tokenizer)
	}
	if r.Checkpoint != nil {
		p.line("checkpoint", "%v", r.Checkpoint)
	}
	problems := r.Problems
	if n := len(problems); n > shownProblems {
		problems = append(problems[:shownProblems:shownProblems], fmt.Sprintf("and %d more; --json lists all", n-shownProblems))
	}
	p.list("problems", orNone(problems))
	if len(r.Tensors) > 0 {
		p.WriteString("\n")
		r.tensorTable(&p)
	}
	_, err := io.WriteString(w, p.String())
	return err
}

func (r *folderReport) weightLines() []string {
	if len(r.Files) == 0 {
		return []string{"none"}
	}
	var bytes int64
	for _, f := range r.Files {
		bytes += f.Bytes
	}
	lines := []string{fmt.Sprintf("%v in %s", units.Bytes(bytes), plural(len(r.Files), "file"))}
	for _, t := range slices.SortedFunc(slices.Values(r.Types), func(a, b typeReport) int { return cmp.Compare(b.Bytes, a.Bytes) }) {
		lines = append(lines, fmt.Sprintf("%s: %s params in %s, %v", t.Type, units.Count(t.Params), plural(t.Tensors, "tensor"), units.Bytes(t.Bytes)))
	}
	for _, format := range slices.Sorted(maps.Keys(r.Quantized)) {
		lines = append(lines, fmt.Sprintf("%s are %s", plural(r.Quantized[format], "weight"), format))
	}
	return lines
}

// String is the tokenizer in a line.
func (t tokenizerReport) String() string {
	text := strings.Join(orNone(t.Files), ", ")
	if t.Vocabulary > 0 {
		text += fmt.Sprintf(" (%s tokens)", grouped(int64(t.Vocabulary)))
	}
	return text
}

func (r *folderReport) tensorTable(w io.Writer) {
	var t term.Table
	t.Row("tensor", "type", "shape", "size", "file")
	for _, x := range r.Tensors {
		t.Row(x.Name, x.Type, fmt.Sprint(x.Shape), units.Bytes(x.Bytes).String(), x.File)
	}
	t.Write(w) // a page takes everything
}

func orNone(list []string) []string {
	if len(list) == 0 {
		return []string{"none"}
	}
	return list
}
