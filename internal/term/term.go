// Package term writes for people: tables with aligned columns, and a progress line that
// rewrites itself on a terminal and prints a plain line every few seconds elsewhere.
package term

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Width is the number of columns of the terminal that w writes to, 0 where w is not a
// terminal.
func Width(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	if size.Col == 0 { // a terminal that does not know its size
		return 80
	}
	return int(size.Col)
}
