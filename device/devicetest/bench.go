package devicetest

import (
	"errors"
	"testing"

	"spillway/device"
	"spillway/dtype"
	"spillway/op"
)

// Benchmark times the kernels of a device on the big cases and reports the
// arithmetic and the memory traffic of each by the op's own cost.
func Benchmark(b *testing.B, open func(b *testing.B) device.Device, dt dtype.Type) {
	d := open(b)
	defer d.Close()
	for _, c := range op.Cases(dt) {
		if !c.Large {
			continue
		}
		b.Run(c.Name, func(b *testing.B) {
			err := timeCase(b, d, c)
			var none *device.NoKernelError
			if errors.As(err, &none) {
				b.Skip(err)
			}
			if err != nil {
				b.Error(err)
			}
		})
	}
}

// timeCase queues launches without waiting between them.
func timeCase(b *testing.B, d device.Device, c op.Case) error {
	kernel, err := d.Kernel(c.Call)
	if err != nil {
		return err
	}
	in := c.Operands()
	l, err := layOut(d.Info().Alignment, c, in, c.Outputs(in), kernel.Workspace())
	if err != nil {
		return err
	}
	return try(d, len(l.image), func(r *rig) {
		r.upload(r.mem, l.image)
		launch := l.on(r.mem, &c.Args)
		b.ResetTimer()
		for range b.N { // not b.Loop, which stops the clock before Sync
			r.must(r.q.Launch(kernel, launch))
		}
		r.must(r.q.Sync())
		b.StopTimer()
		cost, seconds := c.Call.Cost(), b.Elapsed().Seconds()
		b.ReportMetric(cost.Flops*float64(b.N)/seconds/1e9, "GFLOP/s")
		b.ReportMetric(float64(cost.Bytes)*float64(b.N)/seconds/1e9, "GB/s")
	})
}
