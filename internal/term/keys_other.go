//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package term

import (
	"errors"
	"os"
)

// readKeys is not there: a program is ended with Ctrl-C.
func readKeys(*os.File) (restore func(), err error) { return nil, errors.ErrUnsupported }

// size of a terminal: its width is known, its height is not.
func size(f *os.File) (width, height int) { return Width(f), 24 }

// Resized receives nothing: sizes are asked for with every picture.
func Resized() (changed <-chan os.Signal, stop func()) { return nil, func() {} }
