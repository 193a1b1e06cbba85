package arch

import (
	"fmt"

	"spillway/hf"
	"spillway/nn"
)

func init() {
	Register("transformer_encoder", Architecture{encoder, Keys{Read: []string{
		"d_model", "nhead", "dim_feedforward", "num_layers", "dropout", "activation", "layer_norm_eps", "norm_first", "final_norm", "bias", "is_causal",
		"src_mask", "src_key_padding_mask",
	}, Harmless: map[string]string{"batch_first": "batches are always [batch sequence width] here"}}})
}

// encoderConfig has the arguments of torch.nn.TransformerEncoder and its layers, and which
// masks the batches bring.
type encoderConfig struct {
	Width      int64   `json:"d_model"`
	Heads      int64   `json:"nhead"`
	Inner      int64   `json:"dim_feedforward"`
	Layers     int64   `json:"num_layers"`
	Dropout    float64 `json:"dropout"`
	Activation string  `json:"activation"`
	Eps        float64 `json:"layer_norm_eps"`
	NormFirst  bool    `json:"norm_first"`
	FinalNorm  bool    `json:"final_norm"`
	Bias       bool    `json:"bias"`
	Causal     bool    `json:"is_causal"`
	Mask       bool    `json:"src_mask"`
	KeyMask    bool    `json:"src_key_padding_mask"`
}

// Largest sizes, far above any encoder: two of them multiplied do not overflow, and a
// hostile file cannot ask for more than some megabytes of structs.
const (
	maxLayers = 4096
	maxWidth  = 1 << 20
)

// encoder is torch.nn.TransformerEncoder, trained with the mean squared error.
func encoder(config *hf.Config) (nn.Model, Info, error) {
	c := encoderConfig{Inner: 2048, Dropout: 0.1, Activation: "relu", Eps: 1e-5, Bias: true}
	if err := extraConfig(config, &c); err != nil {
		return nil, Info{}, err
	}
	if err := c.check(); err != nil {
		return nil, Info{}, err
	}
	f, err := activation(c.Activation)
	if err != nil {
		return nil, Info{}, err
	}
	return nn.NewTransformerEncoder(nn.EncoderConfig{
		Width: c.Width, Heads: c.Heads, Inner: c.Inner, Layers: c.Layers, Dropout: c.Dropout,
		Func: nn.Activation(f), Eps: c.Eps, NormFirst: c.NormFirst, FinalNorm: c.FinalNorm, NoBias: !c.Bias,
		Masks: nn.EncoderMasks{Causal: c.Causal, Scores: c.Mask, Keys: c.KeyMask},
	}), Info{DType: config.Type, Layers: c.Layers, Width: c.Width}, nil
}

func (c *encoderConfig) check() error {
	for _, s := range []struct {
		name       string
		value, max int64
	}{
		{"d_model", c.Width, maxWidth}, {"nhead", c.Heads, maxWidth},
		{"dim_feedforward", c.Inner, maxWidth}, {"num_layers", c.Layers, maxLayers},
	} {
		if s.value < 1 || s.value > s.max {
			return fmt.Errorf("%s is %d, want 1 to %d", s.name, s.value, s.max)
		}
	}
	switch {
	case c.Width%c.Heads != 0:
		return fmt.Errorf("d_model %d does not divide into nhead %d", c.Width, c.Heads)
	case !(c.Dropout >= 0 && c.Dropout < 1):
		return fmt.Errorf("dropout is %v, want 0 ≤ p < 1", c.Dropout)
	}
	return positive("layer_norm_eps", c.Eps)
}
