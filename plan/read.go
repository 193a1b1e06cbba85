package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// maxJSON bounds how much of a file Read takes in: plans of the largest models
// with many micro-batches stay far below.
const maxJSON = 1 << 30

// Read takes a plan from JSON and verifies it. Unknown keys are errors: a plan
// says exactly what will be done.
func Read(r io.Reader) (*Plan, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxJSON+1))
	if err != nil {
		return nil, fmt.Errorf("reading a plan: %w", err)
	}
	if len(data) > maxJSON {
		return nil, fmt.Errorf("reading a plan: it has more than %d bytes; is it a plan?", maxJSON)
	}
	if err := checkParts(data); err != nil {
		return nil, fmt.Errorf("reading a plan: %w", err)
	}
	var format struct{ Version int }
	if err := json.Unmarshal(data, &format); err == nil && format.Version != Version {
		return nil, fmt.Errorf("reading a plan: %w", versionError(format.Version))
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	p := &Plan{}
	if err := d.Decode(p); err != nil {
		return nil, fmt.Errorf("reading a plan: %w; make it again with plan --save", err)
	}
	if d.More() {
		return nil, fmt.Errorf("reading a plan: something follows the plan")
	}
	return p, Verify(p)
}

// Memory that the parts of a plan take, at most, in bytes: an item of one of its own lists,
// such as an instruction, and any other item or object. Those of all may take baseBytes and
// perByte for each byte of the text; plans of real models stay below half of that.
const (
	itemBytes = 250
	partBytes = 100
	baseBytes = 40 << 20
	perByte   = 13
)

// checkParts refuses a text that consists of parts without contents, such as a million empty
// instructions, which would take many times its size in memory.
func checkParts(data []byte) error {
	if n := partsBytes(data); n > baseBytes+perByte*len(data) {
		return fmt.Errorf("it has %d bytes, its parts would take %d: it is no plan", len(data), n)
	}
	return nil
}

// partsBytes is the memory that the parts of a text of JSON take, at most.
func partsBytes(data []byte) (n int) {
	var lists []bool // what is open: lists and objects
	text := false
	for i := 0; i < len(data); i++ {
		c := data[i]
		switch {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '[' || c == '{':
			lists = append(lists, c == '[')
			n += partBytes
		case (c == ']' || c == '}') && len(lists) > 0:
			lists = lists[:len(lists)-1]
		case c == ',' && len(lists) == 2 && lists[1]:
			n += itemBytes
		case c == ',' && len(lists) > 2 && lists[len(lists)-1]:
			n += partBytes
		}
	}
	return n
}

func versionError(version int) error {
	return fmt.Errorf("its version is %d, this program reads %d; make it again with plan --save", version, Version)
}

// Write puts the plan out as JSON that Read takes.
func (p *Plan) Write(w io.Writer) error {
	return json.NewEncoder(w).Encode(p)
}
