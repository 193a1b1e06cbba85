package main

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// A template gets all fields of the messages of --prompts, and the tools, as in training: contents in parts, calls of tools and
// their answers. The text it should write was rendered by Jinja.
func TestConversationsWithTools(t *testing.T) {
	sandbox(t)
	model := initialized(t)
	const template = `{% if tools %}{{ tools[0].name }}|{% endif %}{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content or [] %}{{ p.text }}{% endfor %}{% endif %}{% for c in m.tool_calls or [] %}<{{ c.function.name }}>{% endfor %};{% endfor %}`
	const line = `{"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}, {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f"}}]}, {"role": "tool", "content": "4"}], "tools": [{"name": "calc"}]}`
	const rendered = "calc|user:hi;assistant:<f>;tool:4;"
	for name, text := range map[string]string{"template.jinja": template, "talk.jsonl": line, "empty.jsonl": `{"messages": []}`} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	flags := []string{"generate", model, "--tokenizer", "bytes", "--device", "cpu", "--max-new-tokens", "8", "--json"}
	with := func(more ...string) result { return command(t, append(flags[:len(flags):len(flags)], more...)...) }
	got, want := with("--chat", "--chat-template", "template.jinja", "--prompts", "talk.jsonl").object(t), with("--prompt", rendered).object(t)
	if at(t, got, "prompt_tokens") != float64(len(rendered)) || !reflect.DeepEqual(at(t, got, "tokens"), at(t, want, "tokens")) {
		t.Errorf("%v tokens of %d: %v, want %v", at(t, got, "prompt_tokens"), len(rendered), at(t, got, "tokens"), at(t, want, "tokens"))
	}
	if r := with("--chat", "--chat-template", "template.jinja", "--prompts", "empty.jsonl"); r.code == exitOK || !strings.Contains(r.err, "line 1: messages: messages are a list of objects") {
		t.Errorf("no messages: %d %s", r.code, r.err)
	}
}

// A model may have a template of its own for conversations with tools: it writes them in the model's folder, and in every form that
// the folder is converted to.
func TestTemplatesForToolsStay(t *testing.T) {
	sandbox(t)
	model := initialized(t)
	const rendered = "calc|hi!"
	files := map[string]string{
		model + "/chat_template.jinja":                      "{% for m in messages %}{{ m.content }}{% endfor %}",
		model + "/additional_chat_templates/tool_use.jinja": "{{ tools[0].name }}|{{ messages[0].content }}!",
		"tools.jsonl":    `{"messages": [{"role": "user", "content": "hi"}], "tools": [{"name": "calc"}]}`,
		"plain.jsonl":    `{"messages": [{"role": "user", "content": "hi"}]}`,
		"talk.jsonl":     `{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "there"}]}`,
		"tokenizer.json": `{"added_tokens": [], "model": {"type": "BPE", "vocab": {"h": 0, "i": 1, "!": 2, "c": 3, "a": 4, "l": 5, "|": 6, "t": 7, "e": 8, "r": 9}, "merges": []}}`,
	}
	for name, text := range files {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(model+"/tokenizer.json", []byte(files["tokenizer.json"]), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"train", model, "--data", "talk.jsonl", "--max-steps", "1", "--seq-len", "16", "--out", "run", "--device", "cpu", "--precision", "fp32"},
		{"export", "run", "exported"}, {"export", model, "retokenized", "--tokenizer", "tokenizer.json"}, {"quantize", model, "quantized", "--format", "int8"},
	} {
		works(t, args...)
	}
	for _, from := range []string{model, "run", "exported", "retokenized", "quantized"} {
		for data, want := range map[string]int{"tools.jsonl": len(rendered), "plain.jsonl": len("hi")} {
			got := command(t, "generate", from, "--device", "cpu", "--max-new-tokens", "1", "--json", "--chat", "--prompts", data).object(t)
			if at(t, got, "prompt_tokens") != float64(want) {
				t.Errorf("%s: %s has %v tokens, want %d", from, data, at(t, got, "prompt_tokens"), want)
			}
		}
	}
}
