package stored

import (
	"fmt"
	"io"

	"spillway/quant"
	"spillway/tensorfile"
)

// blocks is a weight whose file has it in a block type as one tensor, in the storage of
// package quant. The codec's blocks lie one after another.
type blocks struct {
	data  tensorfile.Tensor
	codec *quant.Codec
}

func (c *collector) blocks(t tensorfile.Tensor) (Tensor, error) {
	codec := quant.Of(t.Type)
	if codec.Block == 0 || codec.Stream != nil {
		return Tensor{}, fmt.Errorf("its type %v has scales apart from its codes, which are not read as one tensor", t.Type)
	}
	c.mark(t)
	return Tensor{Name: t.Name, Type: t.Type, Shape: t.Shape, data: t, encoded: blocks{t, codec}}, nil
}

// read decodes the whole blocks that the elements are in.
func (b blocks) read(dst []float32, first int64) error {
	size, n := int64(b.codec.Block), b.data.Shape.Elements()
	from, end := first/size*size, min((first+int64(len(dst))+size-1)/size*size, n)
	raw := make([]byte, b.codec.Bytes(end)-b.codec.Bytes(from))
	if _, err := b.data.ReadAt(raw, b.codec.Bytes(from)); err != nil {
		return err
	}
	b.codec.Decode(dst, raw, int(end-from), int(b.data.Shape.Last()), int(first-from))
	return nil
}

func (b blocks) storage() (io.Reader, bool, bool) {
	return io.NewSectionReader(b.data, 0, b.data.Bytes), true, true
}
