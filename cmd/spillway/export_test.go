package main

import (
	"os"
	"strings"
	"testing"
)

// A run that was trained with a tokenizer of its own brings it into the folder it is exported to, where inspect and generate find
// it; another one can be named, one that is not the model's is refused, and inspect calls a file a file.
func TestExportedFoldersHaveATokenizer(t *testing.T) {
	sandbox(t)
	words := func(n int) string {
		list := vocabOf(n)
		for i, letter := range []string{"a", "b", "e", "h", "o", "r", "s", "t", "u", "Ġ"} {
			list = strings.Replace(list, `"t`+string(rune('0'+i))+`":`, `"`+letter+`":`, 1)
		}
		return `{"model":{"type":"BPE","vocab":{` + list + `},"merges":[],"unk_token":"a"},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"}}`
	}
	for name, text := range map[string]string{"own.json": words(256), "large.json": words(300), "data.txt": strings.Repeat("the bees are about to house three oars ", 60)} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	works(t, "train", "my-config.json", "--data", "data.txt", "--tokenizer", "own.json", "--seq-len", "16", "--max-steps", "2", "--out", "trained")
	r := command(t, "export", "trained", "exported")
	if r.code != exitOK || !strings.Contains(r.err, "trained with --tokenizer own.json: it is written too") && !strings.Contains(r.err, "/own.json: it is written too") {
		t.Fatalf("exit %d: %s", r.code, r.err)
	}
	if readFile(t, "exported/tokenizer.json") != words(256) {
		t.Error("the folder has another tokenizer")
	}
	works(t, "generate", "exported", "--prompt", "the house", "--max-new-tokens", "3")
	works(t, "export", "exported", "again", "--tokenizer", "own.json")
	works(t, "export", "exported", "one.gguf", "--tokenizer", "own.json")
	if out := command(t, "inspect", "one.gguf").out; !strings.HasPrefix(out, "file ") {
		t.Errorf("inspect begins with %.40q", out)
	}
	if out := command(t, "inspect", "exported").out; !strings.HasPrefix(out, "folder ") {
		t.Errorf("inspect begins with %.40q", out)
	}
	if r := command(t, "export", "exported", "wrong", "--tokenizer", "large.json"); r.code != exitFailed || !strings.Contains(r.err, "has 300 tokens, the model 256") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
	if err := os.Remove("own.json"); err != nil {
		t.Fatal(err)
	}
	if r := command(t, "export", "trained", "without"); r.code != exitOK || !strings.Contains(r.err, "not there any more") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
}
