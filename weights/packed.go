package weights

import (
	"fmt"
	"io"

	"spillway/dtype"
	"spillway/executor"
	"spillway/quant"
)

// Packed is implemented by values that hold params in block types as they are: read as
// plain numbers and quantized again, their scales would be rounded twice.
type Packed interface {
	// Packed reads as the storage of a param in a type; ok is false where the param is
	// not held in that type.
	Packed(param string, t dtype.Type) (r io.Reader, ok bool)
}

func packed(from Values, param string, t dtype.Type) (io.Reader, bool) {
	if p, ok := from.(Packed); ok {
		return p.Packed(param, t)
	}
	return nil, false
}

// Packed of zeros is zero bytes in every block type.
func (zeros) Packed(string, dtype.Type) (io.Reader, bool) { return repeated(0), true }

// writeBlocks writes a tensor of a block type, whose chunks come in order: byte for byte
// where the values are held so, otherwise quantized from their numbers as they are read.
func writeBlocks(e *executor.Executor, t executor.Tensor, from Values, report Report) error {
	param, kind := t.Param.Name, t.Type.DType
	r, ok := packed(from, param, kind)
	if !ok {
		var err error
		r, err = quant.Storage(kind, t.Type.Shape.Rows(), t.Type.Shape.Last(), func(first int64, dst []float32) error { return from.Read(param, first, dst) })
		if err != nil {
			return fmt.Errorf("param %s: %w", param, err)
		}
	}
	return writePieces(e, t, report, func(_ int64, piece []byte) error {
		_, err := io.ReadFull(r, piece)
		return err
	})
}
