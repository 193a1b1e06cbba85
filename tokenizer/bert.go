package tokenizer

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// bert is the normalizer of BERT models: it drops control characters, makes CJK
// characters words of their own, and drops case and accents.
type bert struct {
	CleanText    bool  `json:"clean_text"`
	SplitChinese bool  `json:"handle_chinese_chars"`
	StripAccents *bool `json:"strip_accents"` // nil: as Lowercase
	Lowercase    bool  `json:"lowercase"`
}

func (n bert) normalize(s string) string {
	s = runewise(n.write)(s)
	if n.StripAccents != nil && *n.StripAccents || n.StripAccents == nil && n.Lowercase {
		s = runewise(dropNonspacing)(norm.NFD.String(s))
	}
	if n.Lowercase {
		s = runewise(lower)(s)
	}
	return s
}

func (n bert) write(into *strings.Builder, r rune) {
	if n.CleanText {
		if r == 0xfffd || isControl(r) {
			return
		}
		if unicode.IsSpace(r) {
			r = ' '
		}
	}
	if n.SplitChinese && isChinese(r) {
		into.WriteByte(' ')
		into.WriteRune(r)
		into.WriteByte(' ')
		return
	}
	into.WriteRune(r)
}

func dropNonspacing(into *strings.Builder, r rune) {
	if !unicode.Is(unicode.Mn, r) {
		into.WriteRune(r)
	}
}

// isControl counts formatting and private-use characters as control characters too, but
// not tab, newline and carriage return.
func isControl(r rune) bool {
	return r != '\t' && r != '\n' && r != '\r' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co)
}

func isChinese(r rune) bool {
	switch {
	case 0x4E00 <= r && r <= 0x9FFF, 0x3400 <= r && r <= 0x4DBF, 0x20000 <= r && r <= 0x2A6DF,
		0x2A700 <= r && r <= 0x2B73F, 0x2B740 <= r && r <= 0x2B81F, 0x2B920 <= r && r <= 0x2CEAF,
		0xF900 <= r && r <= 0xFAFF, 0x2F800 <= r && r <= 0x2FA1F:
		return true
	}
	return false
}
