package data

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"

	"spillway/chat"
)

// JSONLOptions say how to read a JSONL file, which has one JSON object per line.
type JSONLOptions struct {
	// Format of the lines. If it is "", one name in Fields means Plain, several mean
	// Completion, and without names the fields of the first line decide.
	Format Format
	// Fields are the names of the fields, in the order of the format. None means the
	// default names.
	Fields []string
	// PromptSeparator is put between prompt and completion and counts as prompt.
	PromptSeparator string
	// Template returns the chat template. It is called only if the file has
	// conversations. Nil means that there is no template.
	Template func() (*chat.Template, error)
	// LineBytes is the length of the longest line allowed; 0 means 64 MiB.
	LineBytes int
	// SkipBad skips lines that cannot be used, and counts them.
	SkipBad bool
	// CopyOf is the file that errors name, where what is read is a copy of it.
	CopyOf string
	// Progress, if not nil, is called now and then with the bytes read so far and in all.
	Progress func(done, total int64)
}

const lineBytes = 64 << 20

// lines makes records of lines. The format is that of the options or of the first line.
type lines struct {
	JSONLOptions
	read lineReader // nil until the format is known
}

func (o JSONLOptions) lines() (l *lines, err error) {
	o.LineBytes = cmp.Or(o.LineBytes, lineBytes)
	if o.Format == "" && len(o.Fields) > 0 {
		o.Format = Completion
		if len(o.Fields) == 1 {
			o.Format = Plain
		}
	}
	l = &lines{JSONLOptions: o}
	if o.Format != "" {
		l.read, err = o.formatReader(o.Format, o.Fields)
	}
	return l, err
}

// fileError is an error that concerns all lines of a file, not only one.
type fileError struct{ error }

// parse makes records of a line. length is its length in the file: line holds less of
// it if it is longer than allowed.
func (l *lines) parse(line []byte, length int64, which part) ([]Record, error) {
	o, err := parseObject(line, length, l.LineBytes)
	if err != nil {
		return nil, err
	}
	if l.read == nil {
		format, fields, err := detectFormat(o)
		if err != nil {
			return nil, err
		}
		read, err := l.formatReader(format, fields)
		if err != nil {
			return nil, fileError{err}
		}
		l.read, l.Format = read, format
	}
	return l.read(o, which)
}

// OpenJSONL opens and indexes a JSONL file. It reads and checks every line, so that a
// bad one is reported now and not hours into a run. Empty lines are ignored.
func OpenJSONL(name string, o JSONLOptions) (*Records, error) {
	called := cmp.Or(o.CopyOf, name)
	l, err := o.lines()
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", called, err)
	}
	r, err := openRecords(name, func(r *Records, in *bufio.Reader) error {
		progress := progressMeter(o.Progress, r.size)
		return l.scan(in, called, noPart, func(at int64, records []Record, wrong error) error {
			for range records {
				r.index = append(r.index, at)
			}
			progress(at)
			return r.bad(o.SkipBad, wrong)
		})
	})
	if err != nil {
		return nil, err
	}
	r.format, r.name = l.Format, called
	r.read = func(r *Records, i int) (Record, error) { return r.jsonLine(i, l) }
	return r, nil
}

// scan reads line by line and calls yield with the byte offset of each line and those of its
// records that are wanted, or with what is wrong with it.
func (l *lines) scan(in *bufio.Reader, name string, which part, yield func(at int64, records []Record, wrong error) error) error {
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
			records, wrong := l.parse(line, length, which)
			var whole fileError
			if errors.As(wrong, &whole) {
				return fmt.Errorf("%s:%d: %w", name, number, whole.error)
			}
			if wrong != nil {
				records, wrong = nil, &BadLineError{File: name, Line: number, Column: column(line, wrong), Err: wrong}
			}
			if err := yield(at, records, wrong); err != nil {
				return err
			}
		}
		at += length
	}
}

// readLine reads a line into the buffer, but at most limit bytes of it. length is that
// of the whole line with its line end.
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

// jsonLine reads record i. A line with several records has as many entries in the index,
// all with its offset. The index has no line ends: the line is read until one comes.
func (r *Records) jsonLine(i int, l *lines) (Record, error) {
	n := 0
	for i > n && r.index[i-n-1] == r.index[i] {
		n++
	}
	which := everyPart
	if n > 0 || i+1 < len(r.index) && r.index[i+1] == r.index[i] {
		which = part(n)
	}
	at := r.start + r.index[i]
	in := bufio.NewReader(io.NewSectionReader(r.file, at, r.size-at))
	line, length, err := readLine(in, nil, l.LineBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return Record{}, fmt.Errorf("reading %s at byte %d: %w", r.name, at, err)
	}
	records, err := l.parse(line, length, which)
	if err == nil && len(records) != 1 {
		err = fmt.Errorf("the line has %d texts, one was expected", len(records))
	}
	if err != nil {
		return Record{}, fmt.Errorf("%s at byte %d: %w; was it changed since it was opened?", r.name, at, err)
	}
	return records[0], nil
}
