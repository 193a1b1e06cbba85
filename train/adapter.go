package train

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"spillway/hf"
)

// adapterSettings are the settings of adapters that training depends on, under PEFT's names. What they train
// means something with them alone: with another alpha the same numbers are another model.
type adapterSettings map[string]any

// quantization is the one that is no setting of PEFT's: how the frozen weights are stored.
const quantization = "quantization"

// settingsOf takes them from an adapter_config.json.
func settingsOf(c *hf.AdapterConfig) (adapterSettings, error) {
	text, err := c.Encode()
	if err != nil {
		return nil, err
	}
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	s := adapterSettings{}
	for _, name := range []string{"r", "lora_alpha", "lora_dropout", "use_rslora", "use_dora", "bias", "lora_bias", "target_modules", "exclude_modules",
		"layers_to_transform", "layers_pattern", "modules_to_save", "rank_pattern", "alpha_pattern"} {
		v := all[name]
		if list, ok := v.([]any); ok { // whose order means nothing
			slices.SortFunc(list, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		if v != nil {
			s[name] = v
		}
	}
	return s, nil
}

// adapterSettings are those of the run.
func (t *Trainer) adapterSettings() (adapterSettings, error) {
	_, c, err := t.run.Folder()
	if err != nil {
		return nil, err
	}
	s, err := settingsOf(c)
	if err != nil {
		return nil, err
	}
	s[quantization] = "none"
	if base := t.run.Options.Adapters.Base; base != 0 {
		s[quantization] = base.String()
	}
	return s, nil
}
