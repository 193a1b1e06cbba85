// Package hf reads and writes model folders as Hugging Face's libraries do: config.json,
// generation_config.json, tokenizer files and weights. Weights may be in any registered
// format of package tensorfile: one or several safetensors files, files that accelerate
// offloaded (package offload), PyTorch's own, or a GGUF file, which is a model without a
// folder too.
//
// Config describes the model; a Folder holds its tensors. Neither depends on the
// architecture. Writing a folder is atomic: afterwards it is complete or absent.
package hf

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"spillway/gguf"
	"spillway/hf/offload"
	"spillway/hub"
	"spillway/internal/vfs"
	"spillway/pickle"
	"spillway/safetensors"
	"spillway/tensorfile"
)

// Names of files in a folder.
const (
	ConfigName     = "config.json"
	GenerationName = "generation_config.json"
)

// maxJSON bounds the JSON files of a folder, in bytes.
const maxJSON = 16 << 20

// tokenizerNames are the files of a tokenizer.
var tokenizerNames = []string{
	"added_tokens.json", "chat_template.jinja", "chat_template.json", "merges.txt", "special_tokens_map.json",
	"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt",
}

// templatesDir is a folder within a model's, with the chat templates that are not the usual one.
const templatesDir = "additional_chat_templates"

// Folder is an open model folder.
type Folder struct {
	Dir        string
	Path       string // what was opened: the folder, or a file
	Config     *Config
	Generation []byte   // the text of generation_config.json, nil if there is none
	Tokenizer  []string // names of the tokenizer files in the folder, with slashes

	weights tensorfile.Source // nil if there are none
	pickles []string          // names of files of PyTorch's that are not laid out as a model's
}

// init registers the formats that the weights of a folder may be in, in the order they are
// looked for. A new format is one more argument.
func init() { tensorfile.Register(safetensors.Format, offload.Format, gguf.Format, pickle.Format) }

// Open opens a folder, with or without weights, a GGUF file, or a model of the hub's cache by
// its name. The caller closes it.
func Open(dir string) (*Folder, error) { return OpenOn(vfs.OS, dir) }

// OpenOn is Open on a given disk.
func OpenOn(disk vfs.FS, dir string) (*Folder, error) {
	dir, err := hub.Path(dir)
	if err == nil {
		err = vfs.CheckFinished(dir)
	}
	if err != nil {
		return nil, err
	}
	if gguf.IsFile(disk, dir) {
		return openGGUF(disk, dir)
	}
	f, open := &Folder{Dir: dir, Path: dir}, tensorfile.OpenFolder
	if IsWeightsFile(disk, dir) {
		f.Dir, open = filepath.Dir(dir), openWeightsFile
		if there, err := vfs.Exists(disk, filepath.Join(f.Dir, ConfigName)); err != nil || !there {
			return nil, errors.Join(fmt.Errorf("%s has weights and says nothing of the model they are of: put its %s next to it", dir, ConfigName), err)
		}
	}
	if err := f.readFiles(disk); err != nil {
		return nil, err
	}
	if f.weights, err = open(disk, dir); errors.Is(err, tensorfile.ErrNoWeights) {
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	f.nameEmbedding()
	if err := f.untie(); err != nil {
		return nil, errors.Join(fmt.Errorf("comparing lm_head with the embedding: %w", err), f.Close())
	}
	return f, nil
}

// weightsFiles open single files of weights, by how their names end.
var weightsFiles = map[string]func(disk vfs.FS, path string) (tensorfile.Source, error){
	".safetensors": safetensors.Format.Open, ".bin": pickle.Format.Open, ".pt": pickle.Format.Open, ".pth": pickle.Format.Open,
}

// IsWeightsFile says whether a path is that of a file with nothing but weights.
func IsWeightsFile(disk vfs.FS, path string) bool {
	if weightsFiles[filepath.Ext(path)] == nil {
		return false
	}
	info, err := disk.Stat(path)
	return err == nil && !info.Dir
}

func openWeightsFile(disk vfs.FS, path string) (tensorfile.Source, error) {
	return weightsFiles[filepath.Ext(path)](disk, path)
}

// OpenWeights opens nothing but the weights of a folder or of a file, such as the state_dict of a PyTorch model: what model they are of, the
// caller knows. The caller closes it.
func OpenWeights(path string) (tensorfile.Source, error) {
	path, err := hub.Path(path)
	if err == nil {
		err = vfs.CheckFinished(path)
	}
	switch {
	case err != nil:
		return nil, err
	case gguf.IsFile(vfs.OS, path):
		return openGGUF(vfs.OS, path)
	case IsWeightsFile(vfs.OS, path):
		return openWeightsFile(vfs.OS, path)
	}
	if info, err := vfs.OS.Stat(path); err == nil && !info.Dir {
		return nil, fmt.Errorf("%s is no file of weights that is known by its name; known are %s and GGUF files", path, strings.Join(slices.Sorted(maps.Keys(weightsFiles)), ", "))
	}
	return tensorfile.OpenFolder(vfs.OS, path)
}

// openGGUF opens a file that is a whole model. What is not weights is in a folder of the
// cache then, which Dir names.
func openGGUF(disk vfs.FS, path string) (*Folder, error) {
	file, err := gguf.OpenOn(disk, path)
	if err != nil {
		return nil, err
	}
	f := &Folder{weights: file, Path: path}
	if f.Dir, err = file.Folder(); err == nil {
		err = f.readFiles(vfs.OS)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	return f, nil
}

// readFiles reads what is not weights.
func (f *Folder) readFiles(disk vfs.FS) error {
	if err := f.readConfigs(disk); err != nil {
		return err
	}
	names, err := disk.List(f.Dir)
	if err != nil {
		return err
	}
	for _, n := range names {
		switch {
		case slices.Contains(tokenizerNames, n):
			f.Tokenizer = append(f.Tokenizer, n)
		case n == templatesDir:
			if err := f.addTemplates(disk); err != nil {
				return err
			}
		case slices.Contains([]string{".bin", ".pt", ".pth"}, filepath.Ext(n)) && !strings.HasPrefix(n, "tok"):
			f.pickles = append(f.pickles, n)
		}
	}
	return nil
}

// addTemplates adds the templates in a folder of their own to the tokenizer files.
func (f *Folder) addTemplates(disk vfs.FS) error {
	names, err := disk.List(filepath.Join(f.Dir, templatesDir))
	for _, n := range names {
		if filepath.Ext(n) == ".jinja" {
			f.Tokenizer = append(f.Tokenizer, templatesDir+"/"+n)
		}
	}
	return err
}

// headName is the weight that makes logits; embeddings are what it may be tied to.
const headName = "lm_head.weight"

var embeddings = []string{"model.embed_tokens.weight", "embed_tokens.weight", "transformer.wte.weight", "wte.weight"}

// untie sets Config.Tied to false where the files have an lm_head with other numbers than
// the embedding. Transformers then uses both, whatever config.json says.
func (f *Folder) untie() error {
	head, ok := f.Tensor(headName)
	if !ok || !f.Config.Tied {
		return nil
	}
	for _, name := range embeddings {
		embedding, ok := f.Tensor(name)
		if !ok {
			continue
		}
		same, err := tensorfile.SameNumbers(head, embedding)
		f.Config.Tied = f.Config.Tied && same
		return err
	}
	return nil
}

// nameEmbedding gives the head of a tied model its embedding's name where files have the one tensor as lm_head, as libraries
// write that keep the first name of shared ones. Transformers takes it for both.
func (f *Folder) nameEmbedding() {
	head, ok := f.Tensor(headName)
	if !ok || !f.Config.Tied || slices.ContainsFunc(embeddings, func(name string) bool { _, there := f.Tensor(name); return there }) {
		return
	}
	head.Name = embeddings[0]
	if f.Config.ModelType == "gpt2" {
		head.Name = embeddings[2]
	}
	f.weights = headIsEmbedding{f.weights, head}
}

// headIsEmbedding is a source whose head has the name of its embedding.
type headIsEmbedding struct {
	tensorfile.Source
	embedding tensorfile.Tensor
}

func (s headIsEmbedding) Tensors() []tensorfile.Tensor {
	all := s.Source.Tensors()
	all[slices.IndexFunc(all, func(t tensorfile.Tensor) bool { return t.Name == headName })] = s.embedding
	return all
}

func (s headIsEmbedding) Tensor(name string) (tensorfile.Tensor, bool) {
	switch name {
	case s.embedding.Name:
		return s.embedding, true
	case headName:
		return tensorfile.Tensor{}, false
	}
	return s.Source.Tensor(name)
}

func (f *Folder) readConfigs(disk vfs.FS) error {
	path := filepath.Join(f.Dir, ConfigName)
	raw, err := vfs.ReadFile(disk, path, maxJSON)
	if err != nil {
		return fmt.Errorf("%s is not a model folder: %w", f.Dir, f.configMissing(disk, err))
	}
	if f.Config, err = ParseConfig(raw); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	path = filepath.Join(f.Dir, GenerationName)
	raw, err = vfs.ReadFile(disk, path, maxJSON)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := parseObject(raw); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	f.Generation = raw
	return nil
}

// configMissing adds a hint to the error if the folder has weights and lacks only config.json.
func (f *Folder) configMissing(disk vfs.FS, err error) error {
	if there, unknown := vfs.Exists(disk, filepath.Join(f.Dir, offload.IndexName)); there && unknown == nil {
		return fmt.Errorf("%w: it has weights that accelerate offloaded, so put the model's %s next to them", err, ConfigName)
	}
	names, unknown := disk.List(f.Dir)
	if unknown != nil {
		return err
	}
	for _, name := range names {
		switch filepath.Ext(name) {
		case ".gguf":
			return fmt.Errorf("%w: it has %s, so name that file", err, name)
		case ".safetensors", ".bin", ".pt", ".pth":
			return fmt.Errorf("%w: it has %s, so put the model's %s next to it", err, name, ConfigName)
		}
	}
	return err
}

// Tensors lists the tensors, file by file in file order. Without weights the list is
// empty.
func (f *Folder) Tensors() []tensorfile.Tensor {
	if f.weights == nil {
		return nil
	}
	return f.weights.Tensors()
}

// Tensor finds a tensor by name.
func (f *Folder) Tensor(name string) (tensorfile.Tensor, bool) {
	if f.weights == nil {
		return tensorfile.Tensor{}, false
	}
	return f.weights.Tensor(name)
}

// Replace has other tensors take the place of some of the folder's, by their names.
func (f *Folder) Replace(with func(name string) (tensorfile.Tensor, bool)) {
	if f.weights != nil {
		f.weights = tensorfile.Replaced{Source: f.weights, With: with}
	}
}

// NeedWeights returns an error that says what is missing if the folder has no weights.
func (f *Folder) NeedWeights() error {
	switch {
	case f.weights != nil:
		return nil
	case len(f.pickles) > 0:
		return fmt.Errorf("%s has weights only as %s; of PyTorch's files those named %s are read, shards with %s, or a single .pt; else name the file itself", f.Dir, f.pickles[0], pickle.SingleName, pickle.IndexName)
	}
	if m, ok := hub.NameOf(f.Dir); ok {
		return fmt.Errorf("%s has a config and no weights: fetch what is missing with spillway pull %s", f.Dir, m)
	}
	return fmt.Errorf("%s has a config and no weights: put %s or shards with %s there", f.Dir, safetensors.SingleName, safetensors.IndexName)
}

// TokenizerPaths returns the paths of the tokenizer files.
func (f *Folder) TokenizerPaths() []string {
	paths := make([]string, len(f.Tokenizer))
	for i, n := range f.Tokenizer {
		paths[i] = filepath.Join(f.Dir, filepath.FromSlash(n))
	}
	return paths
}

// Close closes the weights.
func (f *Folder) Close() error {
	if f.weights == nil {
		return nil
	}
	return f.weights.Close()
}
