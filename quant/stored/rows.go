package stored

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"spillway/dtype"
	"spillway/quant"
	"spillway/tensorfile"
)

// rows is a matrix of 8-bit codes with a scale for each row.
type rows struct {
	kind   dtype.Type
	codes  tensorfile.Tensor
	scales []float32
}

func (r *rows) read(dst []float32, first int64) error {
	raw := make([]byte, len(dst))
	if _, err := r.codes.ReadAt(raw, first); err != nil {
		return err
	}
	cols := r.codes.Shape[1]
	for i := 0; i < len(dst); {
		row := (first + int64(i)) / cols
		end := min(len(dst), int((row+1)*cols-first))
		quant.DecodeRow(r.kind, dst[i:end], raw[i:end], r.scales[row])
		i = end
	}
	return nil
}

func (r *rows) storage() (io.Reader, bool, bool) {
	codes := io.NewSectionReader(r.codes, 0, r.codes.Bytes)
	return io.MultiReader(codes, bytes.NewReader(quant.F32Bytes(r.scales))), true, true
}

func (r *rows) tensor() Tensor {
	return Tensor{Name: r.codes.Name, Type: r.kind, Shape: r.codes.Shape, data: r.codes, encoded: r}
}

// rowOutputs are how the codes and the scales of a matrix are written. Scales are known
// once the codes are.
func (w Weight) rowOutputs(kind dtype.Type) (module string, codes, scales func(io.Writer) error, err error) {
	module, ok := strings.CutSuffix(w.Name, weightSuffix)
	if !ok || len(w.Shape) != 2 {
		return "", nil, nil, fmt.Errorf("weight %s%v: only matrices named %s are quantized by rows", w.Name, w.Shape, weightSuffix)
	}
	var list []float32
	codes = func(out io.Writer) error {
		c := quant.NewRowCodes(kind, w.Shape[0], w.Shape[1], w.From)
		_, err := io.Copy(out, c)
		list = c.Scales
		return err
	}
	scales = func(out io.Writer) error {
		_, err := out.Write(quant.F32Bytes(list))
		list = nil
		return err
	}
	return module, codes, scales, nil
}
