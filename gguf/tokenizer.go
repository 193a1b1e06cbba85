package gguf

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// object is a JSON object.
type object = map[string]any

// Types of tokens.
const (
	tokenNormal  = 1
	tokenUnknown = 2
	tokenControl = 3
	tokenUser    = 4
)

// vocabulary is the tokenizer of a file.
type vocabulary struct {
	m      Metadata
	tokens []string
	kinds  []int64 // nil where the file does not say
}

// vocabulary reads the tokens; nil where the file has none.
func (f *File) vocabulary() (*vocabulary, error) {
	m := f.Metadata
	v := &vocabulary{m: m}
	if m["tokenizer.ggml.model"] == nil || m["tokenizer.ggml.model"] == "none" {
		return nil, nil
	}
	var ok bool
	if v.tokens, ok = m["tokenizer.ggml.tokens"].([]string); !ok || len(v.tokens) == 0 {
		return nil, fmt.Errorf("its metadata has a tokenizer without tokens")
	}
	v.kinds, _ = m["tokenizer.ggml.token_type"].([]int64)
	if v.kinds != nil && len(v.kinds) != len(v.tokens) {
		return nil, fmt.Errorf("its tokenizer has %d tokens and the types of %d", len(v.tokens), len(v.kinds))
	}
	return v, nil
}

// tokenizer is the tokenizer.json that the tokenizers library would read.
func (v *vocabulary) tokenizer() ([]byte, error) {
	var file object
	var err error
	switch kind := v.m.textOr("tokenizer.ggml.model", ""); kind {
	case "gpt2":
		file, err = v.byteLevel()
	case "llama", "gemma4":
		file, err = v.sentencePiece()
	case "bert":
		file, err = v.wordPiece()
	default:
		return nil, fmt.Errorf("its tokenizer is of kind %q; read are gpt2, llama, gemma4 and bert", kind)
	}
	if err != nil {
		return nil, err
	}
	file["version"], file["truncation"], file["padding"] = "1.0", nil, nil
	if file["added_tokens"], err = v.added(); err != nil {
		return nil, err
	}
	return json.Marshal(file)
}

// kind of a token; 1 is a normal one.
func (v *vocabulary) kind(id int) int64 {
	if v.kinds == nil {
		return 1
	}
	return v.kinds[id]
}

// addedToken is one as tokenizer.json has it.
type addedToken struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// Bounds of what a vocabulary may ask for: tokens that are looked for in a text, and bytes of
// a token that is joined from others, all of whose splits are tried.
const (
	maxAdded = 1 << 16
	maxToken = 1 << 10
)

// added are the tokens that are found in a text before it is split.
func (v *vocabulary) added() ([]addedToken, error) {
	list := []addedToken{}
	for id, token := range v.tokens {
		if kind := v.kind(id); kind == tokenControl || kind == tokenUser || kind == tokenUnknown {
			list = append(list, addedToken{ID: id, Content: token, Special: kind != tokenUser})
		}
		if len(list) > maxAdded {
			return nil, fmt.Errorf("more than %d of its %d tokens are control tokens or tokens of the user, which is too many to look for in a text", maxAdded, len(v.tokens))
		}
	}
	return list, nil
}

// ids of the tokens that are not found before.
func (v *vocabulary) ids(leave ...int64) map[string]int {
	ids := make(map[string]int, len(v.tokens))
	for id, token := range v.tokens {
		if _, twice := ids[token]; !twice && !slices.Contains(leave, v.kind(id)) {
			ids[token] = id
		}
	}
	return ids
}

// byteLevel is a tokenizer that joins pairs of bytes, as GPT-2's does.
func (v *vocabulary) byteLevel() (object, error) {
	name := v.m.textOr("tokenizer.ggml.pre", "")
	pre, known := preTokenizers[name]
	if !known {
		return nil, fmt.Errorf("its texts are split into words as %q, which is not known; known are %s", name, strings.Join(slices.Sorted(maps.Keys(preTokenizers)), ", "))
	}
	if v.m["tokenizer.ggml.merges"] == nil { // every byte would be a token
		return nil, fmt.Errorf("its tokenizer is of kind gpt2 and lacks tokenizer.ggml.merges, without which no tokens are joined; convert the model again")
	}
	merges, err := v.merges()
	if err != nil {
		return nil, err
	}
	steps := make([]object, len(pre.steps))
	for i, step := range pre.steps {
		steps[i] = step.object()
	}
	file := object{
		"model":         object{"type": "BPE", "vocab": v.ids(tokenControl, tokenUser), "merges": merges, "ignore_merges": pre.ignoreMerges},
		"pre_tokenizer": object{"type": "Sequence", "pretokenizers": steps},
		"decoder":       object{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
	}
	if pre.nfc {
		file["normalizer"] = object{"type": "NFC"}
	}
	file["post_processor"], err = v.ends(pre.bos)
	return file, err
}

// merges are the pairs of tokens that are joined, the first first.
func (v *vocabulary) merges() ([][2]string, error) {
	lines, _ := v.m["tokenizer.ggml.merges"].([]string)
	merges := make([][2]string, len(lines))
	for i, line := range lines {
		left, right, ok := strings.Cut(line, " ")
		if !ok || left == "" || right == "" {
			return nil, fmt.Errorf("line %d of its merges is %.60q, which is not two tokens", i, line)
		}
		merges[i] = [2]string{left, right}
	}
	return merges, nil
}

// wordPiece is a tokenizer that takes the longest tokens of a word, as BERT's does. Files have a
// mark before tokens that begin a word, BERT has one before all others.
func (v *vocabulary) wordPiece() (object, error) {
	const begins, goesOn = "▁", "##"
	ids := make(map[string]int, len(v.tokens))
	for id, token := range v.tokens {
		word, isFirst := strings.CutPrefix(token, begins)
		switch {
		case isFirst:
			token = word
		case v.kind(id) == tokenNormal && !(strings.HasPrefix(token, "[") && strings.HasSuffix(token, "]")):
			token = goesOn + token
		}
		if _, twice := ids[token]; !twice {
			ids[token] = id
		}
	}
	unknown, err := v.special("unknown", -1)
	if err != nil || unknown == "" {
		return nil, errors.Join(errors.New("its tokenizer names no unknown token"), err)
	}
	file := object{
		"model":         object{"type": "WordPiece", "vocab": ids, "unk_token": unknown, "continuing_subword_prefix": goesOn, "max_input_chars_per_word": 100},
		"normalizer":    object{"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": nil, "lowercase": true},
		"pre_tokenizer": object{"type": "BertPreTokenizer"},
		"decoder":       object{"type": "WordPiece", "prefix": goesOn, "cleanup": true},
	}
	file["post_processor"], err = v.around("cls", "seperator")
	return file, err
}

// sentencePiece is a tokenizer whose pairs are joined in the order of the scores of what they
// become.
func (v *vocabulary) sentencePiece() (object, error) {
	merges, err := v.merges()
	if err != nil {
		return nil, err
	}
	scores, _ := v.m["tokenizer.ggml.scores"].([]float64)
	if len(scores) != len(v.tokens) && len(merges) == 0 {
		return nil, fmt.Errorf("its tokenizer has %d tokens and the scores of %d", len(v.tokens), len(scores))
	}
	for id, token := range v.tokens {
		if len(token) > maxToken && v.kind(id) == tokenNormal {
			return nil, fmt.Errorf("its token %d has %d bytes, at most %d are read", id, len(token), maxToken)
		}
	}
	ids := v.ids()
	if len(merges) == 0 {
		merges = scoreMerges(v.tokens, scores, ids)
	}
	unknown, err := v.special("unknown", 0)
	if err != nil {
		return nil, err
	}
	normalizers := []object{{"type": "Replace", "pattern": object{"String": " "}, "content": "▁"}}
	strip := []object{}
	if v.flag("add_space_prefix", true) {
		normalizers = append([]object{{"type": "Prepend", "prepend": "▁"}}, normalizers...)
		strip = []object{{"type": "Strip", "content": " ", "start": 1, "stop": 0}}
	}
	file := object{
		"model":      object{"type": "BPE", "vocab": ids, "merges": merges, "byte_fallback": true, "fuse_unk": true, "unk_token": unknown},
		"normalizer": object{"type": "Sequence", "normalizers": normalizers},
		"decoder": object{"type": "Sequence", "decoders": append([]object{
			{"type": "Replace", "pattern": object{"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
		}, strip...)},
	}
	file["post_processor"], err = v.ends(true)
	return file, err
}

// scoreMerges lists the pairs of tokens that together are a token, the best first.
func scoreMerges(tokens []string, scores []float64, ids map[string]int) [][2]string {
	type merge struct {
		pair  [2]string
		score float64
		left  int
		right int
	}
	var all []merge
	for id, token := range tokens {
		if ids[token] != id || len(token) > maxToken {
			continue
		}
		for at := range token {
			left, isLeft := ids[token[:at]]
			right, isRight := ids[token[at:]]
			if at > 0 && isLeft && isRight {
				all = append(all, merge{[2]string{token[:at], token[at:]}, scores[id], left, right})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b merge) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.left, b.left), cmp.Compare(a.right, b.right))
	})
	pairs := make([][2]string, len(all))
	for i, m := range all {
		pairs[i] = m.pair
	}
	return pairs
}

func (v *vocabulary) flag(name string, otherwise bool) bool {
	if b, ok := v.m["tokenizer.ggml."+name].(bool); ok {
		return b
	}
	return otherwise
}

// special is the text of a token that the metadata names by id; "" where it names none.
func (v *vocabulary) special(name string, otherwise int64) (string, error) {
	id := v.m.intOr("tokenizer.ggml."+name+"_token_id", otherwise)
	if id < 0 {
		return "", nil
	}
	if id >= int64(len(v.tokens)) {
		return "", fmt.Errorf("its token %s has the id %d of %d", name, id, len(v.tokens))
	}
	return v.tokens[id], nil
}

// ends is what is put around a text: nil for nothing.
func (v *vocabulary) ends(bosByDefault bool) (any, error) {
	var before, after string
	if v.flag("add_bos_token", bosByDefault) {
		before = "bos"
	}
	if v.flag("add_eos_token", false) {
		after = "eos"
	}
	return v.around(before, after)
}

// around puts two tokens that the metadata names around a text, where it names them.
func (v *vocabulary) around(before, after string) (any, error) {
	template, special := []object{{"Sequence": object{"id": "A", "type_id": 0}}}, object{}
	for _, name := range []string{before, after} {
		token, err := v.special(name, -1)
		if err != nil {
			return nil, err
		}
		if name == "" || token == "" {
			continue
		}
		step := []object{{"SpecialToken": object{"id": token, "type_id": 0}}}
		if name == before {
			template = append(step, template...)
		} else {
			template = append(template, step...)
		}
		special[token] = object{"id": token, "ids": []int64{v.m.intOr("tokenizer.ggml."+name+"_token_id", -1)}, "tokens": []string{token}}
	}
	if len(special) == 0 {
		return nil, nil
	}
	return object{"type": "TemplateProcessing", "single": template, "pair": template, "special_tokens": special}, nil
}

// ToolsTemplate is the name of the chat template for conversations with tools, where a model has one of its own.
const ToolsTemplate = "tool_use"

// settings is the tokenizer_config.json: special tokens and the chat templates.
func (v *vocabulary) settings() ([]byte, error) {
	c := object{"tokenizer_class": "PreTrainedTokenizerFast"}
	for key, name := range map[string]string{"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"} {
		token, err := v.special(name, -1)
		if err != nil {
			return nil, err
		}
		if token != "" {
			c[key] = token
		}
	}
	if t, ok := v.m["tokenizer.chat_template"].(string); ok {
		c["chat_template"] = t
		if tools, ok := v.m["tokenizer.chat_template."+ToolsTemplate].(string); ok {
			c["chat_template"] = []object{{"name": "default", "template": t}, {"name": ToolsTemplate, "template": tools}}
		}
	}
	return json.MarshalIndent(c, "", "  ")
}
