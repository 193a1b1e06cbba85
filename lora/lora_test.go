package lora_test

import (
	"slices"
	"strings"
	"testing"

	"spillway/arch"
	"spillway/autograd"
	"spillway/dtype"
	"spillway/graph"
	"spillway/internal/numtest"
	"spillway/lora"
	"spillway/nn"
	"spillway/op"
	"spillway/quant"
	"spillway/spec"
	"spillway/spec/spectest"
)

const (
	llama = `{"model_type":"llama","vocab_size":20,"hidden_size":8,"intermediate_size":12,"num_hidden_layers":2,
"num_attention_heads":2,"num_key_value_heads":1,"tie_word_embeddings":true}`
	gpt2 = `{"model_type":"gpt2","vocab_size":20,"n_embd":8,"n_head":2,"n_layer":2,"n_positions":16}`
)

var train = graph.Config{MicroBatchSize: 2, Seq: 4, DType: dtype.F32, Task: graph.Train}

func model(t *testing.T, config string) nn.Model {
	t.Helper()
	m, _, err := arch.FromConfig([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// attached makes a model with adapters and traces it.
func attached(t *testing.T, config string, o lora.Options, c graph.Config) (*spec.Model, []string) {
	t.Helper()
	m := model(t, config)
	names, err := lora.Attach(m, o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Trace("adapted", "test", m, c)
	if err != nil {
		t.Fatal(err)
	}
	return s, names
}

// Which layers PEFT would choose.
func TestTargets(t *testing.T) {
	layer := func(i string, names ...string) (out []string) {
		for _, n := range names {
			out = append(out, "model.layers."+i+"."+n)
		}
		return out
	}
	every := []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}
	for _, c := range []struct {
		o    lora.Options
		want []string
	}{
		{lora.Options{Targets: []string{"q_proj", "v_proj"}}, append(layer("0", "self_attn.q_proj", "self_attn.v_proj"), layer("1", "self_attn.q_proj", "self_attn.v_proj")...)},
		{lora.Options{Targets: []string{"model.layers.1.mlp.up_proj"}}, layer("1", "mlp.up_proj")},
		{lora.Options{Targets: []string{lora.AllLinear}}, append(layer("0", every...), layer("1", every...)...)},
		{lora.Options{TargetPattern: `.*\.0\.mlp\.(up|down)_proj`}, layer("0", "mlp.up_proj", "mlp.down_proj")},
		{lora.Options{Targets: []string{"q_proj"}, Layers: []int{1}}, layer("1", "self_attn.q_proj")},
		{lora.Options{Targets: []string{"q_proj", "model.layers.0.mlp.up_proj"}, Layers: []int{1}, LayersPattern: []string{"layers"}},
			append(layer("0", "mlp.up_proj"), layer("1", "self_attn.q_proj")...)},
		{lora.Options{Targets: []string{lora.AllLinear}, ExcludePattern: `.*(self_attn|\.0\.).*`}, layer("1", every[4:]...)},
		{lora.Options{Targets: []string{lora.AllLinear}, Exclude: []string{"self_attn.q_proj", "k_proj", "v_proj", "o_proj"}, ModulesToSave: []string{"layers.1.mlp"}},
			layer("0", every[4:]...)},
	} {
		c.o.Rank, c.o.Alpha = 2, 4
		if _, got := attached(t, llama, c.o, train); !slices.Equal(got, c.want) {
			t.Errorf("%v%s chooses %q, want %q", c.o.Targets, c.o.TargetPattern, got, c.want)
		}
	}
	_, got := attached(t, gpt2, lora.Options{Targets: []string{"c_attn"}, Rank: 2, Alpha: 4}, train)
	if want := []string{"transformer.h.0.attn.c_attn", "transformer.h.1.attn.c_attn"}; !slices.Equal(got, want) {
		t.Errorf("c_attn chooses %q, want %q", got, want)
	}
}

func TestMistakesAreExplained(t *testing.T) {
	for want, o := range map[string]lora.Options{
		`no layer is named "query"; there are q_proj, k_proj`: {Rank: 1, Alpha: 1, Targets: []string{"q_proj", "query"}},
		`no layer has a name of pattern "q_proj"`:             {Rank: 1, Alpha: 1, TargetPattern: "q_proj"}, // must match whole names
		`pattern "("`:                    {Rank: 1, Alpha: 1, TargetPattern: "("},
		"layer lm_head makes the logits": {Rank: 1, Alpha: 1, Targets: []string{"lm_head"}},
		"rank is 0":                      {Alpha: 1, Targets: []string{"q_proj"}},
		"alpha is 0":                     {Rank: 1, Targets: []string{"q_proj"}},
		"dropout is 1":                   {Rank: 1, Alpha: 1, Dropout: 1, Targets: []string{"q_proj"}},
		"give targets":                   {Rank: 1, Alpha: 1},
		"all layers that are targets are excluded":            {Rank: 1, Alpha: 1, Targets: []string{"q_proj"}, Layers: []int{7}},
		`ends in "score"`:                                     {Rank: 1, Alpha: 1, Targets: []string{"q_proj"}, ModulesToSave: []string{"score"}},
		"lm_head.weight is tied to model.embed_tokens.weight": {Rank: 1, Alpha: 1, Targets: []string{"q_proj"}, ModulesToSave: []string{"lm_head"}},
		"model.embed_tokens.weight is tied to lm_head.weight": {Rank: 1, Alpha: 1, Targets: []string{"q_proj"}, ModulesToSave: []string{"embed_tokens"}},
		`bias is "some"`:                                      {Rank: 1, Alpha: 1, Targets: []string{"q_proj"}, Bias: "some"},
		`cannot start as "svd"`:                               {Rank: 1, Alpha: 1, Targets: []string{"q_proj"}, Init: "svd"},
		"rank of q_proj is 0":                                 {Rank: 1, Alpha: 1, Targets: []string{"q_proj"}, RankPattern: map[string]int64{"q_proj": 0}},
		"cannot be stored as i8":                              {Rank: 1, Alpha: 1, Base: dtype.I8, Targets: []string{"q_proj"}},
	} {
		if _, err := lora.Attach(model(t, llama), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	m, o := model(t, llama), lora.Options{Rank: 1, Alpha: 1, Targets: []string{"q_proj"}}
	if _, err := lora.Attach(m, o); err != nil {
		t.Fatal(err)
	}
	if _, err := lora.Attach(m, o); err == nil || !strings.Contains(err.Error(), "has an adapter already") {
		t.Errorf("a second adapter gives %v", err)
	}
}

func TestOnlyAdaptersTrain(t *testing.T) {
	m, names := attached(t, llama, lora.Options{Rank: 2, Alpha: 4, Targets: []string{"k_proj"}}, train)
	var trained []string
	for _, p := range m.Params {
		if !p.Frozen {
			trained = append(trained, p.Name)
		}
	}
	want := []string{names[0] + ".lora_A.weight", names[0] + ".lora_B.weight", names[1] + ".lora_A.weight", names[1] + ".lora_B.weight"}
	if !slices.Equal(trained, want) {
		t.Errorf("trained are %q, want %q", trained, want)
	}
	if got := m.Trainable(); got != 2*(2*8+4*2) { // per layer A [2 8] and B [4 2]
		t.Errorf("%d weights are trained, want 48", got)
	}
	if len(m.Kinds) != 3 {
		t.Errorf("%d kinds, want embedding, layer, head", len(m.Kinds))
	}
}

// numbers are random params and a batch for a model of 20 tokens.
func numbers(m *spec.Model) spectest.Inputs {
	in := spectest.Inputs{Params: map[string]op.Array{}, Batch: map[string]op.Array{}}
	for i, p := range m.Params {
		typ := p.Type
		typ.DType = dtype.F32
		in.Params[p.Name] = numtest.Random(typ, uint64(i+1))
	}
	for _, p := range m.Batch {
		a := numtest.Random(p.Type, 99)
		for i := range a.I {
			a.I[i] = int32(i*7) % 20
			if p.Name == "positions" {
				a.I[i] = int32(i % 4)
			}
		}
		in.Batch[p.Name] = a
	}
	return in
}

// An adapter is the same as adding scale·B·A to the weight, for both ways of storing it.
func TestAdapterEqualsMergedWeight(t *testing.T) {
	for _, c := range []struct {
		config, target string
		stored         string // which way round
		o              lora.Options
		scale          float64
	}{
		{llama, "up_proj", "[out in]", lora.Options{Rank: 4, Alpha: 6}, 1.5},
		{llama, "q_proj", "[out in]", lora.Options{Rank: 4, Alpha: 6, RankStabilized: true}, 3},
		{gpt2, "c_attn", "[in out]", lora.Options{Rank: 2, Alpha: 1}, 0.5},
	} {
		c.o.Targets = []string{c.target}
		infer := graph.Config{MicroBatchSize: 2, Seq: 4, DType: dtype.F32, Task: graph.Infer}
		m, names := attached(t, c.config, c.o, infer)
		in := numbers(m)
		got, err := spectest.Forward(m, in)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			merge(in.Params, name, c.scale, c.stored == "[in out]")
		}
		plain, err := spec.Trace("plain", "test", model(t, c.config), infer)
		if err != nil {
			t.Fatal(err)
		}
		want, err := spectest.Forward(plain, in)
		if err != nil {
			t.Fatal(err)
		}
		if d := numtest.Compare(got[0].F, want[0].F); !(d.Max < 1e-12) {
			t.Errorf("%s of rank %d is off its merged weight by %v", c.target, c.o.Rank, d)
		}
	}
}

// merge adds scale·B·A to a weight.
func merge(params map[string]op.Array, name string, scale float64, transposed bool) {
	w, a, b := params[name+".weight"], params[name+".lora_A.weight"], params[name+".lora_B.weight"]
	rank, in, out := int(a.Type.Shape[0]), int(a.Type.Shape[1]), int(b.Type.Shape[0])
	for o := range out {
		for i := range in {
			at := o*in + i
			if transposed {
				at = i*out + o
			}
			for r := range rank {
				w.F[at] += scale * b.F[o*rank+r] * a.F[r*in+i]
			}
		}
	}
}

// Gradients of the adapters agree with finite differences, through the frozen base.
func TestAdaptersLearn(t *testing.T) {
	m, _ := attached(t, llama, lora.Options{Rank: 2, Alpha: 4, Targets: []string{lora.AllLinear}}, train)
	in := numbers(m)
	_, grads, err := spectest.Gradients(m, in)
	if err != nil {
		t.Fatal(err)
	}
	if len(grads) != 28 {
		t.Errorf("%d gradients, want two for each of 14 layers", len(grads))
	}
	const step = 1e-5
	for name, g := range grads {
		w, at := in.Params[name].F, len(g.F)/2
		old := w[at]
		var sides [2]float64
		for i, d := range []float64{step, -step} {
			w[at] = old + d
			loss, err := spectest.Forward(m, in)
			if err != nil {
				t.Fatal(err)
			}
			sides[i] = loss[0].F[0]
		}
		w[at] = old
		want := (sides[0] - sides[1]) / (2 * step)
		if d := numtest.Compare([]float64{g.F[at]}, []float64{want}); !(d.Max < 1e-5) && want*want > 1e-12 {
			t.Errorf("gradient of %s is %v, by differences %v", name, g.F[at], want)
		}
	}
}

// With a base of 4 bits every product reads its weight through a dequantization, the
// embedding and the head stay as they are, and all programs have gradients.
func TestQLoRAHoldsTheBaseIn4Bits(t *testing.T) {
	c := graph.Config{MicroBatchSize: 3, Seq: 16, DType: dtype.BF16, Task: graph.Train}
	m, _ := attached(t, llama, lora.Options{Rank: 2, Alpha: 4, Dropout: 0.1, Targets: []string{lora.AllLinear}, Base: quant.NF4}, c)
	for _, p := range m.Params {
		base := strings.HasSuffix(p.Name, "_proj.weight")
		if (p.Type.DType == quant.NF4) != base {
			t.Errorf("%s is stored as %v", p.Name, p.Type)
		}
	}
	restored := 0
	for i := range m.Blocks {
		for _, n := range m.Program(i).Nodes {
			if n.Kind == op.Dequantize {
				restored++
			}
		}
		if i == 0 {
			continue // the embedding has nothing to train
		}
		if _, err := autograd.Differentiate(m.Program(i), autograd.Options{InputGrad: i > 1}); err != nil {
			t.Error(err)
		}
	}
	if restored != 2*7 {
		t.Errorf("%d weights are dequantized, want 7 in each of 2 layers", restored)
	}
}

// normed has a batch norm between two linear layers.
type normed struct {
	In  *nn.Linear    `hf:"fc1"`
	BN  *nn.BatchNorm `hf:"bn"`
	Out *nn.Linear    `hf:"fc2"`
}

func (m *normed) Blocks() []nn.Block { return nil }

// Running statistics stay as the base has them, unless their norm is saved with the adapter, as PEFT's
// files have them.
func TestRunningStatisticsNextToAdapters(t *testing.T) {
	for _, c := range []struct {
		save  []string
		still bool
	}{{nil, true}, {[]string{"bn"}, false}} {
		m := &normed{nn.NewLinear(4, 8), nn.NewBatchNorm(8), nn.NewLinear(8, 4)}
		if _, err := lora.Attach(m, lora.Options{Targets: []string{"fc1"}, Rank: 2, Alpha: 4, ModulesToSave: c.save}); err != nil {
			t.Fatal(err)
		}
		if m.BN.RunningMean.Frozen != c.still || m.BN.RunningVariance.Frozen != c.still || m.BN.Weight.Frozen != c.still {
			t.Errorf("with %v saved, running statistics stay still: %v, want %v", c.save, m.BN.RunningMean.Frozen, c.still)
		}
	}
}
