package arch

import (
	"slices"
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/graph"
)

// published are the totals the models' makers or their file headers state.
var published = map[string]int64{
	"llama-2-7b":    6_738_415_616,
	"llama-2-13b":   13_015_864_320,
	"llama-2-70b":   68_976_648_192,
	"llama-3-8b":    8_030_261_248,
	"llama-3-70b":   70_553_706_496,
	"llama-3-405b":  405_853_388_800,
	"llama-3.1-8b":  8_030_261_248,
	"llama-3.1-70b": 70_553_706_496,
	"llama-3.2-1b":  1_235_814_400,
	"llama-3.2-3b":  3_212_749_824,
	"mistral-7b":    7_241_732_096,
	"qwen2.5-0.5b":  494_032_768,
	"qwen2.5-1.5b":  1_543_714_304,
	"qwen2.5-3b":    3_085_938_688,
	"qwen2.5-7b":    7_615_616_512,
	"qwen2.5-14b":   14_770_033_664,
	"qwen2.5-32b":   32_763_876_352,
	"qwen2.5-72b":   72_706_203_648,
	"qwen3-0.6b":    596_049_920,
	"qwen3-1.7b":    1_720_574_976,
	"qwen3-4b":      4_022_468_096,
	"qwen3-8b":      8_190_735_360,
	"qwen3-14b":     14_768_307_200,
	"qwen3-32b":     32_762_123_264,
	"gpt2":          124_439_808,
	"gpt2-medium":   354_823_168,
	"gpt2-large":    774_030_080,
	"gpt2-xl":       1_557_611_200,
}

func TestNamedShapesHaveThePublishedCounts(t *testing.T) {
	for name, want := range published {
		config, err := Preset(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := trace(t, string(config), train).Count(); got != want {
			t.Errorf("%s has %d params, published are %d", name, got, want)
		}
	}
}

// Every name traces for every task and type, is short in kinds, and is either
// published or one of ours.
func TestNamedShapesTrace(t *testing.T) {
	for _, name := range Presets() {
		config, err := Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		ours := strings.Contains(name, "tiny") || strings.Contains(name, "small") || name == "llama-50m"
		if _, ok := published[name]; !ok && !ours {
			t.Errorf("%s has no published count to compare with", name)
		}
		for _, c := range []graph.Config{
			{MicroBatchSize: 2, Seq: 128, DType: dtype.F32, Task: graph.Infer},
			{MicroBatchSize: 1, Seq: 64, DType: dtype.BF16, Task: graph.Eval, Packed: true},
			{MicroBatchSize: 4, Seq: 256, DType: dtype.F16, Task: graph.Train},
		} {
			if kinds := len(trace(t, string(config), c).Kinds); kinds != 3 {
				t.Errorf("%s has %d kinds of blocks, want embedding, layer and head", name, kinds)
			}
		}
	}
	if !slices.IsSorted(Presets()) {
		t.Errorf("names are not sorted: %v", Presets())
	}
}

func TestUnknownNameListsTheKnown(t *testing.T) {
	_, err := Preset("llama-9")
	if err == nil || !strings.Contains(err.Error(), "llama-3-8b") {
		t.Errorf("got %v", err)
	}
	if _, err := Preset("../named/gpt2"); err == nil {
		t.Error("a path is no name")
	}
}

// A model of some size has about so many params, and a shape that can be built.
func TestOfSize(t *testing.T) {
	for params := int64(2e6); params < 2e12; params = params * 7 / 4 {
		config, err := OfSize(params)
		if err != nil {
			t.Fatal(err)
		}
		s := trace(t, string(config), train)
		if off := float64(s.Count())/float64(params) - 1; off > 0.25 || off < -0.25 || params > 1e9 && (off > 0.02 || off < -0.02) {
			t.Errorf("%d params were asked for, %d given, %.1f%% off", params, s.Count(), 100*off)
		}
	}
	for _, params := range []int64{-1, 0, 1000, 1e15} {
		if _, err := OfSize(params); err == nil {
			t.Errorf("%d params are accepted", params)
		}
	}
}
