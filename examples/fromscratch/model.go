package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
)

// dims names the sizes that the shape comments of this program use.
type dims struct {
	B int `json:"-"`                   // sequences in the batch
	T int `json:"-"`                   // positions in a sequence; N = B*T tokens
	V int `json:"vocab_size"`          // vocabulary
	C int `json:"hidden_size"`         // width of the residual stream
	L int `json:"num_hidden_layers"`   // layers
	H int `json:"num_attention_heads"` // query heads
	K int `json:"num_key_value_heads"` // key/value heads; H/K query heads share one
	D int `json:"-"`                   // width of a head
	F int `json:"intermediate_size"`   // width of the feed-forward

	Eps   float64   `json:"rms_norm_eps"` // added under the root of every norm
	Theta float64   `json:"rope_theta"`
	Scale scaling   `json:"rope_scaling"`
	freqs []float64 // [D/2] angle by which rope turns each pair of a head per position
}

// param is a named weight with its number of elements.
type param struct {
	name string
	size int
}

// params lists the weights of a block, in the order in which they are stored in its
// slab. A block's weights are one slab, so that they are moved with one copy. Block 0
// is the embedding, 1 to L are the layers, L+1 is the head.
func (d dims) params(block int) []param {
	switch block {
	case 0:
		return []param{{"model.embed_tokens.weight", d.V * d.C}}
	case d.L + 1:
		return []param{{"model.norm.weight", d.C}, {"lm_head.weight", d.V * d.C}}
	}
	in := fmt.Sprintf("model.layers.%d.", block-1)
	return []param{
		{in + "input_layernorm.weight", d.C},
		{in + "self_attn.q_proj.weight", d.H * d.D * d.C},
		{in + "self_attn.k_proj.weight", d.K * d.D * d.C},
		{in + "self_attn.v_proj.weight", d.K * d.D * d.C},
		{in + "self_attn.o_proj.weight", d.C * d.H * d.D},
		{in + "post_attention_layernorm.weight", d.C},
		{in + "mlp.gate_proj.weight", d.F * d.C},
		{in + "mlp.up_proj.weight", d.F * d.C},
		{in + "mlp.down_proj.weight", d.C * d.F},
	}
}

// host stores the model: for every block a slab of weights, of the last gradient, and
// of AdamW's two moments. The batch is N ids and for each its target, the id that
// should follow, or -100 to ignore the position.
type host struct {
	weights, grads, m, v [][]float32
	updates              []int // number of updates of each block
	ids, targets         []int64
}

// openModel reads the config and the weights of a folder, and the batch that was
// recorded with it.
func openModel(folder string) (d dims, h *host, err error) {
	text, err := os.ReadFile(filepath.Join(folder, "config.json"))
	if err != nil {
		return d, nil, err
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return d, nil, fmt.Errorf("%s/config.json: %w", folder, err)
	}
	if d.H < 1 || d.K < 1 || d.C%d.H != 0 || d.H%d.K != 0 || d.Scale.Type != "llama3" {
		return d, nil, fmt.Errorf("%s: want width %d to divide by %d heads, these by %d kv heads, and rope %q to be llama3",
			folder, d.C, d.H, d.K, d.Scale.Type)
	}
	d.D = d.C / d.H
	for i := range d.D / 2 {
		d.freqs = append(d.freqs, d.Scale.apply(math.Pow(d.Theta, -2*float64(i)/float64(d.D))))
	}
	h = &host{updates: make([]int, d.L+2)}
	if err := h.readBatch(filepath.Join(folder, "expect.safetensors"), &d); err != nil {
		return d, nil, err
	}
	return d, h, h.readWeights(filepath.Join(folder, "model.safetensors"), d)
}

// readBatch reads ids and targets [B,T], and sets B and T of d.
func (h *host) readBatch(path string, d *dims) error {
	file, err := openSafetensors(path)
	if err != nil {
		return err
	}
	ids, shape, err := values[int64](file, "input_ids", "I64")
	if err != nil {
		return err
	}
	targets, _, err := values[int64](file, "targets", "I64")
	if err != nil {
		return err
	}
	if len(shape) != 2 || len(targets) != len(ids) {
		return fmt.Errorf("%s: %d targets for input_ids of shape %v; want one each, in rows", path, len(targets), shape)
	}
	d.B, d.T, h.ids, h.targets = shape[0], shape[1], ids, targets
	return nil
}

func (h *host) readWeights(path string, d dims) error {
	file, err := openSafetensors(path)
	if err != nil {
		return err
	}
	for b := range d.L + 2 {
		var slab []float32
		for _, p := range d.params(b) {
			part, _, err := values[float32](file, p.name, "F32")
			if err != nil {
				return err
			}
			if len(part) != p.size {
				return fmt.Errorf("%s: %s has %d elements, config.json asks for %d", path, p.name, len(part), p.size)
			}
			slab = append(slab, part...)
		}
		h.weights = append(h.weights, slab)
		h.grads = append(h.grads, make([]float32, len(slab)))
		h.m = append(h.m, make([]float32, len(slab)))
		h.v = append(h.v, make([]float32, len(slab)))
	}
	return nil
}

// scaling is Llama 3's rope scaling for longer texts.
type scaling struct {
	Type     string  `json:"rope_type"`
	Factor   float64 `json:"factor"`
	Low      float64 `json:"low_freq_factor"`
	High     float64 `json:"high_freq_factor"`
	Original float64 `json:"original_max_position_embeddings"`
}

// apply leaves high frequencies as they are, divides low ones by Factor, and
// interpolates between. What counts is the number of turns within the original context
// length.
func (s scaling) apply(freq float64) float64 {
	turns := s.Original * freq / (2 * math.Pi)
	blend := min(max((turns-s.Low)/(s.High-s.Low), 0), 1)
	return blend*freq + (1-blend)*freq/s.Factor
}
