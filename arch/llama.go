package arch

import (
	"spillway/hf"
	"spillway/nn"
)

func init() { Register("llama", llama) }

// llama is Llama 1 to 3.3: attention_bias puts biases on all four projections.
func llama(c *hf.Config) (nn.Model, Info, error) {
	return llamaFamily(c, llamaVariant{
		qkvBias: c.AttentionBias, outputBias: c.AttentionBias,
		window: func(int) int { return 0 },
	})
}
