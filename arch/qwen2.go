package arch

import "spillway/nn"

func init() { Register("qwen2", qwen2) }

// qwen2 is Qwen 2 and 2.5: Llama with biases on queries, keys and values, and a
// window that may be switched on in some layers.
func qwen2(config []byte) (nn.Model, Info, error) {
	c := qwenDefaults()
	if err := c.complete(config); err != nil {
		return nil, Info{}, err
	}
	window, err := c.layerWindows()
	if err != nil {
		return nil, Info{}, err
	}
	return c.decoder(variant{qkvBias: true, window: window})
}

func qwenDefaults() decoderConfig {
	c := decoderDefaults()
	c.Vocab, c.Intermediate, c.KVHeads, c.Context = 151936, 22016, pointer(int64(32)), 32768
	c.Window, c.MaxWindowLayers = pointer(int64(4096)), 28
	return c
}
