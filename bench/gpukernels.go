package bench

import (
	"errors"
	"fmt"

	"spillway/device"
	"spillway/dtype"
	"spillway/op"
	"spillway/optim"
	"spillway/quant"
	"spillway/rig"
	"spillway/shape"
	"spillway/units"
)

// GPUKernel is a kernel that is limited by memory.
type GPUKernel struct {
	Name    string     `json:"name"`
	Seconds float64    `json:"seconds"` // of a launch, the best
	Rate    units.Rate `json:"rate"`    // bytes read and written
	Share   float64    `json:"share_of_copy"`

	call op.Call
}

// gpuKernels are dequantization of a matrix and optimizer updates of so many params, too
// large for any cache.
func gpuKernels(rows, cols, params int64) (list []*GPUKernel, err error) {
	vector := func(t dtype.Type) op.Type { return op.Type{DType: t, Shape: shape.Shape{params}} }
	add := func(name string, kind op.Kind, attr op.Attr, in ...op.Type) {
		call, bad := op.Make(kind, attr, in...)
		err = errors.Join(err, bad)
		list = append(list, &GPUKernel{Name: name, call: call})
	}
	formats := []dtype.Type{quant.CompressedBF16}
	for _, c := range quant.Weights() {
		formats = append(formats, c.Type)
	}
	for _, t := range formats {
		add(fmt.Sprintf("kernel: %v weights dequantized to bf16", t), op.Dequantize, op.Attr{To: dtype.BF16}, op.Type{DType: t, Shape: shape.Shape{rows, cols}})
	}
	adamw, clip := op.Attr{To: dtype.BF16}, op.Type{DType: dtype.F32, Shape: shape.Shape{2}}
	for _, states := range [][2]dtype.Type{{dtype.F32, dtype.F32}, {dtype.BF16, dtype.BF16}, {quant.Dyn8, quant.UDyn8}} {
		add(fmt.Sprintf("kernel: AdamW with state in %v", states[0]), optim.Adam, adamw, vector(dtype.F32), vector(dtype.BF16), vector(states[0]), vector(states[1]), clip)
	}
	return list, err
}

// benchKernels measures the kernels that are wanted, as shares of the rate of a copy.
func benchKernels(d device.Device, list []*GPUKernel, copied units.Rate, o Options) (done []*GPUKernel, err error) {
	for _, k := range list {
		if !o.wants(k.Name) {
			continue
		}
		took, err := rig.Time(d, k.call)
		if err != nil {
			return done, fmt.Errorf("%s: %w", k.Name, err)
		}
		k.Seconds = took.Seconds()
		k.Rate = units.Rate(float64(k.call.Cost().Bytes) / k.Seconds)
		k.Share = float64(k.Rate) / float64(copied)
		done = append(done, k)
	}
	return done, nil
}
