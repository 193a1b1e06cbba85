package tokenizer

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// piece is a part of the text on its way to the model.
type piece struct {
	text  string
	first bool // it is at the start of the text
}

// preTokenizer splits a piece into smaller ones that no token crosses.
type preTokenizer interface {
	// split calls each with the parts of p, in order. Parts are not empty.
	split(p piece, each func(piece))
}

// chain returns a function that runs a piece through the pre-tokenizers, one after the
// other, and the results through last.
func chain(list []preTokenizer, last func(piece)) func(piece) {
	each := last
	for i := len(list) - 1; i >= 0; i-- {
		pre, next := list[i], each
		each = func(p piece) { pre.split(p, next) }
	}
	return each
}

// parsePreTokenizers reads one pre-tokenizer, a Sequence of them, or null.
func parsePreTokenizers(raw json.RawMessage) (list []preTokenizer) {
	eachStep(raw, "pretokenizers", func(kind string, raw json.RawMessage) {
		steps := parsePreTokenizer(kind, raw)
		if slices.Contains(steps, preTokenizer(byteLevel{})) && slices.Contains(list, preTokenizer(byteLevel{})) {
			panic(failf("bytes would be written as letters twice"))
		}
		list = append(list, steps...)
	})
	return list
}

// parsePreTokenizer reads one pre-tokenizer of the file, which may become several of
// ours.
func parsePreTokenizer(kind string, raw json.RawMessage) []preTokenizer {
	spaces := splitter{pattern: runeClass(unicode.IsSpace), behavior: removed}
	switch kind {
	case "ByteLevel":
		return parsed(raw, byteLevelFile{UseRegex: true}).steps()
	case "Metaspace":
		return []preTokenizer{parseMetaspace(raw)}
	case "Split":
		return []preTokenizer{parseSplit(raw)}
	case "Whitespace":
		return []preTokenizer{wordRuns{}}
	case "WhitespaceSplit":
		return []preTokenizer{spaces}
	case "BertPreTokenizer":
		return []preTokenizer{spaces, splitter{pattern: runeClass(isPunctuation), behavior: isolated}}
	case "Punctuation":
		behavior := parseBehavior(parsed(raw, struct{ Behavior string }{"Isolated"}).Behavior)
		return []preTokenizer{splitter{pattern: runeClass(isPunctuation), behavior: behavior}}
	case "Digits":
		behavior := contiguous
		if parsed(raw, struct {
			Individual bool `json:"individual_digits"`
		}{}).Individual {
			behavior = isolated
		}
		return []preTokenizer{splitter{pattern: runeClass(isNumber), behavior: behavior}}
	case "CharDelimiterSplit":
		delimiter := parsed(raw, struct{ Delimiter string }{}).Delimiter
		if utf8.RuneCountInString(delimiter) != 1 {
			panic(failf("delimiter %s is not one character", excerpt(delimiter)))
		}
		return []preTokenizer{splitter{pattern: literal(delimiter), behavior: removed}}
	}
	panic(failf("pre-tokenizer %s is not supported", excerpt(kind)))
}

// isPunctuation includes the symbols of ASCII, such as + and $.
func isPunctuation(r rune) bool {
	if r < utf8.RuneSelf {
		return '!' <= r && r <= '/' || ':' <= r && r <= '@' || '[' <= r && r <= '`' || '{' <= r && r <= '~'
	}
	return unicode.Is(unicode.P, r)
}

// wordRuns splits into runs of word characters and runs of characters that are neither
// word nor white space. White space is dropped.
type wordRuns struct{}

func (wordRuns) split(p piece, each func(piece)) {
	kind := func(r rune) int {
		if isWord(r) {
			return 1
		} else if unicode.IsSpace(r) {
			return 0
		}
		return 2
	}
	for i := 0; i < len(p.text); {
		r, n := utf8.DecodeRuneInString(p.text[i:])
		is, end := kind(r), i+n
		for end < len(p.text) {
			r, n := utf8.DecodeRuneInString(p.text[end:])
			if kind(r) != is {
				break
			}
			end += n
		}
		if is != 0 {
			each(piece{p.text[i:end], p.first && i == 0})
		}
		i = end
	}
}

// metaspace writes spaces as a visible letter, usually '▁', and splits before it.
type metaspace struct {
	letter string
	scheme string // when to put the letter before a piece: always, first or never
	splits bool
}

func parseMetaspace(raw json.RawMessage) *metaspace {
	file := parsed(raw, struct {
		Replacement    string `json:"replacement"`
		AddPrefixSpace *bool  `json:"add_prefix_space"` // in old files instead of prepend_scheme
		Scheme         string `json:"prepend_scheme"`
		Split          *bool  `json:"split"`
	}{})
	if utf8.RuneCountInString(file.Replacement) != 1 {
		panic(failf("Metaspace replacement %s is not one character", excerpt(file.Replacement)))
	}
	if file.Scheme == "" {
		file.Scheme = "always"
		if !valueOr(file.AddPrefixSpace, true) {
			file.Scheme = "never"
		}
	}
	if !slices.Contains([]string{"always", "first", "never"}, file.Scheme) {
		panic(failf("Metaspace prepend_scheme %s is not always, first or never", excerpt(file.Scheme)))
	}
	return &metaspace{file.Replacement, file.Scheme, valueOr(file.Split, true)}
}

func (m *metaspace) split(p piece, each func(piece)) {
	p.text = strings.ReplaceAll(p.text, " ", m.letter)
	if !strings.HasPrefix(p.text, m.letter) && (m.scheme == "always" || m.scheme == "first" && p.first) {
		p.text = m.letter + p.text
	}
	if !m.splits {
		each(p)
		return
	}
	splitter{pattern: literal(m.letter), behavior: mergedWithNext}.split(p, each)
}
