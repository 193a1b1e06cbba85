package safetensors

import (
	"fmt"
	"io"

	"spillway/internal/vfs"
	"spillway/tensorfile"
)

// writeBuffer gathers small tensors into larger writes; large pieces bypass it.
const writeBuffer = 1 << 20

// torchMetadata is what readers of model files expect to find.
var torchMetadata = map[string]string{"format": "pt"}

func stream(out io.Writer, h *Header, fill func(Info, io.Writer) error) error {
	header, err := h.encode()
	if err != nil {
		return err
	}
	if _, err := out.Write(header); err != nil {
		return err
	}
	for _, t := range h.Tensors {
		if err := exactly(t, out, func(w io.Writer) error { return fill(t, w) }); err != nil {
			return err
		}
	}
	return nil
}

// exactly calls write and makes sure that it writes the bytes of a tensor, no more and no
// fewer.
func exactly(t Info, out io.Writer, write func(io.Writer) error) error {
	part := &tensorWriter{out: out, left: t.Bytes}
	if err := write(part); err != nil {
		return fmt.Errorf("writing tensor %q: %w", t.Name, err)
	}
	if part.left != 0 {
		return fmt.Errorf("tensor %q has %d bytes, %d were written", t.Name, t.Bytes, t.Bytes-part.left)
	}
	return nil
}

// tensorWriter refuses more bytes than a tensor declares.
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
func WriteFile(disk vfs.FS, path string, tensors []tensorfile.Output) error {
	h, err := Layout(infos(tensors), torchMetadata)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	err = vfs.WriteFile(disk, path, func(w io.Writer) error {
		f, err := newFileWriter(w, h, tensors)
		if err != nil {
			return err
		}
		return f.write()
	})
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func infos(tensors []tensorfile.Output) []Info {
	out := make([]Info, len(tensors))
	for i, t := range tensors {
		out[i] = Info{Name: t.Name, Type: t.Type, Shape: t.Shape}
	}
	return out
}
