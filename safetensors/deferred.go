package safetensors

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"spillway/tensorfile"
)

// fileWriter writes the tensors of a file. One with Output.After is skipped when its turn
// comes, and written into its place once the tensor it names is written.
type fileWriter struct {
	to       io.Writer
	out      *bufio.Writer
	header   *Header
	outputs  map[string]tensorfile.Output
	deferred map[string][]Info // to be written after the tensor of the name
	waiting  map[string]bool   // by name: left empty on the way
}

func newFileWriter(to io.Writer, h *Header, tensors []tensorfile.Output) (*fileWriter, error) {
	f := &fileWriter{to: to, out: bufio.NewWriterSize(to, int(min(writeBuffer, h.FileBytes()))), header: h,
		outputs: map[string]tensorfile.Output{}, deferred: map[string][]Info{}, waiting: map[string]bool{}}
	for _, t := range tensors {
		f.outputs[t.Name] = t
	}
	order := map[string]int{}
	for i, t := range h.Tensors {
		order[t.Name] = i
	}
	for i, t := range h.Tensors {
		after := f.outputs[t.Name].After
		at, ok := order[after]
		switch {
		case after != "" && !ok:
			return nil, fmt.Errorf("tensor %q is to be written after %q, which the file does not have", t.Name, after)
		case at > i:
			f.deferred[after] = append(f.deferred[after], t)
			f.waiting[t.Name] = true
		}
	}
	return f, nil
}

func (f *fileWriter) write() error {
	if err := stream(f.out, f.header, f.tensor); err != nil {
		return err
	}
	return f.out.Flush()
}

// tensor writes one, and then those that wait for it.
func (f *fileWriter) tensor(t Info, w io.Writer) error {
	if f.waiting[t.Name] {
		_, err := io.CopyN(w, zeros{}, t.Bytes)
		return err
	}
	if err := f.outputs[t.Name].Write(w); err != nil {
		return err
	}
	for _, next := range f.deferred[t.Name] {
		if err := f.fill(next); err != nil {
			return err
		}
	}
	return nil
}

// fill writes a tensor over the place left for it.
func (f *fileWriter) fill(t Info) error {
	at, ok := f.to.(io.WriterAt)
	if !ok {
		return fmt.Errorf("tensor %q is written after %q, which the file cannot do", t.Name, f.outputs[t.Name].After)
	}
	if err := f.out.Flush(); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := tensorfile.WriteExactly(&b, t.Name, t.Bytes, f.outputs[t.Name].Write); err != nil {
		return err
	}
	_, err := at.WriteAt(b.Bytes(), t.Offset)
	return err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
