package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"spillway"
	"spillway/data"
	"spillway/hf"
	"spillway/tokenizer"
)

// byteTokens is the tokenizer of models that read bytes: each is a token.
type byteTokens struct{}

// Encode gives the bytes of a text.
func (byteTokens) Encode(text string, _ bool) ([]int32, error) {
	ids := make([]int32, len(text))
	for i := range len(text) {
		ids[i] = int32(text[i])
	}
	return ids, nil
}

// byteText is what bytes that were generated say, anything unprintable as a dot.
func byteText(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		if id != '\n' && (id < ' ' || id > '~') {
			id = '.'
		}
		b.WriteByte(byte(id))
	}
	return b.String()
}

// bytesName is the --tokenizer of models that read bytes; they have so many tokens.
const (
	bytesName = "bytes"
	byteCount = 256
)

// findTokenizer is the one named, the one in the model's folder, or that of a model
// of 256 tokens, which must be bytes.
func findTokenizer(m *spillway.Model, name string) (data.Tokenizer, error) {
	if name == "" && m.Folder != nil && slices.Contains(m.Folder.Tokenizer, tokenizerFile) {
		name = filepath.Join(m.Folder.Dir, tokenizerFile)
	}
	if name == "" && m.Info.Vocab == byteCount || name == bytesName {
		return byteTokens{}, fewer(byteCount, m)
	}
	if name == "" {
		return nil, fmt.Errorf("%s has no %s; name one with --tokenizer, or bytes for a model that reads bytes", m.Name, tokenizerFile)
	}
	t, err := tokenizer.Open(name)
	if err != nil {
		return nil, err
	}
	return t, fewer(t.VocabSize(), m)
}

const tokenizerFile = "tokenizer.json"

// fewer refuses a tokenizer that knows tokens the model does not.
func fewer(tokens int, m *spillway.Model) error {
	if int64(tokens) > m.Info.Vocab {
		return fmt.Errorf("the tokenizer has %d tokens, %s only %d; use the tokenizer the model was made with", tokens, m.Name, m.Info.Vocab)
	}
	return nil
}

// endToken is what ends a text for a model, nil where its config names none.
func endToken(model string) (*int32, error) {
	raw, err := findConfig(model)
	if err != nil {
		return nil, err
	}
	config, err := hf.ParseConfig(raw)
	if err != nil || len(config.EOS) == 0 {
		return nil, err
	}
	end := int32(config.EOS[0])
	return &end, nil
}

// corpus is the text to train on, from files that stay open.
type corpus struct {
	data.Source
	open []io.Closer
}

// openCorpus opens files by their endings: .jsonl are lines of JSON, others plain text.
func openCorpus(files []string, t data.Tokenizer, end *int32, fields string) (c *corpus, err error) {
	c = &corpus{}
	var sources []data.Source
	for _, name := range files {
		records, err := openRecords(name, fields)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.open = append(c.open, records)
		sources = append(sources, data.Tokenize(records, t, data.TokenizeOptions{End: end}))
	}
	c.Source = data.Concat(sources...)
	return c, nil
}

func openRecords(name, fields string) (*data.Records, error) {
	if ext := filepath.Ext(name); ext != ".jsonl" && ext != ".ndjson" {
		return data.OpenText(name, data.TextOptions{})
	}
	return data.OpenJSONL(name, data.JSONLOptions{Fields: strings.Split(fields, ":"), Join: "\n"})
}

func (c *corpus) close() error {
	var errs []error
	for _, f := range c.open {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// texts is a corpus in memory.
type texts []string

// Len is the number of texts.
func (t texts) Len() int64 { return int64(len(t)) }

// Document is a text as bytes.
func (t texts) Document(i int64) (data.Document, error) {
	ids, err := byteTokens{}.Encode(t[i], false)
	return data.Document{Tokens: ids}, err
}
