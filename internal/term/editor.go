package term

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Editor reads lines from a person at a terminal, who can change them before they are sent: with
// arrows, Home, End, Ctrl-A, E, K, U and W, and earlier lines with up and down. Lines may be of
// any length, and what is pasted may have line breaks. Between lines the terminal is as it was.
type Editor struct {
	in      *os.File
	out     io.Writer
	width   func() int
	chunks  chan []byte // what was typed, as it came
	pending []byte      // that no line had yet
	ended   error       // of reading
	history []string
}

// NewEditor makes an editor; nil where in is not a terminal whose keys can be read.
func NewEditor(in *os.File, out io.Writer) *Editor {
	if Width(in) == 0 {
		return nil
	}
	restore, err := readKeys(in)
	if err != nil {
		return nil
	}
	restore()
	return &Editor{in: in, out: out, width: func() int { return Width(in) }}
}

// begin reads what is typed, from the first line on.
func (e *Editor) begin() {
	if e.chunks != nil {
		return
	}
	e.chunks = make(chan []byte)
	go func() {
		for {
			raw := make([]byte, 4096)
			n, err := e.in.Read(raw)
			if n > 0 {
				e.chunks <- raw[:n]
			}
			if err != nil {
				e.ended = err
				close(e.chunks)
				return
			}
		}
	}()
}

// Line shows a prompt and reads a line. It is io.EOF after Ctrl-D on an empty line, and the
// error of ctx when that is done, which Ctrl-C may do.
func (e *Editor) Line(ctx context.Context, prompt string) (string, error) {
	restore, err := readKeys(e.in)
	if err != nil {
		return "", err
	}
	defer restore()
	io.WriteString(e.out, pasteOn)
	defer io.WriteString(e.out, pasteOff)
	e.begin()
	resized, stop := Resized()
	defer stop()
	l := &edited{prompt: prompt, history: e.history, at: len(e.history)}
	l.draw(e.out, e.width())
	for {
		for len(e.pending) > 0 {
			used, done := l.key(e.pending)
			if used == 0 { // the rest of a key comes later
				break
			}
			if e.pending = e.pending[used:]; done == nil {
				continue
			}
			l.cursor = len(l.text)
			l.draw(e.out, e.width())
			io.WriteString(e.out, "\r\n")
			text := string(l.text)
			if strings.TrimSpace(text) != "" && (len(e.history) == 0 || e.history[len(e.history)-1] != text) {
				e.history = append(e.history, text)
			}
			if done == io.EOF {
				return "", io.EOF
			}
			return text, nil
		}
		l.draw(e.out, e.width())
		select {
		case more, ok := <-e.chunks:
			if !ok {
				return "", e.ended
			}
			e.pending = append(e.pending, more...)
		case <-resized:
		case <-ctx.Done():
			io.WriteString(e.out, "\r\n")
			return "", ctx.Err()
		}
	}
}

// A terminal marks what is pasted between these two, once it was asked to.
const (
	pasteOn, pasteOff     = "\x1b[?2004h", "\x1b[?2004l"
	pasteBegin, pasteEnds = "\x1b[200~", "\x1b[201~"
)

// errSent says that a line is complete.
var errSent = errors.New("the line is complete")

// edited is a line as it is changed.
type edited struct {
	prompt  string
	text    []rune
	cursor  int // before which of text
	history []string
	at      int    // in history; its length for the line itself
	own     []rune // the line itself, while an earlier one is shown
	pasting bool
	newline bool // what was pasted last is a carriage return, which a line feed may follow
	row     int  // of the cursor on the screen, from the line's first
}

// key takes the first key of what was typed, and says how many bytes it has: 0 where the rest
// is not there yet. The error is errSent for a complete line, or io.EOF.
func (l *edited) key(typed []byte) (used int, done error) {
	second := l.newline && typed[0] == '\n' // both are one line break, as files of Windows have them
	l.newline = l.pasting && typed[0] == '\r'
	switch c := typed[0]; {
	case second:
	case c == 0x1b:
		return l.escape(typed)
	case l.pasting && (c == '\r' || c == '\n'):
		l.insert('\n')
	case c == '\r' || c == '\n':
		return 1, errSent
	case c == 1: // Ctrl-A
		l.cursor = 0
	case c == 2: // Ctrl-B
		l.cursor = max(l.cursor-1, 0)
	case c == 4: // Ctrl-D
		if len(l.text) == 0 {
			return 1, io.EOF
		}
		l.delete(l.cursor, l.cursor+1)
	case c == 5: // Ctrl-E
		l.cursor = len(l.text)
	case c == 6: // Ctrl-F
		l.cursor = min(l.cursor+1, len(l.text))
	case c == 8 || c == 127:
		l.delete(l.cursor-1, l.cursor)
	case c == 11: // Ctrl-K
		l.delete(l.cursor, len(l.text))
	case c == 14: // Ctrl-N
		l.show(l.at + 1)
	case c == 16: // Ctrl-P
		l.show(l.at - 1)
	case c == 21: // Ctrl-U
		l.delete(0, l.cursor)
	case c == 23: // Ctrl-W
		from := l.cursor
		for from > 0 && unicode.IsSpace(l.text[from-1]) {
			from--
		}
		for from > 0 && !unicode.IsSpace(l.text[from-1]) {
			from--
		}
		l.delete(from, l.cursor)
	case c == '\t':
		l.insert('\t')
	case c >= utf8.RuneSelf:
		if !utf8.FullRune(typed) {
			return 0, nil
		}
		r, n := utf8.DecodeRune(typed) // bytes that are no UTF-8 become U+FFFD
		l.insert(r)
		return n, nil
	case c >= ' ':
		l.insert(rune(c))
	}
	return 1, nil
}

// escape takes a key that begins with the escape character.
func (l *edited) escape(typed []byte) (used int, _ error) {
	if len(typed) == 1 {
		return 0, nil
	}
	if typed[1] != '[' && typed[1] != 'O' {
		return 2, nil
	}
	for used = 2; ; used++ {
		if used == len(typed) {
			return 0, nil
		}
		if c := typed[used]; c >= 0x40 && c <= 0x7e { // the last byte of such a key
			break
		}
	}
	used++
	switch key := string(typed[:used]); key {
	case pasteBegin:
		l.pasting = true
	case pasteEnds:
		l.pasting = false
	case "\x1b[A", "\x1bOA":
		l.show(l.at - 1)
	case "\x1b[B", "\x1bOB":
		l.show(l.at + 1)
	case "\x1b[C", "\x1bOC":
		l.cursor = min(l.cursor+1, len(l.text))
	case "\x1b[D", "\x1bOD":
		l.cursor = max(l.cursor-1, 0)
	case "\x1b[H", "\x1bOH", "\x1b[1~", "\x1b[7~":
		l.cursor = 0
	case "\x1b[F", "\x1bOF", "\x1b[4~", "\x1b[8~":
		l.cursor = len(l.text)
	case "\x1b[3~":
		l.delete(l.cursor, l.cursor+1)
	}
	return used, nil
}

func (l *edited) insert(r rune) {
	l.text = append(l.text, 0)
	copy(l.text[l.cursor+1:], l.text[l.cursor:])
	l.text[l.cursor] = r
	l.cursor++
}

func (l *edited) delete(from, to int) {
	from, to = max(from, 0), min(to, len(l.text))
	if from < to {
		l.text = append(l.text[:from:from], l.text[to:]...)
		l.cursor = from
	}
}

// show takes a line of the history, or the line itself again.
func (l *edited) show(at int) {
	if at < 0 || at > len(l.history) || at == l.at {
		return
	}
	if l.at == len(l.history) {
		l.own = l.text
	}
	if l.at = at; at == len(l.history) {
		l.text = l.own
	} else {
		l.text = []rune(l.history[at])
	}
	l.cursor = len(l.text)
}

// draw writes the line over what it wrote before, in a window of so many columns.
func (l *edited) draw(w io.Writer, width int) {
	width = max(width, 8)
	var b strings.Builder
	if l.row > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", l.row)
	}
	b.WriteString("\r\x1b[J")
	row, column := 0, 0
	cursorRow, cursorColumn := 0, 0
	put := func(r rune, i int) {
		r, n := shown(r)
		if column+n > width {
			b.WriteString("\r\n")
			row, column = row+1, 0
		}
		if i == l.cursor {
			cursorRow, cursorColumn = row, column
		}
		b.WriteRune(r)
		column += n
	}
	for _, r := range l.prompt {
		put(r, -1)
	}
	for i, r := range l.text {
		put(r, i)
	}
	if column == width {
		b.WriteString("\r\n")
		row, column = row+1, 0
	}
	if l.cursor == len(l.text) {
		cursorRow, cursorColumn = row, column
	}
	if up := row - cursorRow; up > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", up)
	}
	b.WriteString("\r")
	if cursorColumn > 0 {
		fmt.Fprintf(&b, "\x1b[%dC", cursorColumn)
	}
	l.row = cursorRow
	io.WriteString(w, b.String())
}

// shown is how a character is written, and how many columns it takes: two where it is wide, none
// where it belongs to the one before it.
func shown(r rune) (rune, int) {
	switch {
	case r == '\n':
		return '↵', 1
	case r == '\t':
		return ' ', 1
	case unicode.IsControl(r):
		return utf8.RuneError, 1
	case r == 0x200d || unicode.In(r, unicode.Mn, unicode.Me, unicode.Variation_Selector):
		return r, 0
	}
	for _, wide := range wideRunes {
		if r >= wide[0] && r <= wide[1] {
			return r, 2
		}
	}
	return r, 1
}

// wideRunes are ranges of characters that take two columns: East Asian ones and emoji.
var wideRunes = [][2]rune{
	{0x1100, 0x115f}, {0x231a, 0x231b}, {0x23e9, 0x23ec}, {0x25fd, 0x25fe}, {0x2614, 0x2615}, {0x26a1, 0x26a1}, {0x2705, 0x2705}, {0x2728, 0x2728}, {0x274c, 0x274c},
	{0x2e80, 0x303e}, {0x3041, 0x33ff}, {0x3400, 0x4dbf}, {0x4e00, 0x9fff}, {0xa000, 0xa4cf}, {0xa960, 0xa97f}, {0xac00, 0xd7a3}, {0xf900, 0xfaff}, {0xfe30, 0xfe6f},
	{0xff00, 0xff60}, {0xffe0, 0xffe6}, {0x16fe0, 0x18aff}, {0x1b000, 0x1b2ff}, {0x1f004, 0x1f004}, {0x1f0cf, 0x1f0cf}, {0x1f18e, 0x1f18e}, {0x1f191, 0x1f19a},
	{0x1f200, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f7e0, 0x1f7eb}, {0x1f900, 0x1f9ff}, {0x1fa70, 0x1faff}, {0x20000, 0x3fffd},
}

// Safe is a text without the control characters that would command a terminal.
func Safe(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return utf8.RuneError
		}
		return r
	}, text)
}
