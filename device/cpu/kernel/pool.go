package kernel

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// A Job is work cut into numbered pieces. Pieces may run in any order and at the
// same time, so each writes only what is its own; which worker runs a piece must
// not change the result. worker is below the pool's Workers and serves to find
// scratch memory of its own.
type Job interface {
	Run(worker, piece int)
}

// A Pool is a fixed set of workers: goroutines that live as long as the pool, and
// the caller of Launch. Running a job allocates nothing.
type Pool struct {
	mu   sync.Mutex // one job at a time
	job  Job
	size int

	// ticket holds the number of the job in its upper half and the pieces nobody
	// has taken yet in its lower half, so that a worker that wakes late can never
	// take a piece of the wrong job.
	ticket  atomic.Uint64
	pending atomic.Int64 // pieces not finished

	sleeping atomic.Int64  // workers waiting for wake
	wake     chan struct{} // one token per worker to wake
	parked   atomic.Bool   // the caller waits for done
	done     chan struct{}
	closed   atomic.Bool
	workers  int

	team []member // by worker: the matmul that is worked on

	lent atomic.Int64  // workers whose cores others have
	back chan struct{} // one token per worker that may work again

	failure atomic.Pointer[failure] // the first panic of a piece
}

// failure is what a piece panicked with.
type failure struct{ value any }

// spins is how often an idle worker looks for work before it sleeps: about
// a tenth of a millisecond, longer than the gap between two operations.
const spins = 3000

// NewPool starts workers-1 goroutines. Close ends them.
func NewPool(workers int) *Pool {
	workers = max(workers, 1)
	p := &Pool{workers: workers, wake: make(chan struct{}, workers), done: make(chan struct{}, 1), team: make([]member, workers), back: make(chan struct{}, workers)}
	for w := 1; w < workers; w++ {
		go p.serve(w)
	}
	return p
}

// Workers is how many pieces run at once; worker numbers are below it.
func (p *Pool) Workers() int { return p.workers }

// Close ends the workers. No job may run or start any more.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed.Swap(true) {
		p.rouse(int64(p.workers))
		p.handBack()
	}
}

// Lend takes a worker away until Return, so that its core is free for work of another kind: a copy. Go runs as many goroutines at
// once as there are cores; workers that wait for the next job in a loop leave none to others.
func (p *Pool) Lend() { p.lent.Add(1) }

// Return ends a Lend.
func (p *Pool) Return() {
	p.lent.Add(-1)
	p.handBack()
}

// handBack has all workers whose cores were lent look whether they still are.
func (p *Pool) handBack() {
	for range p.workers {
		select {
		case p.back <- struct{}{}:
		default: // tokens for all of them are already there
			return
		}
	}
}

// isLent says whether a worker's core is lent: those of the last ones are. The first one works in any case.
func (p *Pool) isLent(worker int) bool { return int64(worker) >= int64(p.workers)-p.lent.Load() }

// Launch runs pieces 0 to n-1 of the job and returns when all have finished. Jobs from
// several goroutines take turns. A job must not call Launch of its own pool. If a piece
// panics the others still run, and then Launch panics with the same value.
func (p *Pool) Launch(n int, job Job) {
	if n <= 0 {
		return
	}
	if n == 1 || p.workers == 1 {
		p.alone(n, job)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.job, p.size = job, n
	p.pending.Store(int64(n))
	p.ticket.Store(p.ticket.Load()>>32<<32 + 1<<32 + uint64(n))
	p.rouse(min(p.sleeping.Load(), int64(n-1)+p.lent.Load())) // tokens may go to workers whose cores are lent
	p.work(0)
	p.wait()
	p.job = nil
	if f := p.failure.Swap(nil); f != nil {
		panic(f.value)
	}
}

// LaunchWork is Launch of a job of so many multiply-adds. A little work is not shared: waking a
// worker, or waiting for one whose core is busy with something else, takes longer.
func (p *Pool) LaunchWork(n int, job Job, work int) {
	if work <= littleWork {
		p.alone(n, job)
		return
	}
	p.Launch(n, job)
}

// littleWork is some microseconds' work of one worker.
const littleWork = 64 << 10

// alone runs a job without the other workers.
func (p *Pool) alone(n int, job Job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range n {
		job.Run(0, i)
	}
}

// rouse wakes n workers.
func (p *Pool) rouse(n int64) {
	for range n {
		select {
		case p.wake <- struct{}{}:
		default: // tokens for all of them are already there
		}
	}
}

// work takes pieces until none are left.
func (p *Pool) work(worker int) {
	for {
		t := p.ticket.Load()
		left := uint32(t)
		if left == 0 || worker > 0 && p.isLent(worker) {
			return
		}
		if !p.ticket.CompareAndSwap(t, t-1) {
			continue
		}
		p.piece(worker, p.size-int(left))
	}
}

// piece runs one piece and counts it as finished, also when it panics.
func (p *Pool) piece(worker, i int) {
	defer func() {
		if r := recover(); r != nil {
			p.failure.CompareAndSwap(nil, &failure{r})
		}
		if p.pending.Add(-1) == 0 && p.parked.Swap(false) {
			p.done <- struct{}{}
		}
	}()
	p.job.Run(worker, i)
}

// wait returns when the last piece has finished.
func (p *Pool) wait() {
	for i := range spins {
		if p.pending.Load() == 0 {
			return
		}
		pause(i)
	}
	p.parked.Store(true)
	if p.pending.Load() == 0 && p.parked.Swap(false) {
		return
	}
	<-p.done
}

// serve is the life of a worker.
func (p *Pool) serve(worker int) {
	for !p.closed.Load() {
		p.work(worker)
		if p.isLent(worker) {
			<-p.back
			continue
		}
		if p.spin(worker) {
			continue
		}
		p.sleeping.Add(1)
		if uint32(p.ticket.Load()) == 0 {
			<-p.wake
		}
		p.sleeping.Add(-1)
	}
}

// spin waits a little for new work and says whether some came.
func (p *Pool) spin(worker int) bool {
	for i := range spins {
		if uint32(p.ticket.Load()) != 0 || p.isLent(worker) {
			return true
		}
		pause(i)
	}
	return false
}

// yieldAfter is how many turns of a spinning loop there are between those that let others run. It is longer than
// the gap between two operations, since workers that yield all at once wait for each other in the scheduler.
const yieldAfter = 1024

// pause lets time pass in a spinning loop, and now and then lets others run.
func pause(i int) {
	if i%yieldAfter == yieldAfter-1 {
		runtime.Gosched()
		return
	}
	relax()
}
