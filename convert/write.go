package convert

import (
	"context"
	"fmt"
	"io"
	"sync"

	"spillway/dtype"
	"spillway/quant"
	"spillway/quant/stored"
	"spillway/safetensors"
	"spillway/units"
)

// copies are the tensors of a weight as they lie. Those that belong together stay so.
func copies(t stored.Tensor) []safetensors.Source {
	list := make([]safetensors.Source, len(t.Parts))
	for i, p := range t.Parts {
		list[i] = safetensors.Source{Name: p.Name, Type: p.Type, Shape: p.Shape, Write: func(w io.Writer) error {
			room := copyRooms.Get().(*[copyBuffer]byte)
			defer copyRooms.Put(room)
			_, err := io.CopyBuffer(w, io.NewSectionReader(p, 0, p.Bytes), room[:])
			return err
		}}
	}
	return list
}

// copyBuffer is how many bytes are read at a time.
const copyBuffer = 1 << 20

// copyRooms are kept from tensor to tensor.
var copyRooms = sync.Pool{New: func() any { return new([copyBuffer]byte) }}

// plainSource is a weight in a plain type.
func plainSource(t stored.Tensor, to dtype.Type, from quant.Numbers) safetensors.Source {
	return safetensors.Source{Name: t.Name, Type: to, Shape: t.Shape, Write: func(w io.Writer) error {
		r, err := quant.Plain(to, t.Shape.Elements(), from)
		if err == nil {
			_, err = io.Copy(w, r)
		}
		return err
	}}
}

// watched are sources that stop when ctx does, and tell how far they are.
func watched(ctx context.Context, sources []safetensors.Source, total int64, progress func(done, total int64)) []safetensors.Source {
	p := &progressing{ctx: ctx, total: total, tell: progress}
	list := make([]safetensors.Source, len(sources))
	for i, s := range sources {
		list[i] = s
		list[i].Write = func(w io.Writer) error { return s.Write(&watchedWriter{w, p}) }
	}
	return list
}

// progressing is how far the writing of a folder is. Tensors are written one by one.
type progressing struct {
	ctx         context.Context
	done, total int64
	tell        func(done, total int64)
}

type watchedWriter struct {
	to io.Writer
	p  *progressing
}

func (w *watchedWriter) Write(b []byte) (int, error) {
	if err := w.p.ctx.Err(); err != nil {
		return 0, fmt.Errorf("interrupted with %v of %v written: %w", units.Bytes(w.p.done), units.Bytes(w.p.total), err)
	}
	n, err := w.to.Write(b)
	if w.p.done += int64(n); w.p.tell != nil {
		w.p.tell(w.p.done, w.p.total)
	}
	return n, err
}
