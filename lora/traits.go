package lora

import "strings"

// Traits says what is unusual about the adapters, in a few words each: "DoRA".
func (o Options) Traits() (words []string) {
	if o.DoRA {
		words = append(words, "DoRA")
	}
	if o.RankStabilized {
		words = append(words, "rank-stabilized")
	}
	if o.Bias == AllBiases || o.Bias == LoRAOnly {
		words = append(words, "biases too")
	}
	if len(o.ModulesToSave) > 0 {
		words = append(words, strings.Join(o.ModulesToSave, " and ")+" in full")
	}
	return words
}
