package data

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"unicode/utf8"
)

// JSONLOptions name the fields of a file with a JSON object per line. Either Text
// alone ("text" if nothing is named), or Prompt and Completion.
type JSONLOptions struct {
	Text       string
	Prompt     string
	Completion string
	// Join stands between prompt and completion, as part of the prompt.
	Join string
	// LineBytes is the longest line allowed, 64 MiB if zero.
	LineBytes int
	// SkipBad leaves out lines that cannot be used, and counts them.
	SkipBad bool
}

const lineBytes = 64 << 20

func (o JSONLOptions) withDefaults() (JSONLOptions, error) {
	if (o.Prompt == "") != (o.Completion == "") || o.Text != "" && o.Prompt != "" {
		return o, fmt.Errorf("fields text %q, prompt %q, completion %q: name the text alone, or both prompt and completion", o.Text, o.Prompt, o.Completion)
	}
	if o.Text == "" && o.Prompt == "" {
		o.Text = "text"
	}
	if o.LineBytes == 0 {
		o.LineBytes = lineBytes
	}
	return o, nil
}

// OpenJSONL indexes a file of JSON lines. Every line is read and checked now, so
// that a bad one is not met hours into a run. Empty lines are passed over.
func OpenJSONL(name string, o JSONLOptions) (*Records, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", name, err)
	}
	r, err := openRecords(name, func(r *Records, in *bufio.Reader) error {
		return scanJSONL(in, name, o, func(at int64, _ Record, wrong error) error {
			if wrong == nil {
				r.index = append(r.index, at)
			}
			return r.bad(o.SkipBad, wrong)
		})
	})
	if err != nil {
		return nil, err
	}
	r.read = func(r *Records, i int) (Record, error) { return r.jsonLine(r.start+r.index[i], o) }
	return r, nil
}

// StreamJSONL gives the records of JSON lines that can be read only once, such as
// a pipe.
func StreamJSONL(in io.Reader, name string, o JSONLOptions) iter.Seq2[Record, error] {
	return stream(func(yield func(Record, error) error) error {
		o, err := o.withDefaults()
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		in, _, err := skipMark(in)
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		return scanJSONL(in, name, o, func(_ int64, rec Record, wrong error) error { return yield(rec, wrong) })
	}, o.SkipBad)
}

// scanJSONL reads line by line; at is the offset of a line.
func scanJSONL(in *bufio.Reader, name string, o JSONLOptions, yield func(at int64, rec Record, wrong error) error) error {
	var line []byte
	at := int64(0)
	for number := 1; ; number++ {
		var length int64
		var err error
		line, length, err = readLine(in, line[:0], o.LineBytes)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		if length == 0 {
			return nil
		}
		if length > int64(len(line)) || len(bytes.TrimSpace(line)) > 0 {
			rec, wrong := parseLine(line, length, o)
			if wrong != nil {
				wrong = fmt.Errorf("%s:%d: %w", name, number, wrong)
			}
			if err := yield(at, rec, wrong); err != nil {
				return err
			}
		}
		at += length
	}
}

// readLine reads a line into the buffer, at most limit bytes of it, and says how
// long it is with its end.
func readLine(in *bufio.Reader, buffer []byte, limit int) (line []byte, length int64, err error) {
	for {
		part, err := in.ReadSlice('\n')
		length += int64(len(part))
		buffer = append(buffer, part[:min(len(part), max(limit-len(buffer), 0))]...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return buffer, length, err
		}
	}
}

// jsonLine reads the line at an offset; where it ends was not kept.
func (r *Records) jsonLine(at int64, o JSONLOptions) (Record, error) {
	in := bufio.NewReader(io.NewSectionReader(r.file, at, r.size-at))
	line, length, err := readLine(in, nil, o.LineBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return Record{}, fmt.Errorf("reading %s at byte %d: %w", r.name, at, err)
	}
	rec, err := parseLine(line, length, o)
	if err != nil {
		return Record{}, fmt.Errorf("%s at byte %d: %w; was it changed since it was opened?", r.name, at, err)
	}
	return rec, nil
}

// parseLine takes the fields from a line that had this length in the file.
func parseLine(line []byte, length int64, o JSONLOptions) (Record, error) {
	if length > int64(len(line)) {
		return Record{}, fmt.Errorf("%d bytes in one line, %d are allowed", length, o.LineBytes)
	}
	if !utf8.Valid(line) {
		return Record{}, errors.New("the line is not UTF-8")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return Record{}, fmt.Errorf("the line is not a JSON object: %w", err)
	}
	if o.Text != "" {
		text, err := stringField(fields, o.Text)
		return Record{Text: text}, err
	}
	prompt, err := stringField(fields, o.Prompt)
	if err != nil {
		return Record{}, err
	}
	completion, err := stringField(fields, o.Completion)
	return Record{Prompt: prompt + o.Join, Text: completion}, err
}

func stringField(fields map[string]json.RawMessage, name string) (string, error) {
	raw, ok := fields[name]
	if !ok {
		return "", fmt.Errorf("there is no field %q", name)
	}
	var text *string
	if err := json.Unmarshal(raw, &text); err != nil || text == nil {
		return "", fmt.Errorf("the field %q is not a string", name)
	}
	if halfCharacter(raw, *text) {
		return "", fmt.Errorf("the field %q has half a character (a lone \\ud800 to \\udfff)", name)
	}
	return *text, nil
}

// halfCharacter finds the replacement the JSON reader puts for a lone surrogate,
// unless the text has such a character itself.
func halfCharacter(raw []byte, text string) bool {
	return strings.ContainsRune(text, utf8.RuneError) &&
		!bytes.ContainsRune(raw, utf8.RuneError) && !bytes.Contains(bytes.ToLower(raw), []byte(`\ufffd`))
}
