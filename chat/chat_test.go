package chat

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// clock is the time in the fixtures.
var clock = time.Date(2026, 3, 5, 7, 8, 9, 0, time.UTC)

// rendering is the text that transformers renders for a case, or its error.
type rendering struct {
	Case   string
	Prompt bool
	Text   string
	Error  string
	Spans  [][2]int
}

func readJSON(t *testing.T, name string, into any) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
}

// cases are the conversations of the fixtures.
func cases(t *testing.T) map[string]Conversation {
	t.Helper()
	var raw map[string]struct {
		Messages, Tools json.RawMessage
		Variables       map[string]json.RawMessage
	}
	readJSON(t, "cases.json", &raw)
	all := map[string]Conversation{}
	for name, c := range raw {
		var conversation Conversation
		if string(c.Messages) != "[]" {
			messages, err := ParseMessages(c.Messages)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			conversation.Messages = messages
		}
		if c.Tools != nil {
			if err := conversation.SetTools(c.Tools); err != nil {
				t.Fatal(err)
			}
		}
		for name, v := range c.Variables {
			if err := conversation.SetVariable(name, v); err != nil {
				t.Fatal(err)
			}
		}
		all[name] = conversation
	}
	return all
}

// ours opens a template of testdata.
func ours(t *testing.T, name string) *Template {
	t.Helper()
	tmpl, err := OpenFile(filepath.Join("testdata", "templates", name+".jinja"), "")
	if err != nil {
		t.Fatal(err)
	}
	tmpl.SpecialTokens = map[string]string{"bos_token": "<s>", "eos_token": "</s>"}
	tmpl.Now = clock
	return tmpl
}

// compare compares a template with what transformers renders with it.
func compare(t *testing.T, tmpl *Template, want []rendering) {
	t.Helper()
	all := cases(t)
	for _, w := range want {
		got, err := tmpl.render(all[w.Case], len(all[w.Case].Messages), w.Prompt)
		switch {
		case w.Error != "" && err == nil:
			t.Errorf("%s, prompt %v: %q; transformers says %s", w.Case, w.Prompt, got.Text, w.Error)
		case w.Error == "" && err != nil:
			t.Errorf("%s, prompt %v: %v", w.Case, w.Prompt, err)
		case w.Error == "" && got.Text != w.Text:
			t.Errorf("%s, prompt %v:\n got %q\nwant %q", w.Case, w.Prompt, got.Text, w.Text)
		}
		for i, s := range w.Spans {
			if i >= len(got.Generated) || got.Generated[i] != (Span{Start: s[0], End: s[1]}) {
				t.Errorf("%s: generated %v, want %v", w.Case, got.Generated, w.Spans)
				break
			}
		}
	}
}

func TestTemplates(t *testing.T) {
	var want map[string][]rendering
	readJSON(t, "rendered.json", &want)
	if len(want) < 7 {
		t.Fatalf("%d templates", len(want))
	}
	for name, list := range want {
		t.Run(name, func(t *testing.T) { compare(t, ours(t, name), list) })
	}
}

// Templates of real models render what transformers renders with them. Their licenses
// keep them out of the repository: make tokenizers fetches them.
func TestRealTemplates(t *testing.T) {
	var want map[string][]rendering
	readJSON(t, "real.json", &want)
	for name, list := range want {
		t.Run(name, func(t *testing.T) {
			tmpl := openReal(t, name)
			compare(t, tmpl, list)
		})
	}
}

func openReal(t *testing.T, name string) *Template {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "testdata", "tokenizers", name+"_config.json"))
	if err != nil {
		t.Skip("no template of " + name + " here: make tokenizers fetches it")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, configFile), raw, 0o644); err != nil {
		t.Fatal(err)
	}
	tmpl, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	tmpl.Now = clock
	return tmpl
}

// answersIn shows a text with its answers in guillemets.
func answersIn(texts []Text) string {
	var b strings.Builder
	for i, text := range texts {
		if i > 0 {
			b.WriteString("\n----\n")
		}
		at := 0
		for _, s := range text.Answers {
			b.WriteString(text.Text[at:s.Start] + "«" + text.Text[s.Start:s.End] + "»")
			at = s.End
		}
		b.WriteString(text.Text[at:])
	}
	return b.String()
}

func conversation(turns ...string) Conversation {
	var c Conversation
	for i := 0; i < len(turns); i += 2 {
		c.Messages = append(c.Messages, NewMessage(turns[i], turns[i+1]))
	}
	return c
}

// In the loss is what the model has to write: each answer with the marker that ends it,
// and nothing of the prompt.
func TestAnswers(t *testing.T) {
	c := conversation("user", "One?", "assistant", "1", "user", "Two?", "assistant", "2")
	for name, want := range map[string]string{
		"chatml": "<|im_start|>system\nYou answer briefly.<|im_end|>\n<|im_start|>user\nOne?<|im_end|>\n<|im_start|>assistant\n«1<|im_end|>\n»" +
			"<|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\n«2<|im_end|>\n»",
		"generation": "<s><|im_start|>user\nOne?<|im_end|>\n<|im_start|>assistant\n«1<|im_end|>»\n<|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\n«2<|im_end|>»\n",
		"brackets":   "<s> [INST] One? [/INST]« 1 </s>» [INST] Two? [/INST]« 2 </s>»",
		"always": "<s><|start_header_id|>user<|end_header_id|>\n\nOne?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n«1<|eot_id|>»" +
			"<|start_header_id|>user<|end_header_id|>\n\nTwo?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n«2<|eot_id|>»<|start_header_id|>assistant<|end_header_id|>\n\n",
		// Only the last turn has its reasoning, so each answer is a text of its own, after
		// what the model gets before it.
		"thinking": "<|im_start|>user\nOne?<|im_end|>\n<|im_start|>assistant\n«<think>\n\n</think>\n\n1<|im_end|>\n»\n----\n" +
			"<|im_start|>user\nOne?<|im_end|>\n<|im_start|>assistant\n1<|im_end|>\n<|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\n«<think>\n\n</think>\n\n2<|im_end|>\n»",
	} {
		texts, err := ours(t, name).Texts(c)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := answersIn(texts); got != want {
			t.Errorf("%s:\n got %q\nwant %q", name, got, want)
		}
	}
}

// In every case that transformers can render, answers are part of its text, and a prompt
// ends where each of them begins.
func TestAnswersOfRealTemplates(t *testing.T) {
	for _, name := range []string{"llama3", "llama3_2", "qwen2_5", "qwen3", "mistral_nemo"} {
		t.Run(name, func(t *testing.T) {
			tmpl := openReal(t, name)
			for turns, c := range map[string]Conversation{"one": conversation("user", "One?", "assistant", "1"), "two": conversation("user", "One?", "assistant", "1", "user", "Two?", "assistant", "2")} {
				texts, err := tmpl.Texts(c)
				if err != nil {
					t.Fatalf("%s: %v", turns, err)
				}
				got := answersIn(texts)
				if !strings.Contains(got, "1<") || !strings.Contains(got, "«") || strings.Contains(got, "«»") {
					t.Errorf("%q", got)
				}
				t.Logf("%s: %q", turns, got)
			}
		})
	}
}

// A weight of 0 excludes an answer from the loss, whether the template marks answers or
// not.
func TestGivenAnswers(t *testing.T) {
	messages, err := ParseMessages(json.RawMessage(`[{"role":"user","content":"a"},{"role":"assistant","content":"b","weight":0},{"from":"human","value":"c"},{"from":"gpt","value":"d"}]`))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"chatml", "generation"} {
		texts, err := ours(t, name).Texts(Conversation{Messages: messages})
		if err != nil || len(texts) != 1 || len(texts[0].Answers) != 1 || !strings.Contains(answersIn(texts), "«d") {
			t.Errorf("%s: %q, %v", name, answersIn(texts), err)
		}
	}
	if _, err := ours(t, "chatml").Texts(conversation("user", "a")); !errors.Is(err, errNoAnswer) {
		t.Errorf("nothing to learn: %v", err)
	}
}

func TestBadMessages(t *testing.T) {
	for raw, want := range map[string]string{
		`{}`:                            "a list of objects",
		`[]`:                            "at least one",
		`["a"]`:                         "message 1: it is not an object",
		`[{"content":"a"}]`:             "message 1: it has no role; it has content",
		`[{"role":"user"}]`:             "message 1: it has no content",
		`[{"role":"user","content":5}]`: "neither a text nor a list",
		`[{"role":`:                     "EOF",
	} {
		if _, err := ParseMessages(json.RawMessage(raw)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
	}
}

func TestOpen(t *testing.T) {
	write := func(dir, name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	if _, err := Open(dir); !errors.Is(err, ErrNoTemplate) {
		t.Errorf("an empty folder: %v", err)
	}
	write(dir, configFile, `{"bos_token":{"content":"<b>"},"eos_token":"<e>","pad_token":null,"chat_template":[{"name":"tool_use","template":"x"},{"name":"default","template":"{{ bos_token }}config{{ eos_token }}"}]}`)
	same := func(want string) {
		t.Helper()
		tmpl, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tmpl.Render(conversation("user", "a"), false); err != nil || got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	same("<b>config<e>")
	write(dir, templateFile, "{{ bos_token }}file")
	same("<b>file")
	write(dir, templateFile, "a\n{% bad %}")
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), templateFile+":2: there is no statement") {
		t.Errorf("a broken template: %v", err)
	}
	write(dir, configFile, `{"chat_template": 5}`)
	if err := os.Remove(filepath.Join(dir, templateFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "neither a text nor a list") {
		t.Errorf("no template at all: %v", err)
	}
}

// TestTemplatesForTools: a conversation with tools is written with the template named tool_use, from wherever transformers has it.
func TestTemplatesForTools(t *testing.T) {
	const usual, tools = "{{ bos_token }}usual {{ messages[0].content }}", "{{ bos_token }}{{ tools | length }} tools{% for m in messages %} {{ m.content }}{% endfor %}"
	listed := func(name string) map[string]string {
		return map[string]string{name: `{"bos_token": "<b>", "chat_template": [{"name": "tool_use", "template": "` + tools + `"}, {"name": "default", "template": "` + usual + `"}]}`}
	}
	with, without := conversation("user", "a", "assistant", "b"), conversation("user", "a", "assistant", "b")
	if err := with.SetTools([]byte(`[{"name": "f"}]`)); err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string]map[string]string{
		"a list":                          listed(configFile),
		"folders":                         {configFile: `{"bos_token": "<b>"}`, templateFile: usual, ToolsFile: tools},
		"a list and special tokens apart": {configFile: strings.Replace(listed(configFile)[configFile], `"bos_token": "<b>", `, "", 1), specialFile: `{"bos_token": {"content": "<b>"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			tmpl, err := Open(folderOf(t, files))
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				Conversation
				want string
			}{{without, "<b>usual a"}, {with, "<b>1 tools a b"}} {
				if got, err := tmpl.Render(c.Conversation, false); err != nil || got != c.want {
					t.Errorf("%q, %v; want %q", got, err, c.want)
				}
			}
			texts, err := tmpl.Texts(with)
			if err != nil || len(texts) != 1 || texts[0].Text != "<b>1 tools a b" {
				t.Errorf("to train on: %v, %v", texts, err)
			}
		})
	}
	t.Run("a template that cannot be read stops only conversations that need it", func(t *testing.T) {
		tmpl, err := Open(folderOf(t, map[string]string{templateFile: usual, ToolsFile: "{% bad %}"}))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tmpl.Render(without, false); err != nil || got != "usual a" {
			t.Errorf("without tools: %q, %v", got, err)
		}
		if _, err := tmpl.Render(with, false); err == nil || !strings.Contains(err.Error(), "there is no statement") {
			t.Errorf("with tools: %v", err)
		}
	})
}

// TestTemplateFilesHaveTheModelsTokens: a template in a file of its own gets the tokens of the model's folder, wherever they are.
func TestTemplateFilesHaveTheModelsTokens(t *testing.T) {
	dir := folderOf(t, map[string]string{"own.jinja": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", specialFile: `{"bos_token": "<b>", "eos_token": "<old>"}`, configFile: `{"eos_token": "<e>"}`})
	tmpl, err := OpenFile(filepath.Join(dir, "own.jinja"), dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := tmpl.Render(conversation("user", "a"), false); err != nil || got != "<b>a<e>" {
		t.Errorf("%q, %v", got, err)
	}
}

// folderOf is a folder with files, by names with slashes.
func folderOf(t *testing.T, files map[string]string) string {
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// BenchmarkTexts renders a conversation of ten turns to train on.
func BenchmarkTexts(b *testing.B) {
	tmpl, err := OpenFile(filepath.Join("testdata", "templates", "thinking.jinja"), "")
	if err != nil {
		b.Fatal(err)
	}
	var turns []string
	for range 5 {
		turns = append(turns, "user", strings.Repeat("What is it? ", 20), "assistant", strings.Repeat("It is so. ", 40))
	}
	c := conversation(turns...)
	for b.Loop() {
		if _, err := tmpl.Texts(c); err != nil {
			b.Fatal(err)
		}
	}
}
