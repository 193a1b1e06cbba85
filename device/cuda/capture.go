package cuda

import (
	"errors"
	"fmt"
	"slices"

	"spillway/device"
	"spillway/device/cuda/driver"
)

// capturedGraph is a CUDA graph of what queues were given once. Launching it is one call to
// the driver instead of thousands.
type capturedGraph struct {
	first    *queue // the graph is launched on its stream
	graph    driver.Graph
	exec     driver.GraphExec
	changing []changing
	launches int
	last     *preparedKernel
}

// changing is a kernel node whose parameters differ from iteration to iteration, such as
// the learning rate: they are set again before each launch of the graph.
type changing struct {
	node   driver.GraphNode
	kernel *kernelLaunch
	launch *device.Launch
}

// Capture records what issue gives to queues of the device as a graph, without running it.
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

// record captures all queues as one graph: the others wait for an event of the first at the
// beginning, which makes them part of its capture, and the first for theirs at the end.
func (c *capturedGraph) record(queues []*queue, issue func() error) error {
	d := c.first.device
	for _, q := range queues {
		q.setCapture(c)
		defer q.setCapture(nil)
	}
	begin := func() error { return errors.Join(d.closeGraphEvents(), d.lib.CUDA.BeginCapture(c.first.stream)) }
	if err := d.within(begin); err != nil {
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

// follow makes queues wait for everything the leader was given so far.
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

// within calls f with the context current.
func (d *Device) within(f func() error) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	return f()
}

// setCapture makes the queue report its launches to a capture; nil ends that.
func (q *queue) setCapture(c *capturedGraph) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.capturing, q.follows = c, false
}

// recordLaunch remembers the node of a launch that was just captured, if its parameters
// change from iteration to iteration.
func (c *capturedGraph) recordLaunch(q *queue, k *kernelLaunch, l *device.Launch) error {
	if !slices.ContainsFunc(k.args, arg.changes) {
		return nil
	}
	n, err := q.device.lib.CUDA.LastNode(q.stream)
	c.changing = append(c.changing, changing{n, k, l})
	return err
}

// Launch runs the graph, with the parameters that the Args of its launches hold now.
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
	q.launched, q.last, q.follows = q.launched+c.launches, c.last, false
	if err := cuda.LaunchGraph(c.exec, q.stream); err != nil {
		return fmt.Errorf("%s: repeating %d launches: %w", q.device.name, c.launches, err)
	}
	return nil
}

// Close destroys the graph.
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
