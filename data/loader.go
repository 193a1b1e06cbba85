package data

import (
	"errors"
	"fmt"
	"io"
)

// Config says how a Loader makes rows.
type Config struct {
	Length int    // tokens per row
	Seed   uint64 // of the order
	// InOrder takes documents as they lie in the source instead of shuffling them.
	InOrder bool
	// Whole moves a document that does not fit into what is left of a row to the
	// next one, and pads; otherwise documents are cut at the end of a row. What is
	// longer than a row is cut in any case: no token is lost.
	WholeDocuments bool
	// Digest is of the documents, as Survey has it, so that a position in other data is
	// recognised; 0 recognises it by the number of documents alone.
	Digest uint64
	// Epochs ends the stream after so many passes over the data; 0 never ends it.
	Epochs int64
	// Of every World·rows rows the loader of rank Rank takes its part. A World of
	// 0 counts as 1.
	Rank, World int
}

// Position is where a stream stands: the next token to be used. It is the same
// for all ranks, and of use only for the same data, seed and length.
type Position struct {
	Row      int64 `json:"row"`      // rows used so far
	Epoch    int64 `json:"epoch"`    // passes finished
	Document int64 `json:"document"` // place in the epoch's order
	Offset   int64 `json:"offset"`   // tokens of that document used already
	// The rest are those of the stream, to recognise it.
	Documents      int64  `json:"documents"`
	Seed           uint64 `json:"seed"`
	Length         int    `json:"length,omitempty"`
	WholeDocuments bool   `json:"whole,omitempty"`
	Digest         uint64 `json:"digest,omitempty"`
}

// stream is what two positions of one stream have alike.
func (p Position) stream() Position {
	p.Row, p.Epoch, p.Document, p.Offset = 0, 0, 0, 0
	return p
}

// Loader packs documents into rows. It is not for concurrent use.
type Loader struct {
	source Source
	config Config
	at     Position
	order  order // of the epoch in at

	document Document // the one in at, once loaded
	loaded   bool
	empty    int64 // documents without tokens in a row
	spare    *Batch
}

// NewLoader starts the stream at its beginning.
func NewLoader(s Source, c Config) (*Loader, error) {
	if c.World == 0 {
		c.World = 1
	}
	if c.Length < 2 {
		return nil, fmt.Errorf("making rows of %d tokens: a row needs at least 2, one to read and one to predict", c.Length)
	}
	if c.Rank < 0 || c.Rank >= c.World {
		return nil, fmt.Errorf("rank %d of %d: ranks count from 0", c.Rank, c.World)
	}
	if s.Len() == 0 {
		return nil, errEmpty
	}
	l := &Loader{source: s, config: c, spare: NewBatch(1, c.Length)}
	l.setEpoch(0)
	l.at.Documents, l.at.Seed, l.at.Length, l.at.WholeDocuments, l.at.Digest = s.Len(), c.Seed, c.Length, c.WholeDocuments, c.Digest
	return l, nil
}

// Position is where the next batch begins.
func (l *Loader) Position() Position { return l.at }

// Seek goes to a position of this stream, as Position gave it.
func (l *Loader) Seek(p Position) error {
	if err := p.checkStream(l.at); err != nil {
		return fmt.Errorf("resuming at row %d: %w", p.Row, err)
	}
	if p.Row < 0 || p.Epoch < 0 || p.Document < 0 || p.Document > p.Documents || p.Offset < 0 || p.Offset > 0 && p.Document == p.Documents {
		return fmt.Errorf("resuming at %+v: there is no such position", p)
	}
	l.setEpoch(p.Epoch)
	l.at, l.empty = p, 0
	if p.Offset > 0 {
		if err := l.load(); err != nil {
			return err
		}
		if p.Offset >= int64(len(l.document.Tokens)) {
			return fmt.Errorf("resuming at %+v: the document has %d tokens; the files or the tokenizer have changed", p, len(l.document.Tokens))
		}
	}
	return nil
}

// recognise refuses a position of another stream than that of now.
func (p Position) checkStream(now Position) error {
	if p.Digest == 0 || now.Digest == 0 {
		p.Digest, now.Digest = 0, 0 // one was not counted
	}
	was, is := p.stream(), now.stream()
	switch {
	case was == is:
		return nil
	case was.Documents != is.Documents || was.Seed != is.Seed:
		return fmt.Errorf("that run had %d documents and seed %d, this data has %d and seed %d; use the same files and seed",
			was.Documents, was.Seed, is.Documents, is.Seed)
	case was.Length != is.Length || was.WholeDocuments != is.WholeDocuments:
		return fmt.Errorf("that run had rows of %d tokens (documents whole: %v), this one has rows of %d (%v); use the same length and packing",
			was.Length, was.WholeDocuments, is.Length, is.WholeDocuments)
	}
	return errors.New("the documents have other tokens than those of that run; use the same files, tokenizer, template and fields")
}

// Next fills the batch with this rank's next rows. After the last epoch it gives
// io.EOF; rows past the end in the batch before are all padding. After another
// error the loader stands in the middle of a batch: seek before going on.
func (l *Loader) Next(b *Batch) error {
	if b.Length != l.config.Length || b.Rows < 1 {
		return fmt.Errorf("a batch of %d rows of %d tokens: this loader makes rows of %d", b.Rows, b.Length, l.config.Length)
	}
	b.LossTokens, b.NonPadding = 0, 0
	b.First = l.at.Row + int64(l.config.Rank*b.Rows)
	var err error
	for k := range l.config.World * b.Rows {
		r, mine := l.spare.row(0), k/b.Rows == l.config.Rank
		if mine {
			r = b.row(k % b.Rows)
		}
		if err == nil {
			err = l.fill(&r)
		}
		if err != nil && (k == 0 || !errors.Is(err, io.EOF)) {
			return err
		}
		r.pad()
		if mine {
			b.LossTokens += r.lossTokens
			b.NonPadding += r.used
		}
	}
	return nil
}

// fill packs the next row of the stream, but for its padding.
func (l *Loader) fill(r *row) error {
	for r.free() > 0 {
		if l.at.Document == l.at.Documents {
			if r.used > 0 {
				break // an epoch ends with its row
			}
			l.setEpoch(l.at.Epoch + 1)
		}
		if l.config.Epochs > 0 && l.at.Epoch >= l.config.Epochs {
			return l.end()
		}
		if err := l.load(); err != nil {
			return err
		}
		rest := l.document.Tokens[l.at.Offset:]
		if l.config.WholeDocuments && r.used > 0 && len(rest) > r.free() {
			break
		}
		n := min(len(rest), r.free())
		if n > 0 {
			r.place(l.document, int(l.at.Offset), n)
		}
		if err := l.advance(n); err != nil {
			return err
		}
	}
	l.at.Row++
	return nil
}

// end is io.EOF, unless not even one row came before it.
func (l *Loader) end() error {
	if l.at.Row == 0 {
		return errEmpty
	}
	return io.EOF
}

// load reads the document of the position, once.
func (l *Loader) load() error {
	if l.loaded {
		return nil
	}
	i := l.at.Document
	if !l.config.InOrder {
		i = l.order.at(i)
	}
	d, err := l.source.Document(i)
	if err != nil {
		return fmt.Errorf("reading document %d for row %d: %w", i, l.at.Row, err)
	}
	l.document, l.loaded = d, true
	return nil
}

// advance moves past n tokens of the document, to the next one if it is used up.
func (l *Loader) advance(n int) error {
	l.at.Offset += int64(n)
	if l.at.Offset < int64(len(l.document.Tokens)) {
		return nil
	}
	if len(l.document.Tokens) > 0 {
		l.empty = 0
	} else if l.empty++; l.empty > l.at.Documents {
		return errEmpty
	}
	l.at.Document, l.at.Offset, l.loaded = l.at.Document+1, 0, false
	return nil
}

// setEpoch goes to the start of an epoch.
func (l *Loader) setEpoch(e int64) {
	l.at.Epoch, l.at.Document, l.at.Offset, l.loaded = e, 0, 0, false
	l.order = newOrder(l.source.Len(), l.config.Seed, uint64(e))
}
