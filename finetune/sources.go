package finetune

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"

	"spillway/data"
	"spillway/internal/vfs"
	"spillway/recipe"
	"spillway/units"
)

// temporary is a folder that is removed when it is closed.
type temporary func() error

func (t temporary) Close() error { return t() }

// copied writes what does not lie in a file of lines into one, since documents are read in any
// order. The corpus removes it in the end.
func (c *Corpus) copied(ending string, write func(w io.Writer) error) (path string, err error) {
	dir, remove, err := vfs.TempDir("spillway-data")
	if err != nil {
		return "", fmt.Errorf("making a copy of the data: %w; name a folder for it in TMPDIR", err)
	}
	c.open = append(c.open, temporary(remove))
	f, err := os.Create(filepath.Join(dir, "data"+ending))
	if err != nil {
		return "", err
	}
	w := bufio.NewWriter(&roomWriter{w: f, dir: dir, free: vfs.OS.Free})
	return f.Name(), errors.Join(write(w), w.Flush(), f.Close())
}

// roomWriter writes to a disk until a tenth of what was free there is left, so that a copy
// without end does not fill it.
type roomWriter struct {
	w    io.Writer
	dir  string
	free func(dir string) (int64, error)
	most int64 // bytes that may be written; 0 until the first are
	done int64
}

func (r *roomWriter) Write(p []byte) (int, error) {
	if r.most == 0 {
		free, err := r.free(r.dir)
		if err != nil {
			return 0, err
		}
		r.most = max(free/10*9, 1)
	}
	if r.done += int64(len(p)); r.done > r.most {
		return 0, fmt.Errorf("the copy of the data in %s has more than %v, nine tenths of what was free there: name a folder on a larger disk in TMPDIR, or write the data to a file", filepath.Dir(r.dir), units.Bytes(r.most))
	}
	return r.w.Write(p)
}

// opened is what a name among the data stands for: a file as it is, or a copy of what can be
// read only once or is compressed.
func (c *Corpus) opened(in *reader, name string) (path string, err error) {
	if name == "-" {
		from := in.Stdin
		if from == nil {
			from = os.Stdin
		}
		return c.once(in, "standard input", "", from)
	}
	info, err := os.Stat(name)
	if err != nil {
		return "", in.missing(name, err)
	}
	pipe := info.Mode()&(fs.ModeNamedPipe|fs.ModeCharDevice|fs.ModeSocket) != 0
	inner := recipe.Uncompressed(name)
	if !pipe && inner == name {
		return name, notPacked(name)
	}
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	ending := filepath.Ext(inner)
	if pipe && ending != ".csv" && ending != ".tsv" {
		ending = "" // a name of no meaning, such as /dev/fd/63
	}
	path, err = c.once(in, name, ending, f)
	return path, errors.Join(err, f.Close())
}

// missing is the error of a file that is not there. The data of a run that read a pipe is not
// there any more when it is continued.
func (in *reader) missing(name string, err error) error {
	if in.resumes && strings.HasPrefix(name, "/dev/fd/") {
		return fmt.Errorf("the run read its data from a pipe, %s, which is gone: give the same data again, or name a file that holds it, with --data", name)
	}
	if list := strings.Split(name, ","); errors.Is(err, fs.ErrNotExist) && len(list) > 1 {
		return fmt.Errorf("there is no file %s; several files are --data %s", name, strings.Join(list, " --data "))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no file %s; check the name, and the folder it is looked for in", name)
	}
	return err
}

// archives are beginnings of files that have to be unpacked first, and what such a file is.
var archives = map[string]string{
	"PK\x03\x04": "is a zip archive; unpack it, and name what is in it", "BZh": "is compressed with bzip2; unpack it, and name what is in it", "\xfd7zXZ\x00": "is compressed with xz; unpack it, and name what is in it", "7z\xbc\xaf\x27\x1c": "is a 7z archive; unpack it, and name what is in it",
	string(gzipMagic): "is compressed with gzip, which its name does not say; call it .gz", string(zstdMagic): "is compressed with zstd, which its name does not say; call it .zst",
}

// notPacked is an error for archives and for what is compressed in ways that are not read. Files of token ids may begin with anything.
func notPacked(name string) error {
	if filepath.Ext(name) == ".bin" {
		return nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil // whoever reads it says why
	}
	defer f.Close() // opened for reading
	head := make([]byte, 6)
	n, _ := io.ReadFull(f, head)
	for magic, what := range archives {
		if strings.HasPrefix(string(head[:n]), magic) {
			return fmt.Errorf("%s %s", name, what)
		}
	}
	return nil
}

// Beginnings of compressed data.
var gzipMagic, zstdMagic = []byte{0x1f, 0x8b}, []byte{0x28, 0xb5, 0x2f, 0xfd}

// once copies what is read once, decompressed. Without an ending, it is JSON lines where it
// begins with an object, JSON where it begins with a list of them, else plain text.
func (c *Corpus) once(in *reader, what, ending string, from io.Reader) (path string, err error) {
	raw := bufio.NewReader(from)
	head, err := raw.Peek(len(zstdMagic))
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("reading %s: %w", what, err)
	}
	if len(head) == 0 && in.resumes {
		return "", fmt.Errorf("%s is empty; a run that read its data from there continues with the same data: give it again, or name a file that holds it with --data", what)
	}
	text := raw
	switch {
	case bytes.HasPrefix(head, gzipMagic):
		z, err := gzip.NewReader(raw)
		if err != nil {
			return "", fmt.Errorf("decompressing %s: %w", what, err)
		}
		text = bufio.NewReader(z)
	case bytes.HasPrefix(head, zstdMagic):
		z, err := zstd.NewReader(raw, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return "", fmt.Errorf("decompressing %s: %w", what, err)
		}
		defer z.Close()
		text = bufio.NewReader(z)
	}
	if ending == "" {
		begin, err := text.Peek(512)
		if err != nil && !errors.Is(err, io.EOF) {
			return "", unreadable(what, err)
		}
		begin = bytes.TrimSpace(bytes.TrimPrefix(begin, []byte(byteOrderMark)))
		switch ending = ".txt"; {
		case bytes.HasPrefix(begin, []byte("{")):
			ending = ".jsonl"
		case listOfObjects.Match(begin):
			ending = ".json"
		}
	}
	return c.copied(ending, func(w io.Writer) error {
		if _, err := io.Copy(w, text); err != nil {
			return unreadable(what, err)
		}
		return nil
	})
}

// unreadable is the error of data that ends too soon or cannot be read.
func unreadable(what string, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) { // only what is compressed says where it ends
		return fmt.Errorf("decompressing %s: the file ends in the middle; fetch it or compress it again", what)
	}
	return fmt.Errorf("reading %s: %w", what, err)
}

// listOfObjects is how a JSON list of objects begins.
var listOfObjects = regexp.MustCompile(`^\[\s*{`)

// maxWindow is the memory that decompressing may take, in bytes: what zstd --long uses.
const maxWindow = 128 << 20

// openSized opens a file that is read from more than one place.
func openSized(path string) (f vfs.File, size int64, err error) {
	if f, err = vfs.OS.Open(path); err != nil {
		return nil, 0, err
	}
	if size, err = f.Size(); err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, size, nil
}

// openText opens a file of text behind its byte order mark, if it has one. Errors say its name, which path may be
// a copy of.
func openText(name, path string) (vfs.File, *bufio.Reader, error) {
	f, size, err := openSized(path)
	if err != nil {
		return nil, nil, err
	}
	text, err := afterMark(io.NewSectionReader(f, 0, size))
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("reading %s: %w", name, err), f.Close())
	}
	return f, text, nil
}

// fromCSV copies a table with a line of names as JSON lines, an object per line of the table;
// .tsv has tabs for commas, and a first line with semicolons and no comma says that they are the
// commas. Errors say its name, which path may be a copy of.
func (c *Corpus) fromCSV(in *reader, name, path string) (string, error) {
	f, text, err := openText(name, path)
	if err != nil {
		return "", err
	}
	defer f.Close() // opened for reading
	r := csv.NewReader(text)
	r.FieldsPerRecord = -1 // rows of another length are refused below, with both numbers
	if filepath.Ext(path) == ".tsv" {
		r.Comma, r.LazyQuotes = '\t', true
	} else if head, _ := text.Peek(4096); semicolons(head) {
		r.Comma = ';'
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
			object, err := row(names, cells)
			if err != nil {
				line, _ := r.FieldPos(0)
				err = fmt.Errorf("%s:%d: %w", name, line, err)
				if !in.SkipBadLines {
					return fmt.Errorf("%w; correct it (--skip-bad-lines leaves such rows out and counts them)", err)
				}
				if in.skipped++; in.firstBad == nil {
					in.firstBad = err
				}
				continue
			}
			if err := json.NewEncoder(w).Encode(object); err != nil {
				return err
			}
		}
	})
}

// semicolons says whether the first line of a table separates its columns by semicolons, as
// spreadsheets do where the comma is part of numbers.
func semicolons(head []byte) bool {
	line, _, _ := bytes.Cut(head, []byte("\n"))
	return bytes.ContainsRune(line, ';') && !bytes.ContainsRune(line, ',')
}

// row is a row of a table by the names of its columns.
func row(names, cells []string) (map[string]string, error) {
	if len(cells) != len(names) {
		return nil, fmt.Errorf("the row has %d columns, the first line names %d", len(cells), len(names))
	}
	object := make(map[string]string, len(cells))
	for i, cell := range cells {
		if !utf8.ValidString(cell) {
			return nil, fmt.Errorf("the column %q is not UTF-8; convert the file", names[i])
		}
		object[names[i]] = cell
	}
	return object, nil
}

// afterMark skips a byte order mark, which spreadsheets write before UTF-8.
func afterMark(from io.Reader) (*bufio.Reader, error) {
	text := bufio.NewReader(from)
	head, err := text.Peek(len(byteOrderMark))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if string(head) == byteOrderMark {
		_, err = text.Discard(len(byteOrderMark))
		return text, err
	}
	return text, nil
}

const byteOrderMark = "\xef\xbb\xbf"

// fromJSON copies the objects of a .json file as JSON lines: those of a list, as Alpaca's data
// has them, or objects that follow each other.
func (c *Corpus) fromJSON(name, path string) (string, error) {
	f, text, err := openText(name, path)
	if err != nil {
		return "", err
	}
	defer f.Close() // opened for reading
	return c.copied(".jsonl", func(w io.Writer) error {
		d := json.NewDecoder(text)
		head, _ := text.Peek(4096)
		list := bytes.HasPrefix(bytes.TrimSpace(head), []byte("["))
		if list {
			if _, err := d.Token(); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		var line bytes.Buffer
		rows := 0
		for d.More() {
			rows++
			var value json.RawMessage
			if err := d.Decode(&value); err != nil {
				return fmt.Errorf("%s, object %d, before byte %d: %w", name, rows, d.InputOffset(), err)
			}
			line.Reset()
			if err := json.Compact(&line, value); err != nil {
				return fmt.Errorf("%s, object %d: %w", name, rows, err)
			}
			line.WriteByte('\n')
			if _, err := w.Write(line.Bytes()); err != nil {
				return err
			}
		}
		if !list && rows == 1 {
			return fmt.Errorf("%s: it is one JSON object, not a list of them: write the list that it holds to a file of its own", name)
		}
		if list {
			if _, err := d.Token(); err != nil {
				return fmt.Errorf("%s: the list does not end: %w", name, err)
			}
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: there is more behind the list, at byte %d", name, d.InputOffset())
		}
		return nil
	})
}

// SamplePart is a piece of a document, with whether it is in the loss.
type SamplePart struct {
	Text   string `json:"text"`
	InLoss bool   `json:"in_loss"`
}

// sampleOf is the first record of a file, as the model reads it.
func (in *reader) sampleOf(r *data.Records) ([]SamplePart, error) {
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
			parts = append(parts, SamplePart{text, inLoss || in.TrainOnPrompts})
		}
	}
	add(rec.Prompt, false)
	at := 0
	for _, a := range rec.Answers {
		add(rec.Text[at:a.Start], false)
		add(rec.Text[a.Start:a.End], true)
		at = a.End
	}
	last := rec.Text[at:]
	if in.end != nil && rec.Answers == nil && !rec.Unfinished && in.tokenizer.Special(*in.end) { // conversations end as their template says
		end, _ := in.tokenizer.Token(*in.end)
		last = strings.TrimSuffix(last, end) + end
	}
	add(last, rec.Answers == nil)
	return parts, nil
}
