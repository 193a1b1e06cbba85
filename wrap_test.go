package spillway_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spillway"
	"spillway/device"
	"spillway/graph"
	"spillway/nn"
	"spillway/train"
	"spillway/units"
)

// tower is somebody's own model: an embedding, used again to score, and layers in
// between.
type tower struct {
	Items *nn.Embedding `hf:"items"`
	Tower []*residual   `hf:"tower"`
	Score *nn.Linear    `hf:"score"`
}

type residual struct {
	Norm *nn.LayerNorm `hf:"norm"`
	Fc   *nn.Linear    `hf:"fc"`
}

func newTower(items, width, depth int64) *tower {
	m := &tower{Items: nn.NewEmbedding(items, width), Score: nn.NewLinear(width, items)}
	for range depth {
		m.Tower = append(m.Tower, &residual{nn.NewLayerNorm(width, 1e-5), nn.NewLinear(width, width)})
	}
	m.Score.Weight, m.Score.Bias = m.Items.Weight, nil
	return m
}

func (m *tower) Blocks() []nn.Block {
	blocks := []nn.Block{{Name: "items", Forward: func(b *graph.Builder, _ []graph.Value) []graph.Value {
		return []graph.Value{m.Items.Forward(b, nn.Tokens(b))}
	}}}
	for i, r := range m.Tower {
		blocks = append(blocks, nn.Block{Name: fmt.Sprintf("tower.%d", i), Forward: r.forward})
	}
	return append(blocks, nn.Block{Name: "score", Forward: func(b *graph.Builder, in []graph.Value) []graph.Value {
		return []graph.Value{nn.NextToken(b, in[0], m.Score)}
	}})
}

func (r *residual) forward(b *graph.Builder, in []graph.Value) []graph.Value {
	x := in[0]
	return []graph.Value{b.Add(x, nn.GELU.Forward(b, r.Fc.Forward(b, r.Norm.Forward(b, x))))}
}

// own is a model of a user with a batch to train on and the same to infer from.
type own struct {
	name  string
	net   func() nn.Model
	batch spillway.Batch
	infer []string // parts that inference reads
}

func (o own) inputs() spillway.Batch {
	in := spillway.Batch{}
	for _, name := range o.infer {
		in[name] = o.batch[name]
	}
	return in
}

func normal(r *rand.Rand, dims ...int64) spillway.Tensor {
	t := spillway.Floats(nil, dims...)
	for range t.Shape.Elements() {
		t.Floats = append(t.Floats, float32(r.NormFloat64()))
	}
	return t
}

func idsBelow(r *rand.Rand, n int, dims ...int64) spillway.Tensor {
	t := spillway.Ints(nil, dims...)
	for range t.Shape.Elements() {
		t.Ints = append(t.Ints, int32(r.IntN(n)))
	}
	return t
}

// ownModels are models of all kinds a user might have.
func ownModels() []own {
	r := rand.New(rand.NewPCG(1, 2))
	mask, visible := spillway.Floats(make([]float32, 25), 5, 5), spillway.Ints(nil, 4, 5)
	for i := range 5 {
		for k := i + 1; k < 5; k++ {
			mask.Floats[5*i+k] = float32(math.Inf(-1))
		}
	}
	for i := range 20 {
		visible.Ints = append(visible.Ints, int32(min(1, (i+3)%5))) // one position of each sample is padding
	}
	return []own{
		{"sequential", func() nn.Model {
			s := nn.NewSequential(nn.NewLinear(6, 48), nn.ReLU, nn.Dropout(0.1), nn.NewLinear(48, 48), nn.Tanh, nn.NewLinear(48, 48), nn.ReLU, nn.NewLinear(48, 3))
			s.Input, s.Loss = []int64{6}, nn.CrossEntropy
			return s
		}, spillway.Batch{"input": normal(r, 8, 6), "targets": idsBelow(r, 3, 8)}, []string{"input"}},
		{"encoder", func() nn.Model {
			return nn.NewTransformerEncoder(nn.EncoderConfig{Width: 16, Heads: 2, Inner: 32, Layers: 4, Eps: 1e-5, Func: nn.ReLU, FinalNorm: true, Dropout: 0.1, Masks: nn.EncoderMasks{Scores: true, Keys: true}})
		}, spillway.Batch{"input": normal(r, 4, 5, 16), "target": normal(r, 4, 5, 16), "mask": mask, "key_mask": visible}, []string{"input", "mask", "key_mask"}},
		{"tower", func() nn.Model { return newTower(40, 24, 5) },
			spillway.Batch{"tokens": idsBelow(r, 40, 4, 10), "targets": idsBelow(r, 40, 4, 10)}, []string{"tokens"}},
	}
}

// described is a machine on which plans do not depend on where the test runs.
func described(t testing.TB) spillway.Config {
	return spillway.Config{Options: spillway.Options{Machine: parse(t, "cpu:1GiB,host:4GiB")}, Devices: []string{"cpu:threads=1"}, Seed: 3}
}

// wrap wraps a model, closed when the test ends.
func wrap(t testing.TB, net nn.Model, c spillway.Config) *spillway.Wrapped {
	t.Helper()
	w, err := spillway.Wrap(net, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// step trains and gives the losses.
func step(t testing.TB, w *spillway.Wrapped, b spillway.Batch, n int) (losses []float64) {
	t.Helper()
	for range n {
		loss, err := w.Step(b)
		if err != nil {
			t.Fatal(err)
		}
		losses = append(losses, loss)
	}
	return losses
}

func forward(t testing.TB, w *spillway.Wrapped, b spillway.Batch) spillway.Tensor {
	t.Helper()
	out, err := w.Forward(b)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func stateDict(t testing.TB, w *spillway.Wrapped) spillway.StateDict {
	t.Helper()
	d, err := w.StateDict()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func sameDict(a, b spillway.StateDict) bool {
	return maps.EqualFunc(a, b, func(s, t spillway.Tensor) bool { return s.Shape.Equal(t.Shape) && slices.Equal(s.Floats, t.Floats) })
}

// standard is what a model needs to train with everything on the device, and its
// losses and weights after some iterations.
func standard(t testing.TB, o own, steps int) (peak int64, losses []float64, d spillway.StateDict, out spillway.Tensor) {
	t.Helper()
	c := described(t)
	c.Strategy = "standard"
	w := wrap(t, o.net(), c)
	losses = step(t, w, o.batch, steps)
	peak = w.MemoryStats().Devices[0].Predicted
	return peak, losses, stateDict(t, w), forward(t, w, o.inputs())
}

// Nothing but a model is needed.
func TestWrapWithoutAnyConfiguration(t *testing.T) {
	o := ownModels()[0]
	w := wrap(t, o.net(), spillway.Config{})
	if w.Strategy() != "" || !strings.Contains(w.Explain().String(), "nothing is planned yet") {
		t.Errorf("before any batch: %q, %s", w.Strategy(), w.Explain())
	}
	losses := step(t, w, o.batch, 30)
	if losses[29] >= losses[0] || strings.Contains(w.Strategy(), "off") { // of what stays on the device, the times of this minute decide
		t.Errorf("%s: the loss went from %v to %v", w.Strategy(), losses[0], losses[29])
	}
	if out := forward(t, w, o.inputs()); !out.Shape.Equal([]int64{8, 3}) || len(out.Floats) != 24 {
		t.Errorf("outputs %v", out.Shape)
	}
}

// Every strategy trains every model to the same bits, and says that it did. Any model
// can be checkpointed, offloaded, and trained while offloaded.
func TestStrategiesAreTakenAndChangeNoBit(t *testing.T) {
	words := map[string]string{"standard": "standard", "checkpointing": "checkpointing", "optimizer-offload": "optimizer offload", "cpu-offload": "CPU offload", "disk-offload": "disk offload"}
	for _, o := range ownModels() {
		t.Run(o.name, func(t *testing.T) {
			peak, losses, dict, out := standard(t, o, 5)
			for strategy, word := range words {
				c := described(t)
				if c.Strategy = strategy; strategy == "disk-offload" {
					c.Disk = t.TempDir()
				}
				w := wrap(t, o.net(), c)
				got := step(t, w, o.batch, 5)
				if !strings.Contains(w.Strategy(), word) {
					t.Errorf("%s was asked for, the plan is %s", strategy, w.Strategy())
				}
				need := w.MemoryStats().Devices[0].Predicted
				if strategy != "standard" && need >= peak {
					t.Errorf("%s takes %d bytes of the device, everything %d", strategy, need, peak)
				}
				if !slices.Equal(got, losses) || !sameDict(stateDict(t, w), dict) {
					t.Errorf("%s: losses %v, with everything on the device %v", strategy, got, losses)
				}
				if again := forward(t, w, o.inputs()); !slices.Equal(again.Floats, out.Floats) {
					t.Errorf("%s: other outputs", strategy)
				}
			}
		})
	}
}

// The budget decides: the strategy follows from what optimizer, gradients, batch and
// length need, and no plan ever takes more than it was given.
func TestBudgetsDecide(t *testing.T) {
	for _, o := range ownModels() {
		peak, losses, dict, _ := standard(t, o, 3)
		seen := map[string]bool{}
		for _, share := range []float64{1, 0.9, 0.7, 0.6} {
			c := described(t)
			c.MaxMemory = fmt.Sprint(int64(share * float64(peak)))
			w := wrap(t, o.net(), c)
			got := step(t, w, o.batch, 3)
			stats := w.MemoryStats()
			if d := stats.Devices[0]; d.Predicted > int64(share*float64(peak)) || d.Reserved != d.Predicted || d.Peak != d.Predicted {
				t.Errorf("%s at %v of the memory: %+v", o.name, share, d)
			}
			if w.Explain().MicroBatches == 1 && (!slices.Equal(got, losses) || !sameDict(stateDict(t, w), dict)) {
				t.Errorf("%s at %v of the memory (%s): other losses or weights", o.name, share, w.Strategy())
			}
			seen[w.Strategy()] = true
		}
		if len(seen) < 3 {
			t.Errorf("%s: strategies %v", o.name, seen)
		}
	}
	// The same model and memory, a longer batch: activations count too.
	o := ownModels()[2]
	peak, _, _, _ := standard(t, o, 1)
	c := described(t)
	c.MaxMemory, c.MicroBatches = fmt.Sprint(peak), 1
	w := wrap(t, o.net(), c)
	step(t, w, o.batch, 1)
	before := w.Strategy()
	r := rand.New(rand.NewPCG(3, 3))
	step(t, w, spillway.Batch{"tokens": idsBelow(r, 40, 8, 10), "targets": idsBelow(r, 40, 8, 10)}, 1)
	if before != "standard" || w.Strategy() == "standard" {
		t.Errorf("%s for 4 samples, %s for 8", before, w.Strategy())
	}
}

// A model larger than the device runs, whatever its shape, in less memory than its
// weights take.
func TestModelsLargerThanTheDevice(t *testing.T) {
	deep := nn.NewSequential()
	for range 60 { // 120 tensors: none is lost among them
		deep.Layers = append(deep.Layers, nn.NewLinear(32, 32), nn.Tanh)
	}
	deep.Input, deep.Loss = []int64{32}, nn.MeanSquare
	r := rand.New(rand.NewPCG(5, 5))
	o := own{"deep", func() nn.Model { return deep }, spillway.Batch{"input": normal(r, 2, 32), "target": normal(r, 2, 32)}, []string{"input"}}
	_, losses, dict, out := standard(t, o, 4)
	var weights int64
	for _, p := range dict {
		weights += 4 * p.Shape.Elements()
	}
	c := described(t)
	c.MaxMemory = fmt.Sprint(weights / 2)
	w := wrap(t, o.net(), c)
	if got := step(t, w, o.batch, 4); !slices.Equal(got, losses) || !sameDict(stateDict(t, w), dict) {
		t.Errorf("losses %v, with everything on the device %v", got, losses)
	}
	if again := forward(t, w, o.inputs()); !slices.Equal(again.Floats, out.Floats) {
		t.Error("other outputs")
	}
	if d := w.MemoryStats().Devices[0]; d.Peak > weights/2 || d.Peak == 0 {
		t.Errorf("%v of the device were in use, the weights alone take %v", units.Bytes(d.Peak), units.Bytes(weights))
	}
}

// What cannot be is an error with both numbers, never something else instead.
func TestNoSilentFallback(t *testing.T) {
	o := ownModels()[2]
	peak, _, _, _ := standard(t, o, 1)
	for name, c := range map[string]struct {
		set  func(*spillway.Config)
		want []string
	}{
		"standard without room":    {func(c *spillway.Config) { c.Strategy, c.MaxMemory, c.MicroBatches = "standard", fmt.Sprint(peak-1), 1 }, []string{"strategy standard", "needs", "are available"}},
		"unknown strategy":         {func(c *spillway.Config) { c.Strategy = "hybrid" }, []string{"hybrid", "checkpointing"}},
		"plain data parallel":      {func(c *spillway.Config) { c.Strategy = "ddp" }, []string{"ddp", "zero-1", "same numbers in less memory"}},
		"disk without a folder":    {func(c *spillway.Config) { c.Strategy = "disk-offload" }, []string{"folder"}},
		"data parallel on one":     {func(c *spillway.Config) { c.Strategy = "zero-2" }, []string{"several devices, there is one"}},
		"model parallel on one":    {func(c *spillway.Config) { c.Strategy = "model-parallel" }, []string{"several devices, there is one"}},
		"more free than there is":  {func(c *spillway.Config) { c.ReservedMemory = 2 * units.GiB }, []string{"2.00 GiB", "1.00 GiB"}},
		"odd micro-batches":        {func(c *spillway.Config) { c.MicroBatches = 3 }, []string{"4 sequences", "3 micro-batches"}},
		"a strategy and a share":   {func(c *spillway.Config) { c.Strategy, c.Bounds.StayBelow = "standard", 0.5 }, []string{"standard", "0.5", "keep one"}},
		"a share above one":        {func(c *spillway.Config) { c.Bounds.StayBelow = 1.5 }, []string{"1.5"}},
		"a device that is not":     {func(c *spillway.Config) { c.Devices = []string{"tpu:0"} }, []string{"tpu"}},
		"no room for anything":     {func(c *spillway.Config) { c.MaxMemory = "1000" }, []string{"needs", "1000 B"}},
		"adapters out of thin air": {func(c *spillway.Config) { c.Task = spillway.LoRA }, []string{"Config.Adapters"}},
	} {
		config := described(t)
		config.BatchSize, config.Seq = 4, 10
		c.set(&config)
		_, err := spillway.Wrap(o.net(), config)
		for _, word := range c.want {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v, want %q", name, err, word)
			}
		}
	}
}

// Batches are held against what the model reads: nothing is dropped or made up.
func TestBatchesAreChecked(t *testing.T) {
	o := ownModels()[1]
	w := wrap(t, o.net(), described(t))
	with := func(name string, t spillway.Tensor) spillway.Batch {
		b := maps.Clone(o.batch)
		b[name] = t
		return b
	}
	lacks := maps.Clone(o.batch)
	delete(lacks, "mask")
	for want, b := range map[string]spillway.Batch{
		`lacks "mask"`:              lacks,
		`"is_causal"`:               with("is_causal", spillway.Ints([]int32{1}, 1)),
		"holds i32":                 with("input", spillway.Ints(make([]int32, 320), 4, 5, 16)),
		"holds 3":                   with("input", spillway.Floats(make([]float32, 3), 4, 5, 16)),
		"dimension 0":               with("key_mask", spillway.Ints(make([]int32, 15), 3, 5)),
		"dimension 1":               with("mask", spillway.Floats(make([]float32, 30), 5, 6)),
		"2 dimensions":              with("mask", spillway.Floats(make([]float32, 100), 4, 5, 5)),
		"dimension 2":               with("input", spillway.Floats(make([]float32, 300), 4, 5, 15)),
		"negative":                  with("input", spillway.Tensor{Shape: []int64{-4, -5, 16}, Floats: make([]float32, 320)}),
		"rest of the batch have 16": with("input", spillway.Floats([]float32{}, 4, 5, 0)),
	} {
		if _, err := w.Step(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	// A batch for training serves inference too, but for what neither reads.
	if _, err := w.Forward(o.batch); err != nil {
		t.Errorf("a target that inference does not read: %v", err)
	}
	if _, err := w.Forward(with("is_causal", spillway.Ints([]int32{1}, 1))); err == nil || !strings.Contains(err.Error(), `"is_causal"`) {
		t.Errorf("a part that nothing reads: %v", err)
	}
	// None of this has spoiled anything, nor does an id that names nothing.
	step(t, w, o.batch, 1)
	tokens := ownModels()[2]
	v := wrap(t, tokens.net(), described(t))
	bad := maps.Clone(tokens.batch)
	bad["tokens"] = spillway.Ints(slices.Repeat([]int32{40}, 40), 4, 10)
	if _, err := v.Step(bad); err == nil || !strings.Contains(err.Error(), "40") {
		t.Errorf("token 40 of 40: %v", err)
	}
	step(t, v, tokens.batch, 1)
}

// Masks change what comes out, in each strategy alike, and hidden positions do not.
func TestMasksAreUsed(t *testing.T) {
	o := ownModels()[1]
	_, _, _, out := standard(t, o, 1)
	free := o.inputs()
	free["mask"] = spillway.Floats(make([]float32, 25), 5, 5)
	for _, strategy := range []string{"standard", "cpu-offload"} {
		c := described(t)
		c.Strategy = strategy
		w := wrap(t, o.net(), c)
		step(t, w, o.batch, 1)
		if got := forward(t, w, free); slices.Equal(got.Floats, out.Floats) {
			t.Errorf("%s: the mask changes nothing", strategy)
		}
		padded := o.inputs()
		padded["input"] = spillway.Floats(slices.Clone(o.batch["input"].Floats), 4, 5, 16)
		for i, v := range o.batch["key_mask"].Ints {
			for k := range 16 {
				if v == 0 {
					padded["input"].Floats[16*i+k] += 100
				}
			}
		}
		got := forward(t, w, padded)
		for i, v := range o.batch["key_mask"].Ints {
			if v == 1 && !slices.Equal(got.Floats[16*i:16*i+16], out.Floats[16*i:16*i+16]) {
				t.Errorf("%s: position %d sees padding", strategy, i)
			}
		}
	}
}

// A wrapped model trains as a job of the same model does, dropout included.
func TestWrappedTrainingIsTraining(t *testing.T) {
	for _, o := range ownModels()[:2] {
		rows, seq, counted := int64(8), int64(1), int64(8)
		if o.name == "encoder" {
			rows, seq, counted = 4, 5, 4*5*16
		}
		dev := openDevice(t)
		m := spillway.Define(o.name, func() (nn.Model, error) { return o.net(), nil })
		m.Seed = 3
		job, err := m.Plan(spillway.Options{Task: spillway.Train, MicroBatchSize: rows, Seq: seq, Machine: parse(t, "cpu:1GiB,host:4GiB"), On: []device.Device{dev}})
		if err != nil {
			t.Fatal(err)
		}
		if err := job.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := job.Close(); err != nil {
				t.Error(err)
			}
		}()
		run, err := train.New(job, &sameBatch{batch: o.batch, counted: counted}, train.Config{Seed: 3})
		if err != nil {
			t.Fatal(err)
		}
		var want []float64
		for range 4 {
			r, err := run.Step()
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, r.Loss)
		}
		if got := step(t, wrap(t, o.net(), described(t)), o.batch, 4); !slices.Equal(got, want) {
			t.Errorf("%s: losses %v, of a job %v", o.name, got, want)
		}
	}
}
