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

// Record is a piece of text as a file holds it.
type Record struct {
	Prompt string // given, not learned; empty for plain text
	Text   string
	// Answers are the parts of a conversation to be learned. Where there are any the
	// text is complete: it has its own special tokens.
	Answers []chat.Span
	// Continues: the text goes on from the record before. Unfinished: the next
	// record goes on from this one. Long texts are cut into such records.
	Continues, Unfinished bool
}

// Records is an open file of records. Record may be called from several
// goroutines.
type Records struct {
	name   string
	file   *os.File
	start  int64 // where the text begins, after a byte order mark
	size   int64
	index  []int64 // what each entry means is up to the format; offsets count from start
	read   func(r *Records, i int) (Record, error)
	format Format

	skipped  int64
	firstBad error
}

// Len is the number of records.
func (r *Records) Len() int64 { return int64(len(r.index)) }

// Form is what the file holds; "" where it has no records.
func (r *Records) Format() Format { return r.format }

// follows says whether record i is of the same line as the one before it.
func (r *Records) sameLine(i int64) bool {
	return r.format == Chat && i > 0 && r.index[i] == r.index[i-1]
}

// Record reads one.
func (r *Records) Record(i int64) (Record, error) {
	if err := inRange(i, r.Len()); err != nil {
		return Record{}, fmt.Errorf("%s: %w", r.name, err)
	}
	return r.read(r, int(i))
}

// Skipped is how many bad records were left out when the file was opened with
// SkipBad, and what was wrong with the first.
func (r *Records) Skipped() (int64, error) { return r.skipped, r.firstBad }

// Close closes the file.
func (r *Records) Close() error { return r.file.Close() }

// bad takes note of what is wrong with a record, if anything: nil if it may be left out.
func (r *Records) bad(skip bool, wrong error) error {
	if wrong == nil {
		return nil
	}
	if !skip {
		return withHint(wrong)
	}
	if r.skipped++; r.firstBad == nil {
		r.firstBad = wrong
	}
	return nil
}

func withHint(wrong error) error { return fmt.Errorf("%w; correct it, or skip bad records", wrong) }

// openRecords opens a file and lets index run over it once, from the start.
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

// trim gives back the room that append left.
func trim(index []int64) []int64 { return append(make([]int64, 0, len(index)), index...) }

// byteOrderMark is what some editors put before UTF-8; it is not part of the text.
var byteOrderMark = []byte{0xef, 0xbb, 0xbf}

// skipMark passes over a byte order mark and says how long it was.
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
