package tokenizer

import (
	"maps"
	"strings"
	"unicode"
	"unicode/utf8"
)

// addedToken is a token such as "<|im_start|>" that is found in the text before the
// model sees any of it.
type addedToken struct {
	ID         int64  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // only where no letter or digit touches it
	LStrip     bool   `json:"lstrip"`      // includes white space before it
	RStrip     bool   `json:"rstrip"`      // includes white space after it
	Normalized bool   `json:"normalized"`  // searched for in the normalized text
	Special    bool   `json:"special"`     // left out by Decode with skipSpecial
}

const maxAdded = 1 << 17

// addTokens adds the file's added tokens to the vocabulary. It returns the finders of
// those that are matched in the original text and of those that are matched in the
// normalized text. Where splitSpecial is set, special ones are matched in neither.
func (v *vocab) addTokens(tokens []addedToken, norm normalizers, splitSpecial bool) (original, normalized *finder) {
	if len(tokens) > maxAdded {
		panic(failf("%d added tokens, at most %d are supported", len(tokens), maxAdded))
	}
	patterns := map[bool]map[string]*addedToken{false: {}, true: {}} // by whether normalized
	count := len(v.ids) + len(tokens)
	for i := range tokens {
		tok := &tokens[i]
		if old, ok := v.id(tok.Content); !ok {
			v.add(v.added, tok.Content, tok.ID, count)
		} else if int64(old) != tok.ID { // the model has it too
			panic(failf("added token %s has id %d, but id %d earlier in the file", excerpt(tok.Content), tok.ID, old))
		}
		v.special[tok.ID] = v.special[tok.ID] || tok.Special
		pattern, others := tok.Content, patterns[tok.Normalized]
		if tok.Normalized {
			pattern = norm.normalize(tok.Content)
			v.shown[tok.ID] = pattern
		}
		if pattern == "" || len(pattern) > maxMatched {
			panic(failf("added token %d is %d bytes long; 1 to %d are supported", tok.ID, len(pattern), maxMatched))
		}
		if other := others[pattern]; other != nil {
			panic(failf("added tokens %d and %d are both %s", other.ID, tok.ID, excerpt(pattern)))
		}
		others[pattern] = tok
	}
	if splitSpecial {
		for _, list := range patterns {
			maps.DeleteFunc(list, func(_ string, tok *addedToken) bool { return tok.Special })
		}
	}
	return newFinder(patterns[false]), newFinder(patterns[true])
}

// finder searches for many strings at once. Text rarely contains the first byte of an
// added token, so it mostly skips.
type finder struct {
	starts [256]bool
	start  int // the only byte tokens start with, or -1
	trie   *trie
	tokens []*addedToken // by the trie's ids
}

// newFinder returns a finder of tokens by what is searched for.
func newFinder(patterns map[string]*addedToken) *finder {
	f := &finder{start: -1}
	var texts []string
	var ids []int32
	starts := 0
	for text, tok := range patterns {
		if first := &f.starts[text[0]]; !*first {
			*first, f.start = true, int(text[0])
			starts++
		}
		texts, ids, f.tokens = append(texts, text), append(ids, int32(len(ids))), append(f.tokens, tok)
	}
	if starts > 1 {
		f.start = -1
	}
	f.trie = newTrie(texts, ids)
	return f
}

// next finds the first token at or after from, and the longest of those that start
// there. It returns nil if there is none.
func (f *finder) next(s string, from int) (tok *addedToken, start, end int) {
	for i := from; i < len(s); i++ {
		if f.start >= 0 {
			skip := strings.IndexByte(s[i:], byte(f.start))
			if skip < 0 {
				return nil, 0, 0
			}
			i += skip
		}
		if f.starts[s[i]] {
			f.trie.walk(s[i:], func(id int32, length int) { tok, start, end = f.tokens[id], i, i+length })
		}
		if tok != nil {
			return tok, start, end
		}
	}
	return nil, 0, 0
}

// split splits s at added tokens. It calls text for the non-empty parts between them,
// and token for each of them.
func (f *finder) split(s string, text func(start, end int), token func(id int32)) {
	f.splitFrom(s, 0, text, func(id int32, _ int) { token(id) })
}

// splitFrom is split from a byte on, where a token ends. token also gets where a search may go on
// that finds what follows the token, -1 where there is no such place.
//
// White space that a token includes is searched too, as in the reference: a token that is white
// space itself counts there once more.
func (f *finder) splitFrom(s string, done int, text func(start, end int), token func(id int32, next int)) {
	for from := done; from < len(s); {
		tok, start, end := f.next(s, from)
		if tok == nil {
			break
		}
		if from = end; tok.SingleWord && !isWholeWord(s, start, end) {
			continue
		}
		if tok.LStrip {
			start = max(done, len(strings.TrimRightFunc(s[:start], unicode.IsSpace)))
		}
		if tok.RStrip {
			end = len(s) - len(strings.TrimLeftFunc(s[end:], unicode.IsSpace))
		}
		if done < start {
			text(done, start)
		}
		next := end
		if end != from {
			next = -1
		}
		if start < end { // else the token before has all of it
			token(int32(tok.ID), next)
		}
		done = end
	}
	if done < len(s) {
		text(done, len(s))
	}
}

// isWholeWord reports whether no word character touches s[start:end].
func isWholeWord(s string, start, end int) bool {
	before, n := utf8.DecodeLastRuneInString(s[:start])
	after, m := utf8.DecodeRuneInString(s[end:])
	return (n == 0 || !isWord(before)) && (m == 0 || !isWord(after))
}

// isWord is what \w means for single_word and for the Whitespace pre-tokenizer.
func isWord(r rune) bool {
	if r < utf8.RuneSelf {
		return r == '_' || '0' <= r && r <= '9' || 'a' <= r|0x20 && r|0x20 <= 'z'
	}
	return r == '\u200c' || r == '\u200d' ||
		unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic,
			newLetters, newNumbers)
}
