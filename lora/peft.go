package lora

import (
	"fmt"
	"strings"

	"spillway/hf"
)

// FromPEFT is the options of an adapter that the PEFT library made. What is not known
// here is refused.
func FromPEFT(c *hf.AdapterConfig) (Options, error) {
	unknown := c.Variants()
	for name, used := range map[string]bool{
		"use_dora": c.DoRA, "lora_bias": c.LoRABias, "bias": c.Bias != "none", "modules_to_save": len(c.ModulesToSave) > 0,
		"rank_pattern": len(c.RankPattern) > 0, "alpha_pattern": len(c.AlphaPattern) > 0,
	} {
		if used {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		return Options{}, fmt.Errorf("the adapter was made with %s, which is not known here", strings.Join(unknown, ", "))
	}
	o := Options{Targets: c.Targets, Rank: int64(c.Rank), Alpha: c.Alpha, Dropout: c.Dropout, RankStabilized: c.RankStabilized}
	if c.TargetPattern == AllLinear {
		o.Targets = []string{AllLinear}
	} else {
		o.Pattern = c.TargetPattern
	}
	return o, o.check()
}

// PEFT is the options as the config of an adapter of a model that continues text, for the
// PEFT library. base names the model; transposed says that it keeps its products as
// [in out], as GPT-2 does.
func (o Options) PEFT(base string, transposed bool) (*hf.AdapterConfig, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	c, err := hf.NewAdapterConfig()
	if err != nil {
		return nil, err
	}
	c.BaseModel, c.Task, c.FanInFanOut = base, "CAUSAL_LM", transposed
	c.Rank, c.Alpha, c.Dropout, c.RankStabilized = int(o.Rank), o.Alpha, o.Dropout, o.RankStabilized
	c.Targets, c.TargetPattern = o.Targets, o.Pattern
	if len(o.Targets) == 1 && o.Targets[0] == AllLinear {
		c.Targets, c.TargetPattern = nil, AllLinear
	}
	return c, nil
}
