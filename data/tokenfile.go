package data

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
)

// TokenOptions describe a raw file of token ids, little-endian.
type TokenOptions struct {
	// Width is the size of a token id in bytes, 2 or 4.
	Width int
	// End is the token that ends a document; it stays part of the document. Nil means
	// that the file does not mark documents: it is split every PieceTokens.
	End *int32
	// PieceTokens is the length of the longest document; 0 means 65,536. Longer documents
	// are split.
	PieceTokens int
	// Vocabulary is the vocabulary size that ids must stay below; 0 means no check.
	Vocabulary int32
}

const pieceTokens = 1 << 16

// Tokens is an open token file. It is a Source.
type Tokens struct {
	name    string
	file    *os.File
	options TokenOptions
	starts  []int64 // first token of each document, then the number of all tokens
}

// OpenTokens opens and indexes a token file and checks every token in it.
func OpenTokens(name string, o TokenOptions) (_ *Tokens, err error) {
	o.PieceTokens = cmp.Or(o.PieceTokens, pieceTokens)
	if o.Width != 2 && o.Width != 4 || o.PieceTokens < 2 {
		return nil, fmt.Errorf("opening %s: token ids of %d bytes in documents of at most %d; a token id has 2 or 4 bytes, a document at least 2 tokens", name, o.Width, o.PieceTokens)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	t := &Tokens{name: name, file: f, options: o}
	if err := t.index(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return t, nil
}

// tokenBlock is the number of bytes indexed at a time, a multiple of both widths.
const tokenBlock = 256 << 10

// index checks every token and records where documents start.
func (t *Tokens) index() error {
	st, err := t.file.Stat()
	if err != nil {
		return err
	}
	width := int64(t.options.Width)
	if st.Size()%width != 0 {
		return fmt.Errorf("%s has %d bytes, not a multiple of the %d of a token; is the width right?", t.name, st.Size(), width)
	}
	in, total := io.NewSectionReader(t.file, 0, st.Size()), st.Size()/width
	block := make([]byte, tokenBlock)
	last := int64(0) // start of the document
	t.starts = []int64{last}
	for at := int64(0); at < total; {
		n, err := io.ReadFull(in, block)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("reading %s: %w", t.name, err)
		}
		for raw := block[:n]; len(raw) > 0; raw = raw[width:] {
			token, err := t.decode(raw)
			if err != nil {
				return fmt.Errorf("%s, token %d: %w", t.name, at, err)
			}
			at++
			ends := t.options.End != nil && token == *t.options.End
			if ends || at == total || at-last == int64(t.options.PieceTokens) {
				last = at
				t.starts = append(t.starts, last)
			}
		}
	}
	t.starts = trim(t.starts)
	return nil
}

func (t *Tokens) decode(raw []byte) (int32, error) {
	v := uint32(binary.LittleEndian.Uint16(raw))
	if t.options.Width == 4 {
		v = binary.LittleEndian.Uint32(raw)
	}
	if v > math.MaxInt32 || t.options.Vocabulary > 0 && int32(v) >= t.options.Vocabulary {
		return 0, fmt.Errorf("token id %d is outside the vocabulary of %d; is it the right file, and the right width?", v, t.options.Vocabulary)
	}
	return int32(v), nil
}

// Len is the number of documents.
func (t *Tokens) Len() int64 { return int64(len(t.starts) - 1) }

// Document reads document i.
func (t *Tokens) Document(i int64) (Document, error) {
	if err := inRange(i, t.Len()); err != nil {
		return Document{}, fmt.Errorf("%s: %w", t.name, err)
	}
	width := int64(t.options.Width)
	raw := make([]byte, (t.starts[i+1]-t.starts[i])*width)
	if _, err := t.file.ReadAt(raw, t.starts[i]*width); err != nil {
		return Document{}, fmt.Errorf("reading %s, document %d: %w; was it changed since it was opened?", t.name, i, err)
	}
	tokens := make([]int32, len(raw)/int(width))
	for k := range tokens {
		var err error
		if tokens[k], err = t.decode(raw[int64(k)*width:]); err != nil {
			return Document{}, fmt.Errorf("%s, document %d: %w", t.name, i, err)
		}
	}
	return Document{Tokens: tokens}, nil
}

// Close closes the file.
func (t *Tokens) Close() error { return t.file.Close() }
