package jinja

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// kind is the kind of a token.
type kind int

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

// token reads one token of a tag. depth counts the open brackets.
type token struct {
	kind kind
	text string // of names and operators; the contents of strings
	line int
}

// lexer splits a source into tokens. It removes white space as Jinja does with
// trim_blocks and lstrip_blocks: a line with only a statement produces no output.
type lexer struct {
	source    string
	at        int
	line      int
	lineStart bool // the text before the next tag begins at the start of a line
	tokens    []token
}

func lex(source string) ([]token, error) {
	source = strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	l := &lexer{source: strings.TrimSuffix(source, "\n"), line: 1, lineStart: true}
	for l.at < len(l.source) {
		if err := l.next(); err != nil {
			return nil, withLine(l.line, err)
		}
	}
	l.add(endOfSource, "the end of the template")
	return l.tokens, nil
}

func (l *lexer) add(k kind, text string) { l.tokens = append(l.tokens, token{k, text, l.line}) }

// skip moves forward by n bytes and counts lines.
func (l *lexer) skip(n int) {
	l.line += strings.Count(l.source[l.at:l.at+n], "\n")
	l.at += n
}

// rest returns what is still to be read.
func (l *lexer) rest() string { return l.source[l.at:] }

// next reads the text up to a tag, and the tag.
func (l *lexer) next() error {
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
		return nil
	}
	switch l.source[l.at+1] {
	case '#':
		return l.comment()
	case '%':
		if body, end, ok := rawBlock(l.rest()); ok {
			return l.raw(body, end)
		}
		return l.tag(beginStatement, endStatement, "%}")
	}
	return l.tag(beginPrint, endPrint, "}}")
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

func (l *lexer) comment() error {
	end := strings.Index(l.rest(), "#}")
	if end < 0 {
		return errors.New("a comment that does not end; write #} after it")
	}
	sign := l.rest()[end-1]
	l.skip(end + 2)
	l.afterTag(sign, false)
	return nil
}

// rawBlock reads a {% raw %} block at the start of s and returns its contents and
// length.
func rawBlock(s string) (body string, end int, ok bool) {
	open, n := statementTag(s, "raw")
	if n == 0 {
		return "", 0, false
	}
	for i := n; i < len(s); i++ {
		if close, m := statementTag(s[i:], "endraw"); m > 0 {
			body = s[n:i]
			if open == '-' {
				body = strings.TrimLeftFunc(body, unicode.IsSpace)
			}
			inside := lexer{lineStart: true}
			body = inside.beforeTag(body, '%', signAfter(s[i+2:]))
			if close == '-' {
				m += len(s[i+m:]) - len(strings.TrimLeftFunc(s[i+m:], unicode.IsSpace))
			}
			return body, i + m, true
		}
	}
	return "", 0, false
}

// statementTag reads a tag with just one word. It returns the sign at its end and its
// length, 0 if it is another tag.
func statementTag(s, word string) (sign byte, n int) {
	inner, found := strings.CutPrefix(s, "{%")
	if !found {
		return 0, 0
	}
	inner, _, found = strings.Cut(inner, "%}")
	if !found || strings.Trim(inner, "-+ \t\n") != word {
		return 0, 0
	}
	return inner[len(inner)-1], len(inner) + 4
}

func (l *lexer) raw(body string, end int) error {
	if body != "" {
		l.add(textToken, body)
	}
	l.skip(end)
	l.afterTag(0, false)
	return nil
}

// tag reads the tokens of a tag up to its closing.
func (l *lexer) tag(begin, end kind, closer string) error {
	l.add(begin, l.source[l.at:l.at+2])
	opened := l.line
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
			return nil
		}
		if err := l.token(&depth); err != nil {
			return err
		}
	}
	return &Error{Line: opened, Err: fmt.Errorf("a tag that does not end; write %s after it", closer)}
}

// operators, longer ones before their prefixes.
var operators = []string{"//", "**", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "<", ">", "=", "(", ")", "[", "]", "{", "}", ",", ":", ".", "|"}

// token reads one token of a tag. depth counts brackets that are open.
func (l *lexer) token(depth *int) error {
	rest := l.rest()
	c, _ := utf8.DecodeRuneInString(rest)
	switch {
	case unicode.IsSpace(c):
		l.skip(len(rest) - len(strings.TrimLeftFunc(rest, unicode.IsSpace)))
		return nil
	case c == '"' || c == '\'':
		return l.quoted(byte(c))
	case c >= '0' && c <= '9':
		l.number()
		return nil
	case c == '_' || unicode.IsLetter(c):
		n := strings.IndexFunc(rest, func(c rune) bool { return c != '_' && !unicode.IsLetter(c) && !unicode.IsDigit(c) })
		if n < 0 {
			n = len(rest)
		}
		l.add(nameToken, rest[:n])
		l.skip(n)
		return nil
	}
	for _, op := range operators {
		if strings.HasPrefix(rest, op) {
			*depth += strings.Count("([{", op) - strings.Count(")]}", op)
			l.add(operatorToken, op)
			l.skip(len(op))
			return nil
		}
	}
	return fmt.Errorf("%q means nothing here", c)
}

func (l *lexer) number() {
	rest, kind := l.rest(), integerToken
	n := 0
	digits := func() {
		for n < len(rest) && (rest[n] >= '0' && rest[n] <= '9' || rest[n] == '_') {
			n++
		}
	}
	digits()
	if n+1 < len(rest) && rest[n] == '.' && rest[n+1] >= '0' && rest[n+1] <= '9' {
		kind = floatToken
		n++
		digits()
	}
	if n < len(rest) && (rest[n] == 'e' || rest[n] == 'E') {
		m := n
		if n++; n < len(rest) && (rest[n] == '-' || rest[n] == '+') {
			n++
		}
		from := n
		if digits(); n == from {
			n = m // no exponent
		} else {
			kind = floatToken
		}
	}
	l.add(kind, strings.ReplaceAll(rest[:n], "_", ""))
	l.skip(n)
}

// quoted reads a string literal with Python's escapes.
func (l *lexer) quoted(quote byte) error {
	rest := l.rest()
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case quote:
			text, err := unescape(rest[1:i])
			l.add(stringToken, text)
			l.skip(i + 1)
			return err
		}
	}
	return fmt.Errorf("a string that does not end; write %c after it", quote)
}

// escapes are those of one character.
var escapes = map[byte]string{'n': "\n", 't': "\t", 'r': "\r", '\\': "\\", '\'': "'", '"': `"`, 'a': "\a", 'b': "\b", 'f': "\f", 'v': "\v", '\n': ""}

// hexEscapes maps the letter of an escape to its number of hexadecimal digits.
var hexEscapes = map[byte]int{'x': 2, 'u': 4, 'U': 8}

func unescape(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		if text, ok := escapes[s[i]]; ok {
			b.WriteString(text)
			continue
		}
		if s[i] >= '0' && s[i] <= '7' {
			n := 1
			for n < 3 && i+n < len(s) && s[i+n] >= '0' && s[i+n] <= '7' {
				n++
			}
			code, _ := strconv.ParseUint(s[i:i+n], 8, 32)
			b.WriteRune(rune(code))
			i += n - 1
			continue
		}
		if s[i] == 'N' {
			return "", errors.New("\\N is not supported: write the character itself")
		}
		digits, ok := hexEscapes[s[i]]
		if !ok {
			b.WriteByte('\\') // Python leaves unknown escapes as they are
			b.WriteByte(s[i])
			continue
		}
		if i+digits >= len(s) {
			return "", fmt.Errorf("\\%c needs %d digits", s[i], digits)
		}
		code, err := strconv.ParseUint(s[i+1:i+1+digits], 16, 32)
		if err != nil {
			return "", fmt.Errorf("\\%s is no character", s[i:i+1+digits])
		}
		b.WriteRune(rune(code))
		i += digits
	}
	return b.String(), nil
}
