package driver

import (
	"errors"
	"runtime"
	"unsafe"
)

// What Prepare does: tensors and operations become descriptors, the heuristic lists
// engines for their graph, and the first that is supported and repeatable becomes the
// plan.

// maker makes descriptors and remembers the first error.
type maker struct {
	l     *dnnLib
	made  []uintptr // all descriptors, in order
	exact bool      // engines that round f32 are refused
	err   error
}

// begin makes a descriptor to be filled in.
func (m *maker) begin(kind int) uintptr {
	if m.err != nil {
		return 0
	}
	d := new(uintptr)
	m.err = m.l.check("cudnnBackendCreateDescriptor", m.l.create.Call(uintptr(kind), uintptr(unsafe.Pointer(d))))
	if m.err == nil {
		m.made = append(m.made, *d)
	}
	return *d
}

// end finishes a descriptor.
func (m *maker) end(d uintptr) uintptr {
	if m.err == nil {
		m.err = m.l.check("cudnnBackendFinalize", m.l.finalize.Call(d))
	}
	return d
}

// put writes an attribute of one or several values.
func put[V any](m *maker, d uintptr, attribute, kind int, values ...V) {
	if m.err != nil {
		return
	}
	m.err = m.l.check("cudnnBackendSetAttribute",
		m.l.setAttribute.Call(d, uintptr(attribute), uintptr(kind), uintptr(len(values)), uintptr(unsafe.Pointer(&values[0]))))
	runtime.KeepAlive(values)
}

// get reads at most as many values of an attribute as there is room for.
func get[V any](m *maker, d uintptr, attribute, kind int, into []V) []V {
	if m.err != nil {
		return nil
	}
	n, at := new(int64), unsafe.Pointer(unsafe.SliceData(into))
	m.err = m.l.check("cudnnBackendGetAttribute",
		m.l.getAttribute.Call(d, uintptr(attribute), uintptr(kind), uintptr(len(into)), uintptr(unsafe.Pointer(n)), uintptr(at)))
	if m.err != nil {
		return nil
	}
	return into[:min(*n, int64(len(into)))]
}

func (l *dnnLib) prepare(h DNNHandle, g *DNNGraph) (*GraphPlan, error) {
	m := &maker{l: l, exact: g.Exact}
	graph := m.graph(h, g)
	p := &GraphPlan{}
	if m.err == nil {
		m.choose(graph, p)
	}
	p.held = m.made
	if m.err != nil {
		return nil, errors.Join(unsupported(m.err), l.discard(p))
	}
	p.bind(g)
	return p, nil
}

// unsupported distinguishes "not supported" from mistakes, by cuDNN's error codes.
func unsupported(err error) error {
	var answer *Error
	if errors.As(err, &answer) && answer.Code/1000 == 3 {
		return &UnsupportedError{Cause: err}
	}
	return err
}

func (l *dnnLib) describe(g *DNNGraph) error {
	m := &maker{l: l}
	m.operations(g)
	return errors.Join(m.err, l.discard(&GraphPlan{held: m.made}))
}

// bind lays out what a run passes to cuDNN: tensors in memory, then numbers.
func (p *GraphPlan) bind(g *DNNGraph) {
	for _, t := range g.Outside {
		p.ids, p.addresses = append(p.ids, t.ID), append(p.addresses, 0)
	}
	p.outside = len(p.ids)
	for t := range g.tensors() {
		if t.Number == nil {
			continue
		}
		number := new(*t.Number)
		p.numbers = append(p.numbers, number)
		p.ids, p.addresses = append(p.ids, t.ID), append(p.addresses, uintptr(unsafe.Pointer(number)))
	}
}

// tensors goes over the tensors of a graph, each once.
func (g *DNNGraph) tensors() func(func(*Tensor) bool) {
	return func(yield func(*Tensor) bool) {
		seen := map[*Tensor]bool{nil: true}
		for _, o := range g.Operations {
			for _, t := range []*Tensor{o.X, o.B, o.T, o.Y} {
				if seen[t] {
					continue
				}
				seen[t] = true
				if !yield(t) {
					return
				}
			}
		}
	}
}

// graph describes all of a graph.
func (m *maker) graph(h DNNHandle, g *DNNGraph) uintptr {
	const handle, operations = 800, 801
	made := m.operations(g)
	d := m.begin(graphDesc)
	put(m, d, operations, ofDescriptor, made...)
	put(m, d, handle, ofHandle, h)
	return m.end(d)
}

// operations describes the operations of a graph.
func (m *maker) operations(g *DNNGraph) (made []uintptr) {
	tensors := map[*Tensor]uintptr{}
	for t := range g.tensors() {
		tensors[t] = m.tensor(t)
	}
	for _, o := range g.Operations {
		made = append(made, m.operation(o, tensors))
	}
	return made
}

func (m *maker) tensor(t *Tensor) uintptr {
	const alignment, dataType, dimensions, strides, id, virtual, byValue = 900, 901, 902, 903, 906, 907, 908
	const aligned = 16 // bytes
	d := m.begin(tensorDesc)
	put(m, d, dataType, ofDataType, int32(t.Type))
	put(m, d, dimensions, ofInt64, t.Shape[:]...)
	put(m, d, strides, ofInt64, t.Strides[:]...)
	put(m, d, id, ofInt64, t.ID)
	put(m, d, alignment, ofInt64, int64(aligned))
	put(m, d, virtual, ofBool, t.Virtual)
	put(m, d, byValue, ofBool, t.Number != nil)
	return m.end(d)
}

// operation describes one step. Attributes of descriptors are numbered one after the
// other.
func (m *maker) operation(o Operation, tensors map[*Tensor]uintptr) uintptr {
	switch o.Kind {
	case MatMul:
		const computeType, left = 1500, 1520 // and right, product, description
		how := m.begin(matmulDesc)
		put(m, how, computeType, ofDataType, int32(o.Compute))
		m.end(how)
		d := m.begin(matmulOperation)
		for i, t := range []uintptr{tensors[o.X], tensors[o.B], tensors[o.Y], how} {
			put(m, d, left+i, ofDescriptor, t)
		}
		return m.end(d)
	case Reduce:
		const operator, computeType, input = 1600, 1601, 1610 // and output, description
		how := m.begin(reductionDesc)
		put(m, how, operator, ofReduction, int32(o.Mode))
		put(m, how, computeType, ofDataType, int32(o.Compute))
		m.end(how)
		d := m.begin(reductionOperation)
		for i, t := range []uintptr{tensors[o.X], tensors[o.Y], how} {
			put(m, d, input+i, ofDescriptor, t)
		}
		return m.end(d)
	case Reshape:
		const input, output = 2200, 2201
		d := m.begin(reshapeOperation)
		put(m, d, input, ofDescriptor, tensors[o.X])
		put(m, d, output, ofDescriptor, tensors[o.Y])
		return m.end(d)
	case Convolve, ConvolveInput, ConvolveWeight:
		return m.convolution(o, tensors)
	}
	return m.pointwise(o, tensors)
}

// convolution describes a convolution or a gradient of one: the same windows, and three tensors.
func (m *maker) convolution(o Operation, tensors map[*Tensor]uintptr) uintptr {
	const computeType, mode, dilations, strides, behind, before, dimensions, crossCorrelation = 100, 101, 102, 103, 104, 105, 106, 1
	w := o.Windows
	how := m.begin(convolutionDesc)
	put(m, how, computeType, ofDataType, int32(o.Compute))
	put(m, how, mode, ofConvMode, int32(crossCorrelation))
	put(m, how, dimensions, ofInt64, int64(len(w.Strides)))
	put(m, how, dilations, ofInt64, w.Dilation[:]...)
	put(m, how, strides, ofInt64, w.Strides[:]...)
	put(m, how, before, ofInt64, w.Padding[:]...)
	put(m, how, behind, ofInt64, w.Padding[:]...)
	m.end(how)
	// Attributes are alpha, beta, the description and three tensors, one after the other.
	kind, first := convolveOperation, 700
	switch o.Kind {
	case ConvolveInput:
		kind, first = convolveInput, 706
	case ConvolveWeight:
		kind, first = convolveWeight, 712
	}
	d := m.begin(kind)
	put(m, d, first, ofFloat, float32(1))
	put(m, d, first+1, ofFloat, float32(0))
	put(m, d, first+2, ofDescriptor, how)
	for i, t := range []*Tensor{o.B, o.X, o.Y} {
		put(m, d, first+3+i, ofDescriptor, tensors[t])
	}
	return m.end(d)
}

func (m *maker) pointwise(o Operation, tensors map[*Tensor]uintptr) uintptr {
	const mode, precision, axis = 0, 1, 9
	how := m.begin(pointwiseDesc)
	put(m, how, mode, ofPointwise, int32(o.Mode))
	put(m, how, precision, ofDataType, int32(o.Compute))
	if o.Mode == Index {
		put(m, how, axis, ofInt64, o.Axis)
	}
	m.end(how)
	const description, x, b, y, t = 750, 751, 752, 753, 758
	d := m.begin(pointwiseOperation)
	put(m, d, description, ofDescriptor, how)
	put(m, d, x, ofDescriptor, tensors[o.X])
	put(m, d, y, ofDescriptor, tensors[o.Y])
	if o.B != nil {
		put(m, d, b, ofDescriptor, tensors[o.B])
	}
	if o.T != nil {
		put(m, d, t, ofDescriptor, tensors[o.T])
	}
	return m.end(d)
}

// choose makes a plan of the first engine that is supported and gives the same bits
// every time.
func (m *maker) choose(graph uintptr, p *GraphPlan) {
	const mode, operationGraph, results = 200, 201, 202
	d := m.begin(heuristicDesc)
	put(m, d, operationGraph, ofDescriptor, graph)
	put(m, d, mode, ofHeuristic, int32(bestFirst))
	m.end(d)
	const most = 8
	configs := make([]uintptr, most)
	for i := range configs {
		configs[i] = m.begin(engineConfigDesc)
	}
	refused := &UnsupportedError{}
	for _, config := range get(m, d, results, ofDescriptor, configs) {
		if m.plan(config, p); m.err == nil && p.plan != 0 {
			return
		}
		refused.Tried, refused.Cause, m.err = refused.Tried+1, m.err, nil
	}
	if m.err == nil {
		m.err = refused
	}
}

// plan makes a plan of an engine, unless its bits may differ from run to run.
func (m *maker) plan(config uintptr, p *GraphPlan) {
	const engineOf, numericalNotes = 300, 1303
	engine := []uintptr{m.begin(engineDesc)}
	get(m, config, engineOf, ofDescriptor, engine)
	for _, note := range get(m, engine[0], numericalNotes, ofNote, make([]int32, notes)) {
		if note == nondeterministicNote || m.exact && (note == matrixUnitsNote || note == roundsInputsNote) {
			return
		}
	}
	const configOf, workspace = 401, 402
	d := m.begin(planDesc)
	put(m, d, configOf, ofDescriptor, config)
	m.end(d)
	size := get(m, d, workspace, ofInt64, make([]int64, 1))
	if m.err == nil && len(size) == 1 {
		p.plan, p.Workspace = d, size[0]
	}
}
