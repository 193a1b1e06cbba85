package trace

import (
	"errors"
	"fmt"

	"spillway/internal/vfs"
)

// ChromeFile is a file for the events of one iteration, in the format that Perfetto and
// chrome://tracing show. It appears whole, when it is closed. A nil file takes nothing and does
// nothing.
type ChromeFile struct {
	Iteration int64 // that it holds; 0 while it holds none

	file *vfs.Draft
	err  error // the first that writing gave
}

// CreateChrome begins the file at once, so that a path that cannot be written is an error
// before anything runs. "" is no file.
func CreateChrome(path string) (*ChromeFile, error) {
	if path == "" {
		return nil, nil
	}
	f, err := vfs.Begin(vfs.OS, path)
	if err != nil {
		return nil, fmt.Errorf("opening the timeline: %w", err)
	}
	return &ChromeFile{file: f}, nil
}

// Write takes the events of an iteration.
func (c *ChromeFile) Write(iteration int64, events []Event) {
	c.Iteration, c.err = iteration, errors.Join(c.err, WriteChrome(c.file, events))
}

// Close gives the file its name, or removes one that nothing was written to.
func (c *ChromeFile) Close() error {
	if c == nil {
		return nil
	}
	err := c.err
	if err != nil || c.Iteration == 0 {
		err = errors.Join(err, c.file.Discard())
	} else {
		err = c.file.Commit()
	}
	if err != nil {
		return fmt.Errorf("writing the timeline: %w", err)
	}
	return nil
}
