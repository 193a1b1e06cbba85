package gguf

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// tokenizerFile is what is read of a tokenizer.json.
type tokenizerFile struct {
	Added []struct {
		ID      int    `json:"id"`
		Content string `json:"content"`
		Special bool   `json:"special"`
	} `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Model         struct {
		Type         string          `json:"type"`
		Vocab        json.RawMessage `json:"vocab"`
		Merges       json.RawMessage `json:"merges"`
		ByteFallback bool            `json:"byte_fallback"`
		IgnoreMerges bool            `json:"ignore_merges"`
		Unknown      *string         `json:"unk_token"`
	} `json:"model"`
}

// tokenByte and tokenUnused are further types of tokens.
const (
	tokenUnused = 5
	tokenByte   = 6
)

var byteToken = regexp.MustCompile(`^<0x[0-9A-F]{2}>$`)

// TokenizerMetadata is a tokenizer.json as the metadata of a file whose model knows so many
// tokens. A tokenizer that a GGUF file cannot describe is an error.
func TokenizerMetadata(raw []byte, vocab int) (Metadata, error) {
	var f tokenizerFile
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, fmt.Errorf("reading the tokenizer: %w", err)
	}
	if f.Model.Type != "BPE" {
		return nil, fmt.Errorf("the tokenizer is of type %q; in a GGUF file it can be BPE", f.Model.Type)
	}
	merges, err := f.merges()
	if err != nil {
		return nil, err
	}
	ids := map[string]int{}
	if err := json.Unmarshal(f.Model.Vocab, &ids); err != nil {
		return nil, fmt.Errorf("reading the tokens of the tokenizer: %w", err)
	}
	tokens, types, err := f.tokens(ids, vocab)
	if err != nil {
		return nil, err
	}
	m := Metadata{"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}
	if err := f.addEnds(m); err != nil {
		return nil, err
	}
	if !f.Model.ByteFallback {
		m["tokenizer.ggml.model"] = "gpt2"
		m["tokenizer.ggml.merges"] = lines(merges)
		m["tokenizer.ggml.pre"], err = f.pre()
		return m, err
	}
	m["tokenizer.ggml.model"], m["tokenizer.ggml.pre"] = "llama", "default"
	m["tokenizer.ggml.scores"] = scores(tokens, merges)
	m["tokenizer.ggml.add_space_prefix"] = strings.Contains(string(f.Normalizer), `"Prepend"`) || strings.Contains(string(f.PreTokenizer), `"Metaspace"`)
	if f.Model.Unknown != nil {
		if id, ok := ids[*f.Model.Unknown]; ok {
			m["tokenizer.ggml.unknown_token_id"] = int64(id)
			types[id] = tokenUnknown
		}
	}
	for id, token := range tokens {
		if byteToken.MatchString(token) && types[id] == 1 {
			types[id] = tokenByte
		}
	}
	return m, nil
}

// PiecesMetadata is a vocabulary of SentencePiece as the metadata of a file whose model knows
// so many tokens: <unk>, <s> and </s> come first, then bytes and other pieces with their scores.
func PiecesMetadata(pieces []string, scores []float32, vocab int) (Metadata, error) {
	if len(pieces) > vocab || len(pieces) != len(scores) || len(pieces) < 3 {
		return nil, fmt.Errorf("the tokenizer has %d tokens and %d scores, the model knows %d tokens", len(pieces), len(scores), vocab)
	}
	tokens, types, all := make([]string, vocab), make([]int64, vocab), make([]float64, vocab)
	for id := range tokens {
		tokens[id], types[id] = fmt.Sprintf("[PAD%d]", id), tokenUnused
		if id < len(pieces) {
			tokens[id], types[id], all[id] = pieces[id], tokenNormal, float64(scores[id])
			if byteToken.MatchString(pieces[id]) {
				types[id] = tokenByte
			}
		}
	}
	types[0], types[1], types[2] = tokenUnknown, tokenControl, tokenControl
	return Metadata{
		"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types, "tokenizer.ggml.scores": all,
		"tokenizer.ggml.unknown_token_id": int64(0), "tokenizer.ggml.bos_token_id": int64(1), "tokenizer.ggml.eos_token_id": int64(2),
		"tokenizer.ggml.add_bos_token": true, "tokenizer.ggml.add_eos_token": false, "tokenizer.ggml.add_space_prefix": true,
	}, nil
}

// merges are the pairs in their order; files have them as texts or as lists.
func (f *tokenizerFile) merges() (pairs [][2]string, err error) {
	if json.Unmarshal(f.Model.Merges, &pairs) == nil {
		return pairs, nil
	}
	var texts []string
	if err := json.Unmarshal(f.Model.Merges, &texts); err != nil {
		return nil, fmt.Errorf("reading the merges of the tokenizer: %w", err)
	}
	for _, t := range texts {
		left, right, ok := strings.Cut(t, " ")
		if !ok {
			return nil, fmt.Errorf("the merge %.60q of the tokenizer is not two tokens", t)
		}
		pairs = append(pairs, [2]string{left, right})
	}
	return pairs, nil
}

func lines(pairs [][2]string) (list []string) {
	for _, p := range pairs {
		list = append(list, p[0]+" "+p[1])
	}
	return list
}

// tokens by id, with their types. Ids that the tokenizer leaves free get names of their own.
func (f *tokenizerFile) tokens(ids map[string]int, vocab int) (tokens []string, types []int64, err error) {
	tokens, types = make([]string, vocab), make([]int64, vocab)
	for i := range tokens {
		tokens[i], types[i] = fmt.Sprintf("[PAD%d]", i), tokenUnused
	}
	set := func(id int, token string, kind int64) {
		if id < 0 || id >= vocab {
			err = fmt.Errorf("the tokenizer gives %.60q the id %d, the model knows %d tokens", token, id, vocab)
			return
		}
		tokens[id], types[id] = token, kind
	}
	for token, id := range ids {
		set(id, token, 1)
	}
	for _, a := range f.Added {
		kind := int64(tokenUser)
		if a.Special {
			kind = tokenControl
		}
		set(a.ID, a.Content, kind)
	}
	return tokens, types, err
}

// scores that rise with how early a pair is joined.
func scores(tokens []string, merges [][2]string) []float64 {
	rank := map[string]int{}
	for i, p := range merges {
		if joined := p[0] + p[1]; rank[joined] == 0 {
			rank[joined] = i + 1
		}
	}
	list := make([]float64, len(tokens))
	for id, token := range tokens {
		list[id] = -float64(len(merges) + 1)
		if r := rank[token]; r > 0 {
			list[id] = -float64(r)
		}
	}
	return list
}

// postProcessor puts tokens around a text.
type postProcessor struct {
	Single []struct {
		Special *struct {
			ID string `json:"id"`
		} `json:"SpecialToken"`
	} `json:"single"`
	Specials map[string]struct {
		IDs []int64 `json:"ids"`
	} `json:"special_tokens"`
	Processors []postProcessor `json:"processors"`
}

// addEnds says which tokens are put around a text: one before it, one after it, or none.
func (f *tokenizerFile) addEnds(m Metadata) error {
	var p postProcessor
	if f.PostProcessor != nil {
		if err := json.Unmarshal(f.PostProcessor, &p); err != nil {
			return fmt.Errorf("reading what the tokenizer puts around a text: %w", err)
		}
	}
	for _, q := range p.Processors {
		if len(q.Single) > 0 {
			p.Single, p.Specials = q.Single, q.Specials
		}
	}
	end, added := "bos", map[string]bool{"bos": false, "eos": false}
	for _, s := range p.Single {
		if s.Special == nil {
			end = "eos"
			continue
		}
		ids := p.Specials[s.Special.ID].IDs
		if len(ids) != 1 || added[end] {
			return fmt.Errorf("the tokenizer puts several tokens before or after a text, a GGUF file can say one")
		}
		m["tokenizer.ggml."+end+"_token_id"], added[end] = ids[0], true
	}
	m["tokenizer.ggml.add_bos_token"], m["tokenizer.ggml.add_eos_token"] = added["bos"], added["eos"]
	return nil
}

// step is a pre-tokenizer of a tokenizer.json.
type step struct {
	Type       string `json:"type"`
	Individual bool   `json:"individual_digits"`
	UseRegex   *bool  `json:"use_regex"`
	Prefix     bool   `json:"add_prefix_space"`
	Behavior   string `json:"behavior"`
	Invert     bool   `json:"invert"`
	Pattern    struct {
		Regex string `json:"Regex"`
	} `json:"pattern"`
	Steps []step `json:"pretokenizers"`
}

// splitter is what a step is called here; "" where it has no name.
func (s step) splitter() splitter {
	switch {
	case s.Type == "Digits" && s.Individual:
		return eachDigit
	case s.Type == "Digits":
		return digitRuns
	case s.Type == "Punctuation" && s.Behavior == "Contiguous":
		return punctuation
	case s.Type == "ByteLevel" && !s.Prefix && (s.UseRegex == nil || *s.UseRegex):
		return gpt2Words
	case s.Type == "ByteLevel" && !s.Prefix:
		return asBytes
	case s.Type == "Split" && s.Behavior == "Isolated" && !s.Invert, s.Type == "Split" && s.Behavior == "Removed" && s.Invert:
		return splitter(s.Pattern.Regex)
	}
	return ""
}

// pre finds the name of how texts are split into words.
func (f *tokenizerFile) pre() (string, error) {
	var first step
	if err := json.Unmarshal(f.PreTokenizer, &first); err != nil {
		return "", fmt.Errorf("reading how the tokenizer splits words: %w", err)
	}
	steps := first.Steps
	if first.Type != "Sequence" {
		steps = []step{first}
	}
	got := preTokenizer{ignoreMerges: f.Model.IgnoreMerges, nfc: strings.Contains(string(f.Normalizer), `"NFC"`)}
	for _, s := range steps {
		if s.splitter() == "" {
			return "", fmt.Errorf("the tokenizer splits words by %s, which has no name in GGUF files that is known", s.Type)
		}
		got.steps = append(got.steps, s.splitter())
	}
	for _, name := range []string{"llama-bpe", "qwen2", "gpt-2", "smollm", "tekken", "qwen35", "gpt-4o", "dbrx", "falcon", "deepseek-llm", "deepseek-coder", "deepseek-v3"} {
		if preTokenizers[name].equal(got) {
			return name, nil
		}
	}
	return "", fmt.Errorf("the tokenizer splits words by %.80q, which has no name in GGUF files that is known", got.steps)
}

// Ends adds the tokens that begin and end a text, where the tokenizer does not say. A file has three places for
// those that end one, and some are known by their names; over is what has no place and no such name.
func (m Metadata) Ends(bos, eos []int) (over []int) {
	const prefix, suffix = "tokenizer.ggml.", "_token_id"
	for name, ids := range map[string][]int{"bos": bos, "eos": eos} {
		if _, said := m[prefix+name+suffix]; !said && len(ids) > 0 && ids[0] >= 0 {
			m[prefix+name+suffix] = int64(ids[0])
		}
	}
	tokens, _ := m[prefix+"tokens"].([]string)
	taken := map[int64]bool{}
	for _, place := range []string{"eos", "eot", "eom"} {
		if id, ok := m[prefix+place+suffix].(int64); ok {
			taken[id] = true
		}
	}
	for _, id := range eos {
		if id < 0 || taken[int64(id)] {
			continue
		}
		places := []string{"eot", "eom"}
		if id < len(tokens) && tokens[id] == "<|eom_id|>" { // as llama.cpp knows it; that of a turn keeps its place
			places = []string{"eom"}
		}
		at := slices.IndexFunc(places, func(place string) bool { _, said := m[prefix+place+suffix]; return !said })
		if at < 0 {
			if id >= len(tokens) || !slices.Contains(endNames, tokens[id]) {
				over = append(over, id)
			}
			continue
		}
		m[prefix+places[at]+suffix], taken[int64(id)] = int64(id), true
	}
	return over
}
