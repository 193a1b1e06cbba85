package data

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"spillway/chat"
)

// JSONLOptions say what the lines of a file hold, a JSON object each.
type JSONLOptions struct {
	// Form of the lines; "" finds out from the fields of the first, or is Plain for
	// one name in Fields and Completion for two.
	Format Format
	// Fields are their names, in the order of the form; none are the usual ones.
	Fields []string
	// Join stands between prompt and completion, as part of the prompt.
	PromptSeparator string
	// Template gives what writes conversations; it is asked once such lines are met.
	// Nil where there is none.
	Template func() (*chat.Template, error)
	// LineBytes is the longest line allowed, 64 MiB if zero.
	LineBytes int
	// SkipBad leaves out lines that cannot be used, and counts them.
	SkipBad bool
	// Progress is told now and then how many bytes have been read, of how many.
	Progress func(done, total int64)
}

const lineBytes = 64 << 20

func (o JSONLOptions) withDefaults() JSONLOptions {
	if o.LineBytes == 0 {
		o.LineBytes = lineBytes
	}
	if o.Format == "" && len(o.Fields) == 1 {
		o.Format = Plain
	}
	if o.Format == "" && len(o.Fields) > 1 {
		o.Format = Completion
	}
	return o
}

// lines makes records of lines, of the form that the options name or the first line
// shows.
type lines struct {
	JSONLOptions
	read lineReader // nil until the form is known
}

func (o JSONLOptions) lines() (*lines, error) {
	l := &lines{JSONLOptions: o.withDefaults()}
	var err error
	if l.Format != "" {
		l.read, err = l.formatReader(l.Format, l.Fields)
	}
	return l, err
}

// unreadable is what keeps all lines from being used, not only one.
type fileError struct{ error }

// parse makes records of a line that had this length in the file.
func (l *lines) parse(line []byte, length int64) ([]Record, error) {
	o, err := parseObject(line, length, l.LineBytes)
	if err != nil {
		return nil, err
	}
	if l.read == nil {
		form, fields, err := detectFormat(o)
		if err != nil {
			return nil, err
		}
		read, err := l.formatReader(form, fields)
		if err != nil {
			return nil, fileError{err}
		}
		l.read, l.Format = read, form
	}
	return l.read(o)
}

// OpenJSONL indexes a file of JSON lines. Every line is read and checked now, so
// that a bad one is not met hours into a run. Empty lines are passed over.
func OpenJSONL(name string, o JSONLOptions) (*Records, error) {
	l, err := o.lines()
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", name, err)
	}
	r, err := openRecords(name, func(r *Records, in *bufio.Reader) error {
		seen := newProgressMeter(o.Progress, r.size)
		return l.scan(in, name, func(at int64, records []Record, wrong error) error {
			for range records {
				r.index = append(r.index, at)
			}
			seen.at(at)
			return r.bad(o.SkipBad, wrong)
		})
	})
	if err != nil {
		return nil, err
	}
	r.format = l.Format
	r.read = func(r *Records, i int) (Record, error) { return r.jsonLine(i, l) }
	return r, nil
}

// scan reads line by line; at is the offset of a line.
func (l *lines) scan(in *bufio.Reader, name string, yield func(at int64, records []Record, wrong error) error) error {
	var line []byte
	at := int64(0)
	for number := 1; ; number++ {
		var length int64
		var err error
		line, length, err = readLine(in, line[:0], l.LineBytes)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		if length == 0 {
			return nil
		}
		if length > int64(len(line)) || len(bytes.TrimSpace(line)) > 0 {
			records, wrong := l.parse(line, length)
			var all fileError
			if errors.As(wrong, &all) {
				return fmt.Errorf("%s:%d: %w", name, number, all.error)
			}
			if wrong != nil {
				records, wrong = nil, &BadLineError{name, number, column(line, wrong), wrong}
			}
			if err := yield(at, records, wrong); err != nil {
				return err
			}
		}
		at += length
	}
}

// readLine reads a line into the buffer, at most limit bytes of it, and says how
// long it is with its end.
func readLine(in *bufio.Reader, buffer []byte, limit int) (line []byte, length int64, err error) {
	for {
		part, err := in.ReadSlice('\n')
		length += int64(len(part))
		buffer = append(buffer, part[:min(len(part), max(limit-len(buffer), 0))]...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return buffer, length, err
		}
	}
}

// jsonLine reads record i. A line of several records stands as often in the index.
// Where a line ends was not kept.
func (r *Records) jsonLine(i int, l *lines) (Record, error) {
	part := 0
	for i > part && r.index[i-part-1] == r.index[i] {
		part++
	}
	at := r.start + r.index[i]
	in := bufio.NewReader(io.NewSectionReader(r.file, at, r.size-at))
	line, length, err := readLine(in, nil, l.LineBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return Record{}, fmt.Errorf("reading %s at byte %d: %w", r.name, at, err)
	}
	records, err := l.parse(line, length)
	if err == nil && part >= len(records) {
		err = fmt.Errorf("the line has %d texts, %d were expected", len(records), part+1)
	}
	if err != nil {
		return Record{}, fmt.Errorf("%s at byte %d: %w; was it changed since it was opened?", r.name, at, err)
	}
	return records[part], nil
}
