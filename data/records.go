package data

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"spillway/chat"
)

// Record is one text of a file, before tokenization.
type Record struct {
	Prompt string // context that is not in the loss; empty for plain text
	Text   string
	// Answers are the parts of a conversation that count in the loss. A record with
	// answers is a rendered chat template, which writes the special tokens itself.
	Answers []chat.Span
	// A long text is split into several records. Continues says that this record goes on
	// from the one before; Unfinished says that the next one goes on from this.
	Continues, Unfinished bool
}

// Records is an open file of records. Record may be called from several
// goroutines.
type Records struct {
	name   string
	file   *os.File
	start  int64 // where the text begins, after a byte order mark
	size   int64
	index  []int64 // an entry per record: its offset from start, in text files with flags
	read   func(r *Records, i int) (Record, error)
	format Format

	skipped  int64
	firstBad error
}

// Len is the number of records.
func (r *Records) Len() int64 { return int64(len(r.index)) }

// Format is that of the file; "" if it has no records.
func (r *Records) Format() Format { return r.format }

// sameLine reports whether record i comes from the same line as the one before it.
func (r *Records) sameLine(i int64) bool {
	return r.format == Chat && i > 0 && r.index[i] == r.index[i-1]
}

// Record reads record i.
func (r *Records) Record(i int64) (Record, error) {
	if err := inRange(i, r.Len()); err != nil {
		return Record{}, fmt.Errorf("%s: %w", r.name, err)
	}
	return r.read(r, int(i))
}

// Skipped returns how many bad records were skipped when the file was opened with
// SkipBad, and what was wrong with the first.
func (r *Records) Skipped() (int64, error) { return r.skipped, r.firstBad }

// Close closes the file.
func (r *Records) Close() error { return r.file.Close() }

// bad handles a record that has an error: it counts the record if skip is set, and
// returns the error otherwise. A nil error is no bad record.
func (r *Records) bad(skip bool, wrong error) error {
	if wrong == nil {
		return nil
	}
	if !skip {
		return hintedError{wrong}
	}
	if r.skipped++; r.firstBad == nil {
		r.firstBad = wrong
	}
	return nil
}

// hintedError is the error of a bad record with what can be done about it. It is written when it
// is read, since whoever opened a copy of a file may still put the file's own name into it.
type hintedError struct{ error }

func (e hintedError) Error() string {
	if fields := (*FieldsError)(nil); errors.As(e.error, &fields) {
		return e.error.Error() // which says what to do
	}
	return e.error.Error() + "; correct it, or skip bad records"
}

func (e hintedError) Unwrap() error { return e.error }

// openRecords opens a file and calls index, which reads it once and fills Records.index.
func openRecords(name string, index func(r *Records, in *bufio.Reader) error) (_ *Records, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.IsDir() {
		return nil, fmt.Errorf("%s is a folder; name the files in it", name)
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file, so it cannot be indexed; copy it to one", name)
	}
	r := &Records{name: name, file: f, size: st.Size()}
	in, mark, err := skipBOM(io.NewSectionReader(f, 0, r.size))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	r.start = mark
	if err := index(r, in); err != nil {
		return nil, err
	}
	r.index = trim(r.index)
	return r, nil
}

// trim returns a copy without the spare capacity that append left.
func trim(index []int64) []int64 { return append(make([]int64, 0, len(index)), index...) }

// byteOrderMark is put before UTF-8 text by some editors; it is not part of the text.
var byteOrderMark = []byte{0xef, 0xbb, 0xbf}

// skipBOM skips a byte order mark and returns its length, 0 if there is none.
func skipBOM(in io.Reader) (*bufio.Reader, int64, error) {
	b := bufio.NewReaderSize(in, 64<<10)
	head, err := b.Peek(len(byteOrderMark))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	if !bytes.Equal(head, byteOrderMark) {
		return b, 0, nil
	}
	n, err := b.Discard(len(byteOrderMark))
	return b, int64(n), err
}
