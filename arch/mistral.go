package arch

import (
	"fmt"

	"spillway/hf"
	"spillway/nn"
)

func init() {
	Register("mistral", Architecture{mistral, Keys{
		Read: append([]string{"sliding_window"}, llamaKeys...),
		Only: map[string][]string{"layer_types": {}}, // transformers takes such a model for a Ministral
	}})
}

// mistral is Llama with a sliding window in every layer.
func mistral(c *hf.Config) (nn.Model, Info, error) {
	if _, given := c.Value("sliding_window"); given && c.SlidingWindow == 0 {
		return nil, Info{}, fmt.Errorf("sliding_window is 0, so that no token sees any; want 1 or more, or null for no window")
	}
	return llamaFamily(c, llamaVariant{window: func(int) int { return c.SlidingWindow }})
}
