package kernel

import (
	"sync/atomic"
	"testing"
	"time"
)

// counting is a job that counts how often each piece ran.
type counting struct {
	runs  []atomic.Int32
	delay time.Duration
	panic int // piece that panics, from 1
}

func (c *counting) Run(_, piece int) {
	time.Sleep(c.delay)
	c.runs[piece].Add(1)
	if piece == c.panic-1 {
		panic("piece fails")
	}
}

func (c *counting) check(t *testing.T) {
	t.Helper()
	for i := range c.runs {
		if n := c.runs[i].Load(); n != 1 {
			t.Fatalf("piece %d of %d ran %d times", i, len(c.runs), n)
		}
	}
}

func TestPoolRunsEveryPieceOnce(t *testing.T) {
	for _, workers := range []int{1, 2, 5} {
		p := NewPool(workers)
		for i := range 300 {
			c := &counting{runs: make([]atomic.Int32, i%17)}
			if i%50 == 49 {
				c.delay = time.Millisecond // the caller parks, and idle workers sleep
			}
			p.Launch(len(c.runs), c)
			c.check(t)
		}
		p.Close()
		p.Close()
	}
}

func TestPoolServesSeveralCallers(t *testing.T) {
	p := NewPool(3)
	defer p.Close()
	done := make(chan *counting)
	for range 4 {
		go func() {
			for range 50 {
				c := &counting{runs: make([]atomic.Int32, 9)}
				p.Launch(9, c)
				done <- c
			}
		}()
	}
	for range 200 {
		(<-done).check(t)
	}
}

func TestPoolPassesPanicsOn(t *testing.T) {
	p := NewPool(2)
	defer p.Close()
	for piece := 1; piece <= 8; piece++ {
		c := &counting{runs: make([]atomic.Int32, 8), panic: piece}
		func() {
			defer func() {
				if r := recover(); r != "piece fails" {
					t.Errorf("recovered %v", r)
				}
			}()
			p.Launch(8, c)
		}()
		c.check(t)
	}
}

// caller notes which worker ran each piece.
type caller []int

func (c caller) Run(worker, piece int) { c[piece] = worker }

// A little work stays with the caller, and all of its pieces run.
func TestLittleWorkIsNotShared(t *testing.T) {
	p := NewPool(4)
	defer p.Close()
	for range 100 {
		c := caller{-1, -1, -1, -1, -1, -1, -1, -1}
		p.LaunchWork(len(c), c, littleWork)
		for piece, worker := range c {
			if worker != 0 {
				t.Fatalf("piece %d ran on worker %d", piece, worker)
			}
		}
		p.LaunchWork(len(c), c, littleWork+1)
	}
}

// meeting is a job of which each piece waits until all of them run at once, and that remembers who ran them.
type meeting struct {
	arrived atomic.Int32
	all     int32
	workers []int
}

func (m *meeting) Run(worker, piece int) {
	m.workers[piece] = worker
	for m.arrived.Add(1); m.arrived.Load() < m.all; {
		time.Sleep(time.Microsecond)
	}
}

// Workers whose cores are lent take no pieces, the first one always does, and all are back afterwards.
func TestLentWorkers(t *testing.T) {
	const workers = 4
	p := NewPool(workers)
	defer p.Close()
	for round := range 50 {
		for lent := range workers + 2 {
			for range lent {
				p.Lend()
			}
			left := max(workers-lent, 1)
			if round%10 == 0 {
				time.Sleep(time.Millisecond) // some sleep by now
			}
			few := &meeting{all: int32(left), workers: make([]int, left)}
			p.Launch(left, few)
			for _, w := range few.workers {
				if w >= left {
					t.Fatalf("%d of %d workers are lent, and number %d worked", lent, workers, w)
				}
			}
			c := &counting{runs: make([]atomic.Int32, 20)}
			p.Launch(len(c.runs), c)
			c.check(t)
			for range lent {
				p.Return()
			}
			all := &meeting{all: workers, workers: make([]int, workers)}
			p.Launch(workers, all) // waits for ever where one is missing
		}
	}
}
