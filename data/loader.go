package data

import (
	"cmp"
	"errors"
	"fmt"
	"io"
)

// Config says how a Loader makes rows.
type Config struct {
	Length int    // tokens per row
	Seed   uint64 // of the shuffle
	// InOrder takes documents in the order of the source instead of shuffling them.
	InOrder bool
	// WholeDocuments pads a row when the next document does not fit into the rest of it,
	// and begins the next row with that document. Otherwise documents are split at the
	// end of a row. A document longer than a row is split in any case: no token is lost.
	WholeDocuments bool
	// OneDocument begins a row with every document and pads the rest, as trainers without packing do.
	OneDocument bool
	// Digest is Survey.Digest of the documents. With it, Seek refuses a position in other
	// data; if it is 0, Seek compares only the number of documents.
	Digest uint64
	// Epochs is the number of passes over the data, after which the stream ends; 0 means
	// that it never ends.
	Epochs int64
	// Of every World × Batch.Rows rows, the loader of rank Rank takes its Batch.Rows
	// consecutive ones. A World of 0 counts as 1.
	Rank, World int
}

// Position is a place in the stream of rows: the next token to be used. It is the same
// for all ranks, and valid only for the same data, seed, length and packing.
type Position struct {
	Row      int64 `json:"row"`      // rows used so far
	Epoch    int64 `json:"epoch"`    // passes finished
	Document int64 `json:"document"` // place in the epoch's order
	Offset   int64 `json:"offset"`   // tokens of that document used already
	// The other fields identify the stream.
	Documents      int64  `json:"documents"`
	Seed           uint64 `json:"seed"`
	Length         int    `json:"length,omitempty"`
	WholeDocuments bool   `json:"whole,omitempty"`
	OneDocument    bool   `json:"one,omitempty"`
	Digest         uint64 `json:"digest,omitempty"`
}

// Loader packs documents into rows. It must not be used concurrently.
type Loader struct {
	source Source
	config Config
	at     Position
	order  order // of epoch at.Epoch

	document Document // document at.Document of the order, if loaded
	loaded   bool
	empty    int64  // consecutive documents without tokens
	spare    *Batch // one row, for the rows of other ranks
}

// NewLoader returns a loader at the beginning of the stream.
func NewLoader(s Source, c Config) (*Loader, error) {
	c.World = cmp.Or(c.World, 1)
	if c.Length < 2 {
		return nil, fmt.Errorf("making rows of %d tokens: a row needs at least 2, one to read and one to predict", c.Length)
	}
	if c.Rank < 0 || c.Rank >= c.World {
		return nil, fmt.Errorf("rank %d of %d: ranks count from 0", c.Rank, c.World)
	}
	if s.Len() == 0 {
		return nil, ErrNothing
	}
	l := &Loader{source: s, config: c, spare: NewBatch(1, c.Length)}
	l.setEpoch(0)
	l.at.Documents, l.at.Seed, l.at.Length, l.at.WholeDocuments, l.at.OneDocument, l.at.Digest = s.Len(), c.Seed, c.Length, c.WholeDocuments, c.OneDocument, c.Digest
	return l, nil
}

// Position returns where the next batch begins.
func (l *Loader) Position() Position { return l.at }

// Seek goes to a position that Position returned for the same stream.
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

// checkStream returns an error if p and now are positions in different streams.
func (p Position) checkStream(now Position) error {
	if p.Digest == 0 || now.Digest == 0 {
		p.Digest, now.Digest = 0, 0 // one of them is unknown
	}
	now.Row, now.Epoch, now.Document, now.Offset = p.Row, p.Epoch, p.Document, p.Offset
	switch {
	case p == now:
		return nil
	case p.Documents != now.Documents || p.Seed != now.Seed:
		return fmt.Errorf("that run had %d documents and seed %d, this data has %d and seed %d; use the same files and seed",
			p.Documents, p.Seed, now.Documents, now.Seed)
	case p.Length != now.Length || p.WholeDocuments != now.WholeDocuments || p.OneDocument != now.OneDocument:
		return fmt.Errorf("that run had rows of %d tokens (documents whole: %v, one in each: %v), this one has rows of %d (%v, %v); use the same length and packing",
			p.Length, p.WholeDocuments, p.OneDocument, now.Length, now.WholeDocuments, now.OneDocument)
	}
	return errors.New("the documents have other tokens than those of that run; use the same files, tokenizer, template and fields")
}

// Next fills the batch with this rank's next rows. After the last epoch it returns
// io.EOF. If the stream ends within a batch, the missing rows are all padding. After any
// other error the loader is in the middle of a batch: call Seek before Next.
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

// fill packs documents into the next row of the stream. It does not pad.
func (l *Loader) fill(r *row) error {
	for r.free() > 0 {
		if l.config.OneDocument && r.used > 0 && l.at.Offset == 0 {
			break
		}
		if l.at.Document == l.at.Documents {
			if r.used > 0 {
				break // rows do not cross epochs
			}
			l.setEpoch(l.at.Epoch + 1)
		}
		if l.config.Epochs > 0 && l.at.Epoch >= l.config.Epochs {
			if l.at.Row == 0 {
				return ErrNothing
			}
			return io.EOF
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

// load reads the document at the position, unless it is loaded. A conversation or
// completion without a token in the loss counts as empty: it would train nothing.
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
	if d.unused() {
		d = Document{}
	}
	l.document, l.loaded = d, true
	return nil
}

// advance moves past n tokens of the document, and to the next document at its end.
func (l *Loader) advance(n int) error {
	l.at.Offset += int64(n)
	if l.at.Offset < int64(len(l.document.Tokens)) {
		return nil
	}
	if len(l.document.Tokens) > 0 {
		l.empty = 0
	} else if l.empty++; l.empty > l.at.Documents {
		return ErrNothing
	}
	l.at.Document, l.at.Offset, l.loaded = l.at.Document+1, 0, false
	return nil
}

// setEpoch goes to the start of an epoch.
func (l *Loader) setEpoch(e int64) {
	l.at.Epoch, l.at.Document, l.at.Offset, l.loaded = e, 0, 0, false
	l.order = newOrder(l.source.Len(), l.config.Seed, uint64(e))
}
