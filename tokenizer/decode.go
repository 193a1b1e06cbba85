package tokenizer

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// decoder transforms a list of tokens, a step on the way to their text.
type decoder interface {
	decode(tokens []string) ([]string, error)
}

// decoders are applied one after the other, and the results are joined. If the file has
// none (nil), tokens are joined with spaces.
type decoders []decoder

// Decode turns ids into text. skipSpecial leaves out special tokens such as <s>. Bytes
// that are not UTF-8, such as half a character at the end, become U+FFFD; see Stream
// for text that is still being generated.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) (string, error) {
	tokens := make([]string, 0, len(ids))
	for i, id := range ids {
		if !t.vocab.has(id) {
			return "", fmt.Errorf("decode: id %d at position %d is not a token; the vocabulary has %d ids", id, i, t.VocabSize())
		}
		if !skipSpecial || !t.vocab.special[id] {
			tokens = append(tokens, t.vocab.shown[id])
		}
	}
	text, err := t.decoder.text(tokens)
	if err != nil {
		return "", fmt.Errorf("decode: %w", err)
	}
	return text, nil
}

func (list decoders) text(tokens []string) (string, error) {
	if list == nil {
		return strings.Join(tokens, " "), nil
	}
	before := totalLen(tokens)
	for _, d := range list {
		var err error
		if tokens, err = d.decode(tokens); err != nil {
			return "", err
		}
		if err := checkGrowth(before, totalLen(tokens)); err != nil {
			return "", err
		}
	}
	return strings.Join(tokens, ""), nil
}

func totalLen(tokens []string) int {
	n := 0
	for _, token := range tokens {
		n += len(token)
	}
	return n
}

// parseDecoders reads one decoder, a Sequence of them, or null.
func parseDecoders(raw json.RawMessage) (decoders, error) {
	var list decoders
	if len(raw) > 0 && string(raw) != "null" {
		list = decoders{}
	}
	err := eachStep(raw, "decoders", func(kind string, raw json.RawMessage) error {
		d, err := parseDecoder(kind, raw)
		list = append(list, d)
		return err
	})
	return list, err
}

func parseDecoder(kind string, raw json.RawMessage) (decoder, error) {
	switch kind {
	case "ByteLevel":
		return lettersToBytes{}, nil
	case "ByteFallback":
		return byteTokensToText{}, nil
	case "Fuse":
		return fuse{}, nil
	case "Replace":
		return parseReplace(raw)
	case "Strip":
		return parseStripDecoder(raw)
	case "Metaspace":
		m, err := parseMetaspace(raw)
		return (*metaspaceDecoder)(m), err
	case "WordPiece":
		return parseWordPieceDecoder(raw)
	case "BPEDecoder":
		d := &suffixDecoder{"</w>"}
		return d, unmarshalInto(raw, &d.suffix, "suffix")
	}
	return nil, fmt.Errorf("decoder %s is not supported", excerpt(kind))
}

func (n *replace) decode(tokens []string) ([]string, error) {
	out := make([]string, len(tokens))
	for i, token := range tokens {
		var err error
		if out[i], err = n.normalize(token); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// lettersToBytes undoes byteLevel. A token with other characters, such as an added one,
// stays as it is.
type lettersToBytes struct{}

func (lettersToBytes) decode(tokens []string) ([]string, error) {
	var bytes []byte
	for _, token := range tokens {
		if plain, ok := fromLetters(token); ok {
			token = plain
		}
		bytes = append(bytes, token...)
	}
	return []string{validUTF8(bytes)}, nil
}

// byteTokensToText joins runs of byte tokens such as <0x0A>. A run that is not UTF-8
// becomes one U+FFFD per byte.
type byteTokensToText struct{}

func (byteTokensToText) decode(tokens []string) ([]string, error) {
	var out []string
	var run []byte
	flush := func() {
		if len(run) > 0 && utf8.Valid(run) {
			out = append(out, string(run))
		} else if len(run) > 0 {
			out = append(out, strings.Repeat("\uFFFD", len(run)))
		}
		run = run[:0]
	}
	for _, token := range tokens {
		if b, ok := byteToken(token); ok {
			run = append(run, b)
			continue
		}
		flush()
		out = append(out, token)
	}
	flush()
	return out, nil
}

func byteToken(token string) (byte, bool) {
	if len(token) != 6 || token[:3] != "<0x" || token[5] != '>' {
		return 0, false
	}
	b, err := strconv.ParseUint(token[3:5], 16, 8)
	return byte(b), err == nil
}

// fuse joins all tokens into one, so that the next decoder sees the whole text.
type fuse struct{}

func (fuse) decode(tokens []string) ([]string, error) {
	return []string{strings.Join(tokens, "")}, nil
}

// stripDecoder removes a character from the start and end of tokens, at most Start and
// Stop times.
type stripDecoder struct {
	Content     string
	Start, Stop uint
}

func parseStripDecoder(raw json.RawMessage) (decoder, error) {
	var d stripDecoder
	if err := json.Unmarshal(raw, &d); err != nil {
		return nil, err
	}
	if utf8.RuneCountInString(d.Content) != 1 {
		return nil, fmt.Errorf("Strip content %s is not one character", excerpt(d.Content))
	}
	return d, nil
}

func (d stripDecoder) decode(tokens []string) ([]string, error) {
	out := make([]string, len(tokens))
	for i, token := range tokens {
		for n := uint(0); n < d.Start && strings.HasPrefix(token, d.Content); n++ {
			token = token[len(d.Content):]
		}
		for n := uint(0); n < d.Stop && strings.HasSuffix(token, d.Content); n++ {
			token = token[:len(token)-len(d.Content)]
		}
		out[i] = token
	}
	return out, nil
}

// metaspaceDecoder turns the letter back into spaces. In the first token it removes the
// letter, if encoding added one there.
type metaspaceDecoder metaspace

func (m *metaspaceDecoder) decode(tokens []string) ([]string, error) {
	out := make([]string, len(tokens))
	for i, token := range tokens {
		to := " "
		if i == 0 && m.scheme != "never" {
			to = ""
		}
		out[i] = strings.ReplaceAll(token, m.letter, to)
	}
	return out, nil
}

// suffixDecoder turns the end-of-word suffix into spaces.
type suffixDecoder struct{ suffix string }

func (d *suffixDecoder) decode(tokens []string) ([]string, error) {
	out := make([]string, len(tokens))
	for i, token := range tokens {
		to := " "
		if i == len(tokens)-1 {
			to = ""
		}
		out[i] = strings.ReplaceAll(token, d.suffix, to)
	}
	return out, nil
}

// wordPieceDecoder puts spaces between words and, with Cleanup, removes those before
// punctuation.
type wordPieceDecoder struct {
	Prefix  string `json:"prefix"`
	Cleanup bool   `json:"cleanup"`
}

func parseWordPieceDecoder(raw json.RawMessage) (decoder, error) {
	d := &wordPieceDecoder{"##", true}
	return d, json.Unmarshal(raw, d)
}

// cleanupReplacements are applied one after the other, so their order matters.
var cleanupReplacements = [][2]string{
	{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"},
	{" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
}

func (d *wordPieceDecoder) decode(tokens []string) ([]string, error) {
	out := make([]string, len(tokens))
	for i, token := range tokens {
		if i > 0 {
			if tail, ok := strings.CutPrefix(token, d.Prefix); ok {
				token = tail
			} else {
				token = " " + token
			}
		}
		for _, pair := range cleanupReplacements {
			if d.Cleanup {
				token = strings.ReplaceAll(token, pair[0], pair[1])
			}
		}
		out[i] = token
	}
	return out, nil
}
