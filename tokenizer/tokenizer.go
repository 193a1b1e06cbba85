// Package tokenizer turns text into token ids and back, exactly as a Hugging Face
// tokenizer.json says.
//
// A text passes five stages on its way to ids, each described by the file:
//
//	added tokens    "<|im_start|>" and the like are cut out whole     added.go
//	normalizers     characters are rewritten: NFC, '▁' for ' '        normalize.go
//	pre-tokenizers  what is left is cut into words                    pretokenize.go, split.go, scan.go
//	model           words become ids: BPE, Unigram, WordPiece         bpe.go, unigram.go, wordpiece.go
//	post-processor  <s> and </s> are put around them                  postprocess.go
//
// and a chain of decoders (decode.go) turns ids back into text. Results are those of the
// tokenizers library, which the tests compare against; where that library would silently
// drop a character, this package returns an error. The file's truncation and padding
// settings concern batches and are ignored.
//
// Files may be hostile: time and memory are bounded by the size of the file and of the
// text, and a Tokenizer never panics.
package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"unicode/utf8"
)

// Tokenizer turns text into ids and ids into text. It is safe for concurrent use.
type Tokenizer struct {
	vocab      *vocab
	original   *finder // finds added tokens in the original text
	normalized *finder // finds added tokens in the normalized text
	norm       normalizers
	pre        []preTokenizer
	model      model
	affixes    affixes
	decoder    decoders
	anyBytes   bool // text need not be UTF-8
	pool       sync.Pool
}

// maxFile is the size in bytes of the largest file that is read. The largest known has
// 33 MB.
const maxFile = 256 << 20

// Open reads a tokenizer.json.
func Open(path string) (*Tokenizer, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("open tokenizer: %w", err)
	}
	t, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return data, err
}

// Parse reads the contents of a tokenizer.json.
func Parse(data []byte) (*Tokenizer, error) {
	var file struct {
		Added      []addedToken    `json:"added_tokens"`
		Normalizer json.RawMessage `json:"normalizer"`
		Pre        json.RawMessage `json:"pre_tokenizer"`
		Post       json.RawMessage `json:"post_processor"`
		Decoder    json.RawMessage `json:"decoder"`
		Model      json.RawMessage `json:"model"`
	}
	if !utf8.Valid(data) {
		return nil, errors.New("parse tokenizer: the file is not UTF-8")
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("parse tokenizer: %w", err)
	}
	t := &Tokenizer{}
	for _, stage := range []struct {
		name  string
		parse func() error
	}{
		{"model", func() (err error) { t.model, t.vocab, err = parseModel(file.Model); return }},
		{"normalizer", func() (err error) { t.norm, err = parseNormalizers(file.Normalizer); return }},
		{"added_tokens", func() (err error) {
			t.original, t.normalized, err = t.vocab.addTokens(file.Added, t.norm)
			return
		}},
		{"pre_tokenizer", func() (err error) { t.pre, err = parsePreTokenizers(file.Pre); return }},
		{"post_processor", func() (err error) { t.affixes, err = parsePostProcessors(file.Post, t.vocab); return }},
		{"decoder", func() (err error) { t.decoder, err = parseDecoders(file.Decoder); return }},
	} {
		if err := stage.parse(); err != nil {
			return nil, fmt.Errorf("parse tokenizer: %s: %w", stage.name, err)
		}
	}
	return t.finish(), nil
}

// finish completes a tokenizer whose stages are set. A byte-level BPE model reads bytes
// itself, so the step that writes bytes as letters is dropped.
func (t *Tokenizer) finish() *Tokenizer {
	if last := len(t.pre) - 1; last >= 0 && t.pre[last] == (byteLevel{}) {
		if m, ok := t.model.(*bpe); ok && m.useBytes() {
			t.pre = t.pre[:last]
		}
	}
	t.pool.New = func() any { return &scratch{cache: newWordCache()} }
	return t
}

// modelFile is the model object of the file: the fields of all types of models.
type modelFile struct {
	Type         string          `json:"type"`
	Vocab        json.RawMessage `json:"vocab"`
	Merges       json.RawMessage `json:"merges"`
	Unknown      *string         `json:"unk_token"`
	UnknownID    *int64          `json:"unk_id"`
	FuseUnknown  bool            `json:"fuse_unk"`
	Fallback     bool            `json:"byte_fallback"`
	Prefix       *string         `json:"continuing_subword_prefix"`
	Suffix       *string         `json:"end_of_word_suffix"`
	IgnoreMerges bool            `json:"ignore_merges"`
	Dropout      *float64        `json:"dropout"`
	MaxChars     *int            `json:"max_input_chars_per_word"`
}

func parseModel(raw json.RawMessage) (model, *vocab, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil, errors.New("the file has none")
	}
	var file modelFile
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, nil, err
	}
	if file.Type == "" && file.Merges != nil { // old files leave it out
		file.Type = "BPE"
	}
	switch file.Type {
	case "BPE":
		return parseBPE(&file)
	case "Unigram":
		return parseUnigram(&file)
	case "WordPiece":
		return parseWordPiece(&file)
	}
	return nil, nil, fmt.Errorf("%s is not supported; BPE, Unigram and WordPiece are", excerpt(file.Type))
}

// valueOr returns the value of an optional field.
func valueOr[T any](field *T, otherwise T) T {
	if field == nil {
		return otherwise
	}
	return *field
}

// maxSteps limits the steps of a normalizer, pre-tokenizer, post-processor or decoder,
// because each may lengthen the text.
const maxSteps = 12

// eachStep calls visit for every step of a stage: none for null, one for a plain step,
// and those listed under listName for a Sequence. A Sequence inside a Sequence is
// flattened.
func eachStep(raw json.RawMessage, listName string, visit func(kind string, raw json.RawMessage) error) error {
	left := maxSteps
	var walk func(raw json.RawMessage, depth int) error
	walk = func(raw json.RawMessage, depth int) error {
		if len(raw) == 0 || string(raw) == "null" {
			return nil
		}
		var step map[string]json.RawMessage
		if err := json.Unmarshal(raw, &step); err != nil {
			return err
		}
		var kind string
		if err := json.Unmarshal(step["type"], &kind); err != nil {
			return fmt.Errorf("a step without a type: %s", excerpt(string(raw)))
		}
		if kind != "Sequence" {
			if left--; left < 0 {
				return fmt.Errorf("more than %d steps", maxSteps)
			}
			if err := visit(kind, raw); err != nil {
				return fmt.Errorf("%s: %w", kind, err)
			}
			return nil
		}
		if depth == maxSteps {
			return fmt.Errorf("Sequences nested more than %d deep", maxSteps)
		}
		var list []json.RawMessage
		if err := json.Unmarshal(step[listName], &list); err != nil {
			return fmt.Errorf("Sequence without a list of %s", listName)
		}
		for _, inner := range list {
			if err := walk(inner, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	return walk(raw, 0)
}

// unmarshalInto reads one field of a JSON object. A missing field leaves into
// unchanged.
func unmarshalInto(raw json.RawMessage, into any, name string) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return err
	}
	value, ok := fields[name]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(value, into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// VocabSize is one more than the largest id. Every id Encode returns is below it.
func (t *Tokenizer) VocabSize() int { return len(t.vocab.tokens) }

// ID returns the id of a token as the file writes it: "Ġhello", "<s>".
func (t *Tokenizer) ID(token string) (int32, bool) {
	return t.vocab.id(token)
}

// Token is the inverse of ID.
func (t *Tokenizer) Token(id int32) (string, bool) {
	if !t.vocab.has(id) {
		return "", false
	}
	return t.vocab.tokens[id], true
}

// Special reports whether id is a special token such as <s>, which is not part of the
// text.
func (t *Tokenizer) Special(id int32) bool { return t.vocab.has(id) && t.vocab.special[id] }
