package cuda

import (
	"math"

	"spillway/dtype"
	"spillway/op"
)

func init() {
	registerUnaligned("adafactor", adafactor)
}

// factoring is a call of Adafactor: its operands and the dimensions of its param.
type factoring struct {
	d          *Device
	t          dtype.Type // of the gradient
	w, g, clip arg
	wType      arg
	m          arg // nothing for none
	mType      int64
	row, col   arg // a vector has no rows, and its squares in col
	copied     []arg

	lines, rows, cols, matrices int64
	mean, partial, rates        arg // in the workspace
	blocks                      int64
}

func adafactor(d *Device, c op.Call) (program, error) {
	copied, err := copyArgs(c)
	if err != nil {
		return program{}, err
	}
	shape, last := c.In[0].Shape, len(c.In)-1
	f := &factoring{d: d, t: c.In[1].DType, w: buffer(0), wType: i64(storageCodes[c.In[0].DType]), g: buffer(1), clip: buffer(last), col: buffer(last - 1), copied: copied,
		lines: 1, rows: 1, cols: shape.Elements(), matrices: 1}
	first := last - 1
	if n := len(shape); n > 1 {
		f.cols, f.rows = shape[n-1], shape[n-2]
		f.lines = shape.Elements() / f.cols
		f.matrices = f.lines / f.rows
		first, f.row = last-2, buffer(last-2)
	}
	if first == 3 {
		f.m, f.mType = buffer(2), storageCodes[c.In[2].DType]
	}
	return f.program()
}

// program is several passes over the param, each of which needs the whole pass before it.
func (f *factoring) program() (program, error) {
	f.blocks = max(1, min(f.lines, int64(f.d.gpu.multiprocessors)*8))
	partial := aligned(4 * f.matrices)
	rates := partial + aligned(16*f.blocks)
	f.mean, f.partial, f.rates = scratchAt(0), scratchAt(partial), scratchAt(rates)
	squares := []func() (*kernelLaunch, error){f.byRow, f.byColumn, f.means}
	if f.row == (arg{}) {
		squares = []func() (*kernelLaunch, error){f.byElement}
	}
	return sequence(rates+alignment, append(squares, f.sizes, f.ratesOf, f.apply)...)
}

func (f *factoring) launch(name string, blocks int64, args ...arg) (*kernelLaunch, error) {
	return f.d.line(unitFor("adafactor", f.t), name, blocks, threads, args...)
}

func (f *factoring) byRow() (*kernelLaunch, error) {
	return f.launch("adafactorRows", f.blocks, f.g, f.row, f.clip, i64(f.lines), i64(f.cols), f.scalar("take"), f.scalar("eps"))
}

func (f *factoring) byColumn() (*kernelLaunch, error) {
	return f.d.grid(unitFor("adafactor", f.t), "adafactorColumns", [3]int64{ceilDiv(f.cols, 32), f.matrices, 1}, [3]int64{32, 32, 1}, 0,
		f.g, f.col, f.clip, i64(f.rows), i64(f.cols), f.scalar("take"), f.scalar("eps"))
}

func (f *factoring) means() (*kernelLaunch, error) {
	return f.launch("adafactorMeans", f.matrices, f.row, f.mean, i64(f.rows))
}

func (f *factoring) byElement() (*kernelLaunch, error) {
	return f.launch("adafactorVector", f.d.strideBlocks(f.cols), f.g, f.col, f.clip, i64(f.cols), f.scalar("take"), f.scalar("eps"))
}

func (f *factoring) sizes() (*kernelLaunch, error) {
	return f.launch("adafactorSizes", f.blocks, f.w, f.wType, f.g, f.row, f.col, f.mean, f.clip, f.partial, i64(f.lines), i64(f.rows), i64(f.cols))
}

func (f *factoring) ratesOf() (*kernelLaunch, error) {
	count := arg{bits: math.Float64bits(float64(f.lines * f.cols))}
	return f.d.line(unitFor("adafactor", f.t), "adafactorRates", 1, 1, f.partial, f.rates, i64(f.blocks), count,
		f.scalar("rate"), f.scalar("min_scale"), f.scalar("threshold"))
}

func (f *factoring) apply() (*kernelLaunch, error) {
	args := append([]arg{f.w, f.wType, key(), row(), f.g, f.m, i64(f.mType), f.row, f.col, f.mean, f.clip, f.rates}, f.copied...)
	return f.launch("adafactorApply", f.blocks, append(args, i64(f.lines), i64(f.rows), i64(f.cols), f.scalar("decay"), f.scalar("beta1"))...)
}

// scalar is a number of the iteration by name.
func (f *factoring) scalar(name string) arg { return iteration(op.Kind("adafactor").Slots(name)[0]) }
