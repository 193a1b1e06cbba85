package convert

import (
	"context"
	"fmt"
	"io"
	"sync"

	"spillway/dtype"
	"spillway/quant"
	"spillway/shape"
	"spillway/tensorfile"
	"spillway/units"
)

// copied is a tensor byte for byte as it is.
func copied(t tensorfile.Tensor) tensorfile.Output {
	return tensorfile.Output{Name: t.Name, Type: t.Type, Shape: t.Shape, Write: func(w io.Writer) error {
		buffer := copyBuffers.Get().(*[copyBytes]byte)
		defer copyBuffers.Put(buffer)
		_, err := io.CopyBuffer(w, io.NewSectionReader(t, 0, t.Bytes), buffer[:])
		return err
	}}
}

// copyBytes is how many bytes are copied at a time.
const copyBytes = 1 << 20

// copyBuffers are reused from tensor to tensor.
var copyBuffers = sync.Pool{New: func() any { return new([copyBytes]byte) }}

// plain is a weight in a plain type.
func plain(name string, s shape.Shape, to dtype.Type, from quant.ReadFunc) tensorfile.Output {
	return tensorfile.Output{Name: name, Type: to, Shape: s, Write: func(w io.Writer) error { return quant.WritePlain(w, to, s.Elements(), from) }}
}

// withProgress makes outputs stop when ctx does, and report how far they are.
func withProgress(ctx context.Context, outputs []tensorfile.Output, total int64, progress func(done, total int64)) []tensorfile.Output {
	p := &progressState{ctx: ctx, total: total, report: progress}
	list := make([]tensorfile.Output, len(outputs))
	for i, s := range outputs {
		list[i] = s
		list[i].Write = func(w io.Writer) error { return s.Write(&progressWriter{w, p}) }
	}
	return list
}

// progressState is how far the writing of a folder is. Tensors are written one by one.
type progressState struct {
	ctx         context.Context
	done, total int64
	report      func(done, total int64)
}

type progressWriter struct {
	to io.Writer
	p  *progressState
}

func (w *progressWriter) Write(b []byte) (int, error) {
	if err := w.p.ctx.Err(); err != nil {
		return 0, fmt.Errorf("interrupted with %v of %v written: %w", units.Bytes(w.p.done), units.Bytes(w.p.total), err)
	}
	n, err := w.to.Write(b)
	if w.p.done += int64(n); w.p.report != nil {
		w.p.report(w.p.done, w.p.total)
	}
	return n, err
}
