package cuda

import "spillway/op"

// vectorLine is how many elements of a vector are a line.
const vectorLine = 4 << 10

// adafactor is six or seven passes; see adafactor.cu.
func adafactor(d *Device, c op.Call) (p program, err error) {
	s, n := c.In[0].Shape, c.In[0].Shape.Elements()
	rows, cols, squares := int64(1), min(n, vectorLine), 1
	if len(s) > 1 {
		rows, cols, squares = s[len(s)-2], s[len(s)-1], 2
	}
	lines := parts(n, cols)
	first := len(c.In) - 1 - squares
	row, col, clip, mean, m := buffer(first), arg{}, buffer(len(c.In)-1), arg{}, arg{}
	if squares == 2 {
		col = buffer(first + 1)
	}
	if first == 3 {
		m, mean = buffer(2), i64(stored[c.In[2].DType])
	}
	copied, err := copyArgs(c)
	if err != nil {
		return p, err
	}
	sums, byRow := work(0), work(blocked(8*lines))
	now := work(blocked(8*lines) + blocked(4*lines))
	p.workspace = blocked(8*lines) + 2*blocked(4*lines)
	w, g, whole, take, eps := buffer(0), buffer(1), []arg{i64(lines), i64(n)}, iteration(op.ArgTake), iteration(op.ArgEps)
	add := func(name string, grid, block [3]int64, args ...arg) {
		var k *launch
		if err == nil {
			k, err = d.grid(of("adafactor", c.In[1].DType), name, grid, block, 0, args...)
			p.steps = append(p.steps, k)
		}
	}
	perLine, one, usual := [3]int64{lines, 1, 1}, [3]int64{1, 1, 1}, [3]int64{threads, 1, 1}
	add("adafactorRows", perLine, usual, w, g, row, clip, sums, i64(n), i64(cols), flag(squares == 2), take, eps)
	if squares == 2 {
		add("adafactorColumns", [3]int64{parts(cols, 32), lines / rows, 1}, [3]int64{32, 32, 1}, g, col, clip, i64(rows), i64(cols), take, eps)
		add("adafactorFactors", [3]int64{lines / rows, 1, 1}, usual, row, byRow, clip, i64(rows))
	}
	add("adafactorRate", one, usual, append(append([]arg{sums, now, clip}, whole...), iteration(op.ArgRate), iteration(op.ArgDecay), iteration(op.ArgLeastScale))...)
	add("adafactorSizes", perLine, usual, g, row, col, byRow, clip, sums, i64(n), i64(rows), i64(cols))
	add("adafactorBound", one, usual, append(append([]arg{sums, now, clip}, whole...), iteration(op.ArgThreshold))...)
	add("adafactorStep", [3]int64{d.stride(n), 1, 1}, usual,
		append(append([]arg{w, g, m, mean, row, col, byRow, now, clip}, copied...), i64(n), i64(rows), i64(cols), iteration(op.ArgBeta1))...)
	return p, err
}
