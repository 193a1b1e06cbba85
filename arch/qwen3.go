package arch

import "spillway/nn"

func init() { Register("qwen3", qwen3) }

// qwen3 is Llama with a norm on each head of queries and keys, heads of a width of
// their own, and Qwen 2's windows.
func qwen3(config []byte) (nn.Model, Info, error) {
	c := qwenDefaults()
	c.HeadDim = pointer(int64(128))
	if err := c.complete(config); err != nil {
		return nil, Info{}, err
	}
	window, err := c.layerWindows()
	if err != nil {
		return nil, Info{}, err
	}
	return c.decoder(variant{qkvBias: c.Bias, outputBias: c.Bias, headNorms: true, window: window})
}
