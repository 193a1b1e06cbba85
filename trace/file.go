package trace

import (
	"errors"
	"fmt"
	"os"
)

// ChromeFile is a file for the events of one iteration, in the format that Perfetto and
// chrome://tracing show. A nil file takes nothing and does nothing.
type ChromeFile struct {
	Iteration int64 // that it holds; 0 while it holds none

	file *os.File
	err  error // the first that writing gave
}

// CreateChrome creates the file at once, so that a path that cannot be written is an error
// before anything runs. "" is no file.
func CreateChrome(path string) (*ChromeFile, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("opening the timeline: %w", err)
	}
	return &ChromeFile{file: f}, nil
}

// Write takes the events of an iteration.
func (c *ChromeFile) Write(iteration int64, events []Event) {
	c.Iteration, c.err = iteration, errors.Join(c.err, WriteChrome(c.file, events))
}

// Close closes the file, and removes one that nothing was written to.
func (c *ChromeFile) Close() error {
	if c == nil {
		return nil
	}
	err := errors.Join(c.err, c.file.Close())
	if err == nil && c.Iteration == 0 {
		err = os.Remove(c.file.Name())
	}
	if err != nil {
		return fmt.Errorf("writing the timeline: %w", err)
	}
	return nil
}
