package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Within a memory limit the planner keeps the quantized weights of qlora on the device or
// streams them packed, and the plan says which and what it saves.
func TestPlanExplainsQuantizedWeights(t *testing.T) {
	for limit, want := range map[string]string{
		"gpu=8GiB":    "nf4 weights stay on the device: 3.11 GiB instead of 12.1 GiB in bf16",
		"gpu=1900MiB": "stream to the device packed: ",
	} {
		r := command(t, "plan", "llama-2-7b", "--task", "qlora", "--seq-len", "512", "--machine", "gpu:24GiB@25GB/s,host:64GiB", "--max-memory", limit)
		text := strings.Join(strings.Fields(r.out), " ")
		if !strings.Contains(text, "quantized "+want) && !(strings.Contains(text, "quantized nf4 weights of") && strings.Contains(text, want)) {
			t.Errorf("%s: want %q in\n%s", limit, want, r.out)
		}
	}
	if r := command(t, "plan", "llama-2-7b", "--task", "lora", "--seq-len", "512", "--machine", "gpu:24GiB,host:64GiB"); strings.Contains(r.out, "\nquantized ") {
		t.Errorf("of weights in bf16 it says\n%s", r.out)
	}
}

// Quantized folders give the log-probabilities that transformers computes from them with
// bitsandbytes and compressed-tensors, within 1e-5, and take the memory of their codes; see
// tools/reference/quantized_logits.py.
func TestQuantizedFoldersAreThoseOfTransformers(t *testing.T) {
	folder, err := filepath.Abs(filepath.Join("..", "..", "testdata", "reference", "llama"))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(folder, "quantized.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Tokens   []int                `json:"tokens"`
		Logprobs map[string][]float64 `json:"logprobs"`
	}
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	tokens := strings.Trim(strings.ReplaceAll(fmt.Sprint(want.Tokens), " ", ","), "[]")
	var plain int64
	for _, format := range []string{"plain", "nf4", "fp4", "fp8"} {
		model := folder
		if format != "plain" {
			model = format
			works(t, "quantize", folder, format, "--format", format)
		}
		v := generatedObject(t, "generate", model, "--device", "cpu", "--tokens", tokens, "--prompt-logprobs", "--max-new-tokens", "1")
		if len(v.Prompt) != len(want.Tokens) || len(want.Logprobs[format]) != len(want.Tokens)-1 {
			t.Fatalf("%s: %d tokens, want %d", format, len(v.Prompt), len(want.Tokens))
		}
		for i, token := range v.Prompt[1:] {
			if p := want.Logprobs[format][i]; math.Abs(*token.Logprob-p) > 1e-5 {
				t.Errorf("%s: token %d has the log-probability %v, transformers says %v", format, i+1, *token.Logprob, p)
			}
		}
		if v.Predicted != v.Measured || format != "plain" && v.Measured > plain*3/4 {
			t.Errorf("%s: %d bytes predicted, %d measured, of plain weights %d", format, v.Predicted, v.Measured, plain)
		}
		plain = max(plain, v.Measured)
	}
}

// Evaluating a quantized folder takes the memory of its codes, and gives the loss of its
// decoded weights.
func TestQuantizedFoldersAreEvaluatedPacked(t *testing.T) {
	t.Chdir(t.TempDir())
	const folder = "model"
	works(t, "init", "tiny-llama", "--out", folder)
	var tokens strings.Builder
	for i := range 400 {
		fmt.Fprintln(&tokens, i*i%997)
	}
	if err := os.WriteFile("text.txt", []byte(tokens.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	works(t, "quantize", folder, "nf4")
	works(t, "export", "nf4", "decoded", "--dtype", "f32")
	works(t, "quantize", folder, "int8", "--format", "int8")
	evaluate := func(args ...string) (v struct {
		Loss      float64 `json:"loss"`
		Predicted int64   `json:"predicted_peak_bytes"`
		Measured  int64   `json:"measured_peak_bytes"`
	}) {
		t.Helper()
		r := command(t, append([]string{"eval", "--data", "text.txt", "--device", "cpu", "--dtype", "f32", "--json"}, args...)...)
		if r.code != exitOK {
			t.Fatalf("eval %v: %s", args, r.err)
		}
		if err := json.Unmarshal([]byte(r.out), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	packed, decoded := evaluate("nf4"), evaluate("decoded")
	if math.Abs(packed.Loss-decoded.Loss) > 1e-6 || packed.Measured >= decoded.Measured || packed.Measured != packed.Predicted {
		t.Errorf("packed: loss %v in %d bytes, %d predicted; decoded: loss %v in %d bytes", packed.Loss, packed.Measured, packed.Predicted, decoded.Loss, decoded.Measured)
	}
	if whole, rounded := evaluate("int8"), evaluate("int8", "--llm-int8-threshold", "6"); whole.Loss == rounded.Loss || math.Abs(whole.Loss-rounded.Loss) > 0.05 {
		t.Errorf("loss %v, and %v with inputs rounded as LLM.int8 does", whole.Loss, rounded.Loss)
	}
	for _, args := range [][]string{{"nf4", "--llm-int8-threshold", "6"}, {folder, "--llm-int8-threshold", "6"}} {
		if r := command(t, append([]string{"eval", "--data", "text.txt", "--device", "cpu"}, args...)...); r.code == 0 || !strings.Contains(r.err, "no weights in int8") {
			t.Errorf("%v: exit %d, %s", args, r.code, r.err)
		}
	}
}

// A run of QLoRA is used with the weights it was trained next to: its loss is that of its adapter on a base which was quantized before, and the
// base as it is stored gives another.
func TestQLoRARunsAreUsedAsTrained(t *testing.T) {
	dir := t.TempDir()
	base, text, run, packed := initialized(t), filepath.Join(dir, "text.txt"), filepath.Join(dir, "run"), filepath.Join(dir, "packed")
	if err := os.WriteFile(text, []byte(strings.Repeat("\x01\x02\x03\x05\x08\x0d", 100)), 0o644); err != nil {
		t.Fatal(err)
	}
	works(t, "train", base, "--data", text, "--tokenizer", "bytes", "--method", "qlora", "--quantization", "fp4", "--lora-rank", "4", "--seq-len", "32", "--max-steps", "2", "--out", run)
	works(t, "quantize", base, packed, "--format", "fp4")
	lossOf := func(args ...string) (float64, string) {
		t.Helper()
		e := command(t, append([]string{"eval"}, append(args, "--data", text, "--seq-len", "32", "--tokenizer", "bytes", "--dtype", "f32", "--json")...)...)
		if e.code != exitOK {
			t.Fatal(e.err)
		}
		return at(t, e.object(t), "loss").(float64), e.err
	}
	own, said := lossOf(run)
	trained, _ := lossOf(packed, "--adapter", run)
	if math.Abs(own-trained) > 1e-6 || !strings.Contains(said, "trained next to weights in fp4: they are held so here too") {
		t.Errorf("the loss is %v, next to a base that was quantized before %v; said %q", own, trained, said)
	}
	if plain, said := lossOf(base, "--adapter", run); math.Abs(plain-trained) < 1e-5 || strings.Contains(said, "held so") {
		t.Errorf("the loss is %v next to the weights as they are stored, %v next to quantized ones; said %q", plain, trained, said)
	}
	if g := command(t, "generate", run, "--tokens", "1,2,3", "--max-new-tokens", "2"); g.code != exitOK || !strings.Contains(g.err, "held so here too") {
		t.Errorf("exit %d: %s", g.code, g.err)
	}
}
