package cuda

import (
	"spillway/device"
	"spillway/dtype"
)

// mostHandedOver is up to how many bytes a kernel copies from host memory: what the CPU computed of a few
// rows.
const mostHandedOver = 64 << 10

// handsOver says whether a copy is made by a kernel: few bytes of page-locked memory, between kernels, where
// the queue waits for what others compute.
func (q *queue) handsOver(dst, src device.Buffer) bool {
	to, ours := dst.Memory.(*memory)
	from, locked := src.Memory.(*memory)
	return q.name == computeQueue && q.gate != nil && q.capturing == nil && ours && locked && to.region == nil && from.region != nil &&
		src.Bytes <= mostHandedOver && src.Bytes%vectorBytes == 0 && src.Offset%vectorBytes == 0 && dst.Offset%vectorBytes == 0
}

// computeQueue is the name of the queue that kernels run on.
const computeQueue = "compute"

// handOver launches the kernel. The queue is entered.
func (q *queue) handOver(dst, src device.Buffer) error {
	k, err := q.device.handover(src.Bytes / vectorBytes)
	if err != nil {
		return err
	}
	q.handed.Buffers = append(q.handed.Buffers[:0], dst, src)
	return k.run(q, &q.handed)
}

// handover prepares the kernel for so many pieces, once.
func (d *Device) handover(pieces int64) (*kernelLaunch, error) {
	d.handing.Lock()
	defer d.handing.Unlock()
	if k := d.handovers[pieces]; k != nil {
		return k, nil
	}
	k, err := d.line(unitFor("handover", dtype.BF16), "handover", ceilDiv(pieces, threads), threads, buffer(0), buffer(1), i64(pieces))
	if err != nil {
		return nil, err
	}
	if d.handovers == nil {
		d.handovers = map[int64]*kernelLaunch{}
	}
	d.handovers[pieces] = k
	return k, nil
}
