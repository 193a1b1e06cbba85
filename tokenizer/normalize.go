package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// normalizer rewrites text before it is split into words.
type normalizer interface {
	normalize(s string) (string, error)
}

// normalizers are applied one after the other.
type normalizers []normalizer

// maxGrowth limits how many times longer normalizing may make a text, because a file
// could ask for replacements that multiply it at every step. The most that a real one
// needs is 11, for compatibility decomposition.
const maxGrowth = 32

// checkGrowth returns an error if a text has grown by more than maxGrowth.
func checkGrowth(before, after int) error {
	if most := maxGrowth*before + 1024; after > most {
		return fmt.Errorf("text of %d bytes grows to %d, more than the %d allowed", before, after, most)
	}
	return nil
}

func (list normalizers) normalize(s string) (string, error) {
	before := len(s)
	for _, n := range list {
		var err error
		if s, err = n.normalize(s); err != nil {
			return "", fmt.Errorf("normalize: %w", err)
		}
		if err := checkGrowth(before, len(s)); err != nil {
			return "", fmt.Errorf("normalize: %w", err)
		}
	}
	return s, nil
}

// parseNormalizers reads one normalizer, a Sequence of them, or null.
func parseNormalizers(raw json.RawMessage) (normalizers, error) {
	var list normalizers
	err := eachStep(raw, "normalizers", func(kind string, raw json.RawMessage) error {
		n, err := parseNormalizer(kind, raw)
		list = append(list, n)
		return err
	})
	return list, err
}

func parseNormalizer(kind string, raw json.RawMessage) (normalizer, error) {
	switch kind {
	case "NFC":
		return form{norm.NFC}, nil
	case "NFD":
		return form{norm.NFD}, nil
	case "NFKC":
		return form{norm.NFKC}, nil
	case "NFKD":
		return form{norm.NFKD}, nil
	case "Lowercase":
		return runewise(lower), nil
	case "StripAccents":
		return runewise(dropMarks), nil
	case "Nmt":
		return runewise(nmt), nil
	case "ByteLevel":
		return byteLetters{}, nil
	case "Prepend":
		n := prepend{}
		return n, unmarshalInto(raw, &n.Prepend, "prepend")
	case "Strip":
		n := strip{}
		return &n, json.Unmarshal(raw, &n)
	case "Replace":
		return parseReplace(raw)
	case "Precompiled":
		return parsePrecompiled(raw)
	case "BertNormalizer":
		return parseBert(raw)
	}
	return nil, fmt.Errorf("normalizer %s is not supported", excerpt(kind))
}

// form is one of the four Unicode normalization forms, with the tables of Unicode 15.
// The tokenizers library has older tables, which lack about a hundred combining marks.
type form struct{ norm.Form }

func (f form) normalize(s string) (string, error) { return f.String(s), nil }

// runewise rewrites each character by itself.
type runewise func(into *strings.Builder, r rune)

func (f runewise) normalize(s string) (string, error) {
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range s {
		f(&b, r)
	}
	return b.String(), nil
}

// lower writes the lower case of a character regardless of its neighbours. The dotted
// capital I is the only character that becomes two.
func lower(into *strings.Builder, r rune) {
	if r == 'İ' {
		into.WriteString("i\u0307")
		return
	}
	into.WriteRune(unicode.ToLower(r))
}

func dropMarks(into *strings.Builder, r rune) {
	if !unicode.Is(unicode.M, r) {
		into.WriteRune(r)
	}
}

// nmt drops control characters and turns other white space into plain spaces, as
// machine translation models expect.
func nmt(into *strings.Builder, r rune) {
	switch {
	case 1 <= r && r <= 8, r == 0xb, 0xe <= r && r <= 0x1f, r == 0x7f, r == 0x8f, r == 0x9f:
	case r == '\t', r == '\n', r == '\f', r == '\r', r == 0x1680, 0x200b <= r && r <= 0x200f,
		r == 0x2028, r == 0x2029, r == 0x2581, r == 0xfeff, r == 0xfffd:
		into.WriteByte(' ')
	default:
		into.WriteRune(r)
	}
}

// prepend puts a text before every text that is not empty.
type prepend struct{ Prepend string }

func (p prepend) normalize(s string) (string, error) {
	if s == "" {
		return s, nil
	}
	return p.Prepend + s, nil
}

// strip removes white space from the ends of a text.
type strip struct {
	Left  bool `json:"strip_left"`
	Right bool `json:"strip_right"`
}

func (n *strip) normalize(s string) (string, error) {
	if n.Left {
		s = strings.TrimLeftFunc(s, unicode.IsSpace)
	}
	if n.Right {
		s = strings.TrimRightFunc(s, unicode.IsSpace)
	}
	return s, nil
}

// byteLetters writes every byte as its letter of the byte-level alphabet.
type byteLetters struct{}

func (byteLetters) normalize(s string) (string, error) { return toLetters(s), nil }

// replace puts content in place of every match. It is also a decoder.
type replace struct {
	pattern pattern
	content string
}

func parseReplace(raw json.RawMessage) (*replace, error) {
	var file struct {
		Pattern filePattern `json:"pattern"`
		Content string      `json:"content"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, err
	}
	p, err := file.Pattern.compile()
	return &replace{p, file.Content}, err
}

func (n *replace) normalize(s string) (string, error) {
	if from, ok := n.pattern.(literal); ok {
		after := len(s) + strings.Count(s, string(from))*(len(n.content)-len(from))
		if err := checkGrowth(len(s), after); err != nil {
			return "", err
		}
		return strings.ReplaceAll(s, string(from), n.content), nil
	}
	var b strings.Builder
	done := 0
	err := n.pattern.find(s, func(start, end int) error {
		b.WriteString(s[done:start])
		b.WriteString(n.content)
		done = end
		return checkGrowth(len(s), b.Len())
	})
	if err != nil || done == 0 && b.Len() == 0 {
		return s, err
	}
	b.WriteString(s[done:])
	return b.String(), nil
}
