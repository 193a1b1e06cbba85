package store

import (
	"fmt"
	"sync"
	"sync/atomic"

	"spillway/internal/cores"
	"spillway/internal/offheap"
)

// depth is how many reads or writes of a copy run at once: enough to keep a drive busy while some of them wait for a core that
// copies what they have read. With 8 a model streams a fifth faster than with 4.
const depth = 8

// poolBytes is the host memory of a pool: two buffers of a chunk for each worker.
const poolBytes = depth * 2 * chunkBytes

// workerPool is the workers of a queue. A copy is cut into jobs, the workers do them in any
// order, and the next copy begins when all are done.
type workerPool struct {
	jobs   chan job
	doing  sync.WaitGroup // jobs of the current copy
	alive  sync.WaitGroup // workers
	ending sync.Once
	memory *offheap.Region
	leave  func()                // gives back the workers' places next to kernels
	failed atomic.Pointer[error] // the first of the current copy
}

// job is a part of a copy: a read, a write, or where both memories are on disk, both.
type job struct {
	dst, src             *memory
	dstAt, srcAt         int64
	host                 []byte
	dstRegion, srcRegion *placedRegion
	bytes                int64
}

// worker has the buffers of one job.
type worker struct {
	bounce []byte // for whole pages or blocks around what is wanted
	stage  []byte // for what goes from disk to disk
}

func newWorkerPool() (*workerPool, error) {
	memory, err := offheap.Alloc(poolBytes, false)
	if err != nil {
		return nil, err
	}
	c := &workerPool{jobs: make(chan job), memory: memory, leave: cores.Spare()}
	for i := range depth {
		b := memory.Bytes()[2*i*chunkBytes:]
		w := &worker{bounce: b[:chunkBytes:chunkBytes], stage: b[chunkBytes : 2*chunkBytes]}
		c.alive.Go(func() { c.serve(w) })
	}
	return c, nil
}

// end stops the workers and frees their buffers. A second end does nothing.
func (c *workerPool) end() (err error) {
	c.ending.Do(func() {
		close(c.jobs)
		c.alive.Wait()
		c.leave()
		err = c.memory.Free()
	})
	return err
}

func (c *workerPool) serve(w *worker) {
	for j := range c.jobs {
		if c.failed.Load() == nil {
			if err := j.do(w); err != nil {
				failed := err // of its own, so that what succeeds allocates nothing
				c.failed.CompareAndSwap(nil, &failed)
			}
		}
		c.doing.Done()
	}
}

// copy carries out a transfer and returns its first error.
func (c *workerPool) copy(t transfer) error {
	c.failed.Store(nil)
	j, err := t.job()
	if err != nil {
		return err
	}
	for left := t.src.Bytes; left > 0 && c.failed.Load() == nil; {
		piece := j.cut(left)
		c.doing.Add(1)
		c.jobs <- piece
		left -= piece.bytes
		j.dstAt, j.srcAt = j.dstAt+piece.bytes, j.srcAt+piece.bytes
		if j.host != nil {
			j.host = j.host[piece.bytes:]
		}
	}
	c.doing.Wait()
	if failed := c.failed.Load(); failed != nil {
		return *failed
	}
	return nil
}

// job is a whole transfer, not yet cut.
func (t transfer) job() (j job, err error) {
	j.dst, _ = t.dst.Memory.(*memory)
	j.src, _ = t.src.Memory.(*memory)
	j.dstAt, j.srcAt = t.dst.Offset, t.src.Offset
	onHost := t.dst
	if j.dst != nil {
		onHost = t.src
	}
	if j.dst != nil && j.src != nil || t.dst.Bytes == 0 {
		return j, nil
	}
	if j.host = onHost.Host(); j.host == nil {
		return j, fmt.Errorf("disk: copy of %d bytes: memory was freed before the copy ran", t.dst.Bytes)
	}
	return j, nil
}

// cut takes the next piece off: within one region and chunk of the disk.
func (j job) cut(n int64) job {
	if j.src != nil {
		j.srcRegion, n = j.src.layout.chunkAt(j.srcAt, n)
	}
	if j.dst != nil {
		j.dstRegion, n = j.dst.layout.chunkAt(j.dstAt, n)
	}
	j.bytes = n
	if j.host != nil {
		j.host = j.host[:n]
	}
	return j
}

func (j *job) do(w *worker) error {
	host := j.host
	if host == nil {
		host = w.stage[:j.bytes]
	}
	if j.src != nil {
		if err := j.src.read(j.srcRegion, j.srcAt, host, w); err != nil {
			return err
		}
	}
	if j.dst != nil {
		return j.dst.write(j.dstRegion, j.dstAt, host, w)
	}
	return nil
}
