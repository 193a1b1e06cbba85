package eventlog

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Lines appends records to a file for other programs, as --log asks: a JSON object per line, or a
// line of a table where the name ends in .csv. A nil one takes nothing.
type Lines struct {
	file    *os.File
	columns []string
	table   *csv.Writer // nil where lines are JSON
	err     error       // the first that writing gave
}

// OpenLines opens a file to append to, so that a run that continues adds to what it wrote
// before. Columns are those of a table; the last of them is true or false. "" is no file.
func OpenLines(path string, columns []string) (*Lines, error) {
	if path == "" {
		return nil, nil
	}
	l := &Lines{columns: columns}
	var err error
	if l.file, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o644); err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	isTable := strings.HasSuffix(path, ".csv")
	err = endLastLine(l.file, isTable)
	if err == nil && isTable {
		err = l.begin()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the log: %w", err), l.file.Close())
	}
	return l, nil
}

// begin writes the columns of a table, or finds that it has them.
func (l *Lines) begin() error {
	l.table = csv.NewWriter(l.file)
	info, err := l.file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	if info.Size() == 0 {
		return l.line(l.columns)
	}
	has, err := csv.NewReader(io.NewSectionReader(l.file, 0, longestLine)).Read()
	if err != nil || !slices.Equal(has, l.columns) {
		return fmt.Errorf("%s is a table with other columns than %s: give another --log", l.file.Name(), strings.Join(l.columns, ","))
	}
	return nil
}

// endLastLine ends the last line of a file, which has no end where a run was killed: it is
// removed if it is half of one.
func endLastLine(f *os.File, isTable bool) error {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 || !info.Mode().IsRegular() {
		return err
	}
	end := make([]byte, min(info.Size(), longestLine))
	if _, err := f.ReadAt(end, info.Size()-int64(len(end))); err != nil {
		return err
	}
	last := end[bytes.LastIndexByte(end, '\n')+1:]
	whole := json.Valid(last)
	if isTable {
		whole = bytes.HasSuffix(last, []byte(",true")) || bytes.HasSuffix(last, []byte(",false"))
	}
	if len(last) == 0 {
		return nil
	}
	if !whole && len(last) < longestLine {
		return f.Truncate(info.Size() - int64(len(last)))
	}
	_, err = f.WriteString("\n")
	return err
}

// longestLine is above what a line of a log has, in bytes.
const longestLine = 64 << 10

// Add writes a record: row makes its cells of a table, v is it as JSON. An error is that of Close.
func (l *Lines) Add(v any, row func() []string) {
	switch {
	case l == nil || l.err != nil:
	case l.table != nil:
		l.err = l.line(row())
	default:
		l.err = json.NewEncoder(l.file).Encode(v)
	}
}

func (l *Lines) line(cells []string) error {
	if err := l.table.Write(cells); err != nil {
		return err
	}
	l.table.Flush()
	return l.table.Error()
}

// Close closes the file, and says what went wrong first.
func (l *Lines) Close() error {
	if l == nil {
		return nil
	}
	if err := errors.Join(l.err, l.file.Close()); err != nil {
		return fmt.Errorf("writing the log: %w", err)
	}
	return nil
}
