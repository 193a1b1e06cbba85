//go:build unix

package term

import (
	"os"

	"golang.org/x/sys/unix"
)

// columns is the width of a terminal, 0 where it does not know.
func columns(f *os.File) (n int, isTerminal bool) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, false
	}
	return int(size.Col), true
}
