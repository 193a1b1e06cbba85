package cuda

import (
	"errors"
	"fmt"
	"sync"

	"spillway/device"
	"spillway/device/cuda/driver"
	"spillway/dtype"
)

// Attention by cuDNN, where the library is installed and the call is one it is good at.
// The choice follows from the call and the machine alone, never from where a plan puts
// things, so that one machine always gives the same bits.

// tensors numbers element types as cuDNN does.
var tensors = map[dtype.Type]int{dtype.F32: driver.TensorF32, dtype.BF16: driver.TensorBF16, dtype.F16: driver.TensorF16}

// minDNNVersion of cuDNN that masks scores with infinities.
const minDNNVersion = 91000

// minPairs of queries and keys for which cuDNN pays: below, its launches take longer
// than our kernels.
const minPairs = 1 << 24

// pairBytes bounds what cuDNN's backward pass holds for pairs of queries and keys: their
// gradients, of the elements' type, wait in scratch memory until those of the queries
// are summed from them. This is what makes it repeatable.
const pairBytes = 512 << 20

// fitsDNN says that cuDNN takes the call: every query sees every key, or those up to its
// own place, on a GPU whose results were seen to be repeatable.
func (h heads) fitsDNN(d *Device) bool {
	a := h.c.Attr
	if d.lib.DNN == nil || d.lib.DNN.Version < minDNNVersion || d.gpu.major != 9 || d.options.Ampere {
		return false
	}
	if h.c.In[0].DType == dtype.F32 || h.d%8 != 0 || h.d > 128 || a.Scale <= 0 || h.b*h.heads*h.t*h.s < minPairs {
		return false
	}
	return !h.masks() && !h.dropout() && (a.Window == 0 || a.Window >= h.s) && (!a.Causal || h.t == h.s)
}

// slice is how much of a call one run of a graph takes: samples, or of one sample some
// key heads with the heads that share them.
type slice struct{ samples, keys int64 }

// slices of the backward pass, as large as the bound on its scratch memory allows; ok is
// false if one key head is too much.
func (h heads) slices() (s slice, ok bool) {
	pairs := h.c.In[0].DType.Bytes(h.t * h.s * (h.heads / h.keys)) // of one key head
	most := pairBytes / pairs
	switch {
	case most >= h.keys:
		s = slice{min(h.b, most/h.keys), h.keys}
		for h.b%s.samples != 0 {
			s.samples--
		}
	case most > 0:
		s = slice{1, most}
		for h.keys%s.keys != 0 {
			s.keys--
		}
	}
	return s, most > 0
}

// dnn is the state of cuDNN on a device. A handle serves one goroutine at a time.
type dnn struct {
	mu     sync.Mutex
	handle driver.DNNHandle
	stream driver.Stream
	plans  []*driver.GraphPlan
	at     [16]driver.Pointer // addresses for the run that is being launched
}

// planGraph asks cuDNN for an execution plan of a graph; nil if it has none.
func (d *Device) planGraph(g *driver.DNNGraph) (*driver.GraphPlan, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	d.dnn.mu.Lock()
	defer d.dnn.mu.Unlock()
	if d.dnn.handle == 0 {
		h, err := d.lib.DNN.Create()
		if err != nil {
			return nil, fmt.Errorf("starting cuDNN %d: %w; repair its installation, or keep it from being found to run without", d.lib.DNN.Version, err)
		}
		d.dnn.handle = h
	}
	p, err := d.lib.DNN.Prepare(d.dnn.handle, g)
	var refused *driver.UnsupportedError
	if errors.As(err, &refused) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	d.dnn.plans = append(d.dnn.plans, p)
	return p, nil
}

// end gives plans and handle back. The context must be current.
func (n *dnn) end(lib *driver.DNN) error {
	var errs []error
	for _, p := range n.plans {
		errs = append(errs, lib.Discard(p))
	}
	if n.handle != 0 {
		errs = append(errs, lib.Destroy(n.handle))
	}
	n.plans, n.handle = nil, 0
	return errors.Join(errs...)
}

// graphRun is an execution of a graph by cuDNN.
type graphRun struct {
	device  *Device
	plan    *driver.GraphPlan
	at      []arg // where the graph's tensors lie
	scratch arg
}

func (g *graphRun) run(q *queue, l *device.Launch) error {
	n, lib := &g.device.dnn, g.device.lib.DNN
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stream != q.stream {
		if err := lib.SetStream(n.handle, q.stream); err != nil {
			return err
		}
		n.stream = q.stream
	}
	for i, a := range g.at {
		n.at[i] = driver.Pointer(a.value(l))
	}
	if err := lib.Run(n.handle, g.plan, n.at[:len(g.at)], driver.Pointer(g.scratch.value(l))); err != nil {
		return fmt.Errorf("a graph of cuDNN %d: %w", lib.Version, err)
	}
	return nil
}

// forwardGraph prepares attention by cuDNN; the program is empty if it cannot.
func (h heads) forwardGraph(d *Device) (p program, err error) {
	plan, err := d.planGraph(h.graph())
	if plan == nil || err != nil {
		return p, err
	}
	run := &graphRun{device: d, plan: plan, at: []arg{h.operand(0), h.operand(1), h.operand(2), h.output(0), h.output(1)}, scratch: scratchAt(0)}
	return program{workspace: plan.Workspace, actions: []action{run}}, nil
}

// gradientGraph prepares the backward pass, slice by slice over the same scratch memory;
// the program is empty if cuDNN cannot. Operands are those of gradient.
func (h heads) gradientGraph(d *Device, s slice) (p program, err error) {
	plan, err := d.planGraph(h.gradGraph(s))
	if plan == nil || err != nil {
		return p, err
	}
	out, group := len(h.c.In), h.heads/h.keys
	sums := aligned(plan.Workspace) // of o·do, behind cuDNN's own
	p.workspace = sums + 4*s.samples*s.keys*group*h.t
	element := func(n int64) int64 { return h.c.In[0].DType.Bytes(n) }
	for b := int64(0); b < h.b; b += s.samples {
		for k := int64(0); k < h.keys; k += s.keys {
			query, key := element((b*h.t*h.heads+k*group)*h.d), element((b*h.s*h.keys+k)*h.d)
			p.actions = append(p.actions, &graphRun{device: d, plan: plan, scratch: scratchAt(0), at: []arg{
				bufferAt(0, query), bufferAt(1, key), bufferAt(2, key), bufferAt(3, query), bufferAt(4, 4*(b*h.heads+k*group)*h.t), bufferAt(5, query),
				scratchAt(sums), bufferAt(out, query), bufferAt(out+1, key), bufferAt(out+2, key)}})
		}
	}
	return p, nil
}
