package jinja

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rendering is what Jinja made of a template and a conversation, or its error.
type rendering struct {
	Conversation string
	Prompt       bool
	Text, Error  string
}

func readJSON(t testing.TB, path string, into any) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
}

// conversations are the variables of the fixtures' renderings, by name.
func conversations(t testing.TB) map[string]map[string]any {
	t.Helper()
	var raw map[string]json.RawMessage
	readJSON(t, "testdata/conversations.json", &raw)
	all := map[string]map[string]any{}
	for name, r := range raw {
		v, err := FromJSON(r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[name] = map[string]any{"tools": nil, "documents": nil, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
		maps.Copy(all[name], variablesOf(v))
	}
	return all
}

// differ names templates that are known to give something else here, and why.
var differ = map[string]string{
	"meetkai-functionary-medium-v3.1": "it adds to the result of the filter safe, which in Jinja escapes what is added as HTML",
}

// compareFolder holds the templates of a folder to what Jinja made of them.
func compareFolder(t *testing.T, folder, rendered string) {
	var want map[string][]rendering
	readJSON(t, rendered, &want)
	all := conversations(t)
	for name, list := range want {
		t.Run(name, func(t *testing.T) {
			if reason, ok := differ[name]; ok {
				t.Skip(reason)
			}
			source, err := os.ReadFile(filepath.Join(folder, name+".jinja"))
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range list {
				variables := maps.Clone(all[w.Conversation])
				variables["add_generation_prompt"] = w.Prompt
				got, err := render(string(source), variables)
				switch {
				case w.Error != "" && err == nil:
					t.Errorf("%s, prompt %v:\n got %q\nJinja says %s", w.Conversation, w.Prompt, got.Text, w.Error)
				case w.Error == "" && err != nil:
					t.Errorf("%s, prompt %v: %v", w.Conversation, w.Prompt, err)
				case w.Error == "" && got.Text != w.Text:
					t.Errorf("%s, prompt %v:\n got %q\nwant %q", w.Conversation, w.Prompt, got.Text, w.Text)
				}
			}
		})
	}
}

// Templates in the formats of common models give what Jinja gives, byte for byte.
func TestModelTemplates(t *testing.T) {
	compareFolder(t, "testdata/templates", "testdata/rendered.json")
}

// Templates of published models give what Jinja gives. They keep their makers' terms
// and are not part of the repository: make templates fetches and renders them.
func TestPublishedTemplates(t *testing.T) {
	folder := filepath.Join("..", "..", "testdata", "tokenizers", "templates")
	rendered := filepath.Join(folder, "rendered.json")
	if _, err := os.Stat(rendered); err != nil {
		t.Skip("no published templates here: make templates fetches them")
	}
	compareFolder(t, folder, rendered)
}

// languageCase is a template of a few lines and what Jinja made of it.
type languageCase struct {
	source, text, err string
	line              int // of its result
}

// languageCases reads a file of testdata/language: a head, then cases, each a source
// and a line with its result.
func languageCases(t testing.TB, path string) []languageCase {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(raw), "\n\n")
	line := strings.Count(head, "\n") + 2
	var list []languageCase
	var source []string
	for _, text := range strings.Split(strings.TrimSuffix(rest, "\n"), "\n") {
		line++
		c := languageCase{source: strings.Join(source, "\n"), line: line}
		if quoted, ok := strings.CutPrefix(text, "=> "); ok {
			if err := json.Unmarshal([]byte(quoted), &c.text); err != nil {
				t.Fatalf("%s:%d: %v", path, line, err)
			}
		} else if c.err, ok = strings.CutPrefix(text, "!! "); !ok {
			source = append(source, text)
			continue
		}
		list, source = append(list, c), nil
	}
	return list
}

func languageFiles(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/language/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	return files
}

// languageVariables are what the cases of testdata/language find.
func languageVariables(t testing.TB) map[string]any {
	t.Helper()
	raw, err := os.ReadFile("testdata/variables.json")
	if err != nil {
		t.Fatal(err)
	}
	v, err := FromJSON(raw)
	if err != nil {
		t.Fatal(err)
	}
	return variablesOf(v)
}

// unsupported holds what ends with an error here though Jinja gives a text.
const unsupported = "testdata/language/unsupported.txt"

// Every feature of the language gives what Jinja gives, and fails where Jinja fails.
func TestLanguage(t *testing.T) {
	variables := languageVariables(t)
	for _, path := range languageFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			for _, c := range languageCases(t, path) {
				if path == unsupported {
					if got, err := render(c.source, variables); err == nil && got.Text != c.text {
						t.Errorf("%s:%d: %s\n got %q, not an error\nwant %q", path, c.line, c.source, got.Text, c.text)
					}
					continue
				}
				got, err := render(c.source, variables)
				switch {
				case c.err != "" && err == nil:
					t.Errorf("%s:%d: %s\n got %q\nJinja says %s", path, c.line, c.source, got.Text, c.err)
				case c.err == "" && err != nil:
					t.Errorf("%s:%d: %s\n%v\nwant %q", path, c.line, c.source, err, c.text)
				case c.err == "" && got.Text != c.text:
					t.Errorf("%s:%d: %s\n got %q\nwant %q", path, c.line, c.source, got.Text, c.text)
				}
			}
		})
	}
}
