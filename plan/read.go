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

func versionError(version int) error {
	return fmt.Errorf("its version is %d, this program reads %d; make it again with plan --save", version, Version)
}

// Write puts the plan out as JSON that Read takes.
func (p *Plan) Write(w io.Writer) error {
	return json.NewEncoder(w).Encode(p)
}
