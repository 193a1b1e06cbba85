package main

import (
	"os"
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
