package cuda

import (
	"spillway/device"
	"spillway/dtype"
)

// mostByKernel is up to how many bytes a kernel copies between the GPU and host memory: the batch of a step, the tokens it
// gives, and what the CPU computed of a few rows.
const mostByKernel = 64 << 10

// copiesByKernel says whether a copy is made by a kernel: few bytes of page-locked memory, between kernels, which would
// wait for the copy engine, and it for them.
func (q *queue) copiesByKernel(dst, src device.Buffer) bool {
	to, ours := dst.Memory.(*memory)
	from, locked := src.Memory.(*memory)
	return q.name == computeQueue && q.device.gpu.reachesHost && ours && locked && (to.region == nil) != (from.region == nil) &&
		src.Bytes <= mostByKernel && src.Offset%vectorBytes == 0 && dst.Offset%vectorBytes == 0
}

// computeQueue is the name of the queue that kernels run on.
const computeQueue = "compute"

// copyByKernel launches the kernel. The queue is entered.
func (q *queue) copyByKernel(dst, src device.Buffer) error {
	k, err := q.device.copyKernel(src.Bytes)
	if err != nil {
		return err
	}
	q.copied.Buffers = append(q.copied.Buffers[:0], dst, src)
	err = k.run(q, &q.copied)
	if dst.Memory.(*memory).region == nil {
		q.follows = false // what came to the GPU may be weights, or tables of pages: kernels that begin early fetch those before they wait
	}
	return err
}

// copyKernel prepares the kernel for so many bytes, once.
func (d *Device) copyKernel(bytes int64) (*kernelLaunch, error) {
	d.copying.Lock()
	defer d.copying.Unlock()
	if k := d.copyKernels[bytes]; k != nil {
		return k, nil
	}
	k, err := d.line(unitFor("smallcopy", dtype.BF16), "smallCopy", ceilDiv(bytes/vectorBytes+bytes%vectorBytes, threads), threads, buffer(0), buffer(1), i64(bytes))
	if err != nil {
		return nil, err
	}
	k.early = true
	if d.copyKernels == nil {
		d.copyKernels = map[int64]*kernelLaunch{}
	}
	d.copyKernels[bytes] = k
	return k, nil
}
