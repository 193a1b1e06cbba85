package tokenizer

import (
	"fmt"
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
// normalized text.
func (v *vocab) addTokens(tokens []addedToken, norm normalizers) (original, normalized *finder, err error) {
	if len(tokens) > maxAdded {
		return nil, nil, fmt.Errorf("%d added tokens, at most %d are supported", len(tokens), maxAdded)
	}
	original, normalized = newFinder(), newFinder()
	count := len(v.ids) + len(tokens)
	for i := range tokens {
		tok := &tokens[i]
		if err := v.addToken(tok, count); err != nil {
			return nil, nil, err
		}
		into, pattern := original, tok.Content
		if tok.Normalized {
			into = normalized
			if pattern, err = norm.normalize(tok.Content); err != nil {
				return nil, nil, fmt.Errorf("added token %s: %w", excerpt(tok.Content), err)
			}
			v.shown[tok.ID] = pattern
		}
		if err := into.add(pattern, tok); err != nil {
			return nil, nil, err
		}
	}
	return original, normalized, nil
}

// addToken gives an added token its id. A token that the model also has must have the
// same id there.
func (v *vocab) addToken(tok *addedToken, count int) error {
	if old, ok := v.id(tok.Content); !ok {
		if err := v.add(v.added, tok.Content, tok.ID, count); err != nil {
			return fmt.Errorf("added tokens: %w", err)
		}
	} else if int64(old) != tok.ID {
		return fmt.Errorf("added token %s has id %d, but id %d earlier in the file", excerpt(tok.Content), tok.ID, old)
	}
	v.special[tok.ID] = v.special[tok.ID] || tok.Special
	return nil
}

// finder searches for many strings at once. It is a trie over bytes whose edges are in
// one map. Text rarely contains the first byte of an added token, so it mostly skips.
type finder struct {
	starts [256]bool
	start  int            // the only byte tokens start with, or -1
	edges  map[uint64]int // node<<8 | byte to node; 0 is the root
	ends   map[int]*addedToken
}

func newFinder() *finder {
	return &finder{start: -1, edges: map[uint64]int{}, ends: map[int]*addedToken{}}
}

func (f *finder) add(pattern string, tok *addedToken) error {
	if pattern == "" || len(pattern) > maxMatched {
		return fmt.Errorf("added token %d is %d bytes long; 1 to %d are supported", tok.ID, len(pattern), maxMatched)
	}
	node := 0
	for i := 0; i < len(pattern); i++ {
		edge := uint64(node)<<8 | uint64(pattern[i])
		if _, ok := f.edges[edge]; !ok {
			f.edges[edge] = len(f.edges) + 1
		}
		node = f.edges[edge]
	}
	if other := f.ends[node]; other != nil {
		return fmt.Errorf("added tokens %d and %d are both %s", other.ID, tok.ID, excerpt(pattern))
	}
	f.start = -1
	if f.starts[pattern[0]] = true; len(f.ends) == 0 || f.onlyStart(pattern[0]) {
		f.start = int(pattern[0])
	}
	f.ends[node] = tok
	return nil
}

// onlyStart reports whether every token starts with b.
func (f *finder) onlyStart(b byte) bool {
	n := 0
	for _, is := range f.starts {
		if is {
			n++
		}
	}
	return n == 1 && f.starts[b]
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
			if tok, end := f.longest(s, i); tok != nil {
				return tok, i, end
			}
		}
	}
	return nil, 0, 0
}

func (f *finder) longest(s string, i int) (tok *addedToken, end int) {
	node := 0
	for ; i < len(s); i++ {
		next, ok := f.edges[uint64(node)<<8|uint64(s[i])]
		if !ok {
			break
		}
		node = next
		if hit := f.ends[node]; hit != nil {
			tok, end = hit, i+1
		}
	}
	return tok, end
}

// split splits s at added tokens. It calls text for the non-empty parts between them,
// and token for each of them.
func (f *finder) split(s string, text func(start, end int) error, token func(id int32)) error {
	done := 0
	for from := 0; from < len(s); {
		tok, start, end := f.next(s, from)
		if tok == nil {
			break
		}
		if from = end; tok.SingleWord && !isWholeWord(s, start, end) {
			continue
		}
		if tok.LStrip {
			start = done + len(strings.TrimRightFunc(s[done:start], unicode.IsSpace))
		}
		if tok.RStrip {
			end = len(s) - len(strings.TrimLeftFunc(s[end:], unicode.IsSpace))
		}
		if done < start {
			if err := text(done, start); err != nil {
				return err
			}
		}
		token(int32(tok.ID))
		done, from = end, end
	}
	if done < len(s) {
		return text(done, len(s))
	}
	return nil
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
