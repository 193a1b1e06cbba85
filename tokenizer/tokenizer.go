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
	"fmt"
	"sync"
	"unicode/utf8"

	"spillway/internal/vfs"
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
	bytewise   bool // every byte is an id
	pool       sync.Pool
}

// maxFile is the size in bytes of the largest file that is read. The largest known has
// 33 MB.
const maxFile = 128 << 20

// failure is what reading a file, encoding and decoding panic with, deep inside their
// stages; the exported functions return the error.
type failure struct{ error }

func failf(format string, args ...any) failure { return failure{fmt.Errorf(format, args...)} }

// check panics if there is an error.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// recoverFailure turns a failure into an error that says what was being done.
func recoverFailure(err *error, doing string) {
	switch f := recover().(type) {
	case nil:
	case failure:
		*err = fmt.Errorf("%s: %w", doing, f.error)
	default:
		panic(f)
	}
}

// within does something and puts a name before its failure.
func within(name string, do func()) {
	var err error
	func() {
		defer recoverFailure(&err, name)
		do()
	}()
	check(err)
}

// Open reads a tokenizer.json.
func Open(path string) (*Tokenizer, error) { return open(path, Parse) }

func open(path string, parse func([]byte) (*Tokenizer, error)) (*Tokenizer, error) {
	data, err := vfs.ReadFile(vfs.OS, path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("open tokenizer: %w", err)
	}
	t, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// Parse reads the contents of a tokenizer.json.
func Parse(data []byte) (*Tokenizer, error) { return parseDeclared(data, declaration{}, 0) }

// parseDeclared is Parse with what other files declare. Ids of further tokens are below most.
func parseDeclared(data []byte, declared declaration, most int64) (_ *Tokenizer, err error) {
	defer recoverFailure(&err, "parse tokenizer")
	var file struct {
		Added      []addedToken    `json:"added_tokens"`
		Normalizer json.RawMessage `json:"normalizer"`
		Pre        json.RawMessage `json:"pre_tokenizer"`
		Post       json.RawMessage `json:"post_processor"`
		Decoder    json.RawMessage `json:"decoder"`
		Model      json.RawMessage `json:"model"`
	}
	if !utf8.Valid(data) {
		panic(failf("the file is not UTF-8"))
	}
	check(json.Unmarshal(data, &file))
	t := &Tokenizer{}
	within("model", func() { t.model, t.vocab = parseModel(file.Model) })
	within("normalizer", func() { t.norm = parseNormalizers(file.Normalizer) })
	within("added_tokens", func() {
		added := append(file.Added, t.vocab.missing(file.Added, declared.tokens, most)...)
		t.original, t.normalized = t.vocab.addTokens(added, t.norm, declared.splitSpecial)
	})
	within("pre_tokenizer", func() {
		if declared.prefixSpace != nil {
			file.Pre = withPrefixSpace(file.Pre, *declared.prefixSpace)
		}
		t.pre = parsePreTokenizers(file.Pre)
	})
	within("post_processor", func() { t.affixes = parsePostProcessors(file.Post, t.vocab) })
	within("decoder", func() { t.decoder = parseDecoders(file.Decoder) })
	return t.finish(), nil
}

// finish completes a tokenizer whose stages are set. A byte-level BPE model reads bytes
// itself, so the step that writes bytes as letters is dropped.
func (t *Tokenizer) finish() *Tokenizer {
	if m, ok := t.model.(*bpe); ok {
		if last := len(t.pre) - 1; last >= 0 && t.pre[last] == (byteLevel{}) && m.useBytes() {
			t.pre = t.pre[:last]
		} else if m.splitAt != "" {
			t.pre = append(t.pre, beforeLetter(m.splitAt))
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

func parseModel(raw json.RawMessage) (model, *vocab) {
	if len(raw) == 0 || string(raw) == "null" {
		panic(failf("the file has none"))
	}
	var file modelFile
	check(json.Unmarshal(raw, &file))
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
	panic(failf("%s is not supported; BPE, Unigram and WordPiece are", excerpt(file.Type)))
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
func eachStep(raw json.RawMessage, listName string, visit func(kind string, raw json.RawMessage)) {
	left := maxSteps
	var walk func(raw json.RawMessage, depth int)
	walk = func(raw json.RawMessage, depth int) {
		if len(raw) == 0 || string(raw) == "null" {
			return
		}
		var step map[string]json.RawMessage
		check(json.Unmarshal(raw, &step))
		var kind string
		if err := json.Unmarshal(step["type"], &kind); err != nil {
			panic(failf("a step without a type: %s", excerpt(string(raw))))
		}
		if kind != "Sequence" {
			if left--; left < 0 {
				panic(failf("more than %d steps", maxSteps))
			}
			within(kind, func() { visit(kind, raw) })
			return
		}
		if depth == maxSteps {
			panic(failf("Sequences nested more than %d deep", maxSteps))
		}
		var list []json.RawMessage
		if err := json.Unmarshal(step[listName], &list); err != nil {
			panic(failf("Sequence without a list of %s", listName))
		}
		for _, inner := range list {
			walk(inner, depth+1)
		}
	}
	walk(raw, 0)
}

// parsed reads a JSON object over the defaults of its fields.
func parsed[T any](raw json.RawMessage, defaults T) T {
	check(json.Unmarshal(raw, &defaults))
	return defaults
}

// VocabSize is one more than the largest id. Every id Encode returns is below it.
func (t *Tokenizer) VocabSize() int { return len(t.vocab.tokens) }

// ID returns the id of a token as the file writes it: "Ġhello", "<s>".
func (t *Tokenizer) ID(token string) (int32, bool) { return t.vocab.id(token) }

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
