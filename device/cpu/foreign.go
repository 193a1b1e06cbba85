package cpu

import (
	"fmt"
	"hash/maphash"
	"runtime"
	"slices"
	"strings"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

// isForeign says whether the function so many calls up is another package's.
func isForeign(skip int) bool {
	pc, _, _, ok := runtime.Caller(skip + 1)
	return ok && !strings.HasPrefix(runtime.FuncForPC(pc).Name(), "spillway/device/cpu.")
}

// How often the operands of a kernel that a program brings are looked at: at all of its first launches, then now and then.
const (
	watchedFirst = 16
	watchedEvery = 64
)

// watched is a program that may write to what it should only read, which would change weights or values of others: that
// is found where it happens, instead of as numbers that are wrong much later.
func watched(c op.Call, p Program) Program {
	seed, shared := maphash.MakeSeed(), c.InPlace()
	var before []uint64
	launches := 0
	run := p.Run
	sums := func(l *device.Launch) (list []uint64) {
		for i := range c.In {
			if !slices.Contains(shared, i) {
				list = append(list, maphash.Bytes(seed, l.Buffers[i].Host()))
			}
		}
		return list
	}
	p.Run = func(pool *kernel.Pool, l *device.Launch) {
		launches++
		looks := launches <= watchedFirst || launches%watchedEvery == 0
		if looks {
			before = sums(l)
		}
		run(pool, l)
		if looks && !slices.Equal(before, sums(l)) {
			panic("it wrote to an operand; a kernel writes to its outputs alone")
		}
	}
	return p
}

// made is what a maker gives; one that panics, or asks for less than no memory, is a reason to refuse the call.
func (e entry) made(c op.Call, workers int) (p Program, reason string) {
	defer func() {
		if r := recover(); r != nil {
			reason = fmt.Sprintf("its maker failed: %v", r)
		}
	}()
	p = e.make(c, workers)
	switch {
	case p.Run == nil:
		return p, "its maker gave nothing to run"
	case p.Workspace < 0:
		return p, fmt.Sprintf("its maker asks for a workspace of %d bytes", p.Workspace)
	case e.foreign:
		p = watched(c, p)
	}
	return p, ""
}
