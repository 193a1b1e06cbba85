package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A model without a tokenizer writes the ids of its tokens, as --tokens takes them.
func TestGenerateWritesIDs(t *testing.T) {
	sandbox(t)
	config, err := os.ReadFile("my-config.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("wide.json", []byte(strings.Replace(string(config), `"vocab_size":256`, `"vocab_size":512`, 1)), 0o644); err != nil { // no model of bytes
		t.Fatal(err)
	}
	works(t, "init", "wide.json", "--out", "wide")
	args := []string{"generate", "./wide", "--tokens", "1,2", "--max-new-tokens", "5", "--ignore-eos", "--device", "cpu"}
	var want []string
	for _, id := range generatedObject(t, args...).Tokens {
		want = append(want, strconv.Itoa(int(id)))
	}
	if got := command(t, args...).out; got != strings.Join(want, ",")+"\n" {
		t.Errorf("wrote %q, want %v", got, want)
	}
	args = append(args, "--temperature", "1", "--num-samples", "3")
	var texts strings.Builder
	for i, text := range generatedObject(t, args...).Texts {
		want = nil
		for _, id := range text.Tokens {
			want = append(want, strconv.Itoa(int(id)))
		}
		texts.WriteString("--- " + strconv.Itoa(i+1) + "\n" + strings.Join(want, ",") + "\n")
	}
	if got := command(t, args...).out; got != texts.String() {
		t.Errorf("three texts: %q, want %q", got, texts.String())
	}
}

// Every text of several has its line, also an empty one.
func TestEmptyTextsHaveTheirLine(t *testing.T) {
	sandbox(t)
	if err := os.WriteFile("two.txt", []byte("to be\nor not\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"generate", "./model", "--tokenizer", "bytes", "--prompts", "two.txt", "--max-new-tokens", "3", "--ignore-eos", "--device", "cpu"}
	first := generatedObject(t, args...).Texts[0].Text
	if first == "" {
		t.Fatal("there is no text")
	}
	got := command(t, append(args, "--stop", first)...).out
	if !strings.HasPrefix(got, "--- 1\n--- 2\n") && !strings.HasPrefix(got, "--- 1\n\n--- 2\n") {
		t.Errorf("wrote %q", got)
	}
}

// Lines that cannot be read are named with how to write them, and a missing file of data is missing for eval too.
func TestBadLinesAreExplained(t *testing.T) {
	sandbox(t)
	for name, text := range map[string]string{"cut.txt": "to be\n{\"prompt\": \"or\n", "more.jsonl": `{"prompt": "or"} not`, "junk.jsonl": "junk\n", "latin.txt": "caf\xe9"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	use := "./model --tokenizer bytes --device cpu "
	for line, want := range map[string]string{
		"generate " + use + "--prompts cut.txt":    `cut.txt, line 2: a line that begins with { is a JSON object`,
		"generate " + use + "--prompts more.jsonl": `more.jsonl, line 1: a line that begins with {`,
		"eval " + use + "--questions junk.jsonl":   `line 1: it is not a JSON object`,
		"eval " + use + "--data none.txt":          "there is no file none.txt; check",
	} {
		if r := command(t, strings.Fields(line)...); r.code == exitOK || !strings.Contains(r.err, want) {
			t.Errorf("%s: %d %s", line, r.code, r.err)
		}
	}
}

// What an adapter was added to is said with the adapter.
func TestEvalNamesAdapters(t *testing.T) {
	sandbox(t)
	works(t, "train", "./model", "--method", "lora", "--data", "book.txt", "--max-steps", "1", "--seq-len", "16", "--out", "tuned", "--device", "cpu", "--tokenizer", "bytes")
	model, err := filepath.Abs("model")
	if err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{{"--data", "book.txt", "--seq-len", "16"}, {"--questions", "questions.jsonl"}} {
		args := append([]string{"eval", "./tuned", "--device", "cpu", "--tokenizer", "bytes"}, flags...)
		if out := command(t, args...).out; !strings.Contains(out, " "+model+" with tuned/step-00000001\n") {
			t.Errorf("%s: %s", flags, out)
		}
		v := command(t, append(args, "--json")...).object(t)
		if at(t, v, "model") != model || at(t, v, "adapters").([]any)[0] != "tuned/step-00000001" {
			t.Errorf("%s: %v", flags, v)
		}
	}
	args := []string{"generate", "./tuned", "--tokens", "1", "--max-new-tokens", "2", "--device", "cpu", "--json"}
	if v := command(t, args...).object(t); at(t, v, "adapters").([]any)[0] != "tuned/step-00000001" {
		t.Error(v)
	}
}

// A conversation that is too long names contexts that the model was made for, and no others.
func TestLongConversationsAreExplained(t *testing.T) {
	sandbox(t)
	if err := os.WriteFile("plain.jinja", []byte(plainTemplate), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		context string
		more    bool
	}{{"32", true}, {"64", false}} { // the model was made for 64
		r := commandWith(t, strings.Repeat("to be ", 8)+"\n", "chat", "./model", "--tokenizer", "bytes", "--chat-template", "plain.jinja", "--device", "cpu", "--context", c.context)
		if c.context == "64" {
			r = commandWith(t, strings.Repeat("to be ", 20)+"\n", "chat", "./model", "--tokenizer", "bytes", "--chat-template", "plain.jinja", "--device", "cpu", "--context", c.context)
		}
		if !strings.Contains(r.err, "/clear begins a new one") || strings.Contains(r.err, "--context 64 makes room") != c.more || strings.Contains(r.err, "--context 128") {
			t.Errorf("context %s: %s", c.context, r.err)
		}
	}
}

// A folder that lacks its config says what to do with what it has.
func TestFoldersWithoutConfigAreExplained(t *testing.T) {
	sandbox(t)
	for dir, name := range map[string]string{"weights": "model.safetensors", "ggufs": "some.gguf", "nothing": "notes.txt"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/"+name, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for dir, want := range map[string]string{"weights": "it has model.safetensors, so put the model's config.json next to it", "ggufs": "it has some.gguf, so name that file", "nothing": "no such file or directory\n"} {
		if r := command(t, "inspect", "./"+dir); r.code == exitOK || !strings.Contains(r.err, want) {
			t.Errorf("%s: %s", dir, r.err)
		}
	}
}
