package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"spillway/internal/vfs"
)

// Files of a model's folder with the chat template (the first of three that has one) and
// with the special tokens.
const (
	templateFile = "chat_template.jinja"
	legacyFile   = "chat_template.json"
	configFile   = "tokenizer_config.json"
	specialFile  = "special_tokens_map.json"
)

// ToolsFile is the file, in a model's folder, of the template for conversations with tools.
const ToolsFile = "additional_chat_templates/" + toolsName + ".jinja"

// Names of templates where a model has several: the usual one, and that for conversations with tools.
const (
	usualName = "default"
	toolsName = "tool_use"
)

// ErrNoTemplate says that a model has no chat template.
var ErrNoTemplate = errors.New("there is no chat template")

// maxFile is the size in bytes of the largest file that is read.
const maxFile = 16 << 20

// Open reads the chat template of a model's folder: from chat_template.jinja,
// chat_template.json or tokenizer_config.json. If there is none, the error is
// ErrNoTemplate. Where the model has another template called tool_use, conversations with
// tools are written with that, as in transformers.
func Open(dir string) (*Template, error) {
	config, err := readObject(filepath.Join(dir, configFile))
	if err != nil {
		return nil, err
	}
	special, err := SpecialTokens(dir)
	if err != nil {
		return nil, err
	}
	t, err := openSource(dir, config)
	if err != nil {
		return nil, err
	}
	t.SpecialTokens = special
	return t, nil
}

// SpecialTokens are what a model's folder calls eos_token, bos_token and so on; of a folder that says none, none.
func SpecialTokens(dir string) (map[string]string, error) {
	special, err := readObject(filepath.Join(dir, specialFile))
	if err != nil {
		return nil, err
	}
	config, err := readObject(filepath.Join(dir, configFile))
	if err != nil {
		return nil, err
	}
	tokens := specialTokens(special)
	maps.Copy(tokens, specialTokens(config))
	return tokens, nil
}

// OpenFile reads a template from a file of its own. The special tokens come from the
// model's folder dir; there are none if dir is "".
func OpenFile(path, dir string) (*Template, error) {
	source, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a chat template: %w", err)
	}
	t, err := Parse(path, string(source))
	if err != nil || dir == "" {
		return t, err
	}
	t.SpecialTokens, err = SpecialTokens(dir)
	return t, err
}

// openSource reads the usual template and that for conversations with tools.
func openSource(dir string, config map[string]json.RawMessage) (*Template, error) {
	t, err := OpenFile(filepath.Join(dir, templateFile), "")
	if errors.Is(err, fs.ErrNotExist) {
		t, err = openListed(dir, config)
	}
	if err != nil {
		return nil, err
	}
	tools, err := OpenFile(filepath.Join(dir, filepath.FromSlash(ToolsFile)), "")
	if !errors.Is(err, fs.ErrNotExist) {
		t.WithTools, t.toolsProblem = tools, err
	}
	return t, nil
}

// openListed reads the templates that are a value in a JSON file.
func openListed(dir string, config map[string]json.RawMessage) (*Template, error) {
	path := filepath.Join(dir, legacyFile)
	old, err := readObject(path)
	if err != nil {
		return nil, err
	}
	if old["chat_template"] == nil {
		path, old = filepath.Join(dir, configFile), config
	}
	texts, err := templateTexts(old["chat_template"])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	t, err := Parse(path+" (chat_template)", texts[usualName])
	if text, ok := texts[toolsName]; ok && err == nil {
		t.WithTools, t.toolsProblem = Parse(path+" (chat_template "+toolsName+")", text)
	}
	return t, err
}

// templateTexts returns the templates by their names. One that is alone has the usual name.
func templateTexts(raw json.RawMessage) (map[string]string, error) {
	if raw == nil || string(raw) == "null" {
		return nil, ErrNoTemplate
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return map[string]string{usualName: text}, nil
	}
	var list []struct{ Name, Template string }
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("chat_template is neither a text nor a list of templates with names: %w", err)
	}
	texts := map[string]string{}
	for _, t := range list {
		texts[t.Name] = t.Template
	}
	if _, ok := texts[usualName]; !ok {
		names := slices.Sorted(maps.Keys(texts))
		return nil, fmt.Errorf("%w called %s, only %s; give one in a file of its own", ErrNoTemplate, usualName, strings.Join(names, ", "))
	}
	return texts, nil
}

// specialTokens returns the entries whose names end in _token. Each is a string, or an
// object with the string in content.
func specialTokens(fields map[string]json.RawMessage) map[string]string {
	tokens := map[string]string{}
	for name, raw := range fields {
		if !strings.HasSuffix(name, "_token") {
			continue
		}
		var object struct{ Content string }
		var token string
		if json.Unmarshal(raw, &token) == nil && token != "" {
			tokens[name] = token
		} else if json.Unmarshal(raw, &object) == nil && object.Content != "" {
			tokens[name] = object.Content
		}
	}
	return tokens
}

// readObject reads a file with a JSON object. A missing file counts as an empty object.
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
	return vfs.ReadFile(vfs.OS, path, maxFile)
}
