package term

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// Screen is a terminal whose whole window a program draws. Open gives it back as it was.
type Screen struct {
	out     *os.File
	restore func()
	keys    chan byte
}

// OpenScreen takes the window of the terminal that out writes to, and the keys of in, if that
// is a terminal too. It gives false where out is none. The caller closes it.
func OpenScreen(in io.Reader, out io.Writer) (*Screen, bool) {
	f, ok := out.(*os.File)
	if !ok || Width(f) == 0 {
		return nil, false
	}
	s := &Screen{out: f, restore: func() {}, keys: make(chan byte, 16)}
	if keyboard, ok := in.(*os.File); ok {
		if restore, err := readKeys(keyboard); err == nil {
			s.restore = restore
			go s.read(keyboard)
		}
	}
	fmt.Fprint(f, "\x1b[?1049h\x1b[?25l") // the other screen, without a cursor
	return s, true
}

// read hands keys on. It ends with the program: a read of a terminal cannot be cancelled.
func (s *Screen) read(keyboard *os.File) {
	b := make([]byte, 1)
	for {
		n, err := keyboard.Read(b)
		if err != nil {
			return
		}
		if n == 1 {
			select {
			case s.keys <- b[0]:
			default: // nobody listens
			}
		}
	}
}

// Keys are those that were pressed.
func (s *Screen) Keys() <-chan byte { return s.keys }

// Size of the window, in columns and rows.
func (s *Screen) Size() (width, height int) {
	width, height = size(s.out)
	if width <= 0 || height <= 0 {
		return 80, 24 // some do not know
	}
	return width, height
}

// Show replaces what is drawn. Lines are rewritten in place, so that nothing flickers.
func (s *Screen) Show(lines []string) error {
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	_, err := io.WriteString(s.out, b.String())
	return err
}

// Close gives the terminal back.
func (s *Screen) Close() {
	fmt.Fprint(s.out, "\x1b[?25h\x1b[?1049l")
	s.restore()
}
