package weights

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"spillway/dtype"
	"spillway/executor"
	"spillway/safetensors"
	"spillway/spec"
)

// Values reads a tensor as numbers. Widening them loses nothing: written again they
// are the same bits.
func Values(e *executor.Executor, t executor.Tensor) ([]float32, error) {
	get := decoders[t.Type.DType]
	if get == nil {
		return nil, fmt.Errorf("param %s rests as %v, which is no plain number; only f32, bf16 and f16 are read as such", t.Param.Name, t.Type.DType)
	}
	out := make([]float32, t.Type.Shape.Elements())
	width := t.Type.DType.Bytes(1)
	err := e.Read(t, func(offset int64, chunk []byte) error {
		get(out[offset/width:], chunk)
		return nil
	})
	return out, err
}

// decoders read elements of a type as numbers.
var decoders = map[dtype.Type]func(dst []float32, src []byte){
	dtype.F32: func(dst []float32, src []byte) {
		for i := range len(src) / 4 {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	},
	dtype.BF16: func(dst []float32, src []byte) {
		for i := range len(src) / 2 {
			dst[i] = dtype.FromBF16(binary.LittleEndian.Uint16(src[2*i:]))
		}
	},
	dtype.F16: func(dst []float32, src []byte) {
		for i := range len(src) / 2 {
			dst[i] = dtype.FromF16(binary.LittleEndian.Uint16(src[2*i:]))
		}
	},
}

// Files are the params as a source gives them, each in its own type, for a folder to
// be written from.
func Files(params []spec.Param, from Source) []safetensors.Source {
	list := make([]safetensors.Source, len(params))
	for i, p := range params {
		list[i] = safetensors.Source{Name: p.Name, Type: p.Type.DType, Shape: p.Type.Shape, Write: func(w io.Writer) error { return copyParam(w, p, from) }}
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

func copyParam(w io.Writer, p spec.Param, from Source) error {
	put := encoders[p.Type.DType]
	if put == nil {
		return fmt.Errorf("param %s is %v, which is not made from plain numbers", p.Name, p.Type.DType)
	}
	piece := make([]float32, pieceElements)
	raw := make([]byte, p.Type.DType.Bytes(pieceElements))
	for first := int64(0); first < p.Type.Shape.Elements(); first += pieceElements {
		n := min(pieceElements, p.Type.Shape.Elements()-first)
		if err := from.Read(p.Name, first, piece[:n]); err != nil {
			return err
		}
		put(raw, piece[:n])
		if _, err := w.Write(raw[:p.Type.DType.Bytes(n)]); err != nil {
			return err
		}
	}
	return nil
}
