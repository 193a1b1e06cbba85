package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// sandbox is a folder with all that examples name, in which they are run: a model that reads
// bytes, data, a recipe, and runs of both kinds.
func sandbox(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	config := `{"model_type":"llama","vocab_size":256,"hidden_size":32,"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":2,
"intermediate_size":64,"rms_norm_eps":1e-5,"tie_word_embeddings":false,"max_position_embeddings":64}`
	var chats, problems strings.Builder
	for i := range 60 {
		fmt.Fprintf(&chats, `{"messages":[{"role":"user","content":"how much is %d?"},{"role":"assistant","content":"it is %d"}]}`+"\n", i, i*i)
		fmt.Fprintf(&problems, `{"question":"how much is %d?","answer":"it is %d"}`+"\n", i, i*i)
	}
	table := "prompt,completion\n" + strings.Repeat("how are you?,well\n", 40)
	for name, text := range map[string]string{
		"my-config.json": config, "config.json": config, "book.txt": strings.Repeat("to be or not to be, that is the question. ", 200), "more.txt": strings.Repeat("whether ", 200), "chats.jsonl": chats.String(),
		"questions.jsonl": `{"question":"how much is 2?","choices":["it is 4","it is five"],"answer":0}` + "\n", "prompt.txt": "to be or not", "prompts.jsonl": `{"prompt":"to be"}` + "\n" + `{"prompt":"or not"}` + "\n",
		"problems.jsonl": problems.String(), "sums.jsonl": strings.NewReplacer("question", "prompt", "answer", "completion").Replace(problems.String()), "table.csv": table, "run.yaml": "model: ./model\ndata: [book.txt]\nmax-steps: 2\nout: from-recipe\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	works(t, "init", "my-config.json", "--out", "model")
	for name, text := range map[string]string{"chat_template.jinja": plainTemplate} {
		if err := os.WriteFile(filepath.Join("model", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// works runs a command that must succeed.
func works(t *testing.T, args ...string) {
	t.Helper()
	if r := command(t, args...); r.code != exitOK {
		t.Errorf("spillway %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.err)
	}
}

// examplesOf are the command lines of a text, without what explains them.
func examplesOf(text string) (list [][]string) {
	for line := range strings.SplitSeq(text, "\n") {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "  ")
		for command := range strings.SplitSeq(line, "&&") {
			if words := strings.Fields(command); len(words) > 1 && words[0] == "spillway" {
				list = append(list, words[1:])
			}
		}
	}
	return list
}

// elsewhere is what takes minutes or measures the machine, and has tests of its own.
var elsewhere = regexp.MustCompile(`^(demo|bench|devices|completion|pull|top|dashboard|report run --mlflow|estimate --machine)|llama-3-70b|llama-2-70b|moby|big|/mnt/nvme|/nvme|MODEL|NAME|RUN| DIR|OUT`)

// runExamples runs examples in a sandbox, each on what it names. Training is run dry.
func runExamples(t *testing.T, all [][]string) {
	t.Helper()
	sandbox(t)
	works(t, "train", "./model", "--data", "book.txt", "--max-steps", "1", "--seq-len", "32", "--out", "full-run")
	works(t, "train", "./model", "--method", "lora", "--data", "book.txt", "--max-steps", "1", "--seq-len", "32", "--out", "run")
	for _, dir := range []string{"style", "facts", "adapter", "lora-run"} {
		works(t, "export", "run", dir)
	}
	works(t, "quantize", "model", "model-nf4")
	works(t, "merge", "model", "adapter", "merged")
	for _, args := range all {
		line := strings.Join(args, " ")
		if elsewhere.MatchString(line) || args[0] == "train" && strings.Contains(line, "--resume") {
			t.Logf("left out: %s", line)
			continue
		}
		line = strings.NewReplacer("./run/step-00000500", "./full-run/step-00000001", "./my-model --save", "./model --save", "export ./my-model", "export ./model", "./llama-nf4", "./model-nf4", "./llama", "./model", "./small-model", "./model-nf4", "./run --verify", "./full-run --verify").Replace(line)
		args = strings.Fields(line)
		switch args[0] {
		case "train":
			args = append(args, "--dry-run", "--out", "dry")
		case "export", "quantize", "merge":
			made := 0 // the last argument before the flags
			for made+1 < len(args) && !strings.HasPrefix(args[made+1], "--") {
				made++
			}
			ending := "" // a file is made instead of a folder
			if filepath.Ext(args[made]) == ".gguf" {
				ending = ".gguf"
			}
			args[made] = strings.TrimSuffix(args[made], ending) + "-made" + ending
			os.RemoveAll(args[made])
		case "init":
			for i, arg := range args {
				if i > 0 && args[i-1] == "--out" {
					args[i] += "-made"
					os.RemoveAll(arg + "-made")
				}
			}
		}
		works(t, args...)
	}
}

// Every example of the help texts succeeds.
func TestExamplesSucceed(t *testing.T) {
	if testing.Short() {
		t.Skip("with -short: a hundred commands are run")
	}
	root := newRoot(shell{})
	all := examplesOf(root.Example)
	for _, cmd := range root.Commands() {
		all = append(all, examplesOf(cmd.Example)...)
	}
	if len(all) < 30 {
		t.Fatalf("only %d examples", len(all))
	}
	runExamples(t, all)
}

// Every command of the pages for users succeeds.
func TestPagesSucceed(t *testing.T) {
	if testing.Short() {
		t.Skip("with -short: a hundred commands are run")
	}
	fence := regexp.MustCompile("(?s)\n```(?:sh|bash)?\n(.*?)```")
	var all [][]string
	pages, err := filepath.Glob(filepath.Join("..", "..", "docs", "*.md"))
	if err != nil || len(pages) < 4 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range append(pages, filepath.Join("..", "..", "README.md")) {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range fence.FindAllStringSubmatch(string(raw), -1) {
			all = append(all, examplesOf(strings.NewReplacer("\\\n", " ", "$ spillway", "spillway", "go run ./cmd/spillway", "spillway").Replace(block[1]))...)
		}
	}
	if len(all) < 10 {
		t.Fatalf("only %d commands", len(all))
	}
	runExamples(t, all)
}

// The commands of the README that lead from nothing to a merged adapter do so, run by a shell as
// they stand there, in an empty folder and without a home.
func TestFromNothingToAMergedAdapter(t *testing.T) {
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	raw, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(raw), "From nothing to a merged adapter")
	_, rest, fenced := strings.Cut(rest, "\n```\n")
	script, _, ended := strings.Cut(rest, "```")
	if !found || !fenced || !ended {
		t.Fatal("the README does not say how")
	}
	dir, home, bin := t.TempDir(), t.TempDir(), t.TempDir()
	program := "#!/bin/sh\n" + asProgram + "=1 exec '" + os.Args[0] + "' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "spillway"), []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	p := exec.Command(shell, "-e", "-c", script)
	p.Dir, p.Env = dir, []string{"HOME=" + home, "PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), "XDG_CACHE_HOME=" + filepath.Dir(cache)}
	out, err := p.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "⟦ 2⟧") {
		t.Fatalf("%v\n%s", err, out)
	}
	works(t, "inspect", filepath.Join(dir, "merged"))
	for _, name := range []string{"config.json", "model.safetensors"} {
		if _, err := os.Stat(filepath.Join(dir, "merged", name)); err != nil {
			t.Error(err)
		}
	}
}
