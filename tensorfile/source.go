package tensorfile

import (
	"fmt"
	"io"
	"slices"

	"spillway/dtype"
	"spillway/shape"
)

// Source is the tensors of a model, in one file or in several. It is safe for concurrent
// reads; Close ends all use of its tensors.
type Source interface {
	// Tensors lists the tensors, file by file in file order.
	Tensors() []Tensor
	// Tensor finds a tensor by name.
	Tensor(name string) (Tensor, bool)
	Close() error
}

// List is tensors of different names, in file order: what formats build a Source on.
type List struct {
	all    []Tensor
	byName map[string]int // index in all
}

// Add appends a tensor. A second one of the same name is an error.
func (l *List) Add(t Tensor) error {
	if i, twice := l.byName[t.Name]; twice {
		return fmt.Errorf("tensor %q is in both %s and %s", t.Name, l.all[i].Path, t.Path)
	}
	if l.byName == nil {
		l.byName = map[string]int{}
	}
	l.byName[t.Name] = len(l.all)
	l.all = append(l.all, t)
	return nil
}

// Tensors lists the tensors in the order they were added.
func (l *List) Tensors() []Tensor { return slices.Clone(l.all) }

// Tensor finds a tensor by name.
func (l *List) Tensor(name string) (Tensor, bool) {
	i, ok := l.byName[name]
	if !ok {
		return Tensor{}, false
	}
	return l.all[i], true
}

// Replaced is a source with other tensors in place of some of its own, by their names.
type Replaced struct {
	Source
	With func(name string) (Tensor, bool)
}

// Tensors lists the tensors in the order of the source.
func (r Replaced) Tensors() []Tensor {
	all := r.Source.Tensors()
	for i, t := range all {
		if with, ok := r.With(t.Name); ok {
			all[i] = with
		}
	}
	return all
}

// Tensor finds a tensor by name.
func (r Replaced) Tensor(name string) (Tensor, bool) {
	t, ok := r.Source.Tensor(name)
	if with, has := r.With(name); ok && has {
		return with, true
	}
	return t, ok
}

// Output is a tensor to be written. Write puts exactly the bytes of the tensor, in as
// many pieces as it likes.
type Output struct {
	Name  string
	Type  dtype.Type
	Shape shape.Shape
	Write func(io.Writer) error
	// After names a tensor of the same file; this one is written once that one is, so
	// that it may describe what was written. "" is the order of the file.
	After string
}

// Bytes is the storage of the tensor.
func (o Output) Bytes() (int64, error) {
	n, err := Size(o.Type, o.Shape)
	if err != nil {
		return 0, fmt.Errorf("tensor %q: %w", o.Name, err)
	}
	return n, nil
}

// WriteExactly calls write and makes sure that it writes the bytes of a tensor, no more and
// no fewer.
func WriteExactly(out io.Writer, tensor string, bytes int64, write func(io.Writer) error) error {
	part := &exactWriter{out: out, left: bytes}
	if err := write(part); err != nil {
		return fmt.Errorf("writing tensor %q: %w", tensor, err)
	}
	if part.left != 0 {
		return fmt.Errorf("tensor %q has %d bytes, %d were written", tensor, bytes, bytes-part.left)
	}
	return nil
}

// exactWriter refuses more bytes than a tensor declares.
type exactWriter struct {
	out  io.Writer
	left int64
}

func (w *exactWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > w.left {
		return 0, fmt.Errorf("%d bytes more than declared", int64(len(p))-w.left)
	}
	n, err := w.out.Write(p)
	w.left -= int64(n)
	return n, err
}
