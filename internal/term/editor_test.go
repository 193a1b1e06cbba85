package term

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// typed is a line after some keys, with the cursor as |, and whether it was sent.
func typed(history []string, keys string) (text string, done error) {
	l := &edited{prompt: "> ", history: history, at: len(history)}
	for raw := []byte(keys); len(raw) > 0 && done == nil; {
		var used int
		if used, done = l.key(raw); used == 0 {
			return "more", nil
		}
		raw = raw[used:]
	}
	return string(l.text[:l.cursor]) + "|" + string(l.text[l.cursor:]), done
}

// Keys change a line as those of shells do.
func TestKeysChangeALine(t *testing.T) {
	history := []string{"first", "größe 漢字"}
	for keys, want := range map[string]string{
		"abc":                                "abc|",
		"abc\x1b[D\x1b[Dx":                   "ax|bc",
		"abc\x01x\x05y":                      "xabcy|",
		"abc\x7f\x7f":                        "a|",
		"abc\x1b[D\x1b[3~":                   "ab|",
		"one two  \x17x":                     "one x|",
		"one two\x02\x02\x15":                "|wo",
		"one two\x02\x02\x0b":                "one t|",
		"new\x1b[A":                          "größe 漢字|",
		"new\x1b[A\x1b[A\x1b[A":              "first|",
		"new\x1b[A\x1b[A\x1b[B\x1b[B\x1b[B":  "new|",
		"a\xffb\xc3":                         "more",
		"a\xff\xfeb":                         "a��b|",
		"é漢😀\x7f":                            "é漢|",
		"\x1b[200~two\nlines\r\x1b[201~end":  "two\nlines\nend|",
		"\x1b[200~a\r\nb\r\rc\n\nd\x1b[201~": "a\nb\n\nc\n\nd|",
		"a\x1b[5~\x1b[1;5Cb\x1bxc\x00\x0cd":  "abcd|", // keys that mean nothing here
		"a\x1b[1":                            "more",
	} {
		if got, done := typed(history, keys); got != want || done != nil {
			t.Errorf("%q gives %q, %v, want %q", keys, got, done, want)
		}
	}
	if _, done := typed(nil, "abc\r"); !errors.Is(done, errSent) {
		t.Errorf("Enter: %v", done)
	}
	if _, done := typed(nil, "\x04"); !errors.Is(done, io.EOF) {
		t.Errorf("Ctrl-D: %v", done)
	}
	if got, done := typed(nil, "ab\x01\x04"); got != "|b" || done != nil {
		t.Errorf("Ctrl-D in a line: %q, %v", got, done)
	}
}

// A line is drawn over itself, wraps before wide characters that do not fit, and the cursor is where
// the next character will be.
func TestLinesAreDrawn(t *testing.T) {
	l := &edited{prompt: "> ", text: []rune("abcde漢字é́x"), cursor: 5}
	var b strings.Builder
	l.draw(&b, 8)
	// Seven columns are taken, so the wide one goes to the next row.
	if want := "\r\x1b[J> abcde\r\n漢字é́x\x1b[1A\r"; !strings.HasPrefix(b.String(), "\r\x1b[J> abcde\r\n漢字") || l.row != 1 || strings.HasSuffix(b.String(), "\x1b[1A\r") {
		t.Errorf("drawn %q in row %d, want about %q", b.String(), l.row, want)
	}
	b.Reset()
	l.cursor = 1
	l.draw(&b, 8)
	if got := b.String(); !strings.HasPrefix(got, "\x1b[1A\r\x1b[J") || !strings.HasSuffix(got, "\x1b[1A\r\x1b[3C") || l.row != 0 {
		t.Errorf("drawn again %q, row %d", got, l.row)
	}
	b.Reset()
	l = &edited{prompt: "> ", text: []rune("abcdef"), cursor: 6} // just the width: the cursor is in the next row
	if l.draw(&b, 8); l.row != 1 {
		t.Errorf("%q, row %d", b.String(), l.row)
	}
}

// What a model writes does not command the terminal.
func TestTextsAreSafe(t *testing.T) {
	if got := Safe("a\x1b[2Jb\tc\nd\x07\u009b\x7f漢"); got != "a�[2Jb\tc\nd���漢" {
		t.Errorf("%q", got)
	}
}
