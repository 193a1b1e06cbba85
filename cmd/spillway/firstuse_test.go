package main

import (
	"os"
	"strings"
	"testing"
)

// Flags and commands as other programs have them, and misspelt ones, are answered with what there
// is instead.
func TestWhatWasMeant(t *testing.T) {
	for line, want := range map[string]string{
		"generate x --temp 0.5":               "there is no flag --temp; did you mean --temperature?",
		"generate x --max-tokens 5":           "did you mean --max-new-tokens?",
		"generate x -p hello":                 "there is no flag -p; did you mean --prompt?",
		"generate x --ngl 9":                  "did you mean --max-memory?",
		"generate x -ngl 9":                   "did you mean --max-memory?",
		"generate x -n 9":                     "there is no flag -n; did you mean --max-new-tokens?",
		"generate x --do-sample":              "did you mean --temperature 1?",
		"generate x --threads 4":              "there is no flag --threads: all cores are used",
		"generate x --load-in-4bit":           "there is no flag --load-in-4bit: quantize writes a folder",
		"train x --load-best-model-at-end":    "did you mean --keep-best?",
		"train x --early-stopping-patience 3": "did you mean --patience?",
		"train x --adam-beta2 0.95":           "did you mean --optimizer adamw:beta2=0.95?",
		"train x --no-cuda":                   "did you mean --device cpu?",
		"train x --fsdp full_shard":           "did you mean --strategy zero-3?",
		"train x --report-to wandb":           "report RUN --format tensorboard",
		"train x --max-steps 0 --data y":      "it is at least 1",
		"train x --load-in-4bit":              "did you mean --method qlora?",
		"generate x --model-draft y":          "did you mean --draft?",
		"generate x --cache-type-k q8_0":      "did you mean --cache-type?",
		"generate x --torch_dtype bf16":       "did you mean --dtype?",
		"train x --torch_dtype bf16":          "did you mean --precision?",
		"train x --gradient_checkpointing":    "did you mean --strategy checkpointing?",
		"plan x --gradient_checkpointing":     "did you mean --explain?",
		"train x --optimizer adamm":           `there is no optimizer "adamm"; did you mean adamw?`,
		"generate x -m model":                 "there is no flag -m: the model is the first argument",
		"generate ./model once upon":          `3 arguments given, it takes 1: MODEL; the text to continue is --prompt "once upon"`,
		"export ./run":                        "1 argument given, it takes 2",
		"serve ./model":                       "no server of models",
		"quantize x y --quantization nf4":     "there is no flag --quantization; did you mean --format?",
		"gen x":                               `there is no command "gen"; did you mean generate?`,
		"help trian":                          `there is no command "trian"; did you mean train?`,
		"train ./no-such-folder --data x.txt": "there is no folder and no file ./no-such-folder; check",
		"plan /no/such/folder":                "there is no folder and no file /no/such/folder",
	} {
		r := command(t, strings.Fields(line)...)
		if r.code == exitOK || !strings.Contains(r.err, want) || strings.Contains(r.err, "known are") {
			t.Errorf("%s: %d %s\nwant %s", line, r.code, r.err, want)
		}
	}
	if r := command(t, "help", "train"); r.code != exitOK || r.out != command(t, "train", "--help").out {
		t.Errorf("help train is not train --help: %d %s", r.code, r.err)
	}
	for _, c := range newRoot(shell{}).Commands() {
		if out := command(t, c.Name(), "--help").out; c.Name() != "help" && !strings.Contains(out, "Exit codes: 0 done; 1 it failed; 2 ") {
			t.Errorf("the help of %s does not say what exit codes mean", c.Name())
		}
	}
}

// The tokenizer and the chat template that a run was given are what generate, chat, eval
// and export use for it too.
func TestRunsBringTheirTexts(t *testing.T) {
	sandbox(t)
	config, err := os.ReadFile("my-config.json")
	if err != nil {
		t.Fatal(err)
	}
	wide := strings.Replace(string(config), `"vocab_size":256`, `"vocab_size":512`, 1)
	for name, text := range map[string]string{"wide.json": wide, "own.jinja": plainTemplate} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	works(t, "init", "wide.json", "--out", "wide") // has no tokenizer, and bytes are too few to be its own
	for _, model := range []string{"wide", "model"} {
		works(t, "train", "./"+model, "--tokenizer", "bytes", "--chat-template", "own.jinja", "--data", "chats.jsonl", "--max-steps", "1", "--seq-len", "32", "--out", model+"-run")
	}
	for _, args := range [][]string{
		{"eval", "./wide-run", "--data", "chats.jsonl", "--seq-len", "32"},
		{"generate", "./model-run", "--chat", "--prompt", "hello", "--max-new-tokens", "2"},
	} {
		r := command(t, args...)
		if r.code != exitOK || !strings.Contains(r.err, "trained with --tokenizer bytes: it is used here too") || !strings.Contains(r.err, "own.jinja: it is used here too") {
			t.Errorf("%v: %d %s", args, r.code, r.err)
		}
	}
	if r := command(t, "eval", "./wide-run", "--data", "book.txt", "--seq-len", "32"); r.code != exitOK || strings.Contains(r.err, "own.jinja") {
		t.Errorf("a text has no chat template: %d %s", r.code, r.err)
	}
	works(t, "export", "./wide-run", "bytes.gguf")
}
