package spillway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway"
	"spillway/device"
	"spillway/device/devicetest"
	"spillway/dtype"
	"spillway/graph"
	"spillway/hf"
	"spillway/internal/reference"
	"spillway/lora"
	"spillway/nn"
	"spillway/optim"
	"spillway/plan"
	"spillway/run"
)

// The names are the model's own, before and after training, under every strategy, and
// those of the folder for models that come from one.
func TestStateDictHasTheModelsOwnNames(t *testing.T) {
	for _, o := range ownModels() {
		params, err := nn.Bind(o.net())
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, p := range params {
			want = append(want, p.Name)
		}
		slices.Sort(want)
		for _, strategy := range []string{"", "cpu-offload"} {
			c := described(t)
			c.Strategy = strategy
			w := wrap(t, o.net(), c)
			before := stateDict(t, w)
			step(t, w, o.batch, 2)
			after := stateDict(t, w)
			for _, d := range []spillway.StateDict{before, after} {
				if got := slices.Sorted(maps.Keys(d)); !slices.Equal(got, want) {
					t.Errorf("%s: names %q, want %q", o.name, got, want)
				}
			}
			if sameDict(before, after) {
				t.Errorf("%s: two iterations changed nothing", o.name)
			}
		}
	}
	s := decoder(t, "llama")
	w, err := spillway.WrapModel(s.model, described(t))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for name, got := range stateDict(t, w) {
		from, ok := s.model.Folder.Tensor(name)
		if !ok {
			t.Fatalf("the folder has no %s", name)
		}
		want := make([]float32, from.Shape.Elements())
		if err := from.ReadF32(want, 0); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Floats, want) || !got.Shape.Equal(from.Shape) {
			t.Errorf("%s is not as in the folder", name)
		}
	}
}

// Weights that are loaded are used at once, by inference and training, and are copies.
func TestLoadStateDict(t *testing.T) {
	o := ownModels()[2]
	trained := wrap(t, o.net(), described(t))
	step(t, trained, o.batch, 3)
	dict, out := stateDict(t, trained), forward(t, trained, o.inputs())
	next := step(t, trained, o.batch, 1)[0]

	c := described(t)
	c.Seed = 99
	other := wrap(t, o.net(), c)
	if again := forward(t, other, o.inputs()); slices.Equal(again.Floats, out.Floats) {
		t.Fatal("another seed gives the same weights")
	}
	for _, train := range []bool{false, true} {
		given := maps.Clone(dict)
		for name, tensor := range given {
			given[name] = spillway.Floats(slices.Clone(tensor.Floats), tensor.Shape...)
		}
		if err := other.LoadStateDict(given); err != nil {
			t.Fatal(err)
		}
		for _, tensor := range given {
			clear(tensor.Floats)
		}
		if again := forward(t, other, o.inputs()); !slices.Equal(again.Floats, out.Floats) {
			t.Errorf("trained %v: the outputs are not those of the weights", train)
		}
		if loss, err := other.Evaluate(o.batch); err != nil || loss != next {
			t.Errorf("trained %v: the loss is %v, that of the other %v; %v", train, loss, next, err)
		}
		if got := step(t, other, o.batch, 1)[0]; got != next {
			t.Errorf("trained %v: the loss is %v, that of the other %v", train, got, next)
		}
	}
}

// scores has an embedding that scores too. Its params have the names of the fields that come first.
type scores struct {
	Items *nn.Embedding `hf:"items"`
	Norm  *nn.BatchNorm `hf:"norm"`
	Score *nn.Linear    `hf:"score"`
}

type scoresFirst struct { // the same with the other name first
	Score *nn.Linear    `hf:"score"`
	Norm  *nn.BatchNorm `hf:"norm"`
	Items *nn.Embedding `hf:"items"`
}

func (s *scores) Blocks() []nn.Block {
	return []nn.Block{{Name: "scores", Forward: func(b *graph.Builder, _ []graph.Value) []graph.Value {
		x := s.Norm.Forward(b, s.Items.Forward(b, b.Part("ids", dtype.I32, b.MicroBatchSize)))
		return []graph.Value{nn.CrossEntropy.Forward(b, s.Score.Forward(b, x))}
	}}}
}

func (s *scoresFirst) Blocks() []nn.Block { return (&scores{s.Items, s.Norm, s.Score}).Blocks() }

func newScores() *scores {
	s := &scores{nn.NewEmbedding(6, 4), nn.NewBatchNorm(4), nn.NewLinear(4, 6)}
	s.Score.Weight, s.Score.Bias = s.Items.Weight, nil
	return s
}

// Files and dicts of PyTorch's state_dict load, whichever names a shared weight has in them (tools/reference/state_dicts.py).
func TestStateDictsOfPyTorchLoad(t *testing.T) {
	folder := filepath.Join("testdata", "reference", "state_dicts")
	var want struct {
		IDs     []int32
		Outputs []float32
	}
	text, err := os.ReadFile(filepath.Join(folder, "outputs.json"))
	if err == nil {
		err = json.Unmarshal(text, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	ids := spillway.Batch{"ids": spillway.Ints(want.IDs, int64(len(want.IDs)))}
	for _, name := range []string{"both.safetensors", "both.pt", "one.safetensors"} {
		s := newScores()
		for _, net := range []nn.Model{s, &scoresFirst{s.Score, s.Norm, s.Items}} {
			w := wrap(t, net, described(t))
			if err := w.Load(filepath.Join(folder, name)); err != nil {
				t.Error(err)
				continue
			}
			for i, got := range forward(t, w, ids).Floats {
				if math.Abs(float64(got-want.Outputs[i])) > 1e-6 {
					t.Errorf("%s into %T: output %d is %v, PyTorch's %v", name, net, i, got, want.Outputs[i])
				}
			}
			d := stateDict(t, w)
			if d["items.weight"].Floats == nil {
				d["items.weight"] = d["score.weight"]
			}
			d["score.weight"] = d["items.weight"]
			if err := w.LoadStateDict(d); err != nil {
				t.Error(err)
			}
			d["score.weight"] = spillway.Floats(make([]float32, 24), 6, 4)
			if err := w.LoadStateDict(d); err == nil || !strings.Contains(err.Error(), "are one param of the model") {
				t.Errorf("two weights for one param: %v", err)
			}
		}
	}
	if err := wrap(t, newScores(), described(t)).Load(filepath.Join(folder, "outputs.json")); err == nil || !strings.Contains(err.Error(), "known are .bin, .pt, .pth, .safetensors") {
		t.Errorf("a file that has no weights: %v", err)
	}
	apart := nn.NewLinear(4, 6)
	apart.Bias = nil
	w := wrap(t, &scores{nn.NewEmbedding(6, 4), nn.NewBatchNorm(4), apart}, described(t))
	if err := w.Load(filepath.Join(folder, "one.safetensors")); err == nil || !strings.Contains(err.Error(), "lacks score.weight") {
		t.Errorf("a model that shares nothing: %v", err)
	}
	if err := w.Load(filepath.Join(folder, "both.pt")); err != nil {
		t.Error(err)
	}
	step(t, w, spillway.Batch{"ids": ids["ids"], "targets": ids["ids"]}, 1) // the two weights have other numbers from here on
	dir := filepath.Join(t.TempDir(), "moved")
	if err := w.Save(dir); err != nil {
		t.Fatal(err)
	}
	if err := wrap(t, newScores(), described(t)).Load(dir); err == nil || !strings.Contains(err.Error(), "are one param of the model") {
		t.Errorf("a folder with two weights for one param: %v", err)
	}
}

func TestLoadStateDictRefuses(t *testing.T) {
	o := ownModels()[2]
	w := wrap(t, o.net(), described(t))
	dict := stateDict(t, w)
	lacks, more, odd := maps.Clone(dict), maps.Clone(dict), maps.Clone(dict)
	delete(lacks, "tower.2.fc.bias")
	more["module.items.weight"] = dict["items.weight"]
	odd["tower.0.fc.weight"] = spillway.Floats(make([]float32, 25), 5, 5)
	for want, d := range map[string]spillway.StateDict{
		"missing are tower.2.fc.bias": lacks, "unknown are module.items.weight": more, "tower.0.fc.weight is [5 5]": odd,
	} {
		if err := w.LoadStateDict(d); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if !sameDict(stateDict(t, w), dict) {
		t.Error("a refused dict changed something")
	}
}

// What is saved has the model's names, loads again, and opens where the architecture
// is known; trained or not.
func TestSavedModels(t *testing.T) {
	o := ownModels()[1]
	for _, trained := range []bool{false, true} {
		w := wrap(t, o.net(), described(t))
		if trained {
			step(t, w, o.batch, 2)
		}
		dir := filepath.Join(t.TempDir(), "saved")
		if err := w.Save(dir); err != nil {
			t.Fatal(err)
		}
		if err := w.Save(dir); err == nil {
			t.Error("a folder was written over")
		}
		c := described(t)
		c.Seed = 50
		v := wrap(t, o.net(), c)
		if trained {
			step(t, v, o.batch, 1)
		}
		if err := v.Load(dir); err != nil {
			t.Fatal(err)
		}
		if !sameDict(stateDict(t, v), stateDict(t, w)) {
			t.Errorf("trained %v: other weights came back", trained)
		}
		if err := wrap(t, ownModels()[2].net(), described(t)).Load(dir); err == nil {
			t.Error("another model took the weights")
		}
	}
	s := decoder(t, "qwen2")
	w, err := spillway.WrapModel(s.model, described(t))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	batch := spillway.Batch{"tokens": spillway.Ints(s.Ints(t, "input_ids"), s.rows, s.seq), "targets": spillway.Ints(s.Ints(t, "targets"), s.rows, s.seq)}
	step(t, w, batch, 2)
	delete(batch, "targets")
	out := forward(t, w, batch)
	dir := filepath.Join(t.TempDir(), "saved")
	if err := w.Save(dir); err != nil {
		t.Fatal(err)
	}
	folder, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	for _, tensor := range folder.Tensors() {
		if _, ok := s.model.Folder.Tensor(tensor.Name); !ok {
			t.Errorf("the saved folder has %s, the model's own has not", tensor.Name)
		}
	}
	again, err := spillway.WrapModel(open(t, dir), described(t))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if got := forward(t, again, batch); !slices.Equal(got.Floats, out.Floats) {
		t.Error("the saved model gives other outputs")
	}
}

// A wrapped model of a folder gives PyTorch's outputs and follows its training, in two
// thirds of the memory too.
func TestWrappedModelsFollowPyTorch(t *testing.T) {
	for _, name := range []string{"llama", "gpt2"} {
		s := decoder(t, name)
		batch := spillway.Batch{"tokens": spillway.Ints(s.Ints(t, "input_ids"), s.rows, s.seq), "targets": spillway.Ints(s.Ints(t, "targets"), s.rows, s.seq)}
		var peak int64
		for _, share := range []float64{1, 0.67} {
			c := described(t)
			if peak > 0 {
				c.MaxMemory = fmt.Sprint(int64(share * float64(peak)))
			}
			w, err := spillway.WrapModel(s.model, c)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			out := forward(t, w, spillway.Batch{"tokens": batch["tokens"]})
			if d := apart(out.Floats, s.Floats(t, s.output)); d > reference.OneRun {
				t.Errorf("%s: logits are off by %.2g of the largest", name, d)
			}
			for i, got := range step(t, w, batch, len(s.AdamW.Losses)) {
				if want := s.AdamW.Losses[i]; math.Abs(got-want) > reference.TenRuns*want {
					t.Errorf("%s (%s): loss %d is %v, PyTorch's %v", name, w.Strategy(), i, got, want)
				}
			}
			peak = max(peak, w.MemoryStats().Devices[0].Predicted)
		}
	}
}

// In bf16 the weights of a dict are the masters, so that nothing is lost on the way.
func TestStateDictsKeepFullPrecision(t *testing.T) {
	o := ownModels()[2]
	bf16 := func(seed uint64) *spillway.Wrapped {
		c := described(t)
		c.Devices, c.On, c.Precision, c.Seed = nil, []device.Device{devicetest.NewPlain(0)}, dtype.BF16, seed
		return wrap(t, o.net(), c)
	}
	w := bf16(1)
	full := stateDict(t, w)
	step(t, w, o.batch, 2)
	dict := stateDict(t, w)
	finer := 0
	for _, tensor := range dict {
		for _, f := range tensor.Floats {
			if dtype.FromBF16(dtype.ToBF16(f)) != f {
				finer++
			}
		}
	}
	if finer == 0 {
		t.Error("no weight has more digits than bf16")
	}
	v := bf16(2)
	forward(t, v, o.inputs()) // it has been run in bf16 before the weights are loaded
	if err := v.LoadStateDict(full); err != nil {
		t.Fatal(err)
	}
	step(t, v, o.batch, 2)
	if !sameDict(stateDict(t, v), dict) {
		t.Error("training from the same weights gave others")
	}
}

// On disk, weights that are only read are read where they lie; others and trained ones
// have files of their own, and the model's folder is never written.
func TestWrappedModelsOnDisk(t *testing.T) {
	s := decoder(t, "llama")
	file := filepath.Join(s.Dir, "model.safetensors")
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c := described(t)
	c.Strategy, c.Disk = "disk-offload", filepath.Join(t.TempDir(), "spill")
	w, err := spillway.WrapModel(s.model, c)
	if err != nil {
		t.Fatal(err)
	}
	inputs := spillway.Batch{"tokens": spillway.Ints(s.Ints(t, "input_ids"), s.rows, s.seq)}
	out := forward(t, w, inputs)
	if d := apart(out.Floats, s.Floats(t, s.output)); d > reference.OneRun || !strings.Contains(w.Strategy(), "disk offload") {
		t.Errorf("%s: logits are off by %.2g of the largest", w.Strategy(), d)
	}
	if stats := w.MemoryStats(); stats.Disk.Reserved < int64(len(before))/2 || !slices.ContainsFunc(stats.Routes, func(r run.RouteTransfers) bool { return r.From == plan.OnDisk && r.Bytes > 0 }) {
		t.Errorf("%+v", stats)
	}
	dict := stateDict(t, w)
	for _, tensor := range dict {
		for i := range tensor.Floats {
			tensor.Floats[i] *= 1.5
		}
	}
	if err := w.LoadStateDict(dict); err != nil {
		t.Fatal(err)
	}
	if again := forward(t, w, inputs); slices.Equal(again.Floats, out.Floats) {
		t.Error("other weights give the same outputs")
	}
	inputs["targets"] = spillway.Ints(s.Ints(t, "targets"), s.rows, s.seq)
	step(t, w, inputs, 2)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the model's file was changed, %v", err)
	}
	filepath.WalkDir(c.Disk, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			t.Errorf("%s is left, %v", path, err)
		}
		return nil
	})
}

// Adapters train next to frozen weights, of a folder's model or one's own, wherever
// those rest.
func TestWrappedAdapters(t *testing.T) {
	s := decoder(t, "llama")
	batch := spillway.Batch{"tokens": spillway.Ints(s.Ints(t, "input_ids"), s.rows, s.seq), "targets": spillway.Ints(s.Ints(t, "targets"), s.rows, s.seq)}
	var want []float64
	for _, strategy := range []string{"standard", "cpu-offload"} {
		c := described(t)
		c.Strategy, c.Adapters = strategy, lora.Options{Targets: []string{"q_proj", "down_proj"}, Rank: 4, Alpha: 8}
		c.Optimizer, _ = optim.Parse("adamw:lr=0.02")
		w, err := spillway.WrapModel(s.model, c)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		losses := step(t, w, batch, 10)
		if math.Abs(losses[0]-s.Loss) > reference.OneRun*s.Loss || losses[9] > 0.9*losses[0] {
			t.Errorf("%s: the loss went from %v to %v; without adapters it is %v", strategy, losses[0], losses[9], s.Loss)
		}
		if want = append(want, losses...); !slices.Equal(want[:10], losses) {
			t.Errorf("%s: losses %v, want %v", strategy, losses, want[:10])
		}
		adapters := 0
		for name, got := range stateDict(t, w) {
			from, ok := s.model.Folder.Tensor(name)
			if !ok {
				adapters++
				continue
			}
			base := make([]float32, from.Shape.Elements())
			if err := from.ReadF32(base, 0); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Floats, base) {
				t.Errorf("%s was changed", name)
			}
		}
		if adapters != 8 { // two pairs in each of two layers
			t.Errorf("%d adapters, want 8", adapters)
		}
		if err := w.Replan(w.Config()); err != nil {
			t.Fatal(err)
		}
		step(t, w, batch, 1)
	}
}

// Mistakes in a model are reported when it is wrapped.
func TestWrapRefusesModels(t *testing.T) {
	if _, err := spillway.Wrap(nil, spillway.Config{}); err == nil {
		t.Error("no model was wrapped")
	}
	if _, err := spillway.Wrap((*tower)(nil), spillway.Config{}); err == nil {
		t.Error("a nil pointer was wrapped")
	}
	unnamed := nn.NewSequential(nn.NewLinear(2, 2))
	if _, err := spillway.Wrap(unnamed, spillway.Config{}); err == nil || !strings.Contains(err.Error(), "Input") {
		t.Errorf("a model without input: %v", err)
	}
}
