package data

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
)

// What is here is the plain form of what the package does: records in the order they
// are read, without an index. Tests hold opened files to it.

// allDocuments gives every document of a source, in order.
func allDocuments(s Source) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		for i := range s.Len() {
			d, err := s.Document(i)
			if !yield(d, err) || err != nil {
				return
			}
		}
	}
}

// streamJSONL gives the records of JSON lines that can be read only once, such as
// a pipe.
func streamJSONL(in io.Reader, name string, o JSONLOptions) iter.Seq2[Record, error] {
	return stream(func(yield func(Record, error) error) error {
		l, err := o.lines()
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		in, _, err := skipBOM(in)
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		return l.scan(in, name, func(_ int64, records []Record, wrong error) error {
			if wrong != nil {
				return yield(Record{}, wrong)
			}
			for _, rec := range records {
				if err := yield(rec, nil); err != nil {
					return err
				}
			}
			return nil
		})
	}, o.SkipBad)
}

// streamText gives the records of a text that can be read only once, such as a pipe.
func streamText(in io.Reader, name string, o TextOptions) iter.Seq2[Record, error] {
	return stream(func(yield func(Record, error) error) error {
		o, err := o.withDefaults()
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		in, _, err := skipBOM(in)
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		return scanText(in, name, o, func(p textPiece, wrong error) error { return yield(p.record(o), wrong) })
	}, o.SkipBad)
}

// stream makes an iterator of a scan. It ends at the first error, and leaves out bad
// records if it may.
func stream(scan func(yield func(Record, error) error) error, skipBad bool) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		stopped := errors.New("the reader wants no more")
		err := scan(func(rec Record, wrong error) error {
			if wrong != nil && skipBad {
				return nil
			}
			if wrong != nil {
				return withHint(wrong)
			}
			if !yield(rec, nil) {
				return stopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, stopped) {
			yield(Record{}, err)
		}
	}
}

// writeTokens writes documents as a token file, so that text need be tokenized only
// once. What is a prompt is not kept.
func writeTokens(w io.Writer, documents iter.Seq2[Document, error], width int) error {
	if width != 2 && width != 4 {
		return fmt.Errorf("writing tokens of %d bytes; a token has 2 or 4", width)
	}
	out := bufio.NewWriter(w)
	raw := make([]byte, 4)
	for d, err := range documents {
		if err != nil {
			return err
		}
		for _, token := range d.Tokens {
			if token < 0 || width == 2 && token > math.MaxUint16 {
				return fmt.Errorf("writing token %d in %d bytes: it does not fit; use 4", token, width)
			}
			binary.LittleEndian.PutUint32(raw, uint32(token))
			out.Write(raw[:width]) // an error stays and comes back from Flush
		}
	}
	return out.Flush()
}
