package jinja

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// kind is the kind of a token.
type kind uint8

const (
	textToken kind = iota // between tags
	beginPrint
	endPrint
	beginStatement
	endStatement
	nameToken
	stringToken
	integerToken
	floatToken
	operatorToken
	endOfSource
)

// token is the smallest unit of a template.
type token struct {
	kind kind
	line int32
	text string // of names and operators; the contents of strings
}

// lexer splits a source into tokens. It removes white space as Jinja does with
// trim_blocks and lstrip_blocks: a line with only a statement produces no output.
type lexer struct {
	source    string
	at        int
	line      *int
	lineStart bool // the text before the next tag begins at the start of a line
	tokens    []token
}

// lex returns the tokens of a source. line is that of the token being read.
func lex(source string, line *int) []token {
	source = strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	l := &lexer{source: strings.TrimSuffix(source, "\n"), line: line, lineStart: true}
	for l.at < len(l.source) {
		l.next()
	}
	l.add(endOfSource, "the end of the template")
	return l.tokens
}

func (l *lexer) add(k kind, text string) { l.tokens = append(l.tokens, token{k, int32(*l.line), text}) }

// skip moves forward by n bytes and counts lines.
func (l *lexer) skip(n int) {
	*l.line += strings.Count(l.source[l.at:l.at+n], "\n")
	l.at += n
}

// rest returns what is still to be read.
func (l *lexer) rest() string { return l.source[l.at:] }

// next reads the text up to a tag, and the tag.
func (l *lexer) next() {
	n := firstTag(l.rest())
	text := l.rest()[:n]
	if n < len(l.rest()) {
		text = l.beforeTag(text, l.rest()[n+1], signAfter(l.rest()[n+2:]))
	}
	if text != "" {
		l.add(textToken, text)
	}
	l.skip(n)
	if l.at == len(l.source) {
		return
	}
	switch l.source[l.at+1] {
	case '#':
		l.comment()
	case '%':
		if begin := beginRaw.FindStringSubmatch(l.rest()); begin != nil {
			l.raw(begin[0], begin[1])
		} else {
			l.tag(beginStatement, endStatement, "%}")
		}
	default:
		l.tag(beginPrint, endPrint, "}}")
	}
}

// firstTag returns the offset of the first "{{", "{%" or "{#", or the length of s.
func firstTag(s string) int {
	for i := 0; i+1 < len(s); i++ {
		if s[i] == '{' && strings.IndexByte("{%#", s[i+1]) >= 0 {
			return i
		}
	}
	return len(s)
}

// signAfter returns the "-" or "+" that may follow the opening of a tag.
func signAfter(s string) byte {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		return s[0]
	}
	return 0
}

// beforeTag removes the white space before a tag that the tag's sign and kind strip.
func (l *lexer) beforeTag(text string, tag, sign byte) string {
	if sign == '-' {
		return strings.TrimRightFunc(text, unicode.IsSpace)
	}
	start := strings.LastIndexByte(text, '\n') + 1
	if sign == '+' || tag == '{' || start == 0 && !l.lineStart || strings.TrimSpace(text[start:]) != "" {
		return text
	}
	return text[:start]
}

// afterTag skips the white space after a tag that the tag's sign strips. The newline
// after a statement or comment is skipped too, after a print tag it is not.
func (l *lexer) afterTag(sign byte, prints bool) {
	rest := l.rest()
	n := 0
	switch {
	case sign == '-':
		n = len(rest) - len(strings.TrimLeftFunc(rest, unicode.IsSpace))
	case sign != '+' && !prints && strings.HasPrefix(rest, "\n"):
		n = 1
	}
	l.lineStart = n > 0 && rest[n-1] == '\n'
	l.skip(n)
}

func (l *lexer) comment() {
	text, _, found := strings.Cut(l.rest()[2:], "#}")
	if !found {
		panic(failf("a comment that does not end; write #} after it"))
	}
	sign := byte(0)
	if len(text) > 1 {
		sign = text[len(text)-1]
	}
	l.skip(len(text) + 4)
	l.afterTag(sign, false)
}

// beginRaw and endRaw match the tags around text that is not a template; the group is
// the sign that strips the white space after the tag.
var (
	beginRaw = regexp.MustCompile(`^\{%[-+]?\s*raw\s*([-+]?)%\}`)
	endRaw   = regexp.MustCompile(`\{%[-+]?\s*endraw\s*([-+]?)%\}`)
)

// raw reads a raw block whose first tag has the given text and sign.
func (l *lexer) raw(begin, sign string) {
	rest := l.rest()[len(begin):]
	end := endRaw.FindStringSubmatchIndex(rest)
	if end == nil {
		panic(failf("a raw block that does not end; write {%% endraw %%} after it"))
	}
	body := rest[:end[0]]
	if sign == "-" {
		body = strings.TrimLeftFunc(body, unicode.IsSpace)
	}
	inside := lexer{lineStart: true}
	if body = inside.beforeTag(body, '%', signAfter(rest[end[0]+2:])); body != "" {
		l.add(textToken, body)
	}
	l.skip(len(begin) + end[1])
	l.afterTag(signAfter(rest[end[2]:]), false)
}

// tag reads the tokens of a tag up to its closing.
func (l *lexer) tag(begin, end kind, closer string) {
	l.add(begin, l.source[l.at:l.at+2])
	opened := *l.line
	l.skip(2)
	if signAfter(l.rest()) != 0 {
		l.skip(1)
	}
	for depth := 0; l.at < len(l.source); {
		rest := l.rest()
		sign := signAfter(rest)
		if sign != 0 {
			rest = rest[1:]
		}
		if depth == 0 && strings.HasPrefix(rest, closer) {
			l.add(end, closer)
			l.skip(len(l.rest()) - len(rest) + 2)
			l.afterTag(sign, end == endPrint)
			return
		}
		l.token(&depth)
	}
	*l.line = opened
	panic(failf("a tag that does not end; write %s after it", closer))
}

// operators, longer ones before their prefixes.
var operators = []string{"//", "**", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "<", ">", "=", "(", ")", "[", "]", "{", "}", ",", ":", ".", "|"}

// token reads one token of a tag. depth counts brackets that are open.
func (l *lexer) token(depth *int) {
	rest := l.rest()
	c, _ := utf8.DecodeRuneInString(rest)
	switch {
	case unicode.IsSpace(c):
		l.skip(len(rest) - len(strings.TrimLeftFunc(rest, unicode.IsSpace)))
	case c == '"' || c == '\'':
		l.quoted(byte(c))
	case c >= '0' && c <= '9':
		l.number()
	case c == '_' || unicode.IsLetter(c):
		n := strings.IndexFunc(rest, func(c rune) bool { return c != '_' && !unicode.IsLetter(c) && !unicode.IsDigit(c) })
		if n < 0 {
			n = len(rest)
		}
		l.add(nameToken, rest[:n])
		l.skip(n)
	default:
		i := slices.IndexFunc(operators, func(op string) bool { return strings.HasPrefix(rest, op) })
		if i < 0 {
			panic(failf("%q means nothing here", c))
		}
		op := operators[i]
		*depth += strings.Count("([{", op) - strings.Count(")]}", op)
		l.add(operatorToken, op)
		l.skip(len(op))
	}
}

// numbers match a number in decimal digits; the group is what makes it a float.
var numbers = regexp.MustCompile(`^[0-9][0-9_]*(\.[0-9][0-9_]*)?([eE][-+]?[0-9][0-9_]*)?`)

func (l *lexer) number() {
	found := numbers.FindStringSubmatch(l.rest())
	kind := integerToken
	if found[1]+found[2] != "" {
		kind = floatToken
	}
	l.add(kind, strings.ReplaceAll(found[0], "_", ""))
	l.skip(len(found[0]))
}

// quoted reads a string literal with Python's escapes.
func (l *lexer) quoted(quote byte) {
	rest := l.rest()
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case quote:
			l.add(stringToken, unescape(rest[1:i]))
			l.skip(i + 1)
			return
		}
	}
	panic(failf("a string that does not end; write %c after it", quote))
}

// escapes are those of one character.
var escapes = map[byte]string{'n': "\n", 't': "\t", 'r': "\r", '\\': "\\", '\'': "'", '"': `"`, 'a': "\a", 'b': "\b", 'f': "\f", 'v': "\v", '\n': ""}

// hexEscapes maps the letter of an escape to its number of hexadecimal digits.
var hexEscapes = map[byte]int{'x': 2, 'u': 4, 'U': 8}

func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		simple, isSimple := escapes[s[i]]
		digits, isHex := hexEscapes[s[i]]
		switch {
		case isSimple:
			b.WriteString(simple)
		case s[i] >= '0' && s[i] <= '7':
			n := 1
			for n < 3 && i+n < len(s) && s[i+n] >= '0' && s[i+n] <= '7' {
				n++
			}
			code, _ := strconv.ParseUint(s[i:i+n], 8, 32)
			b.WriteRune(rune(code))
			i += n - 1
		case s[i] == 'N':
			panic(failf("\\N is not supported: write the character itself"))
		case !isHex:
			b.WriteByte('\\') // Python leaves unknown escapes as they are
			b.WriteByte(s[i])
		default:
			if i+digits >= len(s) {
				panic(failf("\\%c needs %d digits", s[i], digits))
			}
			code, err := strconv.ParseUint(s[i+1:i+1+digits], 16, 32)
			if err != nil {
				panic(failf("\\%s is no character", s[i:i+1+digits]))
			}
			b.WriteRune(rune(code))
			i += digits
		}
	}
	return b.String()
}
