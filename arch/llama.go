package arch

import "spillway/nn"

func init() { Register("llama", llama) }

// llama is Llama 1 to 3.2: attention_bias puts biases on all four projections.
func llama(config []byte) (nn.Model, Info, error) {
	c := decoderDefaults()
	if err := c.complete(config); err != nil {
		return nil, Info{}, err
	}
	return c.decoder(variant{qkvBias: c.Bias, outputBias: c.Bias, window: allPositions})
}
