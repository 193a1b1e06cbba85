package arch

import (
	"spillway/hf"
	"spillway/nn"
)

func init() { Register("mistral", mistral) }

// mistral is Llama with a sliding window in every layer.
func mistral(c *hf.Config) (nn.Model, Info, error) {
	return llamaFamily(c, llamaVariant{window: func(int) int { return c.SlidingWindow }})
}
