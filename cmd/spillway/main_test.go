package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var rewrite = flag.Bool("rewrite", false, "write what the commands print to testdata instead of comparing")

// result is what one command line gave.
type result struct {
	code     int
	out, err string
}

// cache holds measured rates for all tests, so that the machine is measured once.
var cache string

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	flag.Parse()
	dir, err := os.MkdirTemp("", "spillway-test-")
	if err != nil {
		panic(err)
	}
	if cache = filepath.Join(dir, "spillway"); os.Mkdir(cache, 0o755) != nil {
		panic(cache)
	}
	startReplan = (*exec.Cmd).Start
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// command runs a command line in this process.
func command(t *testing.T, args ...string) result {
	t.Helper()
	return commandIn(context.Background(), t, args...)
}

func commandIn(ctx context.Context, t *testing.T, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(ctx, args, shell{in: strings.NewReader(""), out: &out, err: &errs, cache: cache})
	return result{code, out.String(), errs.String()}
}

// object decodes the one line that --json writes.
func (r result) object(t *testing.T) map[string]any {
	t.Helper()
	if strings.Count(r.out, "\n") != 1 {
		t.Fatalf("not one line, exit code %d: %s%s", r.code, r.out, r.err)
	}
	var v map[string]any
	if err := json.Unmarshal([]byte(r.out), &v); err != nil {
		t.Fatalf("%v in %s", err, r.out)
	}
	return v
}

// at follows keys into an object.
func at(t *testing.T, v any, path string) any {
	t.Helper()
	for key := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		if v, ok = m[key]; !ok {
			t.Fatalf("there is no %q of %q", key, path)
		}
	}
	return v
}

// The files of testdata hold command lines, each behind "$ spillway ", and what
// they print; a line "exit code N" follows where it is not 0.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in testdata: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { golden(t, file) })
	}
}

func golden(t *testing.T, file string) {
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for line := range strings.SplitSeq(string(want), "\n") {
		words, ok := strings.CutPrefix(line, "$ spillway")
		if !ok {
			continue
		}
		r := command(t, strings.Fields(words)...)
		fmt.Fprintf(&got, "%s\n%s%s", line, r.out, r.err)
		if r.code != 0 {
			fmt.Fprintf(&got, "exit code %d\n", r.code)
		}
		got.WriteString("\n")
	}
	if *rewrite {
		err = os.WriteFile(file, []byte(got.String()), 0o644)
	} else if got.String() != string(want) {
		err = errors.New("the output has changed; look at it, and if it is right run go test ./cmd/spillway -rewrite")
	}
	if err != nil {
		t.Errorf("%s: %v\ngot\n%s\nwant\n%s", file, err, got.String(), want)
	}
}

// Every verb explains itself.
func TestHelpTeaches(t *testing.T) {
	root := newRoot(shell{})
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "help" {
			continue
		}
		t.Run(cmd.Name(), func(t *testing.T) { checkHelp(t, cmd) })
	}
}

func checkHelp(t *testing.T, cmd *cobra.Command) {
	r := command(t, cmd.Name(), "--help")
	if r.code != 0 || !strings.Contains(r.out, cmd.Long) {
		t.Errorf("--help gives %d: %s", r.code, r.err)
	}
	if n := strings.Count(cmd.Example, "  spillway "+cmd.Name()); n < 2 {
		t.Errorf("%d examples", n)
	}
	if cmd.Flags().Lookup("json") == nil {
		t.Error("there is no --json")
	}
	for line := range strings.SplitSeq(r.out, "\n") {
		words := strings.Fields(line)
		if len(words) > 1 && strings.HasPrefix(words[0], "--") && slices.Contains([]string{"int", "float", "string"}, words[1]) {
			t.Errorf("%s does not say what its %s means", words[0], words[1])
		}
		if strings.HasPrefix(line, "Other flags") {
			t.Errorf("flags are in no group: %s", r.out[strings.Index(r.out, line):])
		}
		if n := len([]rune(line)); n > columns && !strings.Contains(cmd.Long+cmd.Example, line) {
			t.Errorf("a line of %d characters: %s", n, line)
		}
	}
	for line := range strings.SplitSeq(cmd.Example+"\n"+cmd.Long, "\n") {
		if n := len([]rune(line)); n > 140 {
			t.Errorf("a line of %d characters: %s", n, line)
		}
	}
}

// The examples of the help texts are accepted as they stand, up to what they need to run.
func TestExamplesParse(t *testing.T) {
	for _, cmd := range newRoot(shell{}).Commands() {
		for line := range strings.SplitSeq(cmd.Example, "\n") {
			example, _, _ := strings.Cut(strings.TrimSpace(line), "  ")
			args := strings.Fields(example)
			if len(args) < 2 || args[1] != cmd.Name() {
				continue
			}
			found, rest, err := newRoot(shell{}).Find(args[1:])
			if err == nil {
				err = found.ParseFlags(rest)
			}
			if err == nil {
				err = found.ValidateArgs(found.Flags().Args())
			}
			if err != nil {
				t.Errorf("%s: %v", example, err)
			}
		}
	}
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"", exitOK, ""},
		{"plam x", exitUsage, "did you mean plan?"},
		{"plan", exitUsage, "it takes 1: MODEL"},
		{"plan gpt2 --batch-size x", exitUsage, "see spillway plan --help"},
		{"plan gpt2 --task fly", exitUsage, "infer, generate, train, lora, qlora"},
		{"plan gpt2 --machine toaster", exitUsage, "unknown machine part"},
		{"plan gpt2 --machine cpu:1GiB --device gpu7", exitUsage, "it has cpu0"},
		{"plan nothing-9b --machine cpu:1GiB", exitFailed, "known are"},
		{"plan gpt2 --batch 4", exitUsage, "did you mean --batch-size?"},
		{"plan gpt2 --batch_size 4", exitUsage, "did you mean --batch-size?"},
		{"train gpt2 --load-in-4bit", exitUsage, "did you mean --method qlora?"},
		{"train gpt2 --learning-rat 4", exitUsage, "did you mean --learning-rate?"},
		{"train --model gpt2", exitUsage, "the model is the first argument"},
		{"finetune gpt2", exitUsage, "did you mean train?"},
		{"plan meta-llama/Llama-3-8B --machine rtx4090", exitFailed, "did you mean llama-3-8b?"},
		{"plan gpt2 --machine rtx4091", exitUsage, "did you mean rtx4090?"},
		{"plan gpt2 --machine m3max", exitUsage, "a GPU of Apple"},
		{"plan gpt2 --machine mi300x", exitUsage, "a GPU of AMD"},
		{"plan gpt2 --machine a100", exitOK, ""},
		{"plan gpt2 --machine 2xV100,host:64GiB", exitUsage, "Volta"},
		{"plan gpt2 --machine RTX-3060 --method lora", exitOK, ""},
		{"--version", exitOK, ""},
		{"help plan", exitOK, ""},
		{"completion bash", exitOK, ""},
		{"version now", exitUsage, "takes no arguments"},
	} {
		r := command(t, strings.Fields(c.args)...)
		if r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("%q: exit code %d, %q; want %d and %q", c.args, r.code, r.err, c.code, c.says)
		}
	}
}

// The shell completes models, machines and the words that settings take.
func TestCompletion(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"plan llama-3-", "llama-3-8b"}, {"train tiny", "tiny-llama"}, {"estimate gpt", "gpt2"}, {"init gpt", "gpt2"}, {"plan gpt2 --machine rtx", "rtx4090"},
		{"train gpt2 --method q", "qlora"}, {"plan gpt2 --task l", "lora"}, {"train gpt2 --precision b", "bf16"}, {"train gpt2 --optimizer ada", "adamw"},
		{"train gpt2 --lr-scheduler c", "cosine"}, {"train gpt2 --quantization n", "nf4"}, {"quantize a b --format f", "fp8"}, {"train gpt2 --packing w", "whole"},
	} {
		r := command(t, append([]string{"__complete"}, strings.Fields(c.args)...)...)
		if !slices.Contains(strings.Split(r.out, "\n"), c.want) {
			t.Errorf("%s: %q is not among %q", c.args, c.want, r.out)
		}
	}
}
