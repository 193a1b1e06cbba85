package bench

import (
	"fmt"

	"spillway"
	"spillway/arch"
	"spillway/nn"
	"spillway/shape"
)

// Models of the baselines that are no presets.
const (
	model11B         = "llama-1.1b"
	model8Layers     = "llama-8b-of-8-layers"
	modelEncoder     = "encoder-2.4b"
	modelLinear      = "linear-16"
	modelLinearTable = "linear-16-table"
)

// benchConfigs are the configs of such models.
var benchConfigs = map[string]string{
	model11B: `{"model_type":"llama","vocab_size":32000,"hidden_size":2048,"num_hidden_layers":22,
"num_attention_heads":32,"num_key_value_heads":4,"intermediate_size":5632,"rms_norm_eps":1e-5,
"tie_word_embeddings":false,"max_position_embeddings":2048}`,
	model8Layers: `{"model_type":"llama","vocab_size":128256,"hidden_size":4096,"num_hidden_layers":8,
"num_attention_heads":32,"num_key_value_heads":8,"intermediate_size":14336,"rms_norm_eps":1e-5,
"tie_word_embeddings":false,"max_position_embeddings":8192}`,
	modelEncoder: `{"model_type":"transformer_encoder","d_model":2048,"nhead":16,"dim_feedforward":8192,
"num_layers":48,"dropout":0.0}`,
}

// openBench opens a preset, or a model of the baselines.
func openBench(name string) (*spillway.Model, error) {
	switch name {
	case modelLinear:
		return spillway.Define(name, func() (nn.Model, error) { return linearStack(), nil }), nil
	case modelLinearTable:
		m := spillway.Define(name, func() (nn.Model, error) { return linearTable(), nil })
		m.Info.Vocab = linearWidth
		return m, nil
	}
	config, ours := benchConfigs[name]
	if !ours {
		return spillway.Open(name)
	}
	_, info, err := arch.FromConfig([]byte(config))
	if err != nil {
		return nil, fmt.Errorf("the shape %s: %w", name, err)
	}
	m := spillway.Define(name, func() (nn.Model, error) {
		made, _, err := arch.FromConfig([]byte(config))
		return made, err
	})
	m.Info = info
	return m, nil
}

// linearWidth is the width of the stack of linear layers.
const linearWidth = 4096

// linearStack is sixteen linear layers, without biases.
func linearStack() *nn.Sequential {
	stack := nn.NewSequential()
	for range 16 {
		l := nn.NewLinear(linearWidth, linearWidth)
		l.Bias = nil
		stack.Layers = append(stack.Layers, l)
	}
	stack.Input, stack.Loss = shape.Of(linearWidth), nn.MeanSquare
	return stack
}

// linearTable is the stack with an embedding before it and a loss after it. With the
// embedding on the GPU almost nothing but weights crosses the link.
func linearTable() *nn.Sequential {
	stack := linearStack()
	stack.Layers = append([]nn.Layer{nn.NewEmbedding(linearWidth, linearWidth)}, stack.Layers...)
	stack.Input, stack.Loss = nil, nn.CrossEntropy
	return stack
}
