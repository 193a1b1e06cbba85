package optim

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// NoDecay lists which params weight decay leaves alone: the words "biases",
// "norms" and "embeddings", or regular expressions that match a part of the
// param's name. An empty list lets everything decay, as PyTorch does by itself.
type NoDecay []string

// DefaultNoDecay is what the trainers of large models leave alone.
func DefaultNoDecay() NoDecay { return NoDecay{"biases", "norms"} }

// paramWords are words for params as expressions over names such as
// "model.layers.0.input_layernorm.weight", "h.0.ln_1.bias" and "wte.weight".
var paramWords = map[string]string{
	"biases":     `(^|[._])bias$`,
	"norms":      `(^|[._])(ln|bn)(_[a-z0-9]+|[0-9]*)\.[^.]+$|(?i:norm)(_[a-z0-9]+|[0-9]+)?\.[^.]+$`,
	"embeddings": `(^|[._])(embed(ding)?s?(_[a-z]+)*|wte|wpe)\.weight$`,
}

// Decays makes the test that says of each param by name whether it decays.
func (n NoDecay) Decays() (func(param string) bool, error) {
	var skip []*regexp.Regexp
	for _, item := range n {
		re, err := paramPattern(item)
		if err != nil {
			return nil, fmt.Errorf("params by name: %w", err)
		}
		skip = append(skip, re)
	}
	return func(param string) bool {
		return !slices.ContainsFunc(skip, func(re *regexp.Regexp) bool { return re.MatchString(param) })
	}, nil
}

// paramPattern is a word for params, or an expression over their names.
func paramPattern(item string) (*regexp.Regexp, error) {
	pattern, isWord := paramWords[item]
	if !isWord {
		pattern = item
	}
	if strings.TrimSpace(pattern) == "" {
		return nil, fmt.Errorf("an empty pattern would match every param; leave it out")
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("%q is neither biases, norms, embeddings nor a regular expression: %w", item, err)
	}
	return re, nil
}
