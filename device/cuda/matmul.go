package cuda

import (
	"fmt"
	"sync"

	"spillway/device"
	"spillway/device/cuda/driver"
	"spillway/dtype"
	"spillway/op"
)

func init() {
	register(op.MatMul, matMul)
	register(op.LinearPlus, linearPlus)
	register(op.BatchMatMul, batchMatMul)
}

// gemmWorkspace is the most scratch memory an algorithm of cuBLASLt may use; what the chosen
// one does use is known when it is prepared.
const gemmWorkspace = 32 << 20

// maxAlgorithms is how many algorithms of cuBLASLt are compared for a matmul.
const maxAlgorithms = 8

// blasTypes numbers element types as cuBLASLt does.
var blasTypes = map[dtype.Type]int{dtype.F32: driver.RealF32, dtype.BF16: driver.RealBF16, dtype.F16: driver.RealF16}

// matrix is an operand of a matmul, stored row by row: rows lie step elements apart. A
// transposed one is stored as its transpose.
type matrix struct {
	at         arg
	element    dtype.Type
	step       int64
	transposed bool
}

// matmulArgs is c = a·b (+ bias) (+ c, or + plus), where c is m × n and the inner dimension is k.
type matmulArgs struct {
	m, n, k int64
	a, b, c matrix
	bias    *arg
	biasOf  dtype.Type
	add     bool
	plus    *arg         // of the type of c
	scratch int64        // where in the workspace its scratch memory is
	batch   driver.Batch // of such matmuls, in cuBLASLt's terms: its A is b
}

func matMul(d *Device, c op.Call) (p program, err error) {
	if p, ok, err := d.matMulRows(c); ok {
		return p, err
	}
	m, n, k := c.MatMulDims()
	x := matmulArgs{m: m, n: n, k: k, add: c.Attr.Accumulate,
		a: matrix{buffer(0), c.In[0].DType, c.In[0].Shape.Last(), c.Attr.TransA},
		b: matrix{buffer(1), c.In[1].DType, c.In[1].Shape.Last(), c.Attr.TransB},
		c: matrix{buffer(len(c.In)), c.Out[0].DType, n, false},
	}
	if c.Attr.Bias {
		x.bias, x.biasOf = new(buffer(2)), c.In[2].DType
	}
	if c.Attr.Plus {
		x.plus = new(buffer(2))
	}
	if c.Attr.Exact { // algorithms of cuBLASLt follow from the number of rows
		return single(d.plainMatmul(x))
	}
	p.actions, p.workspace, err = d.multiply(x)
	return p, err
}

func linearPlus(d *Device, c op.Call) (p program, err error) {
	m, n, k := c.In[0].Shape.Rows(), c.In[1].Shape[0], c.In[1].Shape[1]
	t := c.In[0].DType
	x := matmulArgs{m: m, n: n, k: k, a: matrix{buffer(0), t, k, false}, b: matrix{buffer(1), t, k, true}, c: matrix{buffer(4), t, n, false},
		bias: new(buffer(2)), biasOf: c.In[2].DType, plus: new(buffer(3))}
	p.actions, p.workspace, err = d.multiply(x)
	return p, err
}

// multiply prepares a matmul, by cuBLASLt or by our plain kernel where it has none. bytes is
// the scratch memory it needs.
func (d *Device) multiply(x matmulArgs) (steps []action, bytes int64, err error) {
	if x.k == 0 {
		return nil, 0, unsupported("an inner dimension of 0 is not handled")
	}
	s, err := d.tryBLAS(x)
	if err != nil {
		return nil, 0, err
	}
	if s != nil {
		return []action{s}, s.prepared.Algorithm.Workspace, nil
	}
	k, err := d.plainMatmul(x)
	return []action{k}, 0, err
}

// addend is what is added to the result, if anything is.
func (x matmulArgs) addend() (at arg, adds bool) {
	if x.plus != nil {
		return *x.plus, true
	}
	return x.c.at, x.add
}

// gemm is a matmul by cuBLASLt. The library stores matrices column by column, so it is asked
// for the transpose of c, bᵀ·aᵀ, whose columns are the rows of c.
type gemm struct {
	device   *Device
	prepared *driver.Prepared
	a, b, c  arg
	plus     arg // c itself where nothing is added
	bias     *arg
	scratch  arg
	mu       sync.Mutex // the address of the bias is part of prepared
}

func (p *gemm) run(q *queue, l *device.Launch) error {
	blas := p.device.lib.BLAS
	if p.bias != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if err := blas.SetBias(p.prepared, driver.Pointer(p.bias.value(l))); err != nil {
			return err
		}
	}
	q.follows = true // its last kernel is what a next one may begin behind
	return blas.Run(p.device.blas, p.prepared, driver.Pointer(p.b.value(l)), driver.Pointer(p.a.value(l)), driver.Pointer(p.plus.value(l)),
		driver.Pointer(p.c.value(l)), driver.Pointer(p.scratch.value(l)), q.stream)
}

// tryBLAS prepares a matmul by cuBLASLt; nil where it has no algorithm.
func (d *Device) tryBLAS(x matmulArgs) (*gemm, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	p, err := d.prepareGemm(x)
	if err != nil {
		return nil, fmt.Errorf("matmul of %d × %d × %d: %w", x.m, x.k, x.n, err)
	}
	return p, nil
}

// prepareGemm uses the algorithm that was chosen on this machine. The context must be
// current.
func (d *Device) prepareGemm(x matmulArgs) (*gemm, error) {
	described := x.describe(d.options.TF32)
	made, found, err := d.lib.BLAS.Prepare(d.blas, described, x.batch, gemmWorkspace, maxAlgorithms)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, d.lib.BLAS.Discard(made)
	}
	d.mu.Lock()
	d.gemms = append(d.gemms, made)
	d.mu.Unlock()
	plus, adds := x.addend()
	if adds {
		made.Beta = 1
	}
	way, err := d.chooseAlgorithm(candidates{described, x.batch, made, found, x.m * x.n * x.k, x.a.element.Bytes(x.m*x.k) + x.b.element.Bytes(x.n*x.k)})
	if err != nil {
		return nil, err
	}
	made.Algorithm = way
	return &gemm{device: d, prepared: made, a: x.a.at, b: x.b.at, c: x.c.at, plus: plus, bias: x.bias, scratch: scratchAt(x.scratch)}, nil
}

// describe gives the matmul in cuBLASLt's terms, where our rows are columns.
func (x matmulArgs) describe(tf32 bool) driver.Gemm {
	p := driver.Gemm{Compute: driver.ComputeF32, Bias: x.bias != nil, BiasType: blasTypes[x.biasOf],
		A: transposed(x.b, x.k, x.n), B: transposed(x.a, x.m, x.k), D: transposed(x.c, x.m, x.n)}
	if tf32 && x.a.element == dtype.F32 {
		p.Compute = driver.ComputeTF32
	}
	return p
}

// transposed describes a matrix of rows × columns by its columns as stored.
func transposed(m matrix, rows, columns int64) driver.Matrix {
	if m.transposed {
		rows, columns = columns, rows
	}
	return driver.Matrix{Type: blasTypes[m.element], Rows: columns, Columns: rows, Step: m.step, Transposed: m.transposed}
}

// plainMatmul prepares our own kernel: operands of one type, the result in that type or f32.
func (d *Device) plainMatmul(x matmulArgs) (*kernelLaunch, error) {
	bias, like := arg{}, x.c.element
	if x.bias != nil {
		bias, like = *x.bias, x.biasOf
	}
	plus, adds := x.addend()
	if !adds {
		plus = arg{}
	}
	name := "product"
	if x.c.element == dtype.F32 {
		name = "productWide"
	}
	if x.a.element != x.b.element || x.c.element != x.a.element && name == "product" || like != x.c.element {
		return nil, unsupported(fmt.Sprintf("a product of %v and %v to %v with a bias of %v is not handled", x.a.element, x.b.element, x.c.element, like))
	}
	a, b := strides(x.a), strides(x.b)
	return d.grid(unitFor("product", x.a.element), name, [3]int64{ceilDiv(x.n, 16), ceilDiv(x.m, 16), 1}, [3]int64{16, 16, 1}, 0,
		x.a.at, x.b.at, bias, x.c.at, i64(x.m), i64(x.n), i64(x.k), a[0], a[1], b[0], b[1], i64(x.c.step), plus)
}

// strides between rows and columns of a matrix.
func strides(m matrix) [2]arg {
	if m.transposed {
		return [2]arg{i64(1), i64(m.step)}
	}
	return [2]arg{i64(m.step), i64(1)}
}
