package finetune

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"spillway/data"
	"spillway/internal/vfs"
)

// temporary is a folder that is removed when it is closed.
type temporary func() error

func (t temporary) Close() error { return t() }

// copied writes what does not lie in a file of lines into one, since documents are read in any
// order. The corpus removes it in the end.
func (c *Corpus) copied(ending string, write func(w io.Writer) error) (path string, err error) {
	dir, remove, err := vfs.TempDir("spillway-data")
	if err != nil {
		return "", err
	}
	c.open = append(c.open, temporary(remove))
	f, err := os.Create(filepath.Join(dir, "data"+ending))
	if err != nil {
		return "", err
	}
	w := bufio.NewWriter(f)
	return f.Name(), errors.Join(write(w), w.Flush(), f.Close())
}

// fromStdin copies standard input: JSON lines where it begins with an object, else plain text.
func (c *Corpus) fromStdin(in io.Reader) (string, error) {
	if in == nil {
		in = os.Stdin
	}
	buffered := bufio.NewReader(in)
	head, err := buffered.Peek(512)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("reading standard input: %w", err)
	}
	ending := ".txt"
	if bytes.HasPrefix(bytes.TrimSpace(head), []byte("{")) {
		ending = ".jsonl"
	}
	return c.copied(ending, func(w io.Writer) error { _, err := io.Copy(w, buffered); return err })
}

// fromCSV copies a table with a line of names as JSON lines, an object per line of the table;
// .tsv has tabs for commas.
func (c *Corpus) fromCSV(name string) (string, error) {
	f, err := vfs.OS.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close() // opened for reading
	size, err := f.Size()
	if err != nil {
		return "", err
	}
	r := csv.NewReader(io.NewSectionReader(f, 0, size))
	if filepath.Ext(name) == ".tsv" {
		r.Comma, r.LazyQuotes = '\t', true
	}
	names, err := r.Read()
	if err != nil {
		return "", fmt.Errorf("%s: reading the names of the columns: %w", name, err)
	}
	return c.copied(".jsonl", func(w io.Writer) error {
		for {
			cells, err := r.Read()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			object := map[string]string{}
			for i, cell := range cells {
				object[names[i]] = cell
			}
			if err := json.NewEncoder(w).Encode(object); err != nil {
				return err
			}
		}
	})
}

// SamplePart is a piece of a document, with whether it is in the loss.
type SamplePart struct {
	Text   string `json:"text"`
	InLoss bool   `json:"in_loss"`
}

// sampleOf is the first record of a file, as the model reads it.
func sampleOf(r *data.Records, trainOnPrompts bool) ([]SamplePart, error) {
	if r.Len() == 0 {
		return nil, nil
	}
	rec, err := r.Record(0)
	if err != nil {
		return nil, err
	}
	var parts []SamplePart
	add := func(text string, inLoss bool) {
		if text != "" {
			parts = append(parts, SamplePart{text, inLoss || trainOnPrompts})
		}
	}
	add(rec.Prompt, false)
	at := 0
	for _, a := range rec.Answers {
		add(rec.Text[at:a.Start], false)
		add(rec.Text[a.Start:a.End], true)
		at = a.End
	}
	add(rec.Text[at:], rec.Answers == nil)
	return parts, nil
}
