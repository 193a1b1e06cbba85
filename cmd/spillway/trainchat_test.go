package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway/internal/reference"
	"spillway/recipe"
)

// write puts text in a file of a name and gives its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

const plainTemplate = `{{ bos_token }}{% for m in messages %}{{ m.role | capitalize }}: {{ m.content | trim }}
{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}`

// chats are small sums as conversations.
func chats(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"messages":[{"role":"user","content":"What is %d + 1?"},{"role":"assistant","content":"It is %d."},{"role":"user","content":"And one more?"},{"role":"assistant","content":"%d"}]}`+"\n",
			i, i+1, i+2)
	}
	return b.String()
}

// Conversations are learned by their answers, and a run over them goes on bit for bit.
func TestTrainOnChats(t *testing.T) {
	file, template := write(t, "chats.jsonl", chats(40)), write(t, "t.jinja", plainTemplate)
	whole, parts := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "parts")
	common := []string{"--data", file, "--chat-template", template, "--lr-scheduler", "constant"}
	v := trainTiny(t, append(slices.Clone(common), "--epochs", "2", "--out", whole)...).object(t)
	// 40 conversations: the questions and names are given, the answers learned.
	tokens, learned := at(t, v, "data.tokens").(float64), at(t, v, "data.loss_tokens").(float64)
	if at(t, v, "data.documents") != 40.0 || learned < 0.1*tokens || learned > 0.3*tokens || !(at(t, v, "loss_last").(float64) < at(t, v, "loss_first").(float64)) {
		t.Errorf("%v", v)
	}
	done := at(t, v, "steps").(float64)
	if done < 10 { // two passes
		t.Errorf("%v iterations", done)
	}
	trainTiny(t, append(common, "--out", parts, "--max-steps", "4")...).object(t)
	for says, flags := range map[string][]string{"other tokens": {"--train-on-prompts"}, "length and packing": {"--packing", "split"}, "rows of 64 tokens": {"--seq-len", "32"}} {
		if r := trainTiny(t, append(append(slices.Clone(common), flags...), "--out", parts, "--max-steps", "6", "--resume")...); r.code != exitFailed || !strings.Contains(r.err, says) {
			t.Errorf("going on with %v: %d %s", flags, r.code, r.err)
		}
	}
	trainTiny(t, append(common, "--out", parts, "--max-steps", fmt.Sprint(done), "--resume")...).object(t)
	name := fmt.Sprintf("step-%08.0f", done)
	a, _ := sums(t, filepath.Join(whole, name))
	b, _ := sums(t, filepath.Join(parts, name))
	if len(a) == 0 || a["model.safetensors"] != b["model.safetensors"] {
		t.Errorf("in two parts %v, at once %v", b, a)
	}
}

// A bad line is refused with its place and a way out; the way out counts it.
func TestTrainWithBadLines(t *testing.T) {
	file, template := write(t, "chats.jsonl", chats(20)+`{"messages":[{"role":"user"}]}`+"\n"+chats(20)+"{broken\n"), write(t, "t.jinja", plainTemplate)
	common := []string{"--data", file, "--chat-template", template, "--max-steps", "1"}
	r := trainTiny(t, append(common, "--out", filepath.Join(t.TempDir(), "a"))...)
	if r.code != exitFailed || !strings.Contains(r.err, "chats.jsonl:21:13: ") || !strings.Contains(r.err, "it has no content") || !strings.Contains(r.err, "--skip-bad-lines") {
		t.Errorf("%d %s", r.code, r.err)
	}
	v := trainTiny(t, append(common, "--skip-bad-lines", "--out", filepath.Join(t.TempDir(), "b"))...).object(t)
	if at(t, v, "data.skipped_lines") != 2.0 || at(t, v, "data.documents") != 40.0 || !strings.Contains(at(t, v, "data.first_skipped_line").(string), ":21:13:") {
		t.Errorf("%v", at(t, v, "data"))
	}
	broken := write(t, "broken.jinja", "a\n{% unknown %}")
	r = trainTiny(t, "--data", file, "--chat-template", broken, "--skip-bad-lines", "--max-steps", "1", "--out", filepath.Join(t.TempDir(), "c"))
	if r.code != exitFailed || !strings.Contains(r.err, "broken.jinja:2: there is no statement") {
		t.Errorf("%d %s", r.code, r.err)
	}
}

// Tokens in a file are trained on as they are.
func TestTrainOnTokenFiles(t *testing.T) {
	raw := make([]byte, 4000)
	for i := range raw {
		if i%2 == 0 {
			raw[i] = byte('a' + i/2%7)
		}
	}
	v := trainTiny(t, "--data", write(t, "tokens.bin", string(raw)), "--max-steps", "3", "--out", filepath.Join(t.TempDir(), "run")).object(t)
	if at(t, v, "data.tokens") != 2000.0 {
		t.Errorf("%v", at(t, v, "data"))
	}
	r := trainTiny(t, "--data", write(t, "tokens.bin", string(raw)), "--token-bytes", "4", "--max-steps", "3", "--out", filepath.Join(t.TempDir(), "run"))
	if r.code != exitFailed || !strings.Contains(r.err, "the right width?") {
		t.Errorf("%d %s", r.code, r.err)
	}
}

// A model without a tokenizer trains on tokens, and asks for one to read text.
func TestTrainWithoutTokenizer(t *testing.T) {
	train := func(data string) result {
		return command(t, "train", filepath.Join("..", "..", "testdata", "reference", "llama"), "--seq-len", "32", "--max-steps", "1", "--data", data, "--out", filepath.Join(t.TempDir(), "run"), "--json")
	}
	if r := train(write(t, "tokens.bin", strings.Repeat("A\x00B\x00", 500))); r.code != 0 {
		t.Errorf("tokens: %d %s", r.code, r.err)
	}
	if r := train(prose(t)); r.code != exitFailed || !strings.Contains(r.err, "--tokenizer") {
		t.Errorf("text: %d %s", r.code, r.err)
	}
}

// Evaluations are reported, stop the run, and the best one's checkpoint stays; every
// iteration is a line of the log.
func TestTrainEvaluates(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log.jsonl")
	v := trainTiny(t, "--data", write(t, "chats.jsonl", chats(30)), "--chat-template", write(t, "t.jinja", plainTemplate), "--eval-data", prose(t), "--fields", "",
		"--max-steps", "200", "--eval-steps", "2", "--eval-batches", "2", "--patience", "2", "--keep", "1", "--out", filepath.Join(dir, "run"), "--log", log).object(t)
	best := at(t, v, "best.iteration").(float64)
	if at(t, v, "stopped_early") != true || at(t, v, "steps") != best+4 || !(at(t, v, "best.loss").(float64) <= at(t, v, "eval_loss").(float64)) {
		t.Errorf("%v", v)
	}
	if _, err := os.Stat(at(t, v, "best_checkpoint").(string)); err != nil {
		t.Error(err)
	}
	// What is exported of the run is the best, and says so.
	exported := filepath.Join(dir, "exported")
	r := command(t, "export", filepath.Join(dir, "run"), exported)
	a, err := os.ReadFile(filepath.Join(exported, "model.safetensors"))
	b, bad := os.ReadFile(filepath.Join(at(t, v, "best_checkpoint").(string), "model.safetensors"))
	if r.code != exitOK || !strings.Contains(r.out, "stopped early: taking its best checkpoint") || err != nil || bad != nil || !bytes.Equal(a, b) {
		t.Errorf("exported %d bytes of %d: %+v, %v, %v", len(a), len(b), r, err, bad)
	}
	f, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, evaluated := 0, 0
	for lines := bufio.NewScanner(f); lines.Scan(); n++ {
		var r struct {
			Step       int
			Perplexity float64 `json:"eval_perplexity"`
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil || r.Step != n+1 {
			t.Fatalf("line %d: %s, %v", n+1, lines.Text(), err)
		}
		if r.Perplexity > 1 {
			evaluated++
		}
	}
	if float64(n) != best+4 || evaluated != n/2 {
		t.Errorf("%d lines, %d evaluations, the best after %v", n, evaluated, best)
	}
}

// What --print-recipe writes trains the same; the command line wins over it.
func TestTrainRecipe(t *testing.T) {
	file := write(t, "chats.jsonl", chats(20))
	template := write(t, "t.jinja", plainTemplate)
	dir := t.TempDir()
	model := filepath.Join(dir, "model")
	if r := command(t, "init", "tiny-llama", "--out", model); r.code != exitOK {
		t.Fatal(r.err)
	}
	args := []string{"train", model, "--tokenizer", "bytes", "--data", file, "--chat-template", template, "--seq-len", "64", "--learning-rate", "5e-3", "--max-steps", "3", "--method", "lora", "--out", filepath.Join(dir, "a")}
	printed := command(t, append(args, "--print-recipe")...)
	if printed.code != exitOK || !strings.Contains(printed.out, "method: lora  # ") || !strings.Contains(printed.out, "\n# patience: 0  # stop after") {
		t.Fatalf("%d %s%s", printed.code, printed.out, printed.err)
	}
	saved := write(t, "run.yaml", printed.out)
	a := command(t, append(args, "--json")...).object(t)
	b := command(t, "train", "--recipe", saved, "--out", filepath.Join(dir, "b"), "--json").object(t)
	if at(t, a, "loss_last") != at(t, b, "loss_last") || at(t, b, "steps") != 3.0 || !strings.HasPrefix(at(t, b, "checkpoint").(string), filepath.Join(dir, "b")) {
		t.Errorf("by flags %v, by the recipe %v", a, b)
	}
	// Other names of flags are the same flags.
	other := command(t, "train", "--recipe", write(t, "r.yaml", "model: tiny-llama\noptim: sgd\nmethod: qlora\n"), "--optim", "adam", "--method", "lora", "--print-recipe")
	if !strings.Contains(other.out, "\noptimizer: adam  #") || !strings.Contains(other.out, "\nmethod: lora  #") {
		t.Errorf("%s%s", other.out, other.err)
	}
	// A recipe of a recipe is the same, but for the flag that won.
	again := command(t, "train", "--recipe", saved, "--max-steps", "5", "--print-recipe")
	if want := strings.Replace(printed.out, "max-steps: 3 ", "max-steps: 5 ", 1); again.out != want {
		t.Errorf("got %s\nwant %s", again.out, want)
	}
}

// Every setting of train is a flag and can be in a recipe, lists and pairs too, and comes
// out again.
func TestRecipesHaveEveryFlag(t *testing.T) {
	args, settings := []string{"train", "tiny-llama", "--print-recipe"}, 0
	recipe.New().Flags().VisitAll(func(f *flag.Flag) {
		if f.Name == recipe.ModelKey || f.Name == recipe.VersionKey || recipe.Aliases[f.Name] != "" {
			return
		}
		settings++
		value := f.DefValue
		if given, ok := map[string]string{
			"precision": "bf16", "state-policy": "low-memory", "device-map": "auto", "optimizer-device": "device", "strategy": "standard", "quantization": "nf4", "weight-decay": "0.1",
			"token-bytes": "2", "max-steps": "10", "batch-size": "4", "micro-batch-size": "2", "gradient-accumulation-steps": "2", "packing": "split", "max-host-memory": "4GiB", "lora-alpha": "8", "rank-pattern": "b=2,a=1", "alpha-pattern": "b=2,a=1", "layers-to-transform": "3,5", "ema": "0.99", "compress-weights": "on",
		}[f.Name]; ok {
			value = given
		} else if value == "" {
			value = "some: #value"
		}
		args = append(args, "--"+f.Name+"="+value)
	})
	printed := command(t, args...)
	if printed.code != exitOK || strings.Contains(printed.out, "# Defaults") || strings.Count(printed.out, "some: #value") < 10 || settings < 60 {
		t.Fatalf("%d settings, %d %s%s", settings, printed.code, printed.out, printed.err)
	}
	again := command(t, "train", "--recipe", write(t, "all.yaml", printed.out), "--print-recipe")
	if again.code != exitOK || again.out != printed.out {
		t.Errorf("%s%s\nfrom\n%s", again.out, again.err, printed.out)
	}
}

func TestTrainRecipeRefuses(t *testing.T) {
	for text, says := range map[string]string{
		"model: tiny-llama\nlearning_rat: 1\n": `run.yaml:2:1: there is no setting "learning-rat"`,
		"model: tiny-llama\nepoch: 1\n":        "did you mean epochs?",
		"model: tiny-llama\n\nlr: fast\n":      `run.yaml:3:1: lr "fast": `,
		"method: fullest\n":                    "full, lora, qlora",
		"data: x\n":                            "there is no model",
		"json: true\n":                         "there is no setting",
		"model: [a\n":                          "run.yaml:1:",
	} {
		r := command(t, "train", "--recipe", write(t, "run.yaml", text))
		if r.code != exitUsage || !strings.Contains(r.err, says) {
			t.Errorf("%q: %d %s; want %q", text, r.code, r.err, says)
		}
	}
	if r := command(t, "train"); r.code != exitUsage || !strings.Contains(r.err, "MODEL") {
		t.Errorf("no model and no recipe: %d %s", r.code, r.err)
	}
}

// A real model learns to answer real problems: adapters of stories260k, fine-tuned on
// grade-school mathematics written as conversations.
func TestFineTuneStories(t *testing.T) {
	model := reference.Asset(t, "stories260k")
	raw, err := os.ReadFile(reference.Asset(t, "gsm8k/train.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	problems := strings.Join(strings.SplitAfter(string(raw), "\n")[:60], "")
	out := filepath.Join(t.TempDir(), "run")
	v := command(t, "train", model, "--method", "lora", "--lora-rank", "8", "--tokenizer", filepath.Join(model, "tok512.bin"), "--data", write(t, "problems.jsonl", problems),
		"--format", "chat", "--fields", "question:answer", "--chat-template", write(t, "t.jinja", plainTemplate), "--batch-size", "2", "--seq-len", "384", "--learning-rate", "1e-2",
		"--lr-scheduler", "linear", "--warmup-steps", "2", "--max-steps", "14", "--eval-split", "0.1", "--eval-steps", "7", "--eval-batches", "3", "--keep-best", "--out", out, "--json").object(t)
	first, last, held := at(t, v, "loss_first").(float64), at(t, v, "loss_last").(float64), at(t, v, "eval_loss").(float64)
	if !(last < 0.75*first) || !(held < 0.75*first) {
		t.Errorf("the loss went from %v to %v, on held-out problems %v", first, last, held)
	}
	files, err := os.ReadDir(at(t, v, "best_checkpoint").(string))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(files, func(f os.DirEntry) bool { return f.Name() == "adapter_model.safetensors" }) {
		t.Errorf("no adapter in %v", files)
	}
	t.Logf("loss %.3f to %.3f, held out %.3f, perplexity %.2f", first, last, held, at(t, v, "eval_perplexity"))
}

// An adapter of random weights is of no use: they are saved nowhere.
func TestAdaptersNeedAModelThatIsSaved(t *testing.T) {
	for _, method := range []string{"lora", "qlora"} {
		out := filepath.Join(t.TempDir(), "run")
		r := command(t, "train", "tiny-llama", "--data", prose(t), "--method", method, "--max-steps", "1", "--seq-len", "32", "--out", out)
		if r.code == exitOK || !strings.Contains(r.err, "spillway init tiny-llama --out") {
			t.Errorf("%s: %d %s", method, r.code, r.err)
		}
		if _, err := os.Stat(out); err == nil {
			t.Error("something was saved")
		}
	}
}
