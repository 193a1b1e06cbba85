package safetensors

import (
	"bufio"
	"fmt"
	"io"

	"spillway/internal/vfs"
)

// writeBuffer gathers small tensors into larger writes; large pieces bypass it.
const writeBuffer = 1 << 20

// torchMetadata is what readers of model files expect to find.
var torchMetadata = map[string]string{"format": "pt"}

// Write writes a file as a stream: the header, then fill is called for each tensor
// in file order and must write exactly its bytes.
func Write(w io.Writer, h *Header, fill func(Info, io.Writer) error) error {
	header, err := h.encode()
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, int(min(writeBuffer, h.FileBytes())))
	if _, err := out.Write(header); err != nil {
		return err
	}
	for _, t := range h.Tensors {
		part := &tensorWriter{out: out, left: t.Bytes}
		if err := fill(t, part); err != nil {
			return fmt.Errorf("writing tensor %q: %w", t.Name, err)
		}
		if part.left != 0 {
			return fmt.Errorf("tensor %q has %d bytes, %d were written", t.Name, t.Bytes, t.Bytes-part.left)
		}
	}
	return out.Flush()
}

// tensorWriter keeps a tensor within its declared size.
type tensorWriter struct {
	out  io.Writer
	left int64
}

func (w *tensorWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > w.left {
		return 0, fmt.Errorf("%d bytes more than declared", int64(len(p))-w.left)
	}
	n, err := w.out.Write(p)
	w.left -= int64(n)
	return n, err
}

// WriteFile writes one file durably, though not atomically: see vfs.Publish.
func WriteFile(disk vfs.FS, path string, tensors []Source) error {
	h, err := Layout(infos(tensors), torchMetadata)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	byName := make(map[string]Source, len(tensors))
	for _, t := range tensors {
		byName[t.Name] = t
	}
	err = vfs.WriteFile(disk, path, func(w io.Writer) error {
		return Write(w, h, func(t Info, w io.Writer) error { return byName[t.Name].Write(w) })
	})
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func infos(tensors []Source) []Info {
	out := make([]Info, len(tensors))
	for i, t := range tensors {
		out[i] = Info{Name: t.Name, Type: t.Type, Shape: t.Shape}
	}
	return out
}
