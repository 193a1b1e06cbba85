package nn_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/graph"
	"spillway/nn"
	"spillway/spec"
)

var config = graph.Config{MicroBatchSize: 2, Seq: 5, DType: dtype.F32, Task: graph.Train}

// noBlocks makes a Model of a struct whose names alone matter.
type noBlocks struct{}

func (noBlocks) Blocks() []nn.Block { return nil }

func names(t *testing.T, m nn.Model) (all []string) {
	t.Helper()
	params, err := nn.Bind(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range params {
		all = append(all, p.Name)
	}
	return all
}

func TestBindJoinsTags(t *testing.T) {
	type inner struct {
		Value nn.Param     `hf:"value"` // a param may be held by value
		Fixed [2]*nn.Param `hf:"fixed"`
		Plain *nn.Param    // no tag, no part of the model
	}
	type base struct {
		Deep *inner `hf:"a.b"`
	}
	p := func() *nn.Param { return nn.NewParam(nn.Constant(0), 1) }
	m := &struct {
		noBlocks
		base                   // embedded: adds nothing to names, and unexported: no part of the model
		List   []nn.Layer      `hf:"list"`
		Clear  *nn.Linear      `hf:""`
		Nested *struct{ base } `hf:"nested,optional"`
		Inner  inner           `hf:"inner"`
	}{
		List:  []nn.Layer{nn.NewRMSNorm(3, 1), nn.ReLU, nn.NewEmbedding(2, 3)},
		Clear: &nn.Linear{Weight: p()},
		Inner: inner{Fixed: [2]*nn.Param{p(), p()}, Plain: p()},
	}
	want := []string{"list.0.weight", "list.2.weight", "weight", "inner.value", "inner.fixed.0", "inner.fixed.1"}
	if got := names(t, m); !slices.Equal(got, want) {
		t.Errorf("names are %q, want %q", got, want)
	}
}

func TestTiedWeightHasItsFirstName(t *testing.T) {
	shared := nn.NewParam(nn.Constant(0), 3, 2)
	m := &struct {
		noBlocks
		Embed *nn.Embedding `hf:"embed"`
		Head  *nn.Linear    `hf:"head"`
	}{Embed: &nn.Embedding{Weight: shared}, Head: &nn.Linear{Weight: shared}}
	if got := names(t, m); !slices.Equal(got, []string{"embed.weight"}) {
		t.Errorf("names are %q", got)
	}
}

type ring struct {
	noBlocks
	Next *ring `hf:"next"`
}

func TestBindExplainsMistakes(t *testing.T) {
	self := &ring{}
	self.Next = self
	linear := nn.NewLinear(2, 2)
	for want, m := range map[string]nn.Model{
		"lower.weight has an hf tag but is unexported": &struct {
			noBlocks
			Other *lower `hf:"other"`
		}{Other: &lower{}},
		`two weights are named "a.weight"`: &struct {
			noBlocks
			One *nn.Linear  `hf:"a"`
			Two *nn.RMSNorm `hf:"a"`
		}{One: linear, Two: nn.NewRMSNorm(2, 1)},
		"Layers: 1: Query: is nil": &struct {
			noBlocks
			Layers []*nn.SelfAttention `hf:"layers"`
		}{Layers: []*nn.SelfAttention{{Query: linear, Key: linear, Value: linear, Output: linear}, {}}},
		"Next: is part of itself": self,
		"Width: is a int64, which can hold no weights": &struct {
			noBlocks
			Width int64 `hf:"width"`
		}{},
		"use a pointer to the model": struct {
			noBlocks
			W nn.Param `hf:"w"`
		}{},
		`the only option is "optional"`: &struct {
			noBlocks
			W *nn.Param `hf:"w,omitempty"`
		}{},
		"negative dimension -1": &struct {
			noBlocks
			W *nn.Param `hf:"w"`
		}{W: nn.NewParam(nn.Constant(0), -1)},
		"w starts normal with a scale of -1": &struct {
			noBlocks
			W *nn.Param `hf:"w"`
		}{W: nn.NewParam(nn.Normal(-1), 3)},
		"w starts uniform with a scale of NaN": &struct {
			noBlocks
			W *nn.Param `hf:"w"`
		}{W: nn.NewParam(nn.Uniform(math.NaN()), 3)},
		"a.weight has the shape [0 3], without elements": &struct {
			noBlocks
			Linear *nn.Linear `hf:"a"`
		}{Linear: nn.NewLinear(3, 0)},
	} {
		if _, err := nn.Bind(m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

type lower struct {
	weight *nn.Param `hf:"weight"`
}

// PyTorch's defaults, from the formulas in its documentation.
func TestFreshLayersStartAsPyTorchs(t *testing.T) {
	a := nn.NewMultiheadAttention(8, 2)
	for name, c := range map[string]struct{ got, want nn.Init }{
		"linear weight":    {nn.NewLinear(16, 3).Weight.Init, nn.Uniform(0.25)},
		"linear bias":      {nn.NewLinear(16, 3).Bias.Init, nn.Uniform(0.25)},
		"embedding":        {nn.NewEmbedding(5, 3).Weight.Init, nn.Normal(1)},
		"norm weight":      {nn.NewLayerNorm(5, 1).Weight.Init, nn.Constant(1)},
		"norm bias":        {nn.NewLayerNorm(5, 1).Bias.Init, nn.Constant(0)},
		"in_proj xavier":   {a.InWeight.Init, nn.Uniform(math.Sqrt(6.0 / (8 + 24)))},
		"in_proj bias":     {a.InBias.Init, nn.Constant(0)},
		"out_proj bias":    {a.Output.Bias.Init, nn.Constant(0)},
		"out_proj default": {a.Output.Weight.Init, nn.Uniform(1 / math.Sqrt(8))},
	} {
		if c.got != c.want {
			t.Errorf("%s starts as %v, want %v", name, c.got, c.want)
		}
	}
}

// A mistake in a model names the line of code that made it.
func TestMistakesNameTheLine(t *testing.T) {
	net := nn.NewSequential(nn.NewLinear(4, 8), nn.NewLinear(9, 2))
	net.Input, net.Loss = []int64{4}, nn.MeanSquare
	_, err := spec.Trace("wrong", "own", net, config)
	for _, want := range []string{"layer.1", ".go:", "inner dimensions 8 and 9"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to name %q", err, want)
		}
	}
}

func TestSequentialSaysWhatIsMissing(t *testing.T) {
	linear, embed := nn.NewLinear(4, 8), nn.NewEmbedding(4, 8)
	for want, net := range map[string]*nn.Sequential{
		"set Sequential.Input": {Layers: []nn.Layer{linear}, Loss: nn.MeanSquare},
		`has the loss ""`:      {Layers: []nn.Layer{embed}},
		"has no blocks":        {},
	} {
		if _, err := spec.Trace("wrong", "own", net, config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}
