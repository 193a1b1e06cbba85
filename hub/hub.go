// Package hub finds models by the names they have on the Hugging Face hub, "org/name", in
// the cache on disk that huggingface_hub keeps, and fetches into that cache what is missing.
// Both programs read what the other one fetched.
//
//	dir, err := hub.Find("org/name")               // the folder of the newest revision fetched
//	got, err := hub.Pull(ctx, "org/name", hub.Options{})
//
// The cache of a model has its files once, named by their checksums, and a folder for each
// revision with links to them:
//
//	models--org--name/blobs/8f1b2c...              a file
//	models--org--name/blobs/8f1b2c....incomplete   the beginning of one
//	models--org--name/snapshots/COMMIT/config.json a link to a blob
//	models--org--name/refs/main                    the commit of a branch
//
// A name in a snapshot appears when its blob is whole and its checksum is right.
package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// ErrNotCached says that a model is not in the cache.
var ErrNotCached = errors.New("it is not in the cache")

// name is how models are named: an organization and a name, and perhaps a revision after an @.
var namePattern = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]{0,95})/([A-Za-z0-9][A-Za-z0-9._-]{0,95})(?:@([A-Za-z0-9][A-Za-z0-9._/-]{0,200}))?$`)

// Model is a name taken apart.
type Model struct {
	ID       string // org/name
	Revision string // a branch, tag or commit
}

// ParseName takes a name apart; ok is false where it is not a name on the hub.
func ParseName(name string) (m Model, ok bool) {
	p := namePattern.FindStringSubmatch(name)
	if p == nil || strings.Contains(name, "..") || strings.Contains(name, "--") {
		return m, false
	}
	m = Model{ID: p[1] + "/" + p[2], Revision: p[3]}
	if m.Revision == "" {
		m.Revision = "main"
	}
	return m, true
}

func (m Model) String() string {
	if m.Revision == "main" {
		return m.ID
	}
	return m.ID + "@" + m.Revision
}

// NameOf is the name of the model whose revision a folder of a cache has; ok is false for any other folder.
func NameOf(dir string) (m Model, ok bool) {
	if path, err := filepath.Abs(dir); err == nil {
		dir = path
	}
	snapshots := filepath.Dir(dir)
	id, found := strings.CutPrefix(filepath.Base(filepath.Dir(snapshots)), "models--")
	if !found || filepath.Base(snapshots) != "snapshots" || !commitPattern.MatchString(filepath.Base(dir)) {
		return m, false
	}
	return ParseName(strings.Replace(id, "--", "/", 1) + "@" + filepath.Base(dir))
}

// Dir is the cache on disk, as the environment says: HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, hub
// in HF_HOME, or huggingface/hub in the user's cache.
func Dir() (string, error) {
	for _, key := range []string{"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"} {
		if dir := os.Getenv(key); dir != "" {
			return expanded(dir)
		}
	}
	home, err := homeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, "hub"), nil
}

// homeDir is where huggingface_hub keeps everything.
func homeDir() (string, error) {
	if dir := os.Getenv("HF_HOME"); dir != "" {
		return expanded(dir)
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "huggingface"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache of models: %w; set HF_HOME", err)
	}
	return filepath.Join(home, ".cache", "huggingface"), nil
}

// expanded is a path with variables and the user's home in place of $NAME and ~, as huggingface_hub reads the environment: what
// no shell has read, as in files of variables, has them.
func expanded(path string) (string, error) {
	path = os.ExpandEnv(path)
	rest, ok := strings.CutPrefix(path, "~")
	if !ok || rest != "" && !os.IsPathSeparator(rest[0]) {
		return path, nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, rest), err
}

// folder of a model in the cache.
func (m Model) folder() (string, error) {
	dir, err := Dir()
	return filepath.Join(dir, "models--"+strings.ReplaceAll(m.ID, "/", "--")), err
}

// Find is the folder of a model in the cache, in the revision that was fetched last of the
// branch, tag or commit. The error wraps ErrNotCached where there is none.
func Find(name string) (string, error) {
	m, ok := ParseName(name)
	if !ok {
		return "", fmt.Errorf("%q is not the name of a model on the hub: org/name, or org/name@revision", name)
	}
	dir, err := m.folder()
	if err != nil {
		return "", err
	}
	commit := m.Revision
	if ref, err := os.ReadFile(filepath.Join(dir, "refs", filepath.FromSlash(m.Revision))); err == nil {
		commit = strings.TrimSpace(string(ref))
	}
	if !commitPattern.MatchString(commit) {
		return "", fmt.Errorf("%s: %w %s; fetch it with: spillway pull %s", m, ErrNotCached, filepath.Dir(dir), m)
	}
	snapshot := filepath.Join(dir, "snapshots", commit)
	if _, err := os.Stat(snapshot); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s: %w %s; fetch it with: spillway pull %s", m, ErrNotCached, filepath.Dir(dir), m)
	} else if err != nil {
		return "", err
	}
	return snapshot, nil
}

// commitPattern is how commits are named; what else a file of refs says is not trusted.
var commitPattern = regexp.MustCompile(`^[0-9a-f]{40}$`)

// Path is what a user means by the name of a model: a model of Ollama's store, a file or folder
// that exists, or else a model of the cache. A name that is none of them is given back as it is.
func Path(name string) (string, error) {
	if rest, ok := strings.CutPrefix(name, OllamaPrefix); ok {
		m, err := findOllama(rest)
		if err != nil {
			return "", err
		}
		return m.file, nil
	}
	if _, err := os.Stat(name); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return name, nil
	}
	if _, ok := ParseName(name); !ok {
		return name, nil
	}
	return Find(name)
}
