package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
)

// itemSums is a gradient of weights that is a sum over items - tiles, pairs or segments of lines - which are transformed, some at
// a time, and then multiplied by matmuls that add up.
type itemSums struct {
	items, together int // in all, and up to how many at a time
	step            int // items that a worker transforms, where all transform
	pieces          int // of the matmuls
	factors, sums   int // elements that items become which are together, and of all sums
	own             int // elements of room that a worker needs
	// transform makes the factors of an item, number i of those that are together.
	transform func(factors, room []float32, i, item int)
	// multiply adds a piece of the matmuls of n items from first on to the sums, or sets those.
	multiply func(sums, factors, room []float32, piece, first, n int, add bool)
	// finish makes the gradient of the sums in all, and may use the room of its worker.
	finish *rows

	all, room []float32
}

// The items are cut into at most mostParts parts with sums of their own, as long as all sums have no more than partSums
// elements. A worker does whole parts, so that it reads what it wrote itself: the caches of two cores may be far apart.
const mostParts, partSums = 8, 1 << 20

// chunk are n items from first on, which are transformed together; the sums of its part begin with those that have add unset.
type chunk struct {
	part, first, n int
	add            bool
}

// parts are the chunks of each part. Neither they nor the bits depend on the number of workers.
func (s *itemSums) parts() (parts [][]chunk) {
	n := mostParts
	for n > 1 && (n*s.sums > partSums || n*s.together > s.items) {
		n /= 2
	}
	for part := range n {
		first, end := part*s.items/n, (part+1)*s.items/n
		var chunks []chunk
		for count := (end - first + s.together - 1) / s.together; count > 0; count-- {
			c := chunk{part, first, (end - first + count - 1) / count, len(chunks) > 0}
			chunks, first = append(chunks, c), first+c.n
		}
		parts = append(parts, chunks)
	}
	return parts
}

func (s *itemSums) roomOf(worker int) []float32 { return s.room[worker*s.own:][:s.own] }

// program sets the operands, computes the sums and finishes with them. Where there are more workers than parts, all do each chunk
// together.
func (s *itemSums) program(workers int, set func(l *device.Launch)) Program {
	parts, teams := s.parts(), workers
	if len(parts) < workers {
		teams = 1
	}
	var factors []float32
	sumsOf := func(part int) []float32 { return s.all[part*s.sums:][:s.sums] }
	alone := &rows{n: len(parts), step: 1, do: func(worker, part, _ int) {
		mine, room := factors[worker*s.factors:][:s.factors], s.roomOf(worker)
		for _, c := range parts[part] {
			for i := range c.n {
				s.transform(mine, room, i, c.first+i)
			}
			for piece := range s.pieces {
				s.multiply(sumsOf(part), mine, room, piece, c.first, c.n, c.add)
			}
		}
	}}
	var now chunk
	transform := &rows{step: s.step, do: func(worker, from, to int) {
		for i := from; i < to; i++ {
			s.transform(factors, s.roomOf(worker), i, now.first+i)
		}
	}}
	multiply := &rows{n: s.pieces, step: 1, do: func(worker, piece, _ int) {
		s.multiply(sumsOf(now.part), factors, s.roomOf(worker), piece, now.first, now.n, now.add)
	}}
	add := runsOf(int64(s.sums), workers, func(_, from, to int) {
		for part := 1; part < len(parts); part++ {
			kernel.Add(s.all[from:to], s.all[from:to], sumsOf(part)[from:to])
		}
	})
	return Program{Workspace: bytesOf(len(parts)*s.sums + teams*s.factors + workers*s.own), Run: func(pool *kernel.Pool, l *device.Launch) {
		set(l)
		s.all = scratch(l)
		factors = s.all[len(parts)*s.sums:]
		s.room = factors[teams*s.factors:]
		if teams == workers {
			alone.start(pool)
		} else {
			for _, part := range parts {
				for _, now = range part {
					transform.n = now.n
					transform.start(pool)
					multiply.start(pool)
				}
			}
		}
		if len(parts) > 1 {
			add.start(pool)
		}
		s.finish.start(pool)
	}}
}
