package convert

import (
	"context"
	"fmt"
	"time"

	"spillway/dtype"
	"spillway/hf"
	"spillway/internal/vfs"
	"spillway/tensorfile"
)

// adapter writes an adapter's folder anew, its weights in a plain type; Invalid leaves them as they
// are. With gives other tensors in place of some, by the names of their params; it may be nil. A
// folder of that name must not exist; after an error it does not.
func adapter(ctx context.Context, from *hf.AdapterFolder, dir string, t dtype.Type, with func(string) (tensorfile.Tensor, bool)) (Result, error) {
	start := time.Now()
	if t != dtype.Invalid && !t.IsPlain() {
		return Result{}, fmt.Errorf("converting %s: adapters cannot be stored as %v; use f32, bf16 or f16", from.Dir, t)
	}
	a := hf.Adapter{Config: from.Config}
	r := Result{Adapter: true}
	for _, x := range from.Tensors() {
		if with != nil {
			if other, ok := with(x.Name); ok {
				x = other
			}
		}
		r.Tensors++
		r.Before += x.Bytes
		a.Tensors = append(a.Tensors, adapterOutput(x, t, &r))
	}
	var err error
	if r.Bytes, err = a.Bytes(); err != nil {
		return Result{}, err
	}
	a.Tensors = withProgress(ctx, a.Tensors, r.Bytes, nil)
	if err := a.WriteOn(vfs.OS, dir); err != nil {
		return Result{}, err
	}
	r.Took = time.Since(start)
	return r, nil
}

func adapterOutput(x tensorfile.Tensor, t dtype.Type, r *Result) tensorfile.Output {
	if t == dtype.Invalid || t == x.Type {
		return copied(x)
	}
	r.Changed++
	return plain(x.Name, x.Shape, t, func(first int64, dst []float32) error { return x.ReadF32(dst, first) })
}
