package executor

import (
	"fmt"

	"spillway/device"
	"spillway/plan"
)

// move is one copy of a whole buffer, into another or a part of one.
func (c *compiler) move(s *plan.Instruction) (func(device.Queue) error, error) {
	src, dst := c.buffer(s.Src), c.buffer(s.Dst)
	if src.Bytes > dst.Bytes-s.Offset {
		return nil, fmt.Errorf("from %d bytes to %d at %d", src.Bytes, dst.Bytes, s.Offset)
	}
	dst.Offset, dst.Bytes = dst.Offset+s.Offset, src.Bytes
	t := c.tally
	total := &t.BytesOut
	switch at := c.plan.Buffers; {
	case at[s.Src].Arena == at[s.Dst].Arena && c.plan.TierOf(s.Src) == plan.OnDevice: // no link carries it
		total = new(int64)
	case s.Lane == plan.In || s.Lane == plan.Compute && c.plan.TierOf(s.Dst) == plan.OnDevice:
		total = &t.BytesIn
	}
	route := t.route(c.plan, s.Src, s.Dst)
	return func(q device.Queue) error {
		t.Moves++
		*total += src.Bytes
		route.Moves++
		route.Bytes += src.Bytes
		return q.Copy(dst, src)
	}, nil
}
