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
