package driver

import (
	"errors"
	"fmt"
	"unsafe"

	"spillway/internal/dl"
)

// DNNHandle is cuDNN's state for a device and a stream.
type DNNHandle uintptr

// GraphPlan is a graph ready to run.
type GraphPlan struct {
	Workspace int64 // scratch memory a run needs, in bytes
	plan      uintptr
	held      []uintptr
	// What a run passes to cuDNN lies in memory that does not move.
	ids       []int64
	addresses []uintptr
	outside   int // of the addresses, those Run is given; numbers follow
	numbers   []*float32
	scratch   uintptr
	pack      uintptr
}

// DNN is cuDNN. A machine may have none.
type DNN struct {
	Version   int // 91900 is 9.19.0
	Create    func() (DNNHandle, error)
	Destroy   func(DNNHandle) error
	SetStream func(DNNHandle, Stream) error
	// Describe checks the operations of a graph, each by itself; it needs no GPU.
	Describe func(*DNNGraph) error
	// Prepare looks for an engine that computes a graph with the same bits every time.
	// A graph without one gives an UnsupportedError.
	Prepare func(DNNHandle, *DNNGraph) (*GraphPlan, error)
	// Run computes a graph; the addresses are of its tensors Outside.
	Run     func(h DNNHandle, p *GraphPlan, at []Pointer, workspace Pointer) error
	Discard func(*GraphPlan) error
}

// UnsupportedError says that cuDNN has no engine for a graph.
type UnsupportedError struct {
	Tried int   // ways that were refused
	Cause error // of the last refusal; nil if there were none to try
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("cuDNN cannot compute the graph: %d ways tried (%v)", e.Tried, e.Cause)
}

// Unwrap gives the cause.
func (e *UnsupportedError) Unwrap() error { return e.Cause }

// Descriptors of cuDNN's interface for graphs.
const (
	pointwiseDesc        = 0
	convolutionDesc      = 1
	engineDesc           = 2
	engineConfigDesc     = 3
	heuristicDesc        = 4
	planDesc             = 5
	convolveOperation    = 10
	convolveWeight       = 11
	convolveInput        = 12
	pointwiseOperation   = 13
	graphDesc            = 15
	variantPack          = 16
	tensorDesc           = 17
	matmulDesc           = 18
	matmulOperation      = 19
	reductionDesc        = 21
	reductionOperation   = 22
	reshapeOperation     = 31
	bestFirst            = 3 // the heuristic without fallbacks
	matrixUnitsNote      = 0
	roundsInputsNote     = 1
	nondeterministicNote = 4
	notes                = 16 // more than there are
)

// Types of attributes.
const (
	ofHandle     = 0
	ofDataType   = 1
	ofBool       = 2
	ofInt64      = 3
	ofFloat      = 4
	ofPointer    = 6
	ofConvMode   = 7
	ofHeuristic  = 8
	ofNote       = 11
	ofPointwise  = 14
	ofDescriptor = 15
	ofReduction  = 18
)

// dnnLib is the open library.
type dnnLib struct {
	binder
	errorText, lastError                      dl.Func
	create, destroy, finalize                 dl.Func
	setAttribute, getAttribute, execute       dl.Func
	newHandle, endHandle, setStream, getStamp dl.Func
}

// LoadDNN opens cuDNN alone. Graphs can be described without a GPU.
func LoadDNN(folders []string) (*DNN, error) {
	l, err := openDNN(folders)
	if err != nil {
		return nil, err
	}
	return &DNN{
		Version: int(l.getStamp.Call()),
		Create: func() (DNNHandle, error) {
			h := new(DNNHandle)
			err := l.check("cudnnCreate", l.newHandle.Call(uintptr(unsafe.Pointer(h))))
			return *h, err
		},
		Destroy: func(h DNNHandle) error { return l.check("cudnnDestroy", l.endHandle.Call(uintptr(h))) },
		SetStream: func(h DNNHandle, s Stream) error {
			return l.check("cudnnSetStream", l.setStream.With(&dl.Args{uintptr(h), uintptr(s)}))
		},
		Describe: l.describe, Prepare: l.prepare, Run: l.run, Discard: l.discard,
	}, nil
}

func openDNN(folders []string) (*dnnLib, error) {
	lib, err := find(libcudnn, folders)
	if err != nil {
		return nil, err
	}
	l := &dnnLib{binder: binder{lib: lib}}
	l.errorText, l.lastError, l.getStamp = l.find("cudnnGetErrorString"), l.find("cudnnGetLastErrorString"), l.find("cudnnGetVersion")
	l.create, l.destroy, l.finalize = l.find("cudnnBackendCreateDescriptor"), l.find("cudnnBackendDestroyDescriptor"), l.find("cudnnBackendFinalize")
	l.setAttribute, l.getAttribute, l.execute = l.find("cudnnBackendSetAttribute"), l.find("cudnnBackendGetAttribute"), l.find("cudnnBackendExecute")
	l.newHandle, l.endHandle, l.setStream = l.find("cudnnCreate"), l.find("cudnnDestroy"), l.find("cudnnSetStream")
	return l, l.err
}

func (l *dnnLib) check(call string, code uintptr) error {
	if int32(code) == 0 {
		return nil
	}
	e := &Error{Call: call, Code: int(int32(code)), Name: dl.Text(l.errorText.Call(code), 128)}
	text := make([]byte, 512)
	l.lastError.Call(uintptr(unsafe.Pointer(&text[0])), uintptr(len(text)))
	e.Text = dl.Text(uintptr(unsafe.Pointer(&text[0])), len(text))
	return e
}

// discard gives descriptors back, latest first.
func (l *dnnLib) discard(p *GraphPlan) error {
	var errs []error
	for i := len(p.held) - 1; i >= 0; i-- {
		errs = append(errs, l.check("cudnnBackendDestroyDescriptor", l.destroy.Call(p.held[i])))
	}
	p.held = nil
	return errors.Join(errs...)
}

// run makes a list of addresses, runs the plan on it and gives the list back.
func (l *dnnLib) run(h DNNHandle, p *GraphPlan, at []Pointer, workspace Pointer) error {
	if len(at) != p.outside {
		return fmt.Errorf("%d addresses for %d tensors", len(at), p.outside)
	}
	for i, a := range at {
		p.addresses[i] = uintptr(a)
	}
	p.scratch = uintptr(workspace)
	if err := l.check("cudnnBackendCreateDescriptor", l.create.With(&dl.Args{variantPack, uintptr(unsafe.Pointer(&p.pack))})); err != nil {
		return err
	}
	defer l.destroy.With(&dl.Args{p.pack})
	const ids, pointers, scratch = 1000, 1001, 1003
	n := uintptr(len(p.ids))
	for _, a := range [...]dl.Args{
		{p.pack, pointers, ofPointer, n, uintptr(unsafe.Pointer(&p.addresses[0]))},
		{p.pack, ids, ofInt64, n, uintptr(unsafe.Pointer(&p.ids[0]))},
		{p.pack, scratch, ofPointer, 1, uintptr(unsafe.Pointer(&p.scratch))},
	} {
		if err := l.check("cudnnBackendSetAttribute", l.setAttribute.With(&a)); err != nil {
			return err
		}
	}
	if err := l.check("cudnnBackendFinalize", l.finalize.With(&dl.Args{p.pack})); err != nil {
		return err
	}
	return l.check("cudnnBackendExecute", l.execute.With(&dl.Args{uintptr(h), p.plan, p.pack}))
}
