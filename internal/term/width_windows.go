package term

import (
	"os"

	"golang.org/x/sys/windows"
)

// columns is the width of a console. It lets the console understand the sequences that a
// progress line is rewritten with; one that cannot is written to like a file.
func columns(f *os.File) (n int, isTerminal bool) {
	console := windows.Handle(f.Fd())
	var mode uint32
	if err := windows.GetConsoleMode(console, &mode); err != nil {
		return 0, false
	}
	if err := windows.SetConsoleMode(console, mode|windows.ENABLE_PROCESSED_OUTPUT|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING); err != nil {
		return 0, false
	}
	var info windows.ConsoleScreenBufferInfo
	if err := windows.GetConsoleScreenBufferInfo(console, &info); err != nil {
		return 0, true
	}
	return int(info.Window.Right-info.Window.Left) + 1, true
}
