package arch

import "spillway/nn"

func init() { Register("mistral", mistral) }

// mistral is Llama with a sliding window in every layer.
func mistral(config []byte) (nn.Model, Info, error) {
	c := decoderDefaults()
	c.Intermediate, c.KVHeads, c.Context, c.Window = 14336, pointer(int64(8)), 131072, pointer(int64(4096))
	if err := c.complete(config); err != nil {
		return nil, Info{}, err
	}
	return c.decoder(variant{window: func(int64) int64 { return c.window() }})
}
