package data

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"spillway/internal/reference"
)

// byteTokens is a tokenizer whose tokens are the bytes, after a 256 at the start.
type byteTokens struct{}

func (byteTokens) Encode(text string, addSpecial bool) ([]int32, error) {
	var out []int32
	if addSpecial {
		out = append(out, 256)
	}
	if strings.Contains(text, "REFUSE") {
		return nil, errors.New("refused")
	}
	for _, b := range []byte(text) {
		out = append(out, int32(b))
	}
	return out, nil
}

func file(t testing.TB, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// all reads every record of an opened file, and closes it.
func all(t testing.TB, r *Records, err error) []Record {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out []Record
	for i := range r.Len() {
		rec, err := r.Record(i)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, rec)
	}
	if _, err := r.Record(r.Len()); err == nil {
		t.Error("a record past the end was read")
	}
	return out
}

// sourceDocuments gives every document of a source, in order.
func sourceDocuments(s Source) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		for i := range s.Len() {
			d, err := s.Document(i)
			if !yield(d, err) || err != nil {
				return
			}
		}
	}
}

// streamText gives the records of a text in one pass, without an index.
func streamText(in io.Reader, name string, o TextOptions) iter.Seq2[Record, error] {
	return stream(func(yield func(Record, error) error) error {
		o, err := o.withDefaults()
		if err != nil {
			return err
		}
		in, _, err := skipBOM(in)
		if err != nil {
			return err
		}
		return scanText(in, name, o, func(p textPiece, wrong error) error { return yield(p.record(o), wrong) })
	}, o.SkipBad)
}

// streamJSONL gives the records of JSON lines in one pass, without an index.
func streamJSONL(in io.Reader, name string, o JSONLOptions) iter.Seq2[Record, error] {
	return stream(func(yield func(Record, error) error) error {
		l, err := o.lines()
		if err != nil {
			return err
		}
		in, _, err := skipBOM(in)
		if err != nil {
			return err
		}
		return l.scan(in, name, everyPart, func(_ int64, records []Record, wrong error) error {
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

// stream makes an iterator of a scan. It ends at the first error; with skipBad it leaves
// out bad records.
func stream(scan func(yield func(Record, error) error) error, skipBad bool) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		stopped := errors.New("the reader wants no more")
		err := scan(func(rec Record, wrong error) error {
			if wrong != nil && skipBad {
				return nil
			}
			if wrong != nil {
				return hintedError{wrong}
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

func collect(t testing.TB, records iter.Seq2[Record, error]) []Record {
	t.Helper()
	var out []Record
	for rec, err := range records {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, rec)
	}
	return out
}

// TestGSM8K packs a real data set: no token is lost, prompts are not in the loss.
func TestGSM8K(t *testing.T) {
	name := reference.Asset(t, "gsm8k/train.jsonl")
	r, err := OpenJSONL(name, JSONLOptions{Fields: []string{"question", "answer"}, PromptSeparator: "\n"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.Len() != 7473 {
		t.Fatalf("%d problems, the data set has 7473", r.Len())
	}
	end := int32(257)
	source := Tokenize(r, byteTokens{}, TokenizeOptions{End: &end})
	tokens, inLoss := 0, 0
	for d, err := range sourceDocuments(source) {
		if err != nil {
			t.Fatal(err)
		}
		tokens += len(d.Tokens)
		inLoss += d.LossTokens()
	}
	l := newLoader(t, source, Config{Length: 4096, Seed: 1, WholeDocuments: true, Epochs: 1})
	b := NewBatch(8, 4096)
	gotTokens, gotInLoss, rows := 0, 0, 0
	for l.Next(b) == nil {
		gotTokens, gotInLoss = gotTokens+b.NonPadding, gotInLoss+b.LossTokens
		rows = int(b.First) + b.Rows
	}
	if gotTokens != tokens || gotInLoss != inLoss {
		t.Errorf("%d tokens, %d in the loss; the documents have %d and %d", gotTokens, gotInLoss, tokens, inLoss)
	}
	t.Logf("%d tokens in %d rows of 4096: %.1f%% full", tokens, rows, 100*float64(tokens)/float64(rows*4096))
}

// Whatever a file holds: opening it gives an error or the same records as a
// stream of it.
func FuzzFiles(f *testing.F) {
	f.Add([]byte("{\"text\":\"a\"}\n{\"text\":\"b\"}"), "|", false)
	f.Add([]byte("plain text | with parts\nand lines"), "|", true)
	f.Add([]byte("\xef\xbb\xbf{\"text\":\"\\ud800\"}\n\n\x00\xff"), "", true)
	f.Fuzz(func(t *testing.T, content []byte, separator string, skip bool) {
		name := file(t, string(content))
		text := TextOptions{Separator: separator, PieceBytes: leastPiece + 2*len(separator), SkipBad: skip}
		r, err := OpenText(name, text)
		same(t, r, err, streamText(bytes.NewReader(content), name, text))
		lines := JSONLOptions{LineBytes: 100, SkipBad: skip}
		r, err = OpenJSONL(name, lines)
		same(t, r, err, streamJSONL(bytes.NewReader(content), name, lines))
	})
}

// same compares an opened file with a stream of it, bad records left out.
func same(t *testing.T, r *Records, opened error, records iter.Seq2[Record, error]) {
	t.Helper()
	var streamed []Record
	for rec, err := range records {
		if err != nil {
			if opened == nil || opened.Error() != err.Error() {
				t.Fatalf("opened: %v\nstreamed: %v", opened, err)
			}
			return
		}
		streamed = append(streamed, rec)
	}
	if opened != nil {
		t.Fatalf("opened: %v, streamed without", opened)
	}
	indexed := all(t, r, nil)
	if n, _ := r.Skipped(); n > 0 {
		blank := func(rec Record) bool { return rec.Text == "" }
		indexed, streamed = slices.DeleteFunc(indexed, blank), slices.DeleteFunc(streamed, blank)
	}
	if !slices.EqualFunc(indexed, streamed, func(a, b Record) bool { return reflect.DeepEqual(a, b) }) {
		t.Fatalf("opened %+v\nstreamed %+v", indexed, streamed)
	}
}
