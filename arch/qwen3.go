package arch

import (
	"slices"

	"spillway/hf"
	"spillway/nn"
)

func init() {
	Register("qwen3", Architecture{qwen3, Keys{Read: slices.Concat(llamaKeys, windowKeys, []string{"attention_bias"})}})
}

// qwen3 is Llama with a norm on each head of queries and keys, heads of a width of
// their own, and Qwen 2's windows.
func qwen3(c *hf.Config) (nn.Model, Info, error) {
	if err := qwenWindows(c); err != nil {
		return nil, Info{}, err
	}
	return llamaFamily(c, llamaVariant{
		qkvBias: c.AttentionBias, outputBias: c.AttentionBias,
		headNorms: true, window: c.Window,
	})
}
