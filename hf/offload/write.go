package offload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"spillway/internal/vfs"
	"spillway/shape"
	"spillway/tensorfile"
)

// Fill writes tensors and their index into an existing folder and makes each file
// durable. It is not atomic: callers put it inside vfs.Publish.
func Fill(disk vfs.FS, dir string, tensors []tensorfile.Output) error {
	seen := map[string]bool{}
	for _, t := range tensors {
		name, err := datName(t.Name)
		if err == nil && seen[t.Name] {
			err = errors.New("it occurs twice")
		}
		if err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		seen[t.Name] = true
		bytes, err := t.Bytes()
		if err != nil {
			return err
		}
		write := func(w io.Writer) error { return tensorfile.WriteExactly(w, t.Name, bytes, t.Write) }
		if err := vfs.WriteFile(disk, filepath.Join(dir, name), write); err != nil {
			return err
		}
	}
	index, err := encodeIndex(tensors)
	if err != nil {
		return err
	}
	return vfs.WriteFile(disk, filepath.Join(dir, IndexName), func(w io.Writer) error {
		_, err := w.Write(index)
		return err
	})
}

// encodeIndex writes the index as Python's json does: in order, indented by two.
func encodeIndex(tensors []tensorfile.Output) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("{")
	for i, t := range tensors {
		if i > 0 {
			b.WriteString(",")
		}
		key, err := json.Marshal(t.Name)
		if err != nil {
			return nil, err
		}
		s := t.Shape
		if s == nil {
			s = shape.Shape{}
		}
		entry, err := json.MarshalIndent(indexEntry{DType: t.Type.Torch(), Shape: &s}, "  ", "  ")
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "\n  %s: %s", key, entry)
	}
	if len(tensors) > 0 {
		b.WriteString("\n")
	}
	b.WriteString("}")
	return b.Bytes(), nil
}
