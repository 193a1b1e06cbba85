package lora

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"spillway/hf"
)

// FromPEFT is the options of an adapter that the PEFT library made. Variants of LoRA that
// are not known here are refused.
func FromPEFT(c *hf.AdapterConfig) (Options, error) {
	unknown := c.Variants()
	// PEFT subtracts such an adapter's first values from the base each time it is loaded.
	start := strings.ToLower(string(c.Init))
	if slices.ContainsFunc([]string{"pissa", "olora", "corda", "loftq", "lora_ga"}, func(name string) bool { return strings.HasPrefix(start, name) }) {
		unknown = append(unknown, fmt.Sprintf("init_lora_weights=%q (which changes the base)", c.Init))
	}
	if len(unknown) > 0 {
		return Options{}, fmt.Errorf("the adapter was made with %s, which is not known here", strings.Join(unknown, ", "))
	}
	o := Options{
		Targets: c.Targets.Names, TargetPattern: c.Targets.Pattern, Exclude: c.Exclude.Names, ExcludePattern: c.Exclude.Pattern,
		Layers: c.Layers.Numbers, LayersPattern: c.LayersPattern.Names,
		Rank: int64(c.Rank), Alpha: c.Alpha, Dropout: c.Dropout, AlphaPattern: c.AlphaPattern, RankStabilized: c.RankStabilized,
		DoRA: c.DoRA, LoRABias: c.LoRABias, Bias: Bias(c.Bias), ModulesToSave: c.ModulesToSave, Init: c.Init,
	}
	if strings.EqualFold(o.TargetPattern, AllLinear) {
		o.Targets, o.TargetPattern = []string{AllLinear}, ""
	}
	if c.LayersPattern.Pattern != "" {
		o.LayersPattern = []string{c.LayersPattern.Pattern}
	}
	if len(c.RankPattern) > 0 {
		o.RankPattern = map[string]int64{}
	}
	for module, r := range c.RankPattern {
		o.RankPattern[module] = int64(r)
	}
	if o.checkWords() != nil {
		o.Init = hf.InitDefault // how it started matters no more
	}
	return o, o.check()
}

// WithNames names all linear layers one by one where only some layers have adapters: PEFT opens no adapter with both all-linear and
// layers_to_transform. Params are the names of what is trained.
func (o Options) WithNames(params iter.Seq[string]) Options {
	if len(o.Layers) == 0 || !slices.Equal(o.Targets, []string{AllLinear}) {
		return o
	}
	last := map[string]bool{}
	for name := range params {
		if module, found := strings.CutSuffix(name, ".lora_A.weight"); found {
			last[module[strings.LastIndexByte(module, '.')+1:]] = true
		}
	}
	o.Targets = slices.Sorted(maps.Keys(last))
	return o
}

// PEFT is the options as the PEFT library's config, for an adapter of a causal language
// model. base names the model; transposed says that it stores linear weights as [in out],
// as GPT-2 does.
func (o Options) PEFT(base string, transposed bool) (*hf.AdapterConfig, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	c, err := hf.NewAdapterConfig()
	if err != nil {
		return nil, err
	}
	if err := c.SetBase(base); err != nil {
		return nil, err
	}
	c.Task, c.FanInFanOut = "CAUSAL_LM", transposed
	c.Rank, c.Alpha, c.Dropout, c.RankStabilized = int(o.Rank), o.Alpha, o.Dropout, o.RankStabilized
	c.DoRA, c.LoRABias, c.ModulesToSave, c.AlphaPattern = o.DoRA, o.LoRABias, o.ModulesToSave, o.AlphaPattern
	c.Targets = hf.Modules{Names: o.Targets, Pattern: o.TargetPattern}
	if len(o.Targets) == 1 && o.Targets[0] == AllLinear {
		c.Targets = hf.Modules{Pattern: AllLinear}
	}
	c.Exclude = hf.Modules{Names: o.Exclude, Pattern: o.ExcludePattern}
	c.Layers, c.LayersPattern = hf.Layers{Numbers: o.Layers}, hf.Modules{Names: o.LayersPattern}
	c.Bias, c.Init = cmp.Or(string(o.Bias), c.Bias), cmp.Or(o.Init, c.Init)
	for module, r := range o.RankPattern {
		c.RankPattern[module] = int(r)
	}
	return c, nil
}
