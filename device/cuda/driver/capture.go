package driver

import (
	"unsafe"

	"spillway/internal/dl"
)

// What streams were given can be captured as a CUDA graph and launched as a whole.
type (
	Graph     uintptr // a graph as it was captured
	GraphExec uintptr // one ready to be launched
	GraphNode uintptr // a launch within a graph
)

// Codes of CUDA that say that something cannot be captured: from the first to the last.
const (
	CaptureUnsupported = 900
	CaptureLast        = 907
)

// nodeParams is CUDA_KERNEL_NODE_PARAMS.
type nodeParams struct {
	function    Function
	grid, block [3]uint32
	shared      uint32
	params      *[MaxParams]unsafe.Pointer
	extra       uintptr
}

func (l *cudaLib) bindCapture(t *CUDA) {
	begin, end, info := l.find("cuStreamBeginCapture_v2"), l.find("cuStreamEndCapture"), l.find("cuStreamGetCaptureInfo_v2")
	instantiate, set, launch := l.find("cuGraphInstantiateWithFlags"), l.find("cuGraphExecKernelNodeSetParams"), l.find("cuGraphLaunch")
	destroyExec, destroyGraph := l.find("cuGraphExecDestroy"), l.find("cuGraphDestroy")
	const relaxed = 2 // any thread may go on
	t.BeginCapture = func(s Stream) error {
		return l.check("cuStreamBeginCapture", begin.Call(uintptr(s), relaxed))
	}
	t.EndCapture = func(s Stream) (Graph, error) {
		g := new(Graph)
		err := l.check("cuStreamEndCapture", end.Call(uintptr(s), uintptr(unsafe.Pointer(g))))
		return *g, err
	}
	t.LastNode = func(s Stream) (GraphNode, error) {
		status, id, graph, nodes, n := new(int32), new(uint64), new(uintptr), new(*GraphNode), new(uint64)
		err := l.check("cuStreamGetCaptureInfo", info.Call(uintptr(s), uintptr(unsafe.Pointer(status)), uintptr(unsafe.Pointer(id)),
			uintptr(unsafe.Pointer(graph)), uintptr(unsafe.Pointer(nodes)), uintptr(unsafe.Pointer(n))))
		if err != nil || *n == 0 {
			return 0, err
		}
		return **nodes, nil
	}
	t.Instantiate = func(g Graph) (GraphExec, error) {
		r := new(GraphExec)
		err := l.check("cuGraphInstantiate", instantiate.Call(uintptr(unsafe.Pointer(r)), uintptr(g), 0))
		return *r, err
	}
	params := new(nodeParams)
	t.SetNode = func(r GraphExec, n GraphNode, k *Launch) error {
		*params = nodeParams{function: k.Function, grid: k.Grid, block: k.Block, shared: k.Shared, params: k.Params}
		return l.check("cuGraphExecKernelNodeSetParams", set.With(&dl.Args{uintptr(r), uintptr(n), uintptr(unsafe.Pointer(params))}))
	}
	t.LaunchGraph = func(r GraphExec, s Stream) error {
		return l.check("cuGraphLaunch", launch.With(&dl.Args{uintptr(r), uintptr(s)}))
	}
	t.CloseGraphExec = func(r GraphExec) error { return l.check("cuGraphExecDestroy", destroyExec.Call(uintptr(r))) }
	t.CloseGraph = func(g Graph) error { return l.check("cuGraphDestroy", destroyGraph.Call(uintptr(g))) }
}
