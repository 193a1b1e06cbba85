package cuda

import (
	"errors"
	"fmt"

	"spillway/device"
	"spillway/device/cuda/driver"
)

// capturedGraph is what queues were given once, as one of the driver's graphs.
type capturedGraph struct {
	first    *queue // launches all of it
	graph    driver.Graph
	exec     driver.GraphExec
	changing []changing
	launches int
	last     *preparedKernel
}

// changing is a launch that reads numbers of the iteration.
type changing struct {
	node   driver.GraphNode
	kernel *kernelLaunch
	launch *device.Launch
}

// changes says that parameters of the kernel are numbers of the iteration.
func (k *kernelLaunch) changes() bool {
	for _, a := range k.args {
		if a.changes() {
			return true
		}
	}
	return false
}

// Capture notes what issue gives to queues of the device.
func (d *Device) Capture(queues []device.Queue, issue func() error) (device.Graph, error) {
	list := make([]*queue, len(queues))
	for i, q := range queues {
		own, ours := q.(*queue)
		if !ours || own.device != d {
			return nil, fmt.Errorf("%s: noting what a queue of another device is given: %w", d.name, device.ErrNotCapturable)
		}
		list[i] = own
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: there are no queues to note: %w", d.name, device.ErrNotCapturable)
	}
	c := &capturedGraph{first: list[0]}
	err := c.record(list, issue)
	var answer *driver.Error
	if errors.As(err, &answer) && answer.Code >= driver.CaptureUnsupported && answer.Code <= driver.CaptureLast {
		err = fmt.Errorf("%w: %w", device.ErrNotCapturable, err)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", d.name, err), c.Close())
	}
	return c, nil
}

// record has all queues follow the first, so that they are captured together, until they meet
// again at the end.
func (c *capturedGraph) record(queues []*queue, issue func() error) error {
	d := c.first.device
	for _, q := range queues {
		q.setCapture(c)
		defer q.setCapture(nil)
	}
	if err := d.within(func() error { return d.lib.CUDA.BeginCapture(c.first.stream) }); err != nil {
		return err
	}
	err := c.follow(c.first, queues[1:]...)
	if err == nil {
		err = issue()
	}
	for _, q := range queues[1:] {
		if err == nil {
			err = c.follow(q, c.first)
		}
	}
	return d.within(func() (late error) {
		c.graph, late = d.lib.CUDA.EndCapture(c.first.stream)
		if err = errors.Join(err, late); err != nil {
			return err
		}
		c.exec, late = d.lib.CUDA.Instantiate(c.graph)
		return late
	})
}

// follow has queues wait for what another was given.
func (c *capturedGraph) follow(leader *queue, queues ...*queue) error {
	e, err := leader.device.Event()
	if err != nil {
		return err
	}
	if err := leader.Record(e); err != nil {
		return err
	}
	for _, q := range queues {
		if err := q.Wait(e); err != nil {
			return err
		}
	}
	return nil
}

// within runs something with the context current.
func (d *Device) within(f func() error) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	return f()
}

// setCapture has the queue tell a capture of its launches; nil ends that.
func (q *queue) setCapture(c *capturedGraph) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.capturing = c
}

// recordLaunch notes a launch of a kernel of ours that was just given to a queue.
func (c *capturedGraph) recordLaunch(q *queue, k *kernelLaunch, l *device.Launch) error {
	if !k.changes() {
		return nil
	}
	n, err := q.device.lib.CUDA.LastNode(q.stream)
	c.changing = append(c.changing, changing{n, k, l})
	return err
}

// Run launches all of it, after the parameters that are numbers of the iteration.
func (c *capturedGraph) Launch() error {
	q := c.first
	if err := q.enter(); err != nil {
		return err
	}
	defer q.leave()
	cuda := q.device.lib.CUDA
	for _, x := range c.changing {
		x.kernel.fill(q, x.launch)
		if err := cuda.SetNode(c.exec, x.node, &q.launch); err != nil {
			return fmt.Errorf("%s: kernel %s: %w", q.device.name, x.kernel.function.name, err)
		}
	}
	q.launched, q.last = q.launched+c.launches, c.last
	if err := cuda.LaunchGraph(c.exec, q.stream); err != nil {
		return fmt.Errorf("%s: repeating %d launches: %w", q.device.name, c.launches, err)
	}
	return nil
}

// Close gives the driver's graphs back.
func (c *capturedGraph) Close() error {
	return c.first.device.within(func() error {
		var errs []error
		if c.exec != 0 {
			errs = append(errs, c.first.device.quiet(c.first.device.lib.CUDA.CloseGraphExec(c.exec)))
		}
		if c.graph != 0 {
			errs = append(errs, c.first.device.quiet(c.first.device.lib.CUDA.CloseGraph(c.graph)))
		}
		c.exec, c.graph = 0, 0
		return errors.Join(errs...)
	})
}
