package gguf

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
)

// endNames are tokens that end a text wherever a vocabulary has them, as llama.cpp knows them, next to those that the metadata
// names by id: converters write one id, and models that chat end their turns with one token and texts with another.
var endNames = []string{
	"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
	"<end_of_utterance>", "<eos>", "<｜end▁of▁sentence｜>",
	"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>",
}

// ends are the tokens that end a text: those with an id in the metadata, then those known by name.
func (m Metadata) ends() (ends []int64) {
	add := func(id int64) {
		if id >= 0 && !slices.Contains(ends, id) {
			ends = append(ends, id)
		}
	}
	for _, name := range []string{"eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"} {
		add(m.intOr("tokenizer.ggml."+name+"_token_id", -1))
	}
	tokens, _ := m["tokenizer.ggml.tokens"].([]string)
	for id, token := range tokens {
		if slices.Contains(endNames, token) {
			add(int64(id))
		}
	}
	return ends
}

// samplingPrefix is before the keys of how the makers of a model want tokens to be drawn.
const samplingPrefix = "general.sampling."

// samplingKeys are those keys by what transformers calls them. Others keep their names, so that who reads them can say that
// they are not known: a penalty, for one, that counts the last tokens of a text only.
var samplingKeys = map[string]string{"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}

// generation is the generation_config.json: the tokens that begin and end a text, and how tokens are drawn. nil where
// the file does not say.
func (f *File) generation() ([]byte, error) {
	c := map[string]any{}
	if id := f.Metadata.intOr("tokenizer.ggml.bos_token_id", -1); id >= 0 {
		c["bos_token_id"] = id
	}
	if ends := f.Metadata.ends(); len(ends) > 0 {
		c["eos_token_id"] = ends
	}
	for key, value := range f.Metadata {
		name, ok := strings.CutPrefix(key, samplingPrefix)
		if !ok {
			continue
		}
		if to, known := samplingKeys[name]; known {
			name, c["do_sample"] = to, true
		}
		c[name] = plainNumber(value)
	}
	if len(c) == 0 {
		return nil, nil
	}
	return json.MarshalIndent(c, "", "  ")
}

// plainNumber is a number that was rounded to 32 bits as it was meant: 0.9, not 0.8999999761581421. What JSON cannot say is left out.
func plainNumber(value any) any {
	v, ok := value.(float64)
	if !ok {
		return value
	}
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return json.Number(strconv.FormatFloat(v, 'f', -1, 32))
}

// Sampling adds how tokens are drawn, by the names that transformers has for it.
func (m Metadata) Sampling(settings map[string]any) {
	for key, name := range samplingKeys {
		if v := settings[name]; v != nil {
			m[samplingPrefix+key] = v
		}
	}
}
