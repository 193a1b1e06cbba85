package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// BadLineError reports a line that cannot be used.
type BadLineError struct {
	File   string
	Line   int // counted from 1
	Column int // of the mistake, or of the field with it; in characters, counted from 1
	Err    error
	// Table says that the line stands for a row of a table, counted from 1 below the names of
	// its columns, which has no columns of characters.
	Table bool
}

func (e *BadLineError) Error() string {
	if e.Table {
		return fmt.Sprintf("%s, row %d: %v", e.File, e.Line, e.Err)
	}
	return fmt.Sprintf("%s:%d:%d: %v", e.File, e.Line, e.Column, e.Err)
}

// Unwrap returns what is wrong with the line.
func (e *BadLineError) Unwrap() error { return e.Err }

// fieldError says what is wrong with a field, or with the whole line if field is "".
type fieldError struct {
	field string
	err   error
}

func (e *fieldError) Error() string {
	if e.field == "" {
		return e.err.Error()
	}
	return fmt.Sprintf("the field %q: %v", e.field, e.err)
}

func (e *fieldError) Unwrap() error { return e.err }

// parseObject reads a line as a JSON object; length and limit as in lines.parse.
func parseObject(line []byte, length int64, limit int) (object, error) {
	if length > int64(len(line)) {
		return nil, fmt.Errorf("%d bytes in one line, %d are allowed", length, limit)
	}
	if !utf8.Valid(line) {
		return nil, errors.New("the line is not UTF-8")
	}
	var o object
	if err := json.Unmarshal(line, &o); err != nil {
		return nil, fmt.Errorf("the line is not a JSON object: %w", err)
	}
	return o, nil
}

// column finds where in a line an error is, in characters counted from 1.
func column(line []byte, wrong error) int {
	var syntax *json.SyntaxError
	var field *fieldError
	at := 0
	switch {
	case errors.As(wrong, &syntax):
		at = int(syntax.Offset) - 1
	case errors.As(wrong, &field):
		at = fieldOffset(line, field.field)
	case !utf8.Valid(line):
		at = len(validPrefix(line))
	}
	return utf8.RuneCount(line[:min(max(at, 0), len(line))]) + 1
}

// validPrefix returns the text up to the first byte that is not UTF-8.
func validPrefix(text []byte) []byte {
	if utf8.Valid(text) {
		return text
	}
	for at := 0; ; {
		c, n := utf8.DecodeRune(text[at:])
		if c == utf8.RuneError && n == 1 {
			return text[:at]
		}
		at += n
	}
}

// fieldOffset returns the byte offset of a field's value in a line, 0 if there is no
// such field.
func fieldOffset(line []byte, name string) int {
	d := json.NewDecoder(bytes.NewReader(line))
	if _, err := d.Token(); err != nil {
		return 0
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return 0
		}
		after := int(d.InputOffset())
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return 0
		}
		if key == name {
			return after + bytes.Index(line[after:], value)
		}
	}
	return 0
}

// texts reads some fields, which hold strings. It returns as many texts with an error too.
func (o object) texts(names ...string) ([]string, error) {
	list := make([]string, len(names))
	for i, name := range names {
		raw, ok := o[name]
		if !ok {
			return list, &fieldError{"", fmt.Errorf("there is no field %q; the line has %s", name, o.names())}
		}
		var text *string
		if err := json.Unmarshal(raw, &text); err != nil || text == nil {
			return list, &fieldError{name, errors.New("it is not a string")}
		}
		// The JSON reader turns half of a surrogate pair into U+FFFD. A text with U+FFFD has
		// one unless the JSON has that character itself.
		if strings.ContainsRune(*text, utf8.RuneError) &&
			!bytes.ContainsRune(raw, utf8.RuneError) && !bytes.Contains(bytes.ToLower(raw), []byte(`\ufffd`)) {
			return list, &fieldError{name, errors.New(`it has half a character (a lone \ud800 to \udfff)`)}
		}
		list[i] = *text
	}
	return list, nil
}
