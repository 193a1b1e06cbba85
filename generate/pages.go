package generate

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"spillway/executor"
	"spillway/graph"
)

// pageTable assigns pages of a cache to sequences: the host's side of a batch tensor [S P].
// Position p of a sequence is in the page of its entry p/page mod P. With P pages for the
// longest sequence each entry has one page of the text; with fewer, of layers that see a
// window, entries are used again and again. Sequences that were forked share pages, which
// are counted; there is always a free one, since a sequence has at most P, and a branch differs
// in no more of them than the cache was made for.
type pageTable struct {
	name       string
	page       int // positions of a page
	width      int // P
	window     int // positions that a row sees, 0 for all
	entries    []int32
	references []int32 // by page
	free       []int32
	changed    []uint64 // by sequence: when its entries changed last
	now        uint64
	filled     []uint64 // by step of the plan: up to when its batch has the changes
}

func newPageTable(name string, streams, width int, c *graph.KVCache, steps int) (*pageTable, error) {
	pages := int(c.Stored(int64(width)))
	t := &pageTable{name: name, page: int(c.Page), width: width, entries: make([]int32, streams*width), references: make([]int32, pages),
		changed: make([]uint64, streams), filled: make([]uint64, steps), now: 1}
	if window, ok := strings.CutPrefix(name, graph.PagesPrefix+"_"); ok {
		var err error
		if t.window, err = strconv.Atoi(window); err != nil || t.window < 1 {
			return nil, fmt.Errorf("the batch tensor %q names no window", name)
		}
	}
	for i := range t.entries {
		t.entries[i] = -1
	}
	for i := range pages {
		t.free = append(t.free, int32(pages-1-i))
	}
	for s := range t.changed {
		t.changed[s] = 1
	}
	return t, nil
}

// write has a sequence own the page of a position: a free one where it has none, a copy where
// another sequence has it too.
func (t *pageTable) write(e *executor.Executor, sequence, position int) error {
	at := sequence*t.width + position/t.page%t.width
	old := t.entries[at]
	if old >= 0 && t.references[old] == 1 {
		return nil
	}
	page := t.free[len(t.free)-1]
	if old >= 0 {
		if err := e.CopyPage(t.name, old, page); err != nil {
			return err
		}
		t.references[old]--
	}
	t.free = t.free[:len(t.free)-1]
	t.references[page] = 1
	t.set(sequence, at, page)
	return nil
}

func (t *pageTable) set(sequence, at int, page int32) {
	t.now++
	t.entries[at], t.changed[sequence] = page, t.now
}

// share gives a new sequence the pages of another one.
func (t *pageTable) share(from, to int) {
	for i := range t.width {
		if page := t.entries[from*t.width+i]; page >= 0 {
			t.references[page]++
			t.set(to, to*t.width+i, page)
		}
	}
}

// release gives back the pages of a sequence behind its first positions; of a ring all or
// none, since its entries are not in the order of positions.
func (t *pageTable) release(sequence, positions int) {
	first := (positions + t.page - 1) / t.page
	if t.window > 0 && positions > 0 {
		return
	}
	for at := sequence*t.width + first; at < (sequence+1)*t.width; at++ {
		page := t.entries[at]
		if page < 0 {
			continue
		}
		if t.references[page]--; t.references[page] == 0 {
			t.free = append(t.free, page)
		}
		t.set(sequence, at, -1)
	}
}

// holds says whether a sequence that has stored up to a highest position still has all that
// a row at a position sees before itself.
func (t *pageTable) holds(position, highest int) bool {
	if t.window == 0 {
		return true
	}
	first := max(0, position-t.window+1)
	return first >= position || first/t.page > highest/t.page-t.width
}

// fill writes what has changed since the step ran last into its batch.
func (t *pageTable) fill(to []byte, step int) {
	for s, when := range t.changed {
		if when <= t.filled[step] {
			continue
		}
		for i := s * t.width; i < (s+1)*t.width; i++ {
			binary.LittleEndian.PutUint32(to[4*i:], uint32(max(t.entries[i], 0)))
		}
	}
	t.filled[step] = t.now
}
