package optim

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The words for params by the layers they are in.
const (
	Norms      = "norms"
	Embeddings = "embeddings"
)

// Layers has the word for the layer that a param is in, by the param's name; params of other layers are
// not in it. Nil is none: then words go by names alone.
type Layers map[string]string

// NoDecay lists which params weight decay leaves alone: the words "biases",
// "norms" and "embeddings", or regular expressions that match a part of the
// param's name. An empty list lets everything decay, as PyTorch does by itself.
type NoDecay []string

// DefaultNoDecay is what the trainers of large models leave alone.
func DefaultNoDecay() NoDecay { return NoDecay{"biases", "norms"} }

// paramWords are words for params as expressions over names such as
// "model.layers.0.input_layernorm.weight", "h.0.ln_1.bias" and "wte.weight". A param is one of
// them by its layer or by its name, as in transformers' trainer.
var paramWords = map[string]string{
	"biases":   `(?i:bias)`, // as bias_hh_l0, and relative_attention_bias.weight
	Norms:      `(^|[._])(ln|bn)(_[a-z0-9]+|[0-9]*)\.[^.]+$|(?i:norm)(_[a-z0-9]+|[0-9]+)?\.[^.]+$`,
	Embeddings: `(^|[._])(embed(ding)?s?(_[a-z]+)*|wte|wpe)\.weight$`,
}

// Decays makes the test that says of each param by name whether it decays.
func (n NoDecay) Decays(l Layers) (func(param string) bool, error) {
	var skip []pattern
	for _, item := range n {
		p, err := paramPattern(item, l)
		if err != nil {
			return nil, fmt.Errorf("params by name: %w", err)
		}
		skip = append(skip, p)
	}
	return func(param string) bool {
		return !slices.ContainsFunc(skip, func(p pattern) bool { return p.covers(param) })
	}, nil
}

// pattern is a word for params, or an expression over their names.
type pattern struct {
	word   string // "" for an expression
	names  *regexp.Regexp
	layers Layers
}

// covers says whether it is about a param. Words are not about the running statistics of norms, which are
// no parameters in PyTorch.
func (p pattern) covers(param string) bool {
	if p.word != "" && strings.HasPrefix(param[strings.LastIndexByte(param, '.')+1:], "running_") {
		return false
	}
	return p.word != "" && p.layers[param] == p.word || p.names.MatchString(param)
}

// paramPattern reads a pattern.
func paramPattern(item string, l Layers) (p pattern, err error) {
	expression, isWord := paramWords[item]
	if p.layers = l; isWord {
		p.word = item
	} else {
		expression = item
	}
	if strings.TrimSpace(expression) == "" {
		return p, fmt.Errorf("an empty pattern would match every param; leave it out")
	}
	if p.names, err = regexp.Compile(expression); err != nil {
		return p, fmt.Errorf("%q is neither biases, norms, embeddings nor a regular expression: %w", item, err)
	}
	return p, nil
}
