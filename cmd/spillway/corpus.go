package main

import (
	"errors"
	"fmt"
	"io"
	"os"
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
		return byteTokens{}, checkVocabulary(byteCount, m)
	}
	if name == "" {
		return nil, fmt.Errorf("%s has no %s; name one with --tokenizer, or bytes for a model that reads bytes", m.Name, tokenizerFile)
	}
	open := tokenizer.Open
	if filepath.Ext(name) == ".bin" {
		open = tokenizer.OpenLlama2C
	}
	t, err := open(name)
	if err != nil {
		return nil, err
	}
	return t, checkVocabulary(t.VocabSize(), m)
}

const tokenizerFile = "tokenizer.json"

// fewer refuses a tokenizer that knows tokens the model does not.
func checkVocabulary(tokens int, m *spillway.Model) error {
	if int64(tokens) > m.Info.Vocab {
		return fmt.Errorf("the tokenizer has %d tokens, %s only %d; use the tokenizer the model was made with", tokens, m.Name, m.Info.Vocab)
	}
	return nil
}

// endToken is what ends a text for a model, nil where its config names none.
func eosToken(model string) (*int32, error) {
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

// tokensExt is how names of files end that hold tokens.
const tokensExt = ".bin"

// corpus is the text to train on, from files that stay open.
type corpus struct {
	data.Source
	open     []io.Closer
	bytes    int64
	answers  bool  // some of it is given, only the rest is learned
	skipped  int64 // bad lines that were left out
	firstBad error // of them
}

// openCorpus opens files by their endings: .jsonl are lines of JSON, .bin are tokens,
// others plain text. show is told how far it is.
func (o *dataOptions) openCorpus(files []string, r reading, show func(what string, done, total int64)) (c *corpus, err error) {
	c = &corpus{}
	var sources []data.Source
	for _, name := range files {
		source, err := o.openFile(c, name, r, func(done, total int64) { show("reading "+filepath.Base(name), done, total) })
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		if info, err := os.Stat(name); err == nil {
			c.bytes += info.Size()
		}
		sources = append(sources, source)
	}
	c.Source = data.Concat(sources...)
	return c, nil
}

func (o *dataOptions) openFile(c *corpus, name string, r reading, progress func(done, total int64)) (data.Source, error) {
	var records *data.Records
	var err error
	switch filepath.Ext(name) {
	case tokensExt:
		return o.openTokens(c, name, r)
	case ".json":
		return nil, fmt.Errorf("%s: JSON is read from files with an object per line; write it so, with a name that ends in .jsonl", name)
	case ".jsonl", ".ndjson":
		records, err = data.OpenJSONL(name, o.lines(r, progress))
	default:
		records, err = data.OpenText(name, data.TextOptions{SkipBad: o.skipBad})
	}
	var bad *data.BadLineError
	if errors.As(err, &bad) {
		err = fmt.Errorf("%w (--skip-bad-lines leaves them out and counts them)", err)
	}
	if err != nil {
		return nil, err
	}
	c.open = append(c.open, records)
	c.answers = c.answers || records.Format() != data.Plain
	skipped, first := records.Skipped()
	if c.skipped += skipped; c.firstBad == nil {
		c.firstBad = first
	}
	return data.Tokenize(records, r.tokenizer, data.TokenizeOptions{End: r.end, TrainOnPrompts: o.trainOnPrompts}), nil
}

// openTokens opens a file of tokens; where their size is not said it is that of the
// vocabulary.
func (o *dataOptions) openTokens(c *corpus, name string, r reading) (data.Source, error) {
	width := o.tokenBytes
	if width == 0 {
		width = 2
		if r.vocabulary > 1<<16 {
			width = 4
		}
	}
	t, err := data.OpenTokens(name, data.TokenOptions{Width: width, End: r.end, Vocabulary: int32(r.vocabulary)})
	if err != nil {
		return nil, err
	}
	c.open = append(c.open, t)
	return t, nil
}

// lines are the options of files with a JSON object per line.
func (o *dataOptions) lines(r reading, progress func(done, total int64)) data.JSONLOptions {
	l := data.JSONLOptions{PromptSeparator: "\n", SkipBad: o.skipBad, Progress: progress, Template: r.template}
	if o.format != autoForm {
		l.Format = data.Format(o.format)
	}
	if o.fields != "" {
		l.Fields = strings.Split(o.fields, ":")
	}
	return l
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
