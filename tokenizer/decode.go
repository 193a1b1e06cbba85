package tokenizer

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// decoder transforms a list of tokens, a step on the way to their text.
type decoder func(tokens []string) []string

// eachToken is a decoder that changes tokens one by one; i is the index of a token, and
// last that of the last.
func eachToken(change func(i, last int, token string) string) decoder {
	return func(tokens []string) []string {
		out := make([]string, len(tokens))
		for i, token := range tokens {
			out[i] = change(i, len(tokens)-1, token)
		}
		return out
	}
}

// decoders are applied one after the other, and the results are joined. If the file has
// none (nil), tokens are joined with spaces.
type decoders []decoder

// Decode turns ids into text. skipSpecial leaves out special tokens such as <s>. Bytes
// that are not UTF-8, such as half a character at the end, become U+FFFD; see Stream
// for text that is still being generated.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) (_ string, err error) {
	defer recoverFailure(&err, "decode")
	tokens := make([]string, 0, len(ids))
	for i, id := range ids {
		if !t.vocab.has(id) {
			panic(failf("id %d at position %d is not a token; the vocabulary has %d ids", id, i, t.VocabSize()))
		}
		if !skipSpecial || !t.vocab.special[id] {
			tokens = append(tokens, t.vocab.shown[id])
		}
	}
	return t.decoder.text(tokens), nil
}

func (list decoders) text(tokens []string) string {
	if list == nil {
		return strings.Join(tokens, " ")
	}
	before := totalLen(tokens)
	for _, decode := range list {
		tokens = decode(tokens)
		checkGrowth(before, totalLen(tokens))
	}
	return strings.Join(tokens, "")
}

func totalLen(tokens []string) int {
	n := 0
	for _, token := range tokens {
		n += len(token)
	}
	return n
}

// parseDecoders reads one decoder, a Sequence of them, or null.
func parseDecoders(raw json.RawMessage) decoders {
	var list decoders
	if len(raw) > 0 && string(raw) != "null" {
		list = decoders{}
	}
	eachStep(raw, "decoders", func(kind string, raw json.RawMessage) { list = append(list, parseDecoder(kind, raw)) })
	return list
}

func parseDecoder(kind string, raw json.RawMessage) decoder {
	switch kind {
	case "ByteLevel":
		return lettersToBytes
	case "ByteFallback":
		return byteTokensToText
	case "Fuse":
		return fuse
	case "Replace":
		replace := parseReplace(raw)
		return eachToken(func(_, _ int, token string) string { return replace(token) })
	case "Strip":
		return parsed(raw, stripDecoder{}).decoder()
	case "Metaspace":
		return parseMetaspace(raw).decoder()
	case "WordPiece":
		return eachToken(parsed(raw, wordPieceDecoder{"##", true}).decode)
	case "BPEDecoder":
		return suffixDecoder(parsed(raw, struct{ Suffix string }{"</w>"}).Suffix)
	}
	panic(failf("decoder %s is not supported", excerpt(kind)))
}

// lettersToBytes undoes byteLevel. A token with other characters, such as an added one,
// stays as it is.
func lettersToBytes(tokens []string) []string {
	var bytes []byte
	for _, token := range tokens {
		if plain, ok := fromLetters(token); ok {
			token = plain
		}
		bytes = append(bytes, token...)
	}
	return []string{validUTF8(bytes)}
}

// byteTokensToText joins runs of byte tokens such as <0x0A>. A run that is not UTF-8
// becomes one U+FFFD per byte.
func byteTokensToText(tokens []string) (out []string) {
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
	return out
}

func byteToken(token string) (byte, bool) {
	if len(token) != 6 || token[:3] != "<0x" || token[5] != '>' {
		return 0, false
	}
	b, err := strconv.ParseUint(token[3:5], 16, 8)
	return byte(b), err == nil
}

// fuse joins all tokens into one, so that the next decoder sees the whole text.
func fuse(tokens []string) []string { return []string{strings.Join(tokens, "")} }

// stripDecoder removes a character from the start and end of tokens, at most Start and
// Stop times.
type stripDecoder struct {
	Content     string
	Start, Stop uint
}

func (d stripDecoder) decoder() decoder {
	if utf8.RuneCountInString(d.Content) != 1 {
		panic(failf("Strip content %s is not one character", excerpt(d.Content)))
	}
	return eachToken(func(_, _ int, token string) string {
		for n := uint(0); n < d.Start && strings.HasPrefix(token, d.Content); n++ {
			token = token[len(d.Content):]
		}
		for n := uint(0); n < d.Stop && strings.HasSuffix(token, d.Content); n++ {
			token = token[:len(token)-len(d.Content)]
		}
		return token
	})
}

// decoder turns the letter back into spaces. In the first token it removes the letter,
// if encoding added one there.
func (m *metaspace) decoder() decoder {
	return eachToken(func(i, _ int, token string) string {
		if i == 0 && m.scheme != "never" {
			return strings.ReplaceAll(token, m.letter, "")
		}
		return strings.ReplaceAll(token, m.letter, " ")
	})
}

// suffixDecoder turns the end-of-word suffix into spaces.
func suffixDecoder(suffix string) decoder {
	return eachToken(func(i, last int, token string) string {
		if i == last {
			return strings.ReplaceAll(token, suffix, "")
		}
		return strings.ReplaceAll(token, suffix, " ")
	})
}

// wordPieceDecoder puts spaces between words and, with Cleanup, removes those before
// punctuation.
type wordPieceDecoder struct {
	Prefix  string `json:"prefix"`
	Cleanup bool   `json:"cleanup"`
}

// cleanupReplacements are applied one after the other, so their order matters.
var cleanupReplacements = [][2]string{
	{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"},
	{" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
}

func (d wordPieceDecoder) decode(i, _ int, token string) string {
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
	return token
}
