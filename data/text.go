package data

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// TextOptions say how a file of plain text is split into records.
type TextOptions struct {
	// Separator is the text that ends a document, such as "<|endoftext|>"; it is not part
	// of the document. Without one the file is one document.
	Separator string
	// PieceBytes is the size of the largest record; 0 means 64 KiB. Longer documents are
	// split, after a line if possible, so that memory stays small and a file of one
	// document can be shuffled.
	PieceBytes int
	// SkipBad skips records that are not UTF-8 text, and counts them.
	SkipBad bool
}

const (
	pieceBytes = 64 << 10
	leastPiece = 16
)

func (o TextOptions) withDefaults() (TextOptions, error) {
	o.PieceBytes = cmp.Or(o.PieceBytes, pieceBytes)
	if least := leastPiece + 2*len(o.Separator); o.PieceBytes < least {
		return o, fmt.Errorf("records of at most %d bytes: at least %d are needed", o.PieceBytes, least)
	}
	return o, nil
}

// An index entry of a text file is the offset of a piece, shifted left by flagBits, with
// two flags in the low bits. A piece ends where the next one starts.
const (
	flagContinues = 1 << iota
	flagBad
	flagBits = iota
)

// OpenText opens and indexes a file of UTF-8 text.
func OpenText(name string, o TextOptions) (*Records, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", name, err)
	}
	r, err := openRecords(name, func(r *Records, in *bufio.Reader) error {
		return scanText(in, name, o, func(p textPiece, wrong error) error {
			entry := p.at << flagBits
			if p.continues {
				entry |= flagContinues
			}
			if wrong != nil {
				entry |= flagBad
			}
			r.index = append(r.index, entry)
			return r.bad(o.SkipBad, wrong)
		})
	})
	if err != nil {
		return nil, err
	}
	r.format = Plain
	r.read = func(r *Records, i int) (Record, error) { return r.piece(i, o) }
	return r, nil
}

// textPiece is one piece of a text while it is scanned. Its bytes include the separator
// that ends it, if any, and are valid until the next piece is read.
type textPiece struct {
	at                    int64 // offset in the text
	bytes                 []byte
	continues, unfinished bool
}

// record makes a record of a piece. White space alone between two separators is no
// document: its record is empty.
func (p textPiece) record(o TextOptions) Record {
	rec := Record{Continues: p.continues, Unfinished: p.unfinished}
	text := p.bytes
	if o.Separator != "" && !p.unfinished {
		text = bytes.TrimSuffix(text, []byte(o.Separator))
	}
	if p.continues || p.unfinished || len(bytes.TrimSpace(text)) > 0 {
		rec.Text = string(text)
	}
	return rec
}

// scanText splits a text into pieces. Its memory is one buffer of the largest piece.
func scanText(in *bufio.Reader, name string, o TextOptions, yield func(p textPiece, wrong error) error) error {
	buffer, held, line := make([]byte, o.PieceBytes), 0, 1
	var p textPiece
	for {
		n, err := io.ReadFull(in, buffer[held:])
		if err == nil {
			_, err = in.Peek(1)
		}
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		if held += n; held == 0 {
			return nil
		}
		cut, separated := cutText(buffer[:held], []byte(o.Separator), last)
		p.bytes, p.unfinished = buffer[:cut], !separated && !last
		if err := yield(p, checkText(p.bytes, name, line)); err != nil {
			return err
		}
		line += bytes.Count(p.bytes, []byte{'\n'})
		p.at, p.continues = p.at+int64(cut), p.unfinished
		held = copy(buffer, buffer[cut:held])
	}
}

// cutText finds where the first piece of a buffer ends: after a separator, else at the
// end of the text (last says that the buffer reaches it), else after the last line, else
// after the last space, else between characters. It never cuts through a separator.
func cutText(buffer, separator []byte, last bool) (cut int, separated bool) {
	if i := bytes.Index(buffer, separator); i >= 0 && len(separator) > 0 {
		return i + len(separator), true
	}
	if last {
		return len(buffer), false
	}
	within := buffer[:len(buffer)-max(len(separator)-1, 0)]
	for _, after := range []byte{'\n', ' '} {
		if i := bytes.LastIndexByte(within, after); i >= 0 {
			return i + 1, false
		}
	}
	cut = len(within) - utf8.UTFMax
	for back := 1; back < utf8.UTFMax && !utf8.RuneStart(buffer[cut]); back++ {
		cut--
	}
	return cut, false
}

// checkText returns an error if a piece is not UTF-8 text. line is the number of the
// line in which the piece starts.
func checkText(piece []byte, name string, line int) error {
	valid, zero := len(validPrefix(piece)), bytes.IndexByte(piece, 0)
	lineOf := func(at int) int { return line + bytes.Count(piece[:at], []byte{'\n'}) }
	switch {
	case zero >= 0 && zero < valid:
		return fmt.Errorf("%s:%d: a zero byte: this is not plain text, or it is UTF-16; convert it to UTF-8", name, lineOf(zero))
	case valid < len(piece):
		return fmt.Errorf("%s:%d: byte %#02x is not UTF-8; convert the file to UTF-8", name, lineOf(valid), piece[valid])
	}
	return nil
}

// piece reads record i of a text file. A bad record is empty.
func (r *Records) piece(i int, o TextOptions) (Record, error) {
	entry, end, next := r.index[i], r.size, int64(0)
	if i+1 < len(r.index) {
		next = r.index[i+1]
		end = r.start + next>>flagBits
	}
	if entry&flagBad != 0 {
		return Record{}, nil
	}
	at := r.start + entry>>flagBits
	text := make([]byte, end-at)
	if _, err := r.file.ReadAt(text, at); err != nil {
		return Record{}, fmt.Errorf("reading %s at byte %d: %w; was it changed since it was opened?", r.name, at, err)
	}
	return textPiece{0, text, entry&flagContinues != 0, next&flagContinues != 0}.record(o), nil
}
