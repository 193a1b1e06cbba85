package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Files of a model's folder that templates are found in, the first that is there.
const (
	templateFile = "chat_template.jinja"
	legacyFile   = "chat_template.json"
	configFile   = "tokenizer_config.json"
	specialFile  = "special_tokens_map.json"
)

// ErrNone says that a model has no chat template.
var ErrNoTemplate = errors.New("there is no chat template")

// maxFile is the size of the largest file that is read.
const maxFile = 16 << 20

// Open finds the chat template in a model's folder: in chat_template.jinja, or in
// tokenizer_config.json. Where there is none the error is ErrNone.
func Open(dir string) (*Template, error) {
	config, err := readObject(filepath.Join(dir, configFile))
	if err != nil {
		return nil, err
	}
	words, err := readObject(filepath.Join(dir, specialFile))
	if err != nil {
		return nil, err
	}
	t, err := openSource(dir, config)
	if err != nil {
		return nil, err
	}
	t.SpecialTokens = specialTokens(words)
	for name, word := range specialTokens(config) {
		t.SpecialTokens[name] = word
	}
	return t, nil
}

// OpenFile reads a template from a file of its own, with the special words of a
// model's folder; "" is none.
func OpenFile(path, dir string) (*Template, error) {
	source, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a chat template: %w", err)
	}
	t, err := Parse(path, string(source))
	if err != nil || dir == "" {
		return t, err
	}
	config, err := readObject(filepath.Join(dir, configFile))
	if err != nil {
		return nil, err
	}
	t.SpecialTokens = specialTokens(config)
	return t, nil
}

func openSource(dir string, config map[string]json.RawMessage) (*Template, error) {
	path := filepath.Join(dir, templateFile)
	source, err := readFile(path)
	if err == nil {
		return Parse(path, string(source))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading a chat template: %w", err)
	}
	path = filepath.Join(dir, legacyFile)
	old, err := readObject(path)
	if err != nil {
		return nil, err
	}
	if old["chat_template"] == nil {
		path, old = filepath.Join(dir, configFile), config
	}
	text, err := templateText(old["chat_template"])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return Parse(path+" (chat_template)", text)
}

// templateText is a template, or the default of several with names.
func templateText(raw json.RawMessage) (string, error) {
	if raw == nil || string(raw) == "null" {
		return "", ErrNoTemplate
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var list []struct{ Name, Template string }
	if err := json.Unmarshal(raw, &list); err != nil {
		return "", fmt.Errorf("chat_template is neither a text nor a list of templates with names: %w", err)
	}
	var names []string
	for _, t := range list {
		if t.Name == "default" {
			return t.Template, nil
		}
		names = append(names, t.Name)
	}
	return "", fmt.Errorf("%w called default, only %s; give one in a file of its own", ErrNoTemplate, strings.Join(names, ", "))
}

// specialWords are the entries whose names end in _token: texts, or objects that
// have one.
func specialTokens(fields map[string]json.RawMessage) map[string]string {
	words := map[string]string{}
	for name, raw := range fields {
		if !strings.HasSuffix(name, "_token") {
			continue
		}
		var object struct{ Content string }
		var word string
		if json.Unmarshal(raw, &word) == nil && word != "" {
			words[name] = word
		} else if json.Unmarshal(raw, &object) == nil && object.Content != "" {
			words[name] = object.Content
		}
	}
	return words
}

// readObject reads a JSON object; a file that is not there has none.
func readObject(path string) (map[string]json.RawMessage, error) {
	raw, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return fields, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // opened for reading
	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(raw) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return raw, err
}
