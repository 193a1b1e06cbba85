package term

import (
	"io"
	"time"
	"unicode/utf8"
)

// How often a line is written: often enough to look alive on a terminal, rarely enough to
// keep a log readable.
const (
	onTerminal = 100 * time.Millisecond
	onPipe     = 10 * time.Second
)

// Line is the progress line of a long task. It is used by one goroutine.
type Line struct {
	w     io.Writer
	width int // of the terminal, 0 for none
	every time.Duration
	now   func() time.Time
	last  time.Time // when it was written last
	open  bool      // the terminal shows text of the line
}

// NewLine makes a line on w.
func NewLine(w io.Writer) *Line {
	l := &Line{w: w, width: Width(w), every: onPipe, now: time.Now, last: time.Now()}
	if l.width > 0 {
		l.every = onTerminal
	}
	return l
}

// Fits says whether a text fits the line.
func (l *Line) Fits(text string) bool { return l.width == 0 || utf8.RuneCountInString(text) < l.width }

// Show writes the text if the line was last written long enough ago. It calls text only
// then.
func (l *Line) Show(text func() string) {
	if l.now().Sub(l.last) < l.every {
		return
	}
	l.last = l.now()
	if l.width == 0 {
		io.WriteString(l.w, text()+"\n")
		return
	}
	io.WriteString(l.w, "\r\x1b[K"+cut(text(), l.width-1))
	l.open = true
}

// Begin shows what begins now: on a terminal at once, since it may be the last that is heard for a while.
func (l *Line) Begin(text func() string) {
	if l.width > 0 {
		l.last = time.Time{}
	}
	l.Show(text)
}

// Print writes a line that stays, above the progress line, to the same writer.
func (l *Line) Print(text string) { l.PrintTo(l.w, text) }

// PrintTo is Print to another writer, such as the program's output.
func (l *Line) PrintTo(w io.Writer, text string) {
	l.clear()
	io.WriteString(w, text+"\n")
	if l.width > 0 {
		l.last = time.Time{} // the progress line comes back with the next Show
	}
}

// Done removes the progress line.
func (l *Line) Done() { l.clear() }

func (l *Line) clear() {
	if l.open {
		io.WriteString(l.w, "\r\x1b[K")
		l.open = false
	}
}

// cut shortens a text to so many characters.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(width, 0)])
}
