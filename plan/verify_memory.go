package plan

import (
	"fmt"
	"sort"
)

// P1 and P2: what memory there is and who has which bytes of it.

func verifyArenas(p *Plan) error {
	if p.Version != Version {
		return versionError(p.Version)
	}
	if p.MicroBatches < 1 || p.MicroBatchSize < 1 || len(p.Devices) == 0 {
		return fmt.Errorf("%d micro-batches of %d sequences on %d devices", p.MicroBatches, p.MicroBatchSize, len(p.Devices))
	}
	if p.MicroBatches > max(len(p.Instructions), 1) {
		return fmt.Errorf("%d micro-batches by %d instructions", p.MicroBatches, len(p.Instructions))
	}
	if err := p.verifyBatch(); err != nil {
		return err
	}
	last := 0
	for _, d := range p.Devices {
		if d.Rank != last && d.Rank != last+1 {
			return fmt.Errorf("%s has rank %d and follows one of rank %d; ranks count from 0", d.Name, d.Rank, last)
		}
		last = d.Rank
	}
	used := make([]int64, len(p.Devices))
	for _, a := range p.Arenas {
		if a.Device < 0 || a.Device >= len(p.Devices) || a.Bytes < 0 {
			return fmt.Errorf("arena %s has device %d and %d bytes", a.Name, a.Device, a.Bytes)
		}
		if a.Tier == OnDevice || a.Tier == OnDisk {
			if used[a.Device] += a.Bytes; used[a.Device] < 0 {
				return fmt.Errorf("%s: the arenas have more bytes than can be counted", p.Devices[a.Device].Name)
			}
		}
	}
	for d, dev := range p.Devices {
		if used[d] > dev.Budget {
			return fmt.Errorf("%s: %d bytes planned, the budget is %d", dev.Name, used[d], dev.Budget)
		}
	}
	for i, b := range p.Buffers {
		if b.Arena < 0 || b.Arena >= len(p.Arenas) {
			return fmt.Errorf("buffer %d %s is in arena %d of %d", i, b.Name, b.Arena, len(p.Arenas))
		}
		if size := p.Arenas[b.Arena].Bytes; b.Offset < 0 || b.Bytes < 0 || b.Offset > size || b.Bytes > size-b.Offset {
			return fmt.Errorf("buffer %d %s takes bytes %d to %d of an arena of %d", i, b.Name, b.Offset, b.Offset+b.Bytes, size)
		}
	}
	return nil
}

// verifyBatch: what a micro-batch consists of has a position or more for each of its
// sequences, so that nobody makes anything as large as sizes that are not real.
func (p *Plan) verifyBatch() error {
	if p.Seq < 0 || len(p.Batch) == 0 {
		return nil
	}
	var bytes int64
	for _, b := range p.Buffers {
		if b.Class == BatchData {
			bytes = max(bytes, b.Bytes)
		}
	}
	if p.MicroBatchSize > bytes || p.Seq > bytes || p.MicroBatchSize*p.Seq > bytes {
		return fmt.Errorf("micro-batches of %d × %d in a buffer of %d bytes", p.MicroBatchSize, p.Seq, bytes)
	}
	return nil
}

// verifyHomes walks over the buffers in the order of their places.
func verifyHomes(p *Plan) error {
	order := make([]int, len(p.Buffers))
	for i := range order {
		order[i] = i
	}
	sort.Slice(order, func(i, j int) bool {
		a, b := p.Buffers[order[i]], p.Buffers[order[j]]
		return a.Arena < b.Arena || a.Arena == b.Arena && a.Offset < b.Offset
	})
	end, arena, last := int64(0), -1, -1 // of the homes so far
	reach, reacher := int64(0), -1       // of all buffers so far
	for _, i := range order {
		b := p.Buffers[i]
		if b.Bytes == 0 {
			continue
		}
		if b.Arena != arena {
			arena, end, last, reach, reacher = b.Arena, 0, -1, 0, -1
		}
		if b.Offset < end {
			return fmt.Errorf("buffers %s and %s share bytes, and one is a home", p.Buffers[last].Name, b.Name)
		}
		if b.Home && b.Offset < reach {
			return fmt.Errorf("buffers %s and %s share bytes, and one is a home", p.Buffers[reacher].Name, b.Name)
		}
		if b.Home {
			end, last = b.Offset+b.Bytes, i
		}
		if b.Offset+b.Bytes > reach {
			reach, reacher = b.Offset+b.Bytes, i
		}
	}
	return nil
}

// verifyIndirect: P11, the tables of indirect buffers.
func verifyIndirect(p *Plan) error {
	for id, b := range p.Buffers {
		if b.Pages == nil {
			continue
		}
		if err := p.buffersExist(b.Pages.Table); err != nil {
			return fmt.Errorf("the table of buffer %s: %w", b.Name, err)
		}
		table := &p.Buffers[b.Pages.Table]
		if b.Pages.Table == id || table.Pages != nil || p.TierOf(b.Pages.Table) != OnDevice || p.Arenas[table.Arena].Device != p.Arenas[b.Arena].Device {
			return fmt.Errorf("the table of buffer %s is buffer %s, which is no plain buffer in memory of its device", b.Name, table.Name)
		}
		if b.Pages.Bytes <= 0 || b.Bytes%b.Pages.Bytes != 0 {
			return fmt.Errorf("buffer %s of %d bytes has pages of %d", b.Name, b.Bytes, b.Pages.Bytes)
		}
	}
	for i := range p.Instructions {
		s := &p.Instructions[i]
		if s.Verb == Move && (p.Buffers[s.Src].Pages != nil || p.Buffers[s.Dst].Pages != nil) {
			return fmt.Errorf("instruction %d moves an indirect buffer", i)
		}
	}
	return nil
}
