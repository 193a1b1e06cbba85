package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"spillway/internal/vfs"
)

// OllamaPrefix begins the name of a model in Ollama's store on this computer:
// "ollama:llama3.2:1b".
const OllamaPrefix = "ollama:"

// Where a name of Ollama says nothing else.
const (
	ollamaHost  = "registry.ollama.ai"
	ollamaSpace = "library"
	ollamaTag   = "latest"
)

// maxManifest bounds a manifest and a layer of settings, in bytes.
const maxManifest = 1 << 20

var (
	ollamaPart   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	ollamaDigest = regexp.MustCompile(`^sha256:([0-9a-f]{64})$`)
)

// ollamaModel is a model of Ollama's store: a GGUF file, and settings next to it.
type ollamaModel struct {
	file   string
	unused []string // what else there is, which is not read
}

// ollamaDir is Ollama's store, as the environment says.
func ollamaDir() (string, error) {
	if dir := os.Getenv("OLLAMA_MODELS"); dir != "" {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("finding Ollama's models: %w; set OLLAMA_MODELS", err)
	}
	return filepath.Join(home, ".ollama", "models"), nil
}

// ollamaPath is where a manifest is in the store: host/space/name/tag. Parts that a name lacks
// are Ollama's own.
func ollamaPath(name string) (string, error) {
	path, tag, tagged := strings.Cut(name, ":")
	if !tagged {
		tag = ollamaTag
	}
	parts := strings.Split(path, "/")
	switch len(parts) {
	case 1:
		parts = append([]string{ollamaHost, ollamaSpace}, parts...)
	case 2:
		parts = append([]string{ollamaHost}, parts...)
	}
	parts = append(parts, tag)
	if len(parts) != 4 || slices.ContainsFunc(parts, func(p string) bool { return !ollamaPart.MatchString(p) }) {
		return "", fmt.Errorf("%s%s is not the name of a model of Ollama: %sNAME, or %sNAME:TAG", OllamaPrefix, name, OllamaPrefix, OllamaPrefix)
	}
	return filepath.Join(parts...), nil
}

// findOllama reads the manifest of a model, whose name is without the prefix.
func findOllama(name string) (*ollamaModel, error) {
	path, err := ollamaPath(name)
	if err != nil {
		return nil, err
	}
	dir, err := ollamaDir()
	if err != nil {
		return nil, err
	}
	raw, err := vfs.ReadFile(vfs.OS, filepath.Join(dir, "manifests", path), maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s%s: it is not in Ollama's store, %s, which has %s; fetch it with: ollama pull %s", OllamaPrefix, name, dir, strings.Join(ollamaNames(dir), ", "), name)
	}
	if err != nil {
		return nil, err
	}
	m, err := readManifest(dir, raw)
	if err != nil {
		return nil, fmt.Errorf("%s%s: %w", OllamaPrefix, name, err)
	}
	return m, nil
}

// layer is a file of a model.
type layer struct {
	Type   string `json:"mediaType"`
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

// readManifest finds the one GGUF file among the layers, and says what of the others is not
// read.
func readManifest(dir string, raw []byte) (*ollamaModel, error) {
	var manifest struct {
		Layers []layer `json:"layers"`
	}
	if err := json.Unmarshal(raw, &manifest); err != nil {
		return nil, fmt.Errorf("its manifest: %w", err)
	}
	m := &ollamaModel{}
	for _, l := range manifest.Layers {
		blob, err := l.blob(dir)
		if err != nil {
			return nil, err
		}
		kind := l.Type[strings.LastIndex(l.Type, ".")+1:]
		switch kind {
		case "model":
			if m.file != "" {
				return nil, errors.New("its weights are in several files, which is not read; fetch the model from the Hugging Face hub instead")
			}
			m.file = blob
		case "adapter":
			return nil, errors.New("it has an adapter as a GGUF file, which is not read: without it the model would be another one; train or fetch the adapter as PEFT has it, and give --adapter")
		case "license", "messages":
		case "params":
			m.unused = append(m.unused, paramNames(blob))
		case "template":
			m.unused = append(m.unused, "its template (the chat template in the GGUF file is used)")
		case "system":
			m.unused = append(m.unused, "its system message (chat --system gives one)")
		case "projector":
			m.unused = append(m.unused, "its projector (images are not read)")
		default:
			m.unused = append(m.unused, "a layer of type "+l.Type)
		}
	}
	if m.file == "" {
		return nil, errors.New("it has no GGUF file, and no other weights of Ollama are read; fetch the model from the Hugging Face hub instead")
	}
	return m, nil
}

// blob is the file of a layer, which is as long as the manifest says.
func (l layer) blob(dir string) (string, error) {
	sum := ollamaDigest.FindStringSubmatch(l.Digest)
	if sum == nil {
		return "", fmt.Errorf("its manifest gives a layer the checksum %.80q, which is none", l.Digest)
	}
	path := filepath.Join(dir, "blobs", "sha256-"+sum[1])
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("its file %s: %w; fetch it again with ollama pull", path, err)
	}
	if info.Size() != l.Size {
		return "", fmt.Errorf("its file %s has %d bytes, the manifest says %d; fetch it again with ollama pull", path, info.Size(), l.Size)
	}
	return path, nil
}

// paramNames names the settings of a layer.
func paramNames(blob string) string {
	var settings map[string]any
	if raw, err := vfs.ReadFile(vfs.OS, blob, maxManifest); err != nil || json.Unmarshal(raw, &settings) != nil || len(settings) == 0 {
		return "its parameters"
	}
	return "its parameters " + strings.Join(slices.Sorted(maps.Keys(settings)), ", ")
}

// ollamaNames lists the models of a store, some of them where there are many.
func ollamaNames(dir string) (names []string) {
	paths, _ := filepath.Glob(filepath.Join(dir, "manifests", ollamaHost, ollamaSpace, "*", "*")) // the pattern is right
	for _, path := range paths[:min(len(paths), 12)] {
		names = append(names, filepath.Base(filepath.Dir(path))+":"+filepath.Base(path))
	}
	if len(names) == 0 {
		return []string{"none"}
	}
	return names
}

// Notices says what of a model's settings is not used, where its name is one of Ollama's store.
func Notices(name string) []string {
	rest, ok := strings.CutPrefix(name, OllamaPrefix)
	if !ok {
		return nil
	}
	m, err := findOllama(rest)
	if err != nil || len(m.unused) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("of %s not used: %s", name, strings.Join(m.unused, "; "))}
}
