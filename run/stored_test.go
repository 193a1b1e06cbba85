package run_test

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway"
	"spillway/convert"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/dtype"
	"spillway/executor"
	"spillway/hf"
	"spillway/lora"
	"spillway/machine"
	"spillway/quant"
	"spillway/run"
)

// quantizedLlama is a tiny Llama, quantized.
func quantizedLlama(t *testing.T, o convert.Options) *spillway.Model {
	t.Helper()
	from, err := hf.Open("../testdata/reference/llama")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	dir := filepath.Join(t.TempDir(), "quantized")
	if _, err := convert.Folder(t.Context(), from, dir, o); err != nil {
		t.Fatal(err)
	}
	return open(t, dir)
}

// What is saved of a quantized model after training all of it is plain, and so is its
// config: with the old quantization_config transformers would take the weights for codes.
func TestPlainWeightsHaveAPlainConfig(t *testing.T) {
	for _, kind := range []dtype.Type{quant.NF4, quant.RowI8, quant.RowF8} {
		files, err := quantizedLlama(t, convert.Options{Linear: kind}).Files(dtype.BF16)
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := files.Config.Value("quantization_config"); ok || files.Config.Type != dtype.BF16 {
			t.Errorf("%v: the config of plain weights is %v with %s", kind, files.Config.Type, text)
		}
	}
}

// QLoRA holds the weights of a quantized folder as the folder has them: modules that it left
// plain are not quantized, and codes are never encoded again.
func TestQLoRAHoldsWhatTheFolderHas(t *testing.T) {
	options := spillway.Options{Task: spillway.QLoRA, Precision: dtype.BF16}
	options.Adapters.Rank, options.Adapters.Alpha, options.Adapters.Targets = 2, 4, []string{"q_proj"}
	options.Adapters.Base = quant.NF4
	m, err := quantizedLlama(t, convert.Options{Linear: quant.NF4, Skip: []string{"down_proj"}}).Trace(options, 1, 8)
	if err != nil {
		t.Fatal(err)
	}
	plain, coded := 0, 0
	for _, p := range m.Params {
		switch {
		case strings.HasSuffix(p.Name, "down_proj.weight"):
			plain++
			if p.Type.DType.Block() {
				t.Errorf("%s is %v, the folder has it plain", p.Name, p.Type.DType)
			}
		case strings.HasSuffix(p.Name, "up_proj.weight"):
			coded++
			if p.Type.DType != quant.NF4 {
				t.Errorf("%s is %v, the folder has it in nf4", p.Name, p.Type.DType)
			}
		}
	}
	if plain != 2 || coded != 2 {
		t.Errorf("%d plain and %d coded weights", plain, coded)
	}
	_, err = quantizedLlama(t, convert.Options{Linear: quant.NF4, NoDoubleQuant: true}).Trace(options, 1, 8)
	if err == nil || !strings.Contains(err.Error(), "without double quantization") || !strings.Contains(err.Error(), "--method lora") {
		t.Errorf("codes that would be encoded again: %v", err)
	}
	_, err = quantizedLlama(t, convert.Options{Linear: quant.RowI8}).Trace(options, 1, 8)
	if err == nil || !strings.Contains(err.Error(), "numbers would be others") {
		t.Errorf("int8 held as nf4: %v", err)
	}
	options.Task, options.Adapters.Base = spillway.LoRA, dtype.Invalid
	if _, err := quantizedLlama(t, convert.Options{Linear: quant.NF4, NoDoubleQuant: true}).Trace(options, 1, 8); err != nil {
		t.Errorf("decoded by lora: %v", err)
	}
}

// Sizes that no machine has are refused at once instead of planned for hours.
func TestAbsurdSizesAreRefused(t *testing.T) {
	m := open(t, "tiny-llama")
	for _, o := range []spillway.Options{
		{Task: spillway.Train, BatchSize: 100_000_000},
		{Task: spillway.Train, MicroBatchSize: 1, MicroBatches: 1_000_000},
		{Task: spillway.Train, GradientAccumulation: 1_000_000},
		{Task: spillway.Train, BatchSize: 60_000, MicroBatchSize: 1},
		{Task: spillway.Train, Seq: 100_000_000},
	} {
		start := time.Now()
		if _, err := m.Plan(o); err == nil || !strings.Contains(err.Error(), "planned") || time.Since(start) > 5*time.Minute {
			t.Errorf("%+v: %v after %v", o.BatchSize, err, time.Since(start))
		}
	}
}

// Only to compute with, linear layers of a quantized folder or GGUF file hold its codes, and
// give the logits of the numbers that those decode to.
func TestInferenceHoldsWhatTheFolderHas(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for kind, m := range map[dtype.Type]*spillway.Model{
		quant.NF4: quantizedLlama(t, convert.Options{Linear: quant.NF4}), quant.RowI8: quantizedLlama(t, convert.Options{Linear: quant.RowI8}),
		quant.RowF8: quantizedLlama(t, convert.Options{Linear: quant.RowF8}), quant.Q8_0: open(t, "../gguf/testdata/qwen3-q8_0.gguf"),
	} {
		dir := filepath.Join(t.TempDir(), "plain")
		if _, err := convert.Folder(t.Context(), m.Folder, dir, convert.Options{Linear: dtype.F32, Others: dtype.F32}); err != nil {
			t.Fatal(err)
		}
		tight := "cpu:1GiB,host:4GiB"
		if kind == quant.Q8_0 { // where there is room, a CPU decodes such weights once
			if _, _, types := inferred(t, m, tight); types[kind] {
				t.Errorf("%v: a CPU with room holds the codes", kind)
			}
			tight = "cpu:140KiB,host:100KiB"
		}
		coded, codedBytes, types := inferred(t, m, tight)
		plain, plainBytes, _ := inferred(t, open(t, dir), "cpu:1GiB,host:4GiB")
		if !types[kind] || codedBytes > plainBytes*6/10 {
			t.Errorf("%v: the weights are %v in %d bytes, plain ones take %d", kind, types, codedBytes, plainBytes)
		}
		var top, off float64
		for i := range plain {
			top, off = max(top, math.Abs(float64(plain[i]))), max(off, math.Abs(float64(plain[i]-coded[i])))
		}
		if !(off <= 1e-5*top) {
			t.Errorf("%v: logits are off by %v of %v", kind, off, top)
		}
	}
}

// In bf16 a CPU holds the codes of a GGUF file with rows interleaved, in as many bytes, and gives
// the logits of the numbers that they decode to, but for the rounding of bf16.
func TestACPUInterleavesCodes(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	m := open(t, "../gguf/testdata/qwen3-q8_0.gguf")
	_, asStored, _ := inferred(t, m, "cpu:140KiB,host:100KiB")
	exact, _, _ := inferred(t, m, "cpu:1GiB,host:4GiB")
	logits, bytes, types := inferredIn(t, m, "cpu:1GiB,host:4GiB", dtype.BF16)
	if !types[quant.Q8_0x16] || types[quant.Q8_0] || bytes > asStored {
		t.Errorf("the weights are %v in %d bytes, as stored they take %d", types, bytes, asStored)
	}
	var top, off float64
	for i := range exact {
		top, off = max(top, math.Abs(float64(exact[i]))), max(off, math.Abs(float64(exact[i]-logits[i])))
	}
	if !(off <= 0.02*top) {
		t.Errorf("logits are off by %v of %v", off, top)
	}
}

// Quantized weights that no folder has, those of a preset with random numbers, are held with rows interleaved too: every step would
// decode codes as they are again.
func TestACPUInterleavesWeightsThatAreMade(t *testing.T) {
	packed, err := open(t, "small-llama").AsGGUF("q4_0")
	if err != nil {
		t.Fatal(err)
	}
	dev := cpu.Open(cpu.Options{})
	defer dev.Close()
	for _, c := range []struct {
		model *spillway.Model
		base  dtype.Type // as the options name it
		held  dtype.Type
	}{{open(t, "small-llama"), quant.NF4, quant.NF4}, {packed, dtype.Invalid, quant.Q4_0}} {
		r, err := c.model.Plan(spillway.Options{Task: spillway.Generate, Precision: dtype.BF16, Adapters: lora.Options{Base: c.base}, Machine: parse(t, "cpu:4GiB,host:4GiB"), On: []device.Device{dev},
			Generation: run.Generation{Context: 64, Streams: 1}})
		if err != nil {
			t.Fatal(err)
		}
		interleaved := 0
		for _, p := range r.Spec.Params {
			if _, fits := quant.Interleaved(c.held, p.Type.Shape.Rows(), p.Type.Shape.Last()); fits && p.Type.DType == c.held {
				t.Errorf("%s is held in %v, row by row", p.Name, c.held)
			}
			if quant.InterleavedOf(p.Type.DType) == c.held {
				interleaved++
			}
		}
		if interleaved == 0 {
			t.Errorf("no weight is held in %v with rows interleaved", c.held)
		}
	}
}

// inferred are the logits of a few tokens, the bytes of all weights, and their types.
func inferred(t *testing.T, m *spillway.Model, on string) (logits []float32, bytes int64, types map[dtype.Type]bool) {
	t.Helper()
	return inferredIn(t, m, on, dtype.F32)
}

func inferredIn(t *testing.T, m *spillway.Model, on string, precision dtype.Type) (logits []float32, bytes int64, types map[dtype.Type]bool) {
	t.Helper()
	here, err := machine.Parse(on)
	if err != nil {
		t.Fatal(err)
	}
	dev := cpu.Open(cpu.Options{})
	defer dev.Close()
	r, err := m.Plan(spillway.Options{Task: spillway.Infer, Precision: precision, Seq: 6, Machine: here, On: []device.Device{dev}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	types = map[dtype.Type]bool{}
	for _, p := range r.Spec.Params {
		types[p.Type.DType] = true
		bytes += p.Type.Bytes()
	}
	for _, part := range r.Plan.Batch {
		to, err := r.Executor().BatchTensor(0, part.Name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range len(to) / 4 {
			to[4*i] = byte(i * map[string]int{"tokens": 7, "positions": 1}[part.Name])
		}
	}
	if err := r.Executor().Iterate(t.Context(), executor.IterationArgs{}); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(r.Executor().Result(0)), bytes, types
}
