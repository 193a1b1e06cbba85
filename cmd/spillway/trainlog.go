package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"spillway/train"
)

// runLog keeps every report of a run as a line of JSON, or of a table.
type runLog struct {
	file  *os.File // nil keeps none
	table *metrics // nil for JSON
	err   error    // the first that writing gave
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
	if strings.HasSuffix(path, ".csv") {
		t.reports.table, t.reports.err = newMetrics(t.reports.file)
	}
	return nil
}

// add keeps what an iteration gave; the process has had so many bytes in memory.
func (l *runLog) add(r train.Report, run string, resident int64) {
	switch {
	case l.file == nil || l.err != nil:
	case l.table != nil:
		l.err = l.table.add(run, r, resident)
	default:
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
