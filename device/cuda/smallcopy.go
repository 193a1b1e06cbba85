package cuda

import (
	"spillway/device"
	"spillway/dtype"
)

// mostByKernel is up to how many bytes a kernel copies from host memory: what the CPU computed of a few
// rows.
const mostByKernel = 64 << 10

// copiesByKernel says whether a copy is made by a kernel: few bytes of page-locked memory, between kernels, where
// the queue waits for what others compute.
func (q *queue) copiesByKernel(dst, src device.Buffer) bool {
	to, ours := dst.Memory.(*memory)
	from, locked := src.Memory.(*memory)
	return q.name == computeQueue && q.gate != nil && q.capturing == nil && ours && locked && to.region == nil && from.region != nil &&
		src.Bytes <= mostByKernel && src.Bytes%vectorBytes == 0 && src.Offset%vectorBytes == 0 && dst.Offset%vectorBytes == 0
}

// computeQueue is the name of the queue that kernels run on.
const computeQueue = "compute"

// copyByKernel launches the kernel. The queue is entered.
func (q *queue) copyByKernel(dst, src device.Buffer) error {
	k, err := q.device.copyKernel(src.Bytes / vectorBytes)
	if err != nil {
		return err
	}
	q.copied.Buffers = append(q.copied.Buffers[:0], dst, src)
	return k.run(q, &q.copied)
}

// copyKernel prepares the kernel for so many pieces, once.
func (d *Device) copyKernel(pieces int64) (*kernelLaunch, error) {
	d.copying.Lock()
	defer d.copying.Unlock()
	if k := d.copyKernels[pieces]; k != nil {
		return k, nil
	}
	k, err := d.line(unitFor("smallcopy", dtype.BF16), "smallCopy", ceilDiv(pieces, threads), threads, buffer(0), buffer(1), i64(pieces))
	if err != nil {
		return nil, err
	}
	if d.copyKernels == nil {
		d.copyKernels = map[int64]*kernelLaunch{}
	}
	d.copyKernels[pieces] = k
	return k, nil
}
