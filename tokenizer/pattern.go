package tokenizer

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// pattern finds matches in a text.
type pattern interface {
	// find calls yield for every match, in order and without overlap. A match
	// may be empty.
	find(s string, yield func(start, end int))
}

// filePattern is a pattern as tokenizer.json writes it: one of the two is set.
type filePattern struct {
	String *string
	Regex  *string
}

const maxPattern = 8192

func (p filePattern) compile() pattern {
	switch {
	case p.String != nil && p.Regex == nil:
		if *p.String == "" {
			panic(failf("pattern is an empty string"))
		}
		return literal(*p.String)
	case p.Regex != nil && p.String == nil:
		if scan, ok := scanners[*p.Regex]; ok {
			return scan
		}
		return compileRegex(*p.Regex)
	}
	panic(failf(`pattern must be {"String": ...} or {"Regex": ...}`))
}

// literal matches itself.
type literal string

func (p literal) find(s string, yield func(start, end int)) {
	for done := 0; ; {
		i := strings.Index(s[done:], string(p))
		if i < 0 {
			return
		}
		done += i + len(p)
		yield(done-len(p), done)
	}
}

// runeClass matches every single character for which it returns true.
type runeClass func(r rune) bool

func (is runeClass) find(s string, yield func(start, end int)) {
	for i, r := range s {
		if is(r) {
			yield(i, i+utf8.RuneLen(r))
		}
	}
}

// regex is a pattern without a scanner, matched by a backtracking engine.
type regex struct{ *regexp2.Regexp }

// A hostile pattern can keep the engine busy for years. So one match may take at most
// matchTimeout, and a whole text that plus a second per matchedPerSecond bytes, which is
// about a thirtieth of the engine's usual speed.
const (
	matchTimeout     = 5 * time.Second
	matchedPerSecond = 256 << 10
)

func compileRegex(expr string) pattern {
	if len(expr) > maxPattern {
		panic(failf("pattern of %d bytes, at most %d are supported", len(expr), maxPattern))
	}
	defer namePattern(expr)
	re, err := regexp2.Compile(fromOniguruma(expr), regexp2.Multiline)
	check(err)
	re.MatchTimeout = matchTimeout
	return regex{re}
}

// namePattern puts the pattern before a failure, and makes one of a panic of the regex
// engine: patterns come from files and may trigger bugs in it.
func namePattern(expr string) {
	switch problem := recover().(type) {
	case nil:
	case failure:
		panic(failf("pattern %s: %w", excerpt(expr), problem.error))
	default:
		panic(failf("pattern %s: the engine failed: %v", excerpt(expr), problem))
	}
}

// graphemes matches grapheme clusters: what a reader sees as one character.
var graphemes = sync.OnceValue(func() pattern {
	return regex{regexp2.MustCompile(`\X`)}
})

func (re regex) find(s string, yield func(start, end int)) {
	runes := []rune(s)
	deadline := time.Now().Add(matchTimeout + time.Duration(len(s))*time.Second/matchedPerSecond)
	at, offset := 0, 0 // one position, in runes and in bytes
	advance := func(to int) int {
		for ; at < to; at++ {
			offset += utf8.RuneLen(runes[at])
		}
		return offset
	}
	matches, last := 0, -1
	var failed any // a panic of yield, which is not the engine's
	match := func(m regexp2.MatchView) bool {
		index, length, _ := m.GroupRange(0)
		if length == 0 && index == last {
			return true // an empty match right after a match does not count
		}
		start := advance(index)
		last = index + length
		defer func() { failed = recover() }()
		yield(start, advance(last))
		if matches++; matches%256 == 0 && time.Now().After(deadline) {
			panic(failf("pattern %s: %d matches in %d bytes take too long", excerpt(re.String()), matches, start))
		}
		return true
	}
	func() {
		defer namePattern(re.String())
		check(re.FindRunesMatches(runes, 0, match))
	}()
	if failed != nil {
		panic(failed)
	}
}

// onigurumaClasses maps an escape to what Oniguruma, the engine that the files'
// patterns are written for, means by it, as the contents of a character class. Our
// engine reads these escapes differently. Other classes, such as \p{Lo}, still lack the
// characters that Unicode 16 added.
var onigurumaClasses = map[string]string{
	`\p{L}`: `\p{L}` + classText(newLetters),
	`\p{N}`: `\p{N}` + classText(newNumbers),
	`\w`:    wordClass,
}

// wordClass are the characters of words: circled letters and Roman numbers, and of other numbers that are no digits only
// those of Latin-1, such as ½. isWord is what another engine of the reference takes for them, with two joiners.
var wordClass = `²³¹¼-¾\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}` + classText(unicode.Other_Alphabetic) + classText(newLetters) + classText(newNumbers)

// wordEdges are \b and \B, between characters of words and others.
var wordEdges = map[string]string{
	`\b`: `(?:(?<=[` + wordClass + `])(?![` + wordClass + `])|(?<![` + wordClass + `])(?=[` + wordClass + `]))`,
	`\B`: `(?:(?<=[` + wordClass + `])(?=[` + wordClass + `])|(?<![` + wordClass + `])(?![` + wordClass + `]))`,
}

// oddRepeat matches what follows the brace of a repetition that the two engines read
// differently.
var oddRepeat = regexp.MustCompile(`^(,\d+\}|\d*,?\d*\}\+)`)

// classText writes the ranges of a table as the contents of a character class.
func classText(table *unicode.RangeTable) string {
	var b strings.Builder
	write := func(low, high, stride rune) {
		if stride == 1 {
			fmt.Fprintf(&b, "%c-%c", low, high)
			return
		}
		for r := low; r <= high; r += stride {
			b.WriteRune(r)
		}
	}
	for _, r := range table.R16 {
		write(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range table.R32 {
		write(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return b.String()
}

// fromOniguruma translates a pattern, and refuses the few constructs that cannot be
// translated.
func fromOniguruma(expr string) string {
	var b strings.Builder
	inClass := false
	for i := 0; i < len(expr); {
		part := expr[i : i+1]
		if part == `\` {
			part = escapeAt(expr[i:])
		}
		i += len(part)
		inside, translated := onigurumaClasses[part]
		switch {
		case translated && inClass:
			part = inside
		case translated:
			part = "[" + inside + "]"
		case part == `\W` && !inClass:
			part = "[^" + wordClass + "]"
		case wordEdges[part] != "" && !inClass:
			part = wordEdges[part]
		case part == `\p` || part == `\P`:
			panic(failf("%s without braces is not supported; write %s{...}", part, part))
		case part == "{" && !inClass && oddRepeat.MatchString(expr[i:]):
			panic(failf("{,n} and a + after {n,m} are not supported"))
		case part == "(" && !inClass && strings.HasPrefix(expr[i:], "?m"):
			panic(failf("the option m, which here makes . match line ends, is not supported"))
		case len(part) == 2 && strings.Contains(`\W\h\H\K\G\N\O\y\Y\g`, part):
			panic(failf("%s is not supported here", part))
		case inClass && (part == "[" || strings.HasPrefix(expr[i-1:], "&&")):
			panic(failf("a class within a class is not supported"))
		case part == "[" && (strings.HasPrefix(expr[i:], "]") || strings.HasPrefix(expr[i:], "^]")):
			panic(failf("a class that starts with ] is not supported"))
		case part == "[" || part == "]":
			inClass = part == "["
		}
		b.WriteString(part)
	}
	return b.String()
}

// escapeAt returns the escape at the start of expr: a backslash and a character, or a
// property such as \p{L}.
func escapeAt(expr string) string {
	if strings.HasPrefix(expr, `\p{`) || strings.HasPrefix(expr, `\P{`) {
		if end := strings.IndexByte(expr, '}'); end > 0 {
			return expr[:end+1]
		}
	}
	return expr[:min(2, len(expr))]
}
