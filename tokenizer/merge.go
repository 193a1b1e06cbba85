package tokenizer

import (
	"math"
	"slices"
)

// shortWord is the largest number of symbols that are merged by looking at all of them
// for every merge. Longer words use a heap, which takes n log n time: a megabyte
// without a space takes a second and not a day.
const shortWord = 40

// join applies the merges to symbols, in the order of their ranks and from left to
// right, and returns the result. It may reuse the memory of symbols.
func (m *bpe) join(symbols []int32, w *scratch) []int32 {
	if len(symbols) <= shortWord {
		return m.joinShort(symbols)
	}
	return m.joinLong(symbols, w)
}

const noRank = math.MaxInt32

// rank returns the merge of two symbols, with noRank if there is none.
func (m *bpe) rank(left, right int32) merge {
	if found, ok := m.merges[pairOf(left, right)]; ok {
		return found
	}
	return merge{rank: noRank}
}

func (m *bpe) joinShort(symbols []int32) []int32 {
	var next [shortWord]merge // next[i] would join symbols i and i+1
	for i := 0; i+1 < len(symbols); i++ {
		next[i] = m.rank(symbols[i], symbols[i+1])
	}
	for {
		best := merge{rank: noRank}
		at := 0
		for i, candidate := range next[:max(len(symbols)-1, 0)] {
			if candidate.rank < best.rank {
				best, at = candidate, i
			}
		}
		if best.rank == noRank {
			return symbols
		}
		symbols[at] = best.id
		copy(next[at:], next[at+1:len(symbols)])
		symbols = append(symbols[:at+1], symbols[at+2:]...)
		if at > 0 {
			next[at-1] = m.rank(symbols[at-1], symbols[at])
		}
		if at+1 < len(symbols) {
			next[at] = m.rank(symbols[at], symbols[at+1])
		}
	}
}

// link is a symbol's place among those not yet merged into another.
type link struct {
	before, after int32 // indexes of the neighbours, -1 at the ends
	next          merge // would join it with the one after
}

func (m *bpe) joinLong(symbols []int32, w *scratch) []int32 {
	links, heap := slices.Grow(w.links[:0], len(symbols)), slices.Grow(w.heap[:0], len(symbols))
	for i := range symbols {
		links = append(links, link{int32(i) - 1, int32(i) + 1, merge{rank: noRank}})
	}
	links[len(links)-1].after = -1
	for i := range symbols[1:] {
		links[i].next = m.rank(symbols[i], symbols[i+1])
		heap = heap.appendMerge(links[i].next.rank, int32(i))
	}
	heap.heapify()
	renew := func(left int32) {
		links[left].next = merge{rank: noRank}
		if right := links[left].after; right >= 0 {
			links[left].next = m.rank(symbols[left], symbols[right])
			heap.push(links[left].next.rank, left)
		}
	}
	for len(heap) > 0 {
		rank, left := heap.pop()
		next := links[left].next
		if next.rank != rank {
			continue // one of the two has been merged with another symbol since
		}
		right := links[left].after
		symbols[left], symbols[right] = next.id, -1
		links[right].next.rank = noRank
		if links[left].after = links[right].after; links[left].after >= 0 {
			links[links[left].after].before = left
		}
		renew(left)
		if links[left].before >= 0 {
			renew(links[left].before)
		}
	}
	w.links, w.heap = links, heap
	return slices.DeleteFunc(symbols, func(id int32) bool { return id < 0 }) // merged into another
}

// mergeHeap is a binary heap of merges that were possible when they were added. An
// entry has the rank in its upper half and the index of the left symbol in its lower,
// so that the smallest entry is the next merge.
type mergeHeap []uint64

// appendMerge appends a merge without restoring the heap order.
func (h mergeHeap) appendMerge(rank, at int32) mergeHeap {
	if rank == noRank {
		return h
	}
	return append(h, uint64(rank)<<32|uint64(at))
}

func (h mergeHeap) heapify() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.sink(i)
	}
}

func (h *mergeHeap) push(rank, at int32) {
	before := len(*h)
	list := h.appendMerge(rank, at)
	for i := before; len(list) > before && i > 0 && list[i] < list[(i-1)/2]; i = (i - 1) / 2 {
		list[i], list[(i-1)/2] = list[(i-1)/2], list[i]
	}
	*h = list
}

func (h *mergeHeap) pop() (rank, at int32) {
	list := *h
	top, last := list[0], len(list)-1
	list[0] = list[last]
	*h = list[:last]
	h.sink(0)
	return int32(top >> 32), int32(uint32(top))
}

func (h mergeHeap) sink(i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if h[child] >= h[i] {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
