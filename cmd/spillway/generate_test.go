package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/eventlog"
	"spillway/gguf"
	"spillway/inference"
	"spillway/internal/reference"
	"spillway/internal/vfs"
	"spillway/shape"
	"spillway/tensorfile"
)

// commandWith runs a command line with something on standard input.
func commandWith(t *testing.T, input string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(context.Background(), args, shell{in: strings.NewReader(input), out: &out, err: &errs, cache: cache})
	return result{code, out.String(), errs.String()}
}

// objects are the JSON objects, a line each, of a command that must succeed.
func objects[T any](t *testing.T, r result) (list []T) {
	t.Helper()
	if r.code != exitOK {
		t.Fatalf("%+v", r)
	}
	for line := range strings.Lines(r.out) {
		var v T
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		list = append(list, v)
	}
	return list
}

// generatedObject is the JSON object of a command that must succeed.
func generatedObject(t *testing.T, args ...string) (v generated) {
	t.Helper()
	r := command(t, append(args, "--json")...)
	if r.code != exitOK {
		t.Fatalf("spillway %s: %s", strings.Join(args, " "), r.err)
	}
	if err := json.Unmarshal([]byte(r.out), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// The command continues the known story as transformers does, token for token.
func TestGenerateContinuesTheStory(t *testing.T) {
	dir := reference.Asset(t, "stories260k")
	raw, err := os.ReadFile(filepath.Join(dir, "reference.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Prompt []int32 `json:"prompt_ids"`
		Greedy []int32 `json:"greedy_ids"`
	}
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	new := want.Greedy[len(want.Prompt):]
	args := []string{"generate", dir, "--tokenizer", filepath.Join(dir, "tok512.bin"), "--tokens", strings.Trim(strings.ReplaceAll(fmt.Sprint(want.Prompt), " ", ","), "[]"), "--max-new-tokens", fmt.Sprint(len(new)), "--temperature", "0", "--ignore-eos"}
	v := generatedObject(t, args...)
	if !slices.Equal(v.Tokens, new) {
		t.Errorf("the tokens are\n%v, want\n%v", v.Tokens, new)
	}
	if v.Predicted != v.Measured || v.Predicted == 0 || v.PrefillRate <= 0 || v.DecodeRate <= 0 || v.NewTokens != len(new) || v.End != "length" {
		t.Errorf("%+v", v)
	}
	// As text it is the same, and nothing else is on standard output.
	if r := command(t, args...); r.out != v.Text+"\n" || !strings.Contains(r.err, "tokens/s") {
		t.Errorf("the text is %q, in JSON %q; %s", r.out, v.Text, r.err)
	}
	if again := generatedObject(t, append(args, "--no-cache")...); !slices.Equal(again.Tokens, new) {
		t.Errorf("without a cache the tokens are %v", again.Tokens)
	}
}

// A prompt may come from a flag, a file, standard input or as tokens.
func TestGenerateReadsPrompts(t *testing.T) {
	sandbox(t)
	want := generatedObject(t, "generate", "./model", "--prompt", "to be or not", "--max-new-tokens", "9")
	if len(want.Tokens) != 9 || want.PromptTokens != 12 {
		t.Errorf("%+v", want)
	}
	if got := generatedObject(t, "generate", "./model", "--file", "prompt.txt", "--max-new-tokens", "9"); !slices.Equal(got.Tokens, want.Tokens) {
		t.Errorf("from a file %v, want %v", got.Tokens, want.Tokens)
	}
	if got := generatedObject(t, "generate", "./model", "--tokens", "116,111,32,98,101,32,111,114,32,110,111,116", "--max-new-tokens", "9"); !slices.Equal(got.Tokens, want.Tokens) {
		t.Errorf("as tokens %v, want %v", got.Tokens, want.Tokens)
	}
	if r := commandWith(t, "to be or not\n", "generate", "./model", "--file", "-", "--max-new-tokens", "9", "--quiet"); r.code != exitOK || strings.TrimSuffix(r.out, "\n") != strings.TrimSuffix(want.Text, "\n") || r.err != "" {
		t.Errorf("from standard input %+v, want %q", r, want.Text)
	}
	// In chunks, which give the same text in less memory.
	if got := generatedObject(t, "generate", "./model", "--prompt", "to be or not", "--max-new-tokens", "9", "--chunk", "2"); !slices.Equal(got.Tokens, want.Tokens) || got.Predicted >= want.Predicted {
		t.Errorf("in chunks of 2: %v in %d bytes, want %v in less than %d", got.Tokens, got.Predicted, want.Tokens, want.Predicted)
	}
	// The whole context, where no limit is given.
	if got := generatedObject(t, "generate", "./model", "--prompt", "to be or not"); len(got.Tokens) != 64-12 {
		t.Errorf("%d tokens of a context of 64", len(got.Tokens))
	}
}

// Samples repeat with their seed, several differ, and each is what its number gives alone.
func TestGenerateSamples(t *testing.T) {
	sandbox(t)
	args := []string{"generate", "./model", "--prompt", "to be", "--max-new-tokens", "12", "--temperature", "1.5", "--top-k", "50", "--seed", "4"}
	one, two := generatedObject(t, args...), generatedObject(t, append(args, "--num-samples", "2", "--out", "recorded")...)
	// The event log has all tokens, the first of each text too, though one prompt gave them.
	if s, err := eventlog.Summarize(eventlog.PathOf("recorded")); err != nil || s.Generated == nil || s.Generated.TotalNew != int64(len(two.Texts[0].Tokens)+len(two.Texts[1].Tokens)) {
		t.Errorf("the event log has %+v, %v", s.Generated, err)
	}
	if !slices.Equal(one.Tokens, two.Texts[0].Tokens) || slices.Equal(two.Texts[0].Tokens, two.Texts[1].Tokens) {
		t.Errorf("one %v, two %v", one.Tokens, two.Texts)
	}
	r := command(t, append(args, "--num-samples", "2", "--quiet")...)
	if want := "--- 1\n" + two.Texts[0].Text + "\n--- 2\n" + two.Texts[1].Text + "\n"; strings.ReplaceAll(r.out, "\n\n", "\n") != strings.ReplaceAll(want, "\n\n", "\n") {
		t.Errorf("the texts are %q, want %q", r.out, want)
	}
	if r := command(t, append(args, "--no-cache", "--json")...); r.code != exitOK || !slices.Equal(jsonTokens(t, r.out), one.Tokens) {
		t.Errorf("without a cache: %s", r.out)
	}
	beams := generatedObject(t, "generate", "./model", "--prompt", "to be", "--max-new-tokens", "5", "--num-beams", "3", "--num-samples", "3", "--logprobs", "2")
	if len(beams.Texts) != 3 || *beams.Texts[0].Score < *beams.Texts[1].Score || len(beams.Texts[0].Logprobs) != 5 || len(beams.Logprobs[0].Top) != 2 {
		t.Errorf("%+v", beams.Texts)
	}
}

func jsonTokens(t *testing.T, text string) []int32 {
	t.Helper()
	var v generated
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v.Tokens
}

// MODEL may be a run's folder, one of its checkpoints, or an adapter, whose base is found.
func TestGenerateFindsModels(t *testing.T) {
	sandbox(t)
	works(t, "train", "./model", "--data", "book.txt", "--max-steps", "2", "--save-steps", "1", "--learning-rate", "0.05", "--seq-len", "32", "--out", "full-run")
	works(t, "train", "./model", "--method", "lora", "--data", "book.txt", "--max-steps", "3", "--learning-rate", "0.3", "--seq-len", "32", "--out", "lora-run")
	works(t, "export", "lora-run", "adapter")
	works(t, "merge", "./model", "adapter", "merged")
	text := func(args ...string) []int32 {
		t.Helper()
		return generatedObject(t, append([]string{"generate"}, append(args, "--prompt", "to be", "--max-new-tokens", "20")...)...).Tokens
	}
	base, full, merged := text("./model"), text("full-run/step-00000002"), text("merged")
	if slices.Equal(base, full) || slices.Equal(base, merged) {
		t.Fatal("training changed nothing")
	}
	r := command(t, "generate", "full-run", "--prompt", "to be", "--max-new-tokens", "20", "--json")
	if !slices.Equal(jsonTokens(t, r.out), full) || !strings.Contains(r.err, "step-00000002") {
		t.Errorf("a run gives %s; it says %q", r.out, r.err)
	}
	for name, args := range map[string][]string{"an adapter's folder": {"adapter"}, "a run of an adapter": {"lora-run"}, "an adapter by its flag": {"./model", "--adapter", "adapter"}, "halves": {"./model", "--adapter", "adapter=0.5", "--adapter", "lora-run=0.5"}} {
		if got := text(args...); !slices.Equal(got, merged) {
			t.Errorf("%s gives %v, the merged model %v", name, got, merged)
		}
	}
	if err := os.Rename("model", "elsewhere"); err != nil {
		t.Fatal(err)
	}
	if r := command(t, "generate", "adapter", "--prompt", "x"); r.code != exitFailed || !strings.Contains(r.err, "--adapter") {
		t.Errorf("an adapter whose base is gone: %+v", r)
	}
}

// A run that was trained with a tokenizer of its own is used with it; a recipe that lies next to a
// model is nobody's.
func TestGenerateUsesTheRunsTokenizer(t *testing.T) {
	model := initialized(t) // has more than 256 tokens, and no tokenizer
	t.Chdir(t.TempDir())
	works(t, "train", model, "--data", prose(t), "--tokenizer", "bytes", "--max-steps", "1", "--seq-len", "16", "--out", "run")
	want := generatedObject(t, "generate", "run", "--tokenizer", "bytes", "--prompt", "to be", "--max-new-tokens", "8").Tokens
	for _, name := range []string{"run", "run/step-00000001"} {
		r := command(t, "generate", name, "--prompt", "to be", "--max-new-tokens", "8", "--json")
		if r.code != exitOK || !slices.Equal(jsonTokens(t, r.out), want) || !strings.Contains(r.err, "--tokenizer bytes") {
			t.Errorf("%s: %+v, want %v", name, r, want)
		}
	}
	works(t, "export", "run", "exported")
	recipe, err := os.ReadFile("run/recipe.yaml")
	if err == nil {
		err = os.WriteFile("recipe.yaml", recipe, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if r := command(t, "generate", "exported", "--prompt", "to be"); r.code != exitFailed || !strings.Contains(r.err, "no tokenizer.json") {
		t.Errorf("a folder next to a recipe: %+v", r)
	}
}

// The makers' generation_config.json counts where no flag says otherwise.
func TestGenerationConfigCounts(t *testing.T) {
	sandbox(t)
	greedy := generatedObject(t, "generate", "./model", "--prompt", "to be", "--max-new-tokens", "30")
	if err := os.WriteFile("model/generation_config.json", []byte(fmt.Sprintf(`{"do_sample": true, "temperature": 2.0, "top_k": 50, "eos_token_id": [%d]}`, greedy.Tokens[5])), 0o644); err != nil {
		t.Fatal(err)
	}
	sampled := generatedObject(t, "generate", "./model", "--prompt", "to be", "--max-new-tokens", "30", "--ignore-eos")
	if slices.Equal(sampled.Tokens, greedy.Tokens) {
		t.Error("nothing was sampled")
	}
	stopped := generatedObject(t, "generate", "./model", "--prompt", "to be", "--max-new-tokens", "30", "--temperature", "0")
	at := slices.Index(greedy.Tokens, greedy.Tokens[5])
	if !slices.Equal(stopped.Tokens, greedy.Tokens[:at]) || stopped.End != "stop" {
		t.Errorf("the text %v did not end at token %d: %v", greedy.Tokens, greedy.Tokens[5], stopped.Tokens)
	}
}

// What cannot work is refused with what to do.
func TestGenerateRefuses(t *testing.T) {
	sandbox(t)
	works(t, "init", "my-config.json", "--out", "other")
	if err := os.WriteFile("other/tokenizer.json", []byte(`{"model":{"type":"BPE","vocab":{`+vocabOf(300)+`},"merges":[]}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	large := strings.Replace(readFile(t, "my-config.json"), `"vocab_size":256`, `"vocab_size":300`, 1)
	if err := os.WriteFile("large.json", []byte(large), 0o644); err != nil {
		t.Fatal(err)
	}
	works(t, "init", "large.json", "--out", "large")
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"./model", exitUsage, "give one of --prompt"},
		{"./model --prompt a --file b", exitUsage, "give one of --prompt"},
		{"./model --prompt a --max-new-tokens 64", exitFailed, "a context of 65 tokens is wanted, model was made for 64"},
		{"./model --prompt a --max-new-tokens 20 --context 10", exitUsage, "1 tokens and 20 more are wanted, together 21; the context is 10: give --context 21"},
		{"./model --file book.txt --max-new-tokens 1", exitFailed, "made for 64"},
		{"./model --prompt=", exitOK, ""}, // from the token that begins a text
		{"./model --prompt a --top-k 5 --temperature 0", exitUsage, "--top-k has no effect"},
		{"./model --prompt a --seed 5 --temperature 0", exitUsage, "--seed has no effect"},
		{"./model --prompt a --num-beams 2 --temperature 1", exitUsage, "--temperature has no effect"},
		{"./model --prompt a --top-p 0", exitUsage, "above 0"},
		{"./model --prompt a --top-p 1.5", exitUsage, "top-p 1.5"},
		{"./model --prompt a --top-k 0", exitUsage, "--top-k 0"},
		{"./model --prompt a --temperature -1", exitUsage, "temperature -1"},
		{"./model --prompt a --repetition-penalty 0", exitUsage, "above 0"},
		{"./model --prompt a --num-samples 2", exitUsage, "the same text"},
		{"./model --prompt a --logprobs 2", exitUsage, "--json"},
		{"./model --prompt a --logit-bias 5", exitUsage, "TOKEN=X"},
		{"./model --prompt a --logit-bias 999=1", exitUsage, "256 tokens"},
		{"./model --prompt a --logit-bias ab=1", exitUsage, "is 2 tokens"},
		{"./model --prompt a --stop=", exitUsage, "empty"},
		{"./model --prompt a --system b", exitUsage, "without --chat"},
		{"./model --tokens 5,300", exitUsage, "from 0 to 255"},
		{"./model --tokens 5 --tokenizer nowhere.json", exitFailed, "nowhere.json"},
		{"./other --tokens 5 --max-new-tokens 2", exitOK, "texts are written as ids: the tokenizer has 300 tokens"},
		{"./model --prompt a --dtype int3", exitUsage, "f32, bf16 or f16"},
		{"./model --prompt a --cache-type int3", exitUsage, "int8"},
		{"./model --prompt a --max-memory 10KiB", exitFailed, "10.0 KiB"},
		{"./model --prompt a --device toaster", exitFailed, "toaster"},
		{"tiny-llama --prompt a", exitFailed, "answers would be random"},
		{"./nowhere --prompt a", exitFailed, "nowhere"},
		{"./other --prompt a", exitFailed, "the tokenizer has 300 tokens, other only 256"},
		{"./large --prompt a", exitFailed, "--tokenizer"},
		{"./large --chat --prompt a", exitFailed, "chat template"},
		{"./model --prompt a --adapter ./nowhere", exitFailed, "opening the adapter"},
		{"../../testdata --prompt a", exitFailed, ""},
	} {
		r := command(t, append([]string{"generate"}, strings.Fields(c.args)...)...)
		if r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("generate %s: exit code %d, %q; want %d and %q", c.args, r.code, r.err, c.code, c.says)
		}
	}
	if r := command(t, "generate", "./large", "--tokens", "1,299", "--max-new-tokens", "3", "--json"); r.code != exitOK || len(jsonTokens(t, r.out)) != 3 {
		t.Errorf("tokens need no tokenizer: %+v", r)
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// vocabOf is a vocabulary of so many made-up tokens.
func vocabOf(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`"t%d":%d`, i, i))
	}
	return strings.Join(list, ",")
}

// A prompt as long as the model was made for leaves no room, and a longer context, which would be refused, is not what the error names.
func TestPromptsAsLongAsTheContext(t *testing.T) {
	sandbox(t)
	const made = 64
	for n, fits := range map[int]bool{made - 1: true, made: false} {
		ids := strings.TrimSuffix(strings.Repeat("5,", n), ",")
		for _, more := range []string{"0", "1"} {
			r := commandWith(t, "", "generate", "./model", "--tokens", ids, "--max-new-tokens", more, "--json")
			if (r.code == exitOK) != fits || strings.Contains(r.err, "--context "+strconv.Itoa(n+1)) {
				t.Errorf("a prompt of %d tokens and %s more: %+v", n, more, r)
			}
		}
	}
	if r := commandWith(t, "", "generate", "./model", "--tokens", "5,5,5,5", "--max-new-tokens", "8", "--context", "8"); !strings.Contains(r.err, "give --context 12") {
		t.Errorf("a context that may be longer: %+v", r)
	}
}

// What is wrong with a GGUF file is said of the file, not of the folder in the cache that its small files are in.
func TestErrorsNameTheGGUFFile(t *testing.T) {
	sandbox(t)
	m := gguf.Metadata{
		"general.architecture": "llama", "llama.attention.head_count": int64(2), "llama.embedding_length": int64(8), "llama.feed_forward_length": int64(8),
		"llama.block_count": int64(1), "llama.context_length": int64(64), "llama.attention.layer_norm_rms_epsilon": 1e-5,
	}
	embedding := tensorfile.Output{Name: "token_embd.weight", Type: dtype.F32, Shape: shape.Of(4, 8), Write: func(w io.Writer) error { _, err := w.Write(make([]byte, 4*4*8)); return err }}
	if err := gguf.Write(vfs.OS, "half.gguf", m, []tensorfile.Output{embedding}); err != nil {
		t.Fatal(err)
	}
	if r := commandWith(t, "", "generate", "half.gguf", "--tokens", "1"); r.code != exitFailed || !strings.Contains(r.err, "opening half.gguf: the folder lacks") {
		t.Errorf("%+v", r)
	}
}

// Models that do not generate are refused by name.
func TestEncodersAreRefused(t *testing.T) {
	for _, args := range [][]string{{"generate", "--prompt", "a"}, {"generate", "--tokens", "1"}, {"chat"}, {"eval", "--data", "generate_test.go"}} {
		r := command(t, append(args, "../../testdata/reference/encoder-pre-gelu")...)
		if r.code == exitOK || !strings.Contains(r.err, "encoder") {
			t.Errorf("%v: %+v", args, r)
		}
	}
}

// Ctrl-C ends a text: what was written stays, the exit code is that of the signal, and it is
// the same before the first token.
func TestGenerateIsInterrupted(t *testing.T) {
	sandbox(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r := commandIn(ctx, t, "generate", "./model", "--prompt", "a"); r.code != 130 || r.out != "" {
		t.Errorf("interrupted before it begins: %+v", r)
	}
	ctx, cancel = context.WithCancel(context.Background())
	defer cancel()
	out := &cancelling{after: 1, cancel: cancel}
	code := run(ctx, []string{"generate", "./model", "--prompt", "a", "--max-new-tokens", "60", "--logit-bias", "97=100"}, shell{in: strings.NewReader(""), out: out, err: &bytes.Buffer{}, cache: cache})
	if code != 130 || out.bytes.Len() < 1 || out.bytes.Len() > 30 {
		t.Errorf("exit code %d after %d bytes", code, out.bytes.Len())
	}
}

// cancelling is an output that sends Ctrl-C after some writes.
type cancelling struct {
	bytes  bytes.Buffer
	after  int
	cancel func()
}

func (c *cancelling) Write(p []byte) (int, error) {
	if c.after--; c.after == 0 {
		c.cancel()
	}
	return c.bytes.Write(p)
}

// A conversation on a pipe: each line is a turn, commands work, and only new tokens are
// computed.
func TestChatOnAPipe(t *testing.T) {
	sandbox(t)
	type reply struct {
		Text   string `json:"text"`
		Prompt int    `json:"prompt_tokens"`
		Reused int    `json:"reused_tokens"`
		New    int    `json:"new_tokens"`
	}
	talk := func(input string, args ...string) []reply {
		t.Helper()
		return objects[reply](t, commandWith(t, input, append([]string{"chat", "./model", "--json"}, args...)...))
	}
	two := talk("hi\nwhy\n", "--max-new-tokens", "4")
	if len(two) != 2 || two[0].New != 4 || two[1].Prompt <= two[0].Prompt || two[1].Reused < two[0].Prompt-1 {
		t.Errorf("two turns: %+v", two)
	}
	// The second turn alone, from a file, is the same answer.
	if r := commandWith(t, "hi\n/save talk.json\n", "chat", "./model", "--max-new-tokens", "4"); r.code != exitOK {
		t.Fatal(r.err)
	}
	if again := talk("why\n", "--max-new-tokens", "4", "--load", "talk.json"); len(again) != 1 || again[0].Text != two[1].Text || again[0].Prompt != two[1].Prompt {
		t.Errorf("a conversation that was saved goes on with %+v, want %+v", again, two[1])
	}
	// Data with more than one conversation are not replaced by one.
	data := strings.Repeat(`{"messages": [{"role": "user", "content": "a"}]}`+"\n", 2)
	if err := os.WriteFile("data.jsonl", []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := commandWith(t, "hi\n/save data.jsonl\n", "chat", "./model", "--max-new-tokens", "1"); r.code != exitFailed || !strings.Contains(r.err, "give another name") {
		t.Errorf("saving over data: %+v", r)
	}
	if raw, err := os.ReadFile("data.jsonl"); err != nil || string(raw) != data {
		t.Errorf("the data are now %q (%v)", raw, err)
	}
	if got := talk("hi\n/clear\nhi\n", "--max-new-tokens", "4"); got[0].Text != got[1].Text || got[1].Prompt != got[0].Prompt {
		t.Errorf("after /clear: %+v", got)
	}
	if got := talk("hi\n/retry\n/set temperature 2\n/retry\n", "--max-new-tokens", "8"); len(got) != 3 || got[0].Text != got[1].Text || got[1].Text == got[2].Text {
		t.Errorf("after /retry: %+v", got)
	}
	if got := talk("one\\\ntwo\n\"\"\"\none\ntwo\n\"\"\"\n/clear\none\n/exit\nnever\n", "--max-new-tokens", "2"); len(got) != 3 || got[0].Prompt-got[2].Prompt != len("\ntwo") {
		t.Errorf("several lines: %+v", got)
	}
	// A text that is no line alone is sent, also where it begins as a command does.
	if got := talk("\"\"\"\n/exit is\nsaid\n\"\"\"\n/clear\n/exit\\\nis said\n/clear\n\"\"\"\n.exit is\nsaid\n\"\"\"\n", "--max-new-tokens", "2"); len(got) != 3 || got[0].Prompt != got[2].Prompt || got[1].Prompt != got[0].Prompt {
		t.Errorf("texts that begin with a slash: %+v", got)
	}
	if got := talk("/system be kind\nhi\n", "--max-new-tokens", "2"); got[0].Prompt <= two[0].Prompt {
		t.Errorf("a system message: %+v", got)
	}
	if r := commandWith(t, strings.Repeat("a long line ", 8)+"\n", "chat", "./model"); r.code != exitFailed || !strings.Contains(r.err, "tokens, the context is 64") {
		t.Errorf("a conversation that is too long: %+v", r)
	}
	if r := commandWith(t, "/fly\n", "chat", "./model"); r.code != exitFailed || !strings.Contains(r.err, "/help") {
		t.Errorf("an unknown command: %+v", r)
	}
	if r := commandWith(t, "", "chat", "./model"); r.code != exitOK || r.out != "" {
		t.Errorf("no input: %+v", r)
	}
	if err := os.Remove("model/chat_template.jinja"); err != nil {
		t.Fatal(err)
	}
	if r := commandWith(t, "hi\n", "chat", "./model"); r.code != exitFailed || !strings.Contains(r.err, "--chat-template") {
		t.Errorf("without a template: %+v", r)
	}
}

// The loss of eval is that of training's evaluation, to the last bit.
func TestEvalIsTheTrainersLoss(t *testing.T) {
	sandbox(t)
	for _, c := range []struct{ data, size, method string }{{"more.txt", "1", "full"}, {"chats.jsonl", "2", "full"}, {"chats.jsonl", "3", "lora"}} {
		out := "run-" + c.size
		r := command(t, "train", "./model", "--method", c.method, "--data", "book.txt", "--eval-data", c.data, "--eval-batches", "0", "--max-steps", "2", "--learning-rate", "0.01", "--seq-len", "32", "--micro-batch-size", c.size, "--out", out, "--json")
		if r.code != exitOK {
			t.Fatal(r.err)
		}
		want := at(t, r.object(t), "eval_loss").(float64)
		e := command(t, "eval", out, "--data", c.data, "--seq-len", "32", "--micro-batch-size", c.size, "--json")
		if e.code != exitOK {
			t.Fatal(e.err)
		}
		got := e.object(t)
		if loss := at(t, got, "loss").(float64); loss != want || at(t, got, "perplexity").(float64) != math.Exp(loss) {
			t.Errorf("%v: the loss is %v, training says %v", c, loss, want)
		}
	}
}

// Choices are judged by the log-probabilities that generate gives their tokens.
func TestEvalQuestionsIsAPlainComputation(t *testing.T) {
	sandbox(t)
	works(t, "train", "./model", "--data", "book.txt", "--max-steps", "3", "--learning-rate", "0.02", "--seq-len", "32", "--out", "full-run")
	var file strings.Builder
	right, normalized := 0, 0
	for i, choices := range [][]string{{"it is 4", "five"}, {"no", "it is 9, yes"}, {"aaaa", "it is 1"}} {
		question := fmt.Sprintf("how much is %d?", i)
		var sums []float64
		for _, choice := range choices {
			v := generatedObject(t, "generate", "full-run", "--prompt", question+" "+choice, "--prompt-logprobs", "--max-new-tokens", "1")
			sum := 0.0
			for _, token := range v.Prompt[len(question):] {
				sum += *token.Logprob
			}
			sums = append(sums, sum)
		}
		if sums[0] > sums[1] {
			right++
		}
		if sums[0]/float64(len(choices[0])) > sums[1]/float64(len(choices[1])) {
			normalized++
		}
		answer := []string{"0", `"A"`, fmt.Sprintf("%q", choices[0])}[i]
		raw, err := json.Marshal(choices)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&file, `{"question": %q, "choices": %s, "answer": %s}`+"\n", question, raw, answer)
	}
	if err := os.WriteFile("q.jsonl", []byte(file.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	v := command(t, "eval", "full-run", "--questions", "q.jsonl", "--json").object(t)
	if a, n := at(t, v, "accuracy").(float64), at(t, v, "accuracy_normalized").(float64); math.Abs(a-float64(right)/3) > 1e-9 || math.Abs(n-float64(normalized)/3) > 1e-9 {
		t.Errorf("the accuracies are %v and %v, want %d/3 and %d/3", a, n, right, normalized)
	}
	// With a cache, and many questions at once, choices are as likely as each computed by itself.
	rated := map[bool][][]float64{}
	for _, plain := range []bool{false, true} {
		m, err := inference.Open(inference.Settings{Model: "full-run", Device: "cpu", NoCache: plain})
		if err != nil {
			t.Fatal(err)
		}
		list, err := inference.ReadQuestions(strings.NewReader(strings.Repeat(file.String(), 7) + `{"question": "x", "choices": ["y", "z", "zz", "zzz", "a b"], "answer": 3}`))
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.Choose(t.Context(), list)
		if err := errors.Join(err, m.Close()); err != nil {
			t.Fatal(err)
		}
		rated[plain] = got.Likelihoods
	}
	for i, list := range rated[false] {
		for k, sum := range list {
			if want := rated[true][i][k]; math.Abs(sum-want) > 1e-4*math.Abs(want) {
				t.Errorf("question %d, choice %d: %v with a cache, %v without", i, k, sum, want)
			}
			if i >= 3 && i < 21 && sum != rated[false][i%3][k] {
				t.Errorf("question %d, choice %d: %v, the same question before had %v", i, k, sum, rated[false][i%3][k])
			}
		}
	}
	if len(rated[false]) != 22 {
		t.Errorf("%d questions", len(rated[false]))
	}
	for _, args := range [][]string{{"--exact"}, {"--no-cache"}, {"--cache-type", "f32"}} {
		if again := command(t, append([]string{"eval", "full-run", "--questions", "q.jsonl", "--json"}, args...)...).object(t); at(t, again, "accuracy") != at(t, v, "accuracy") {
			t.Errorf("%v: %v", args, again)
		}
	}
	for line, says := range map[string]string{`{"question": "a"}`: "at least two choices", `{"question": "a", "choices": ["b", "c"], "answer": 2}`: "none of the 2 choices", `x`: "line 1", ``: "no questions", `{"question": "a", "choices": ["b", "c"]}`: "missing"} {
		if r := commandWith(t, line, "eval", "full-run", "--questions", "-"); r.code != exitFailed || !strings.Contains(r.err, says) {
			t.Errorf("%s: %+v", line, r)
		}
	}
}

// Data that cannot be evaluated on is refused with what to do.
func TestEvalRefuses(t *testing.T) {
	sandbox(t)
	for args, says := range map[string]string{
		"./model": "give --data FILE", "./model --data book.txt --questions q": "give --data FILE", "./model --questions q --seq-len 4": "--seq-len has no effect",
		"./model --data book.txt --exact": "--exact has no effect on --data",
		"./model --data nothing.txt":      "nothing.txt", "./model --questions nothing": "nothing", "tiny-llama --data book.txt": "random",
	} {
		if r := command(t, append([]string{"eval"}, strings.Fields(args)...)...); r.code == exitOK || !strings.Contains(r.err, says) {
			t.Errorf("eval %s: %+v", args, r)
		}
	}
}

// The first token does not wait for measurements: on a computer that nothing is known of, text
// and answers come without any, whether the model fits or streams.
func TestGenerateMeasuresNothing(t *testing.T) {
	sandbox(t)
	for _, args := range [][]string{
		{"generate", "./model", "--prompt", "to be", "--max-new-tokens", "5"},
		{"generate", "./model", "--prompt", "to be", "--max-new-tokens", "5", "--max-memory", "100KiB"},
		{"eval", "./model", "--questions", "questions.jsonl"},
		{"eval", "./model", "--data", "prompt.txt", "--seq-len", "8"},
	} {
		var out, errs bytes.Buffer
		empty := t.TempDir()
		if code := run(context.Background(), args, shell{out: &out, err: &errs, cache: empty}); code != exitOK {
			t.Errorf("spillway %s: %s", strings.Join(args, " "), errs.String())
		}
		files, err := filepath.Glob(filepath.Join(empty, "*"))
		if err != nil || len(files) > 0 || strings.Contains(errs.String(), "measuring") || strings.Contains(errs.String(), "loading") {
			t.Errorf("spillway %s has measured: %v, %v, %s", strings.Join(args, " "), files, err, errs.String())
		}
	}
}

// A file of prompts gives the text that each has alone, as lines, objects or conversations.
func TestGenerateFromManyPrompts(t *testing.T) {
	sandbox(t)
	lines := []string{"to be", "whether it is nobler", "the question", "or not"}
	var objects, chats, plain strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&plain, "%s\r\n\n", l)
		fmt.Fprintf(&objects, "{\"prompt\": %q}\n", l)
		fmt.Fprintf(&chats, "{\"messages\": [{\"role\": \"user\", \"content\": %q}]}\n", l)
	}
	for _, c := range []struct {
		name, file string
		flags      []string
	}{{"lines", plain.String(), nil}, {"objects", objects.String(), []string{"--streams", "2"}}, {"chats", chats.String(), []string{"--chat", "--streams", "1"}}, {"sampled", plain.String(), []string{"--temperature", "1", "--num-samples", "2", "--streams", "3"}}} {
		r := commandWith(t, c.file, append([]string{"generate", "./model", "--prompts", "-", "--max-new-tokens", "7", "--json"}, c.flags...)...)
		var v generated
		if err := json.Unmarshal([]byte(r.out), &v); err != nil {
			t.Fatalf("%s: %v, %s", c.name, err, r.err)
		}
		if v.Predicted != v.Measured || v.PromptTokens == 0 || v.NewTokens != 7*len(v.Texts) {
			t.Errorf("%s: %+v", c.name, v)
		}
		for i, one := range v.Texts {
			flags := append([]string{"generate", "./model", "--prompt", lines[*one.Prompt], "--max-new-tokens", "7"}, c.flags...)
			if at := slices.Index(flags, "--streams"); at > 0 {
				flags = slices.Delete(flags, at, at+2)
			}
			alone := generatedObject(t, flags...)
			want := alone.Tokens
			if len(alone.Texts) > 0 {
				want = alone.Texts[i%2].Tokens
			}
			if !slices.Equal(one.Tokens, want) {
				t.Errorf("%s: text %d is %v, alone %v", c.name, i, one.Tokens, want)
			}
		}
	}
	if r := commandWith(t, plain.String(), "generate", "./model", "--prompts", "-", "--max-new-tokens", "3", "--quiet"); strings.Count(r.out, "--- ") != 4 || r.err != "" {
		t.Errorf("as text: %q %q", r.out, r.err)
	}
	for _, c := range []struct{ file, flags, want string }{
		{"", "", "no prompts"}, {"{\"prompt\": 3}", "", "line 1"}, {"{}", "", "an object has a prompt"}, {"{\"prompt\": \"a\", \"max_new_tokens\": 3}", "", "line 1: max_new_tokens has no effect in a line: give --max-new-tokens"}, {"{\"messages\": []}", "", "with --chat messages"},
		{"to be", "--num-beams 2", "for one prompt"}, {"to be", "--streams 0", "at least 1"}, {"to be", "--num-samples 9 --temperature 1", "more --streams"}, {"to be", "--context 4", "--context"},
	} {
		if r := commandWith(t, c.file, append(strings.Fields("generate ./model --prompts -"), strings.Fields(c.flags)...)...); r.code == exitOK || !strings.Contains(r.err, c.want) {
			t.Errorf("%q %s: %q, want %q", c.file, c.flags, r.err, c.want)
		}
	}
}
