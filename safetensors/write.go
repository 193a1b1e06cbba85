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
		if err := tensorfile.WriteExactly(out, t.Name, t.Bytes, func(w io.Writer) error { return fill(t, w) }); err != nil {
			return err
		}
	}
	return nil
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
