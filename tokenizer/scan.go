package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// The patterns that nearly all byte-level models use. Each matches at every position, so
// a text is split into matches without gaps.
const (
	patternGPT2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

	patternLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}` +
		`| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	patternQwen2 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}` +
		`| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// scanners match these patterns tens of times faster than a backtracking engine, and in
// linear time.
var scanners = map[string]scanner{
	patternGPT2:   scanGPT2,
	patternLlama3: func(s string) int { return scanLlama3(s, 3) },
	patternQwen2:  func(s string) int { return scanLlama3(s, 1) },
}

// scanner returns the length in bytes of the match at the start of a text that is not
// empty.
type scanner func(s string) int

func (scan scanner) split(p piece, each func(piece)) {
	scan.find(p.text, func(start, end int) { each(piece{p.text[start:end], p.first && start == 0}) })
}

func (scan scanner) find(s string, yield func(start, end int)) {
	for done := 0; done < len(s); {
		n := scan(s[done:])
		yield(done, done+n)
		done += n
	}
}

// scanGPT2 matches patternGPT2.
func scanGPT2(s string) int {
	if n := contraction(s); n > 0 {
		return n
	}
	start := 0
	if s[0] == ' ' && len(s) > 1 {
		start = 1
	}
	switch class, n := classAt(s[start:]); class {
	case space:
		return scanSpace(s)
	default:
		start += n
		return start + runLen(s[start:], class)
	}
}

// scanLlama3 matches patternLlama3 and patternQwen2, which differ in the number of
// digits that stay together.
func scanLlama3(s string, digits int) int {
	if n := contractionAnyCase(s); n > 0 {
		return n
	}
	class, n := classAt(s)
	switch class {
	case letter:
		return n + runLen(s[n:], letter)
	case number:
		for digits--; digits > 0; digits-- {
			next, m := classAt(s[n:])
			if next != number {
				break
			}
			n += m
		}
		return n
	}
	next, m := classAt(s[n:])
	switch {
	case next == letter && s[0] != '\r' && s[0] != '\n':
		n += m
		return n + runLen(s[n:], letter)
	case class == other:
		return scanOther(s, n)
	case s[0] == ' ' && next == other:
		return scanOther(s, n+m)
	}
	run := n + runLen(s[n:], space)
	if last := strings.LastIndexAny(s[:run], "\r\n"); last >= 0 {
		return last + 1
	}
	return scanSpace(s)
}

// scanOther extends a match of n bytes by the characters that are neither letter, digit
// nor space, and by the line ends after them.
func scanOther(s string, n int) int {
	n += runLen(s[n:], other)
	for n < len(s) && (s[n] == '\r' || s[n] == '\n') {
		n++
	}
	return n
}

// scanSpace matches \s+(?!\S)|\s+ if s starts with white space. At the end of the text
// that is all of the white space. Elsewhere it is all but the last character, which
// goes to the next word, or the only character.
func scanSpace(s string) int {
	run := runLen(s, space)
	if run == len(s) {
		return run
	}
	_, last := utf8.DecodeLastRuneInString(s[:run])
	if run > last {
		return run - last
	}
	return run
}

// contraction returns the length of 's 't 're 've 'm 'll 'd at the start of s, or 0.
func contraction(s string) int {
	if s[0] != '\'' || len(s) < 2 {
		return 0
	}
	switch s[1] {
	case 's', 't', 'm', 'd':
		return 2
	}
	if len(s) >= 3 {
		switch s[1:3] {
		case "re", "ve", "ll":
			return 3
		}
	}
	return 0
}

// contractionAnyCase is contraction ignoring case. The long s, whose upper case is S,
// counts too.
func contractionAnyCase(s string) int {
	if s[0] != '\'' || len(s) < 2 {
		return 0
	}
	if strings.HasPrefix(s[1:], "ſ") {
		return 1 + len("ſ")
	}
	lower := [3]byte{'\''}
	for i := 1; i < len(lower) && i < len(s); i++ {
		if lower[i] = s[i]; 'A' <= s[i] && s[i] <= 'Z' {
			lower[i] += 'a' - 'A'
		}
	}
	return contraction(string(lower[:]))
}
