package arch

import (
	"encoding/json"
	"fmt"

	"spillway/nn"
)

func init() { Register("transformer_encoder", encoder) }

// encoderConfig has the words of PyTorch's constructors, and which masks the
// batches bring.
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
	DType      string  `json:"dtype"`
}

// encoder is torch.nn.TransformerEncoder, trained for the mean square.
func encoder(config []byte) (nn.Model, Info, error) {
	c := encoderConfig{Inner: 2048, Dropout: 0.1, Activation: "relu", Eps: 1e-5, Bias: true}
	if err := json.Unmarshal(config, &c); err != nil {
		return nil, Info{}, fmt.Errorf("reading config.json: %w", err)
	}
	if err := c.check(); err != nil {
		return nil, Info{}, err
	}
	f, err := activation(c.Activation)
	if err != nil {
		return nil, Info{}, err
	}
	d, err := torchType(c.DType)
	return nn.NewTransformerEncoder(nn.EncoderConfig{
		Width: c.Width, Heads: c.Heads, Inner: c.Inner, Layers: c.Layers, Dropout: c.Dropout,
		Func: nn.Activation(f), Eps: c.Eps, NormFirst: c.NormFirst, FinalNorm: c.FinalNorm, NoBias: !c.Bias,
		Masks: nn.EncoderMasks{Causal: c.Causal, Scores: c.Mask, Keys: c.KeyMask},
	}), Info{DType: d, Layers: c.Layers, Width: c.Width}, err
}

func (c *encoderConfig) check() error {
	err := firstError(
		inBounds(bound{"d_model", c.Width, maxWidth}, bound{"nhead", c.Heads, maxHeads},
			bound{"dim_feedforward", c.Inner, maxWidth}, bound{"num_layers", c.Layers, maxLayers}),
		fraction("dropout", c.Dropout), positive("layer_norm_eps", c.Eps))
	if err == nil && c.Width%c.Heads != 0 {
		err = fmt.Errorf("d_model %d does not divide into nhead %d", c.Width, c.Heads)
	}
	return err
}
