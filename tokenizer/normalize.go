package tokenizer

import (
	"encoding/json"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// normalizer rewrites text before it is split into words.
type normalizer func(s string) string

// normalizers are applied one after the other.
type normalizers []normalizer

// maxGrowth limits how many times longer normalizing may make a text, because a file
// could ask for replacements that multiply it at every step. The most that a real one
// needs is 11, for compatibility decomposition.
const maxGrowth = 32

// checkGrowth refuses a text that has grown by more than maxGrowth.
func checkGrowth(before, after int) {
	if most := maxGrowth*before + 1024; after > most {
		panic(failf("text of %d bytes grows to %d, more than the %d allowed", before, after, most))
	}
}

func (list normalizers) normalize(s string) string {
	before := len(s)
	for _, normalize := range list {
		s = normalize(s)
		checkGrowth(before, len(s))
	}
	return s
}

// parseNormalizers reads one normalizer, a Sequence of them, or null.
func parseNormalizers(raw json.RawMessage) (list normalizers) {
	eachStep(raw, "normalizers", func(kind string, raw json.RawMessage) { list = append(list, parseNormalizer(kind, raw)) })
	return list
}

// parseNormalizer reads a normalizer. Unicode's normalization forms have the tables of
// Unicode 15; the tokenizers library has older ones, which lack about a hundred combining
// marks.
func parseNormalizer(kind string, raw json.RawMessage) normalizer {
	switch kind {
	case "NFC":
		return norm.NFC.String
	case "NFD":
		return norm.NFD.String
	case "NFKC":
		return norm.NFKC.String
	case "NFKD":
		return norm.NFKD.String
	case "Lowercase":
		return runewise(lower)
	case "StripAccents":
		return runewise(dropMarks)
	case "Nmt":
		return runewise(nmt)
	case "ByteLevel":
		return toLetters
	case "Prepend":
		return prepend(parsed(raw, struct{ Prepend string }{}).Prepend)
	case "Strip":
		return parsed(raw, strip{}).normalize
	case "Replace":
		return parseReplace(raw)
	case "Precompiled":
		return parsePrecompiled(raw).normalize
	case "BertNormalizer":
		return parsed(raw, bert{CleanText: true, SplitChinese: true, Lowercase: true}).normalize
	}
	panic(failf("normalizer %s is not supported", excerpt(kind)))
}

// runewise rewrites each character by itself.
func runewise(write func(into *strings.Builder, r rune)) normalizer {
	return func(s string) string {
		var b strings.Builder
		b.Grow(len(s))
		for _, r := range s {
			write(&b, r)
		}
		return b.String()
	}
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
func prepend(before string) normalizer {
	return func(s string) string {
		if s == "" {
			return s
		}
		return before + s
	}
}

// strip removes white space from the ends of a text.
type strip struct {
	Left  bool `json:"strip_left"`
	Right bool `json:"strip_right"`
}

func (n strip) normalize(s string) string {
	if n.Left {
		s = strings.TrimLeftFunc(s, unicode.IsSpace)
	}
	if n.Right {
		s = strings.TrimRightFunc(s, unicode.IsSpace)
	}
	return s
}

// parseReplace reads what puts content in place of every match. It is a normalizer and a
// decoder.
func parseReplace(raw json.RawMessage) normalizer {
	file := parsed(raw, struct {
		Pattern filePattern `json:"pattern"`
		Content string      `json:"content"`
	}{})
	p := file.Pattern.compile()
	return func(s string) string {
		if from, ok := p.(literal); ok {
			checkGrowth(len(s), len(s)+strings.Count(s, string(from))*(len(file.Content)-len(from)))
			return strings.ReplaceAll(s, string(from), file.Content)
		}
		var b strings.Builder
		done := 0
		p.find(s, func(start, end int) {
			b.WriteString(s[done:start])
			b.WriteString(file.Content)
			done = end
			checkGrowth(len(s), b.Len())
		})
		b.WriteString(s[done:])
		return b.String()
	}
}
