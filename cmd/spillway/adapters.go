package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"spillway/dtype"
	"spillway/hf"
	"spillway/lora"
	"spillway/nn"
	"spillway/quant"
)

// adapterFlags are what users say of the adapters of lora and qlora. The words are
// PEFT's.
type adapterFlags struct {
	rank                      int64
	alpha, dropout            float64
	targets, exclude, save    []string
	layers                    []int
	rankPattern, alphaPattern map[string]string
	rankStabilized, dora      bool
	bias, init, base          string
	int8Threshold             float64
}

// add adds the flags to a command.
func (a *adapterFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Int64Var(&a.rank, "rank", 16, "adapters of lora and qlora have rank `N`")
	f.Float64Var(&a.alpha, "alpha", 0, "their strength is `X`: what they add is scaled by X/rank (default: twice the rank)")
	f.Float64Var(&a.dropout, "lora-dropout", 0, "drop a share of `X` of their input while training")
	f.StringSliceVar(&a.targets, "target-modules", []string{lora.AllLinear}, "layers that get adapters: `NAMES` such as q_proj,v_proj, all-linear, or re:PATTERN of whole names")
	f.StringSliceVar(&a.exclude, "exclude-modules", nil, "layers that get none all the same: `NAMES`, or re:PATTERN")
	f.IntSliceVar(&a.layers, "layers-to-transform", nil, "only the layers with these `NUMBERS` get adapters (default: all)")
	f.StringToStringVar(&a.rankPattern, "rank-pattern", nil, "other ranks by layer, `NAME=RANK`,...")
	f.StringToStringVar(&a.alphaPattern, "alpha-pattern", nil, "other strengths by layer, `NAME=ALPHA`,...")
	f.StringSliceVar(&a.save, "modules-to-save", nil, "train these modules whole beside the adapters: `NAMES` such as lm_head")
	f.BoolVar(&a.rankStabilized, "rslora", false, "scale by alpha over the root of the rank (rsLoRA)")
	f.BoolVar(&a.dora, "dora", false, "train the lengths of adapted weights too (DoRA)")
	f.StringVar(&a.bias, "lora-bias", string(lora.NoBias), "biases of the model to train: `none|all|lora_only`")
	f.StringVar(&a.init, "init-lora", string(hf.InitDefault), "how adapters start, `true|gaussian|false`: true and gaussian add nothing at first")
	f.StringVar(&a.base, "base", "", "format of the frozen weights of qlora, `"+quant.Aliases("|")+"` (default: that of a quantized folder, else nf4)")
	f.Float64Var(&a.int8Threshold, "int8-threshold", 0, "with --base int8: multiply whole numbers, and inputs of magnitude `X` or more apart, as LLM.int8 does with 6\n(default: multiply by decoded weights)")
}

// options are the flags for the library.
func (a *adapterFlags) options(quantized bool) (o lora.Options, err error) {
	if a.rank < 1 {
		return o, usageErrorf("--rank %d; it is at least 1", a.rank)
	}
	o = lora.Options{
		Rank: a.rank, Alpha: a.alpha, Dropout: a.dropout, Layers: a.layers, RankStabilized: a.rankStabilized, DoRA: a.dora,
		Bias: lora.Bias(a.bias), ModulesToSave: a.save, Init: hf.AdapterInit(a.init),
	}
	if o.Alpha == 0 {
		o.Alpha = 2 * float64(a.rank)
	}
	o.Targets, o.TargetPattern = namesOrPattern(a.targets)
	o.Exclude, o.ExcludePattern = namesOrPattern(a.exclude)
	if o.RankPattern, err = numbers(a.rankPattern, "--rank-pattern", func(s string) (int64, error) { return strconv.ParseInt(s, 10, 32) }); err != nil {
		return o, err
	}
	if o.AlphaPattern, err = numbers(a.alphaPattern, "--alpha-pattern", func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }); err != nil {
		return o, err
	}
	if quantized {
		if o.Base, err = quant.ParseWeights(a.base); err != nil && a.base != "" {
			return o, usageErrorf("--base: %v", err)
		}
		o.Outliers = a.int8Threshold
	}
	return o, nil
}

// namesOrPattern tells re:PATTERN from names.
func namesOrPattern(list []string) (names []string, pattern string) {
	if text := strings.Join(list, ","); strings.HasPrefix(text, nn.Pattern) {
		return nil, text[len(nn.Pattern):]
	}
	return list, ""
}

// numbers reads the values of NAME=NUMBER.
func numbers[V any](texts map[string]string, flag string, parse func(string) (V, error)) (map[string]V, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	out := map[string]V{}
	for name, text := range texts {
		v, err := parse(text)
		if err != nil {
			return nil, usageErrorf("%s %s=%s; write it like q_proj=8", flag, name, text)
		}
		out[name] = v
	}
	return out, nil
}

// formatName is what people call a format of quantized weights.
func formatName(t dtype.Type) string {
	if c := quant.Of(t); c != nil {
		return c.Alias
	}
	return t.String()
}

// special says what is unusual about adapters, in a few words each.
func adapterTraits(o lora.Options) (words []string) {
	if o.DoRA {
		words = append(words, "DoRA")
	}
	if o.RankStabilized {
		words = append(words, "rank-stabilized")
	}
	if o.Bias == lora.AllBiases || o.Bias == lora.LoRAOnly {
		words = append(words, "biases too")
	}
	if len(o.ModulesToSave) > 0 {
		words = append(words, strings.Join(o.ModulesToSave, " and ")+" whole")
	}
	return words
}

// openBeginning opens the adapter to begin from, nil where none is named.
func openInitialAdapter(dir string) (*lora.Adapter, error) {
	if dir == "" {
		return nil, nil
	}
	a, err := lora.Open(newestCheckpoint(dir))
	if err != nil {
		return nil, fmt.Errorf("opening the adapter to begin from: %w", err)
	}
	return a, nil
}
