package weights

import (
	"fmt"

	"spillway/executor"
)

// ReadF32 reads a tensor as numbers. Widening them loses nothing: written again they
// are the same bits.
func ReadF32(e *executor.Executor, t executor.Tensor) ([]float32, error) {
	if !t.Type.DType.IsPlain() {
		return nil, fmt.Errorf("param %s is stored as %v, which is not a plain type; only f32, bf16 and f16 are read as such", t.Param.Name, t.Type.DType)
	}
	out := make([]float32, t.Type.Shape.Elements())
	width := t.Type.DType.Bytes(1)
	err := e.Read(t, func(offset int64, chunk []byte) error {
		first := offset / width
		t.Type.DType.Decode(out[first:first+int64(len(chunk))/width], chunk)
		return nil
	})
	return out, err
}
