package view

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"spillway/plan"
)

// WriteMemorySnapshot writes the memory of one iteration of a plan as a snapshot that
// PyTorch's memory viewer opens (pytorch.org/memory_viz), also of a plan for hardware one does not
// own. Arenas are its segments, buffers its allocations; what stands for a stack says the
// purpose of a buffer, its arena and the instruction that writes it first. The viewer's devices
// are memories: 0 is that of the first device, then come others, pinned and host memory and the
// disk.
func WriteMemorySnapshot(w io.Writer, p *plan.Plan) error {
	s := snapshot{pickler: pickler{Writer: bufio.NewWriter(w)}, plan: p}
	s.place()
	s.Write([]byte{0x80, 2}) // the protocol: the viewer knows 2 to 4
	s.dict(
		"segments", s.segments,
		"device_traces", s.traces,
		"allocator_settings", func() { s.dict() },
		"external_annotations", func() { s.list(0, nil) },
	)
	s.WriteByte('.')
	return s.Flush() // also returns the first error of any write before it
}

// pickler writes Python objects with the opcodes that the viewer's reader knows.
type pickler struct{ *bufio.Writer }

func (p pickler) text(s string) {
	p.WriteByte('X')
	p.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(s))))
	p.WriteString(s)
}

func (p pickler) integer(n int64) {
	if n >= -1<<31 && n < 1<<31 {
		p.WriteByte('J')
		p.Write(binary.LittleEndian.AppendUint32(nil, uint32(n)))
		return
	}
	p.Write([]byte{0x8a, 8}) // eight bytes
	p.Write(binary.LittleEndian.AppendUint64(nil, uint64(n)))
}

// dict writes names and values: texts, integers, or functions that write.
func (p pickler) dict(pairs ...any) {
	p.WriteString("}(")
	for i := 0; i < len(pairs); i += 2 {
		p.text(pairs[i].(string))
		switch v := pairs[i+1].(type) {
		case string:
			p.text(v)
		case int64:
			p.integer(v)
		case func():
			v()
		}
	}
	p.WriteByte('u')
}

// list writes n values, in batches as Python does: readers put a batch on their stack.
func (p pickler) list(n int, value func(i int)) {
	const batch = 1000
	p.WriteByte(']')
	for from := 0; from < n; from += batch {
		p.WriteByte('(')
		for i := from; i < min(from+batch, n); i++ {
			value(i)
		}
		p.WriteByte('e')
	}
}

// snapshot gives arenas addresses, and writes them.
type snapshot struct {
	pickler
	plan   *plan.Plan
	bases  []int64 // of arenas
	memory []int   // of arenas: the viewer's device
	count  int     // of the viewer's devices
}

// place puts arenas one behind the other, at addresses that look like a GPU's.
func (s *snapshot) place() {
	const first, apart = 0x7f00_0000_0000, 2 << 20
	at := int64(first)
	known := map[string]int{}
	for _, tier := range []plan.Tier{plan.OnDevice, plan.Pinned, plan.OnHost, plan.OnDisk} {
		for _, a := range s.plan.Arenas {
			key := string(tier)
			if tier == plan.OnDevice {
				key = fmt.Sprint(tier, a.Device)
			}
			if _, has := known[key]; a.Tier == tier && !has {
				known[key] = len(known)
			}
		}
	}
	for _, a := range s.plan.Arenas {
		key := string(a.Tier)
		if a.Tier == plan.OnDevice {
			key = fmt.Sprint(a.Tier, a.Device)
		}
		s.bases, s.memory = append(s.bases, at), append(s.memory, known[key])
		at += (a.Bytes/apart + 2) * apart
	}
	s.count = len(known)
}

// frames stand for the stack of an allocation.
func (s *snapshot) frames(names ...string) func() {
	return func() {
		s.list(len(names), func(i int) { s.dict("filename", "plan", "line", int64(0), "name", names[i]) })
	}
}

// segments are the arenas as they are after the iteration: homes are what is left.
func (s *snapshot) segments() {
	homes := make([][]int, len(s.plan.Arenas))
	for id, b := range s.plan.Buffers {
		if b.Home {
			homes[b.Arena] = append(homes[b.Arena], id)
		}
	}
	s.list(len(s.plan.Arenas), func(i int) {
		a := s.plan.Arenas[i]
		var used int64
		for _, id := range homes[i] {
			used += s.plan.Buffers[id].Bytes
		}
		s.dict("device", int64(s.memory[i]), "address", s.bases[i], "total_size", a.Bytes, "allocated_size", used, "active_size", used, "requested_size", used, "stream", int64(0), "segment_type", "large",
			"frames", s.frames(string(a.Tier), a.Name),
			"blocks", func() {
				blocks := s.blocks(a, homes[i])
				s.list(len(blocks), func(k int) {
					b := blocks[k]
					state, frames := "active_allocated", s.frames(b.Name, string(b.Class), a.Name)
					if b.Class == plan.Gaps {
						state, frames = "inactive", s.frames()
					}
					s.dict("address", s.bases[i]+b.Offset, "size", b.Bytes, "requested_size", b.Bytes, "state", state, "frames", frames)
				})
			})
	})
}

// blocks are the homes of an arena with the gaps between them: together they fill it.
func (s *snapshot) blocks(a plan.Arena, homes []int) (list []plan.Buffer) {
	at := int64(0)
	gap := func(to int64) {
		if to > at {
			list = append(list, plan.Buffer{Class: plan.Gaps, Offset: at, Bytes: to - at})
		}
	}
	slices.SortFunc(homes, func(x, y int) int { return cmp.Compare(s.plan.Buffers[x].Offset, s.plan.Buffers[y].Offset) })
	for _, id := range homes {
		b := s.plan.Buffers[id]
		gap(b.Offset)
		list, at = append(list, b), b.Offset+b.Bytes
	}
	gap(a.Bytes)
	return list
}

// entry is a line of a trace.
type entry struct {
	action     string
	addr, size int64
	at         int64 // instruction
	names      []string
}

// traces are what happens in each memory: arenas are made, homes are there, then buffers come
// and go with the instructions.
func (s *snapshot) traces() {
	lists := make([][]entry, s.count)
	for i, a := range s.plan.Arenas {
		lists[s.memory[i]] = append(lists[s.memory[i]], entry{"segment_alloc", s.bases[i], a.Bytes, 0, []string{string(a.Tier), a.Name}})
	}
	for c := range s.plan.Lives() {
		b := s.plan.Buffers[c.Buffer]
		arena := s.plan.Arenas[b.Arena]
		e := entry{"alloc", s.bases[b.Arena] + b.Offset, b.Bytes, int64(c.Instruction + 1), []string{b.Name, string(b.Class), arena.Name}}
		if c.Instruction >= 0 {
			e.names = append(e.names, fmt.Sprintf("instruction %d, %s", c.Instruction, s.plan.Instructions[c.Instruction].Verb))
		}
		to := &lists[s.memory[b.Arena]]
		if c.Alive {
			*to = append(*to, e)
			continue
		}
		e.action = "free_requested"
		*to = append(*to, e)
		e.action = "free_completed"
		*to = append(*to, e)
	}
	s.list(s.count, func(d int) {
		s.list(len(lists[d]), func(i int) {
			e := lists[d][i]
			s.dict("action", e.action, "addr", e.addr, "size", e.size, "stream", int64(0), "time_us", e.at, "frames", s.frames(e.names...))
		})
	})
}
