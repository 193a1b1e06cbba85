package main

import (
	"errors"
	"fmt"
	"os"

	"spillway/train"
)

// runLog keeps every report of a run as a line of JSON.
type runLog struct {
	file *os.File // nil keeps none
	err  error    // the first that writing gave
}

// logTo appends reports to a file from now on; "" is none. A run that goes on adds to
// what it wrote before.
func (t *training) logTo(path string) (err error) {
	if path == "" {
		return nil
	}
	if t.reports.file, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	return nil
}

func (l *runLog) add(r train.Report) {
	if l.file != nil && l.err == nil {
		l.err = writeJSON(l.file, r)
	}
}

// closeLog says what went wrong with the log, if anything did.
func (t *training) closeLog() error {
	l := t.reports
	if l.file == nil {
		return nil
	}
	if err := errors.Join(l.err, l.file.Close()); err != nil {
		return fmt.Errorf("writing the log: %w", err)
	}
	return nil
}
