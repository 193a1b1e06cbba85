//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package term

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// readKeys lets keys be read one by one, without being shown. Ctrl-C stays a signal.
func readKeys(f *os.File) (restore func(), err error) {
	was, err := unix.IoctlGetTermios(int(f.Fd()), getState)
	if err != nil {
		return nil, err
	}
	now := *was
	now.Lflag &^= unix.ICANON | unix.ECHO
	if err := unix.IoctlSetTermios(int(f.Fd()), setState, &now); err != nil {
		return nil, err
	}
	return func() { _ = unix.IoctlSetTermios(int(f.Fd()), setState, was) }, nil // the terminal may be gone
}

// size of a terminal.
func size(f *os.File) (width, height int) {
	n, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(n.Col), int(n.Row)
}

// Resized receives something when a window of this program changes its size, until stop is
// called.
func Resized() (changed <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGWINCH)
	return c, func() { signal.Stop(c) }
}
