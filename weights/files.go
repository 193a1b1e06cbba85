package weights

import (
	"io"

	"spillway/executor"
	"spillway/quant"
	"spillway/safetensors"
	"spillway/spec"
)

// Files are the params as a source gives them, each in its own plain type, for a folder
// to be written from.
func Files(params []spec.Param, from Source) []safetensors.Source {
	list := make([]safetensors.Source, len(params))
	for i, p := range params {
		list[i] = safetensors.Source{Name: p.Name, Type: p.Type.DType, Shape: p.Type.Shape, Write: func(w io.Writer) error {
			r, err := quant.Plain(p.Type.DType, p.Type.Shape.Elements(), func(first int64, dst []float32) error { return from.Read(p.Name, first, dst) })
			if err == nil {
				_, err = io.Copy(w, r)
			}
			return err
		}}
	}
	return list
}

// FilesOf are the weights an executor holds, bit for bit.
func FilesOf(e *executor.Executor) []safetensors.Source {
	tensors := e.Weights()
	list := make([]safetensors.Source, len(tensors))
	for i, t := range tensors {
		list[i] = safetensors.Source{Name: t.Param.Name, Type: t.Type.DType, Shape: t.Type.Shape, Write: func(w io.Writer) error {
			return e.Read(t, func(_ int64, chunk []byte) error {
				_, err := w.Write(chunk)
				return err
			})
		}}
	}
	return list
}
