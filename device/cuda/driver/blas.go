package driver

import (
	"cmp"
	"fmt"
	"slices"
	"unsafe"

	"spillway/internal/dl"
)

// Handles of cuBLASLt.
type (
	BLASHandle uintptr
	Descriptor uintptr
	Layout     uintptr
)

// Element types, as CUDA numbers them.
const (
	RealF32  = 0
	RealF16  = 2
	RealBF16 = 14
)

// Precisions of a matmul.
const (
	ComputeF32     = 68 // f32 operands in full, 16-bit operands with sums in f32
	ComputeTF32    = 77 // f32 operands rounded to tf32
	transposed     = 1
	descTransA     = 3
	descTransB     = 4
	descEpilogue   = 7
	descBias       = 8
	descBiasType   = 26
	epilogueBias   = 4
	prefWorkspace  = 1
	prefReductions = 3
	prefAlignmentA = 5 // and B, C, D behind it
	layoutBatch    = 5 // of matrices; so many
	layoutStep     = 6 // of a batch: so many elements apart
)

// Matrix is an operand of a matmul, stored column by column: columns are Step elements apart.
type Matrix struct {
	Type          int
	Rows, Columns int64
	Step          int64
	Transposed    bool // of A and B: the product takes the transpose
}

// Gemm describes D = A·B + beta·C (+ bias along the rows), C being D.
type Gemm struct {
	Compute  int
	A, B, D  Matrix
	Bias     bool
	BiasType int
}

// Batch is so many matmuls at once, whose matrices lie so many elements apart; 0 where they share one. A
// Count of 0 is one matmul.
type Batch struct {
	Count   int64
	A, B, D int64
}

// Algorithm is one of cuBLASLt's algorithms for a matmul, with the scratch memory it needs.
type Algorithm struct {
	Opaque    [8]uint64
	Workspace int64
	state     int32
	waves     float32
	reserved  [4]int32
}

// Prepared is a matmul ready to run.
type Prepared struct {
	Operation Descriptor
	Layouts   [3]Layout // of A, B and D
	Algorithm Algorithm
	Alpha     float32
	Beta      float32
	bias      Pointer // where SetBias reads it
}

// BLAS is cuBLASLt.
type BLAS struct {
	Version int // 130101 is 13.1.1
	Create  func() (BLASHandle, error)
	Destroy func(BLASHandle) error
	// Prepare makes the descriptors of a matmul and asks for the best algorithms, at most
	// so many, with at most so much scratch memory and operands aligned to 16 bytes, or as
	// the matrices of a batch are.
	// Algorithms that sum in less than f32 are left out. An empty list means that there
	// is none.
	Prepare func(h BLASHandle, p Gemm, batch Batch, workspace int64, most int) (*Prepared, []Algorithm, error)
	Discard func(*Prepared) error
	// SetBias sets the address of the bias for the next Run.
	SetBias func(p *Prepared, bias Pointer) error
	// Run computes d = Alpha·a·b + Beta·c; c may be d.
	Run func(h BLASHandle, p *Prepared, a, b, c, d, workspace Pointer, s Stream) error
}

// blasLib is the open library.
type blasLib struct {
	binder
	statusText                              dl.Func
	newDesc, setDesc, endDesc               dl.Func
	newLayout, setLayout, endLayout         dl.Func
	newPreference, setPreference, endPrefer dl.Func
	heuristic, matmul                       dl.Func
}

func loadBLAS(folders []string) (*BLAS, error) {
	lib, err := find(libcublaslt, folders)
	if err != nil {
		return nil, err
	}
	l := &blasLib{binder: binder{lib: lib}}
	l.statusText = l.find("cublasLtGetStatusString")
	create, destroy, version := l.find("cublasLtCreate"), l.find("cublasLtDestroy"), l.find("cublasLtGetVersion")
	l.newDesc, l.setDesc, l.endDesc = l.find("cublasLtMatmulDescCreate"), l.find("cublasLtMatmulDescSetAttribute"), l.find("cublasLtMatmulDescDestroy")
	l.newLayout, l.setLayout, l.endLayout = l.find("cublasLtMatrixLayoutCreate"), l.find("cublasLtMatrixLayoutSetAttribute"), l.find("cublasLtMatrixLayoutDestroy")
	l.newPreference, l.setPreference, l.endPrefer = l.find("cublasLtMatmulPreferenceCreate"), l.find("cublasLtMatmulPreferenceSetAttribute"), l.find("cublasLtMatmulPreferenceDestroy")
	l.heuristic, l.matmul = l.find("cublasLtMatmulAlgoGetHeuristic"), l.find("cublasLtMatmul")
	if l.err != nil {
		return nil, l.err
	}
	return &BLAS{
		Version: int(version.Call()),
		Create: func() (BLASHandle, error) {
			h := new(BLASHandle)
			err := l.check("cublasLtCreate", create.Call(uintptr(unsafe.Pointer(h))))
			return *h, err
		},
		Destroy: func(h BLASHandle) error { return l.check("cublasLtDestroy", destroy.Call(uintptr(h))) },
		Prepare: l.prepare, Discard: l.discard, SetBias: l.setBias, Run: l.run,
	}, nil
}

func (l *blasLib) check(call string, code uintptr) error {
	if int32(code) == 0 {
		return nil
	}
	text := dl.Text(l.statusText.Call(code), 128)
	return &Error{Call: call, Code: int(int32(code)), Name: "status", Text: text}
}

// set writes an attribute of four or eight bytes.
func set[V int32 | uint64](l *blasLib, f dl.Func, object uintptr, attribute int, value V) error {
	v := new(value)
	return l.check("setting an attribute of a product", f.Call(object, uintptr(attribute), uintptr(unsafe.Pointer(v)), unsafe.Sizeof(value)))
}

func (l *blasLib) prepare(h BLASHandle, p Gemm, batch Batch, workspace int64, most int) (*Prepared, []Algorithm, error) {
	made := &Prepared{Alpha: 1}
	err := l.describe(made, p, batch)
	if err != nil {
		return nil, nil, fmt.Errorf("%w (%v)", err, l.discard(made))
	}
	found, err := l.choose(h, made, alignments(p, batch), workspace, most)
	if err != nil {
		return nil, nil, fmt.Errorf("%w (%v)", err, l.discard(made))
	}
	return made, found, nil
}

// describe makes the descriptors.
func (l *blasLib) describe(made *Prepared, p Gemm, batch Batch) error {
	if err := l.check("cublasLtMatmulDescCreate", l.newDesc.Call(uintptr(unsafe.Pointer(&made.Operation)), uintptr(p.Compute), RealF32)); err != nil {
		return err
	}
	attributes := map[int]int32{}
	if p.A.Transposed {
		attributes[descTransA] = transposed
	}
	if p.B.Transposed {
		attributes[descTransB] = transposed
	}
	if p.Bias {
		attributes[descEpilogue], attributes[descBiasType] = epilogueBias, int32(p.BiasType)
	}
	for which, value := range attributes {
		if err := set(l, l.setDesc, uintptr(made.Operation), which, value); err != nil {
			return err
		}
	}
	steps := []int64{batch.A, batch.B, batch.D}
	for i, m := range []Matrix{p.A, p.B, p.D} {
		code := l.newLayout.Call(uintptr(unsafe.Pointer(&made.Layouts[i])), uintptr(m.Type), uintptr(m.Rows), uintptr(m.Columns), uintptr(m.Step))
		err := l.check("cublasLtMatrixLayoutCreate", code)
		if err == nil && batch.Count > 0 {
			err = cmp.Or(set(l, l.setLayout, uintptr(made.Layouts[i]), layoutBatch, int32(batch.Count)),
				set(l, l.setLayout, uintptr(made.Layouts[i]), layoutStep, uint64(steps[i])))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// alignments are what the addresses of A, B, C and D are multiples of: 16 bytes, or in a batch what all of its matrices are.
func alignments(p Gemm, batch Batch) (bytes [4]int32) {
	steps := [4]int64{batch.A, batch.B, batch.D, batch.D}
	for i, m := range []Matrix{p.A, p.B, p.D, p.D} {
		size := int64(2)
		if m.Type == RealF32 {
			size = 4
		}
		for bytes[i] = 16; batch.Count > 0 && steps[i]*size%int64(bytes[i]) != 0; {
			bytes[i] /= 2
		}
	}
	return bytes
}

// choose asks for algorithms, best first.
func (l *blasLib) choose(h BLASHandle, made *Prepared, aligned [4]int32, workspace int64, most int) ([]Algorithm, error) {
	preference := new(uintptr)
	if err := l.check("cublasLtMatmulPreferenceCreate", l.newPreference.Call(uintptr(unsafe.Pointer(preference)))); err != nil {
		return nil, err
	}
	defer l.endPrefer.Call(*preference)
	const inComputeType = 2 // parts of a sum that was split are added in f32
	err := cmp.Or(set(l, l.setPreference, *preference, prefWorkspace, uint64(workspace)),
		set[int32](l, l.setPreference, *preference, prefReductions, inComputeType))
	for i, bytes := range aligned {
		err = cmp.Or(err, set(l, l.setPreference, *preference, prefAlignmentA+i, bytes))
	}
	if err != nil {
		return nil, err
	}
	list, n := make([]Algorithm, most), new(int32)
	code := l.heuristic.Call(uintptr(h), uintptr(made.Operation), uintptr(made.Layouts[0]), uintptr(made.Layouts[1]), uintptr(made.Layouts[2]), uintptr(made.Layouts[2]),
		*preference, uintptr(most), uintptr(unsafe.Pointer(&list[0])), uintptr(unsafe.Pointer(n)))
	const notSupported = 15
	if int32(code) == notSupported {
		return nil, nil
	}
	if err := l.check("cublasLtMatmulAlgoGetHeuristic", code); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list[:*n], func(a Algorithm) bool { return a.state != 0 }), nil
}

func (l *blasLib) discard(p *Prepared) error {
	for _, layout := range p.Layouts {
		if layout != 0 {
			if err := l.check("cublasLtMatrixLayoutDestroy", l.endLayout.Call(uintptr(layout))); err != nil {
				return err
			}
		}
	}
	if p.Operation == 0 {
		return nil
	}
	return l.check("cublasLtMatmulDescDestroy", l.endDesc.Call(uintptr(p.Operation)))
}

func (l *blasLib) setBias(p *Prepared, bias Pointer) error {
	p.bias = bias
	return l.check("naming the bias of a product", l.setDesc.With(&dl.Args{uintptr(p.Operation), descBias, uintptr(unsafe.Pointer(&p.bias)), 8}))
}

func (l *blasLib) run(h BLASHandle, p *Prepared, a, b, c, d, workspace Pointer, s Stream) error {
	return l.check("cublasLtMatmul", l.matmul.With(&dl.Args{uintptr(h), uintptr(p.Operation), uintptr(unsafe.Pointer(&p.Alpha)),
		uintptr(a), uintptr(p.Layouts[0]), uintptr(b), uintptr(p.Layouts[1]), uintptr(unsafe.Pointer(&p.Beta)),
		uintptr(c), uintptr(p.Layouts[2]), uintptr(d), uintptr(p.Layouts[2]),
		uintptr(unsafe.Pointer(&p.Algorithm)), uintptr(workspace), uintptr(p.Algorithm.Workspace), uintptr(s)}))
}
