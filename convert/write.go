package convert

import (
	"context"
	"fmt"
	"io"
	"sync"

	"spillway/dtype"
	"spillway/quant"
	"spillway/quant/stored"
	"spillway/tensorfile"
	"spillway/units"
)

// copyOutputs are the tensors of a weight, byte for byte as they are.
func copyOutputs(t stored.Tensor) []tensorfile.Output {
	list := make([]tensorfile.Output, len(t.Parts))
	for i, p := range t.Parts {
		list[i] = tensorfile.Output{Name: p.Name, Type: p.Type, Shape: p.Shape, Write: func(w io.Writer) error {
			buffer := copyBuffers.Get().(*[copyBytes]byte)
			defer copyBuffers.Put(buffer)
			_, err := io.CopyBuffer(w, io.NewSectionReader(p, 0, p.Bytes), buffer[:])
			return err
		}}
	}
	return list
}

// copyBytes is how many bytes are copied at a time.
const copyBytes = 1 << 20

// copyBuffers are reused from tensor to tensor.
var copyBuffers = sync.Pool{New: func() any { return new([copyBytes]byte) }}

// plainOutput is a weight in a plain type.
func plainOutput(t stored.Tensor, to dtype.Type, from quant.ReadFunc) tensorfile.Output {
	return tensorfile.Output{Name: t.Name, Type: to, Shape: t.Shape, Write: func(w io.Writer) error {
		r, err := quant.Plain(to, t.Shape.Elements(), from)
		if err == nil {
			_, err = io.Copy(w, r)
		}
		return err
	}}
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
