// Package term writes for people: tables with aligned columns, and a progress line that
// rewrites itself on a terminal and prints a plain line every few seconds elsewhere.
package term

import (
	"cmp"
	"io"
	"os"
)

// Width is the number of columns of the terminal that w writes to, 0 where w is not a
// terminal.
func Width(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	n, isTerminal := columns(f)
	if !isTerminal {
		return 0
	}
	return cmp.Or(n, 80) // some do not know
}
