package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
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
	split(p piece, each func(piece) error) error
}

// chain returns a function that runs a piece through the pre-tokenizers, one after the
// other, and the results through last.
func chain(list []preTokenizer, last func(piece) error) func(piece) error {
	each := last
	for i := len(list) - 1; i >= 0; i-- {
		pre, next := list[i], each
		each = func(p piece) error { return pre.split(p, next) }
	}
	return each
}

// parsePreTokenizers reads one pre-tokenizer, a Sequence of them, or null.
func parsePreTokenizers(raw json.RawMessage) ([]preTokenizer, error) {
	var list []preTokenizer
	err := eachStep(raw, "pretokenizers", func(kind string, raw json.RawMessage) error {
		steps, err := parsePreTokenizer(kind, raw)
		if slices.Contains(steps, preTokenizer(byteLevel{})) && slices.Contains(list, preTokenizer(byteLevel{})) {
			return errors.New("bytes would be written as letters twice")
		}
		list = append(list, steps...)
		return err
	})
	return list, err
}

// parsePreTokenizer reads one pre-tokenizer of the file, which may become several of
// ours.
func parsePreTokenizer(kind string, raw json.RawMessage) ([]preTokenizer, error) {
	switch kind {
	case "ByteLevel":
		return parseByteLevel(raw)
	case "Metaspace":
		m, err := parseMetaspace(raw)
		return []preTokenizer{m}, err
	case "Split":
		s, err := parseSplit(raw)
		return []preTokenizer{s}, err
	case "Whitespace":
		return []preTokenizer{wordRuns{}}, nil
	case "WhitespaceSplit":
		return []preTokenizer{splitter{pattern: runeClass(unicode.IsSpace), behavior: removed}}, nil
	case "BertPreTokenizer":
		return []preTokenizer{
			splitter{pattern: runeClass(unicode.IsSpace), behavior: removed},
			splitter{pattern: runeClass(isPunctuation), behavior: isolated},
		}, nil
	case "Punctuation":
		return parsePunctuation(raw)
	case "Digits":
		var individual bool
		if err := unmarshalInto(raw, &individual, "individual_digits"); err != nil {
			return nil, err
		}
		behavior := contiguous
		if individual {
			behavior = isolated
		}
		return []preTokenizer{splitter{pattern: runeClass(isNumber), behavior: behavior}}, nil
	case "CharDelimiterSplit":
		var delimiter string
		if err := unmarshalInto(raw, &delimiter, "delimiter"); err != nil {
			return nil, err
		}
		if utf8.RuneCountInString(delimiter) != 1 {
			return nil, fmt.Errorf("delimiter %s is not one character", excerpt(delimiter))
		}
		return []preTokenizer{splitter{pattern: literal(delimiter), behavior: removed}}, nil
	}
	return nil, fmt.Errorf("pre-tokenizer %s is not supported", excerpt(kind))
}

func parsePunctuation(raw json.RawMessage) ([]preTokenizer, error) {
	name := "Isolated"
	if err := unmarshalInto(raw, &name, "behavior"); err != nil {
		return nil, err
	}
	behavior, err := parseBehavior(name)
	return []preTokenizer{splitter{pattern: runeClass(isPunctuation), behavior: behavior}}, err
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

func (wordRuns) split(p piece, each func(piece) error) error {
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
			if err := each(piece{p.text[i:end], p.first && i == 0}); err != nil {
				return err
			}
		}
		i = end
	}
	return nil
}

// metaspace writes spaces as a visible letter, usually '▁', and splits before it.
type metaspace struct {
	letter string
	scheme string // when to put the letter before a piece: always, first or never
	splits bool
}

func parseMetaspace(raw json.RawMessage) (*metaspace, error) {
	file := struct {
		Replacement    string `json:"replacement"`
		AddPrefixSpace *bool  `json:"add_prefix_space"` // in old files instead of prepend_scheme
		Scheme         string `json:"prepend_scheme"`
		Split          *bool  `json:"split"`
	}{}
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, err
	}
	if utf8.RuneCountInString(file.Replacement) != 1 {
		return nil, fmt.Errorf("Metaspace replacement %s is not one character", excerpt(file.Replacement))
	}
	if file.Scheme == "" {
		file.Scheme = "always"
		if file.AddPrefixSpace != nil && !*file.AddPrefixSpace {
			file.Scheme = "never"
		}
	}
	switch file.Scheme {
	case "always", "first", "never":
		return &metaspace{file.Replacement, file.Scheme, file.Split == nil || *file.Split}, nil
	}
	return nil, fmt.Errorf("Metaspace prepend_scheme %s is not always, first or never", excerpt(file.Scheme))
}

func (m *metaspace) split(p piece, each func(piece) error) error {
	p.text = strings.ReplaceAll(p.text, " ", m.letter)
	if !strings.HasPrefix(p.text, m.letter) && (m.scheme == "always" || m.scheme == "first" && p.first) {
		p.text = m.letter + p.text
	}
	if !m.splits {
		return each(p)
	}
	return splitter{pattern: literal(m.letter), behavior: mergedWithNext}.split(p, each)
}
