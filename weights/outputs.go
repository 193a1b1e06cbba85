package weights

import (
	"io"

	"spillway/executor"
	"spillway/quant"
	"spillway/spec"
	"spillway/tensorfile"
)

// Outputs are the tensors of a folder to be written: the params with values that are read
// on the way, each in its own plain type.
func Outputs(params []spec.Param, from Values) []tensorfile.Output {
	list := make([]tensorfile.Output, len(params))
	for i, p := range params {
		list[i] = tensorfile.Output{Name: p.Name, Type: p.Type.DType, Shape: p.Type.Shape, Write: func(w io.Writer) error {
			return quant.WritePlain(w, p.Type.DType, p.Type.Shape.Elements(), func(first int64, dst []float32) error { return from.Read(p.Name, first, dst) })
		}}
	}
	return list
}

// ExecutorOutputs are the tensors of a folder to be written: the weights an executor
// holds, bit for bit.
func ExecutorOutputs(e *executor.Executor) []tensorfile.Output {
	tensors := e.Weights()
	list := make([]tensorfile.Output, len(tensors))
	for i, t := range tensors {
		list[i] = tensorfile.Output{Name: t.Param.Name, Type: t.Type.DType, Shape: t.Type.Shape, Write: func(w io.Writer) error {
			return e.Read(t, func(_ int64, chunk []byte) error {
				_, err := w.Write(chunk)
				return err
			})
		}}
	}
	return list
}
