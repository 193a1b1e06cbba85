package executor

import (
	"fmt"

	"spillway/device"
	"spillway/plan"
)

// prepareMove: one copy of a whole buffer, into one or a part of one.
func (e *Executor) prepareMove(s *plan.Instruction) (func(device.Queue) error, error) {
	src, dst := e.buffer(s.Src), e.buffer(s.Dst)
	if src.Bytes > dst.Bytes-s.Offset {
		return nil, fmt.Errorf("from %d bytes to %d at %d", src.Bytes, dst.Bytes, s.Offset)
	}
	dst.Offset, dst.Bytes = dst.Offset+s.Offset, src.Bytes
	total := &e.counters.BytesOut
	if s.Lane == plan.In {
		total = &e.counters.BytesIn
	}
	route := e.route(s.Src, s.Dst)
	return func(q device.Queue) error {
		e.counters.Moves++
		*total += src.Bytes
		route.Moves++
		route.Bytes += src.Bytes
		return q.Copy(dst, src)
	}, nil
}
