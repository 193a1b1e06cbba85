package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/nn"
	"spillway/op"
	"spillway/optim"
	"spillway/quant"
	"spillway/shape"
	"spillway/spec"
	"spillway/units"
	"spillway/weights"
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
	for _, c := range quant.Weights() {
		t := c.Type
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
		if err := k.measure(d, copied); err != nil {
			return done, fmt.Errorf("%s: %w", k.Name, err)
		}
		done = append(done, k)
	}
	return done, nil
}

func (k *GPUKernel) measure(d device.Device, copied units.Rate) (err error) {
	b, err := newBenchCall(d, k.call)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	b.launch.Args = &op.Args{Scalars: optim.AdamStep{Rate: 1e-4, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Bias1: 0.5, Bias2: 0.7}.Scalars()}
	if err := b.upload(d, k.call); err != nil {
		return err
	}
	best, err := b.bestInRow(5, 10)
	if err != nil {
		return err
	}
	k.Seconds = best.Seconds()
	k.Rate = units.Rate(float64(k.call.Cost().Bytes) / k.Seconds)
	k.Share = float64(k.Rate) / float64(copied)
	return nil
}

// bestInRow is the shortest time of a launch, averaged over some launches that are waited for
// together.
func (b *benchCall) bestInRow(row, tries int) (time.Duration, error) {
	best := time.Duration(math.MaxInt64)
	for range tries {
		start := time.Now()
		for range row {
			if err := b.queue.Launch(b.kernel, b.launch); err != nil {
				return 0, err
			}
		}
		if err := b.queue.Sync(); err != nil {
			return 0, err
		}
		best = min(best, time.Since(start)/time.Duration(row))
	}
	return best, nil
}

// upload fills the operands of a call with noise, and the factor that clips gradients with 1.
func (b *benchCall) upload(d device.Device, c op.Call) (err error) {
	const step = 16 << 20
	host, err := d.HostAlloc(step)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.Free()) }()
	for i, t := range c.In {
		from, err := storage(t)
		if err != nil {
			return err
		}
		to := b.launch.Buffers[i]
		for at := int64(0); at < to.Bytes; at += step {
			n := min(step, to.Bytes-at)
			if _, err := io.ReadFull(from, host.Host()[:n]); err != nil {
				return err
			}
			part := device.Buffer{Memory: to.Memory, Offset: to.Offset + at, Bytes: n}
			if err := errors.Join(b.queue.Copy(part, device.Buffer{Memory: host, Bytes: n}), b.queue.Sync()); err != nil {
				return err
			}
		}
	}
	return nil
}

// storage reads as the bytes of an operand: noise, or ones where it is the factor that clips.
// Optimizer state starts at zero.
func storage(t op.Type) (io.Reader, error) {
	switch {
	case quant.FourBitOf(t.DType) != nil:
		n, err := weights.Noise([]spec.Param{{Name: "noise", Type: t, Init: nn.Normal(0.02)}}, 1)
		if err != nil {
			return nil, err
		}
		r, _ := n.(weights.Packed).Packed("noise", t.DType)
		return r, nil
	case t.DType.Block():
		return pattern{0, 0, 0, 0}, nil
	case t.Shape.Elements() == 2:
		return pattern(binary.LittleEndian.AppendUint32(nil, math.Float32bits(1))), nil
	}
	small := op.NewArray(op.Type{DType: t.DType, Shape: shape.Of(1 << 12)})
	for i := range small.F {
		small.F[i] = 0.04 * (float64(op.Uniform(1, 0, uint64(i))) - 0.5)
	}
	raw, err := small.Encode()
	return pattern(raw), err
}

// pattern repeats its bytes forever. Every read starts at the first of them.
type pattern []byte

func (p pattern) Read(b []byte) (int, error) {
	for at := 0; at < len(b); {
		at += copy(b[at:], p)
	}
	return len(b), nil
}
