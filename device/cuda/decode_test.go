package cuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"spillway/device"
	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
	"spillway/shape"
)

// rowsOf cuts rows from the bytes of a tensor.
func rowsOf(b []byte, count, from, n int64) []byte {
	width := int64(len(b)) / count
	return b[from*width : (from+n)*width]
}

// A row's product has the same bits whatever rows are computed with it, in shared memory or
// in rings.
func TestRowsOfMatmulsAreIndependent(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	for _, size := range []struct{ n, k int64 }{{300, 4096}, {64, 14336}, {33, 200}} {
		for _, typ := range []dtype.Type{dtype.BF16, dtype.F16} {
			const most = fewestRows
			x, w := raw(t, typ, spreadNumbers(int(most*size.k), 1)), raw(t, typ, spreadNumbers(int(size.n*size.k), 2))
			product := func(from, rows int64) []byte {
				c, err := op.Make(op.MatMul, op.Attr{TransB: true, Constant: true}, op.Type{DType: typ, Shape: shape.Shape{1, rows, size.k}}, op.Type{DType: typ, Shape: shape.Shape{size.n, size.k}})
				if err != nil {
					t.Fatal(err)
				}
				return launched(t, d, c, op.Args{}, 0, rowsOf(x, most, from, rows), w)[2]
			}
			all := product(0, most)
			for _, part := range [][2]int64{{0, 1}, {7, 1}, {3, 2}, {2, 5}} {
				if !bytes.Equal(product(part[0], part[1]), rowsOf(all, most, part[0], part[1])) {
					t.Errorf("%v %d × %d: rows from %d on, %d of them, are not those of all", typ, size.n, size.k, part[0], part[1])
				}
			}
		}
	}
}

// Exact matmuls are those of cuBLASLt up to rounding, and a row has the same bits whatever rows are
// computed with it: by kernels for few rows, and by tiles of every shape.
func TestExactMatmuls(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	for i, size := range []struct{ n, k int64 }{{300, 4096}, {2112, 4096}, {640, 14336}, {28672, 128}, {1000, 576}, {9000, 64}, {33, 200}, {258, 1032}} {
		const most = 513
		typ := []dtype.Type{dtype.BF16, dtype.F16}[i%2]
		x, w := raw(t, typ, spreadNumbers(int(most*size.k), 1)), raw(t, typ, spreadNumbers(int(size.n*size.k), 2))
		bias, plus := raw(t, typ, spreadNumbers(int(size.n), 4)), raw(t, typ, spreadNumbers(int(most*size.n), 3))
		product := func(from, rows int64, own bool) []byte {
			a, more := op.Attr{TransB: true, Constant: own, Exact: own, Plus: true}, op.Type{DType: typ, Shape: shape.Shape{1, rows, size.n}}
			third := rowsOf(plus, most, from, rows)
			if i%3 == 2 {
				a.Plus, a.Bias, more, third = false, true, op.Type{DType: typ, Shape: shape.Shape{size.n}}, bias
			}
			c, err := op.Make(op.MatMul, a, op.Type{DType: typ, Shape: shape.Shape{1, rows, size.k}}, op.Type{DType: typ, Shape: shape.Shape{size.n, size.k}}, more)
			if err != nil {
				t.Fatal(err)
			}
			return launched(t, d, c, op.Args{}, 0, rowsOf(x, most, from, rows), w, third)[3]
		}
		all, other := product(0, most, true), product(0, most, false)
		var off, largest float64
		number := func(b []byte) float32 {
			if typ == dtype.F16 {
				return dtype.FromF16(binary.LittleEndian.Uint16(b))
			}
			return dtype.FromBF16(binary.LittleEndian.Uint16(b))
		}
		for i := 0; i < len(all); i += 2 {
			a, b := number(all[i:]), number(other[i:])
			off, largest = max(off, math.Abs(float64(a-b))), max(largest, math.Abs(float64(b)))
		}
		if !(off <= largest/100) {
			t.Errorf("%v %d × %d: off by %g of %g", typ, size.n, size.k, off, largest)
		}
		for _, part := range [][2]int64{{0, 1}, {512, 1}, {17, 2}, {5, 8}, {0, 9}, {3, 16}, {100, 17}, {60, 64}, {70, 128}, {191, 9}, {13, 200}, {100, 300}} {
			if got, want := product(part[0], part[1], true), rowsOf(all, most, part[0], part[1]); !bytes.Equal(got, want) {
				n := 0
				for i := 0; i < len(got); i += 2 {
					if got[i] != want[i] || got[i+1] != want[i+1] {
						n++
					}
				}
				t.Errorf("%v %d × %d: rows from %d on, %d of them, are not those of all: %d of %d numbers differ", typ, size.n, size.k, part[0], part[1], n, len(got)/2)
			}
		}
		for n, form := range tileForms {
			rows := min(400, form.rows*4)
			if form.thin() {
				rows = form.rows
			}
			if !form.fits(rows, size.k) {
				continue
			}
			d.plainly.tile = n + 1
			if !bytes.Equal(product(100, rows, true), rowsOf(all, most, 100, rows)) {
				t.Errorf("%v %d × %d: tiles of %+v give other bits", typ, size.n, size.k, form)
			}
			d.plainly.tile = 0
		}
	}
}

// A row's attention has the same bits whatever rows are computed with it, where it is to be exact.
func TestRowsOfAttentionAreIndependent(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	const heads, keys, size, page, table = 8, 2, 128, 64, 40
	positions := []int32{2500, 0, 127, 128, 640, 2559, 63}
	rows := int64(len(positions))
	half := func(dims ...int64) op.Type { return op.Type{DType: dtype.BF16, Shape: shape.Shape(dims)} }
	cache := half(rows*table, keys, page, size)
	q, k, v := raw(t, dtype.BF16, spreadNumbers(int(rows*heads*size), 1)), raw(t, dtype.BF16, spreadNumbers(int(cache.Shape.Elements()), 2)), raw(t, dtype.BF16, spreadNumbers(int(cache.Shape.Elements()), 3))
	var pages []byte
	for i := range rows * table {
		pages = binary.LittleEndian.AppendUint32(pages, uint32((i*11+5)%(rows*table)))
	}
	attend := func(from, n int64) []byte {
		var p, s []byte
		for i := from; i < from+n; i++ {
			p, s = binary.LittleEndian.AppendUint32(p, uint32(positions[i])), binary.LittleEndian.AppendUint32(s, uint32(i))
		}
		ids := func(dims ...int64) op.Type { return op.Type{DType: dtype.I32, Shape: shape.Shape(dims)} }
		c, err := op.Make(op.AttendCache, op.Attr{Heads: heads, KVHeads: keys, Scale: 0.09, Exact: true}, half(1, n, heads*size), cache, cache, ids(1, n), ids(1, n), ids(rows, table))
		if err != nil {
			t.Fatal(err)
		}
		return launched(t, d, c, op.Args{}, 0, rowsOf(q, rows, from, n), k, v, p, s, pages)[6]
	}
	all := attend(0, rows)
	for i := range rows {
		if !bytes.Equal(attend(i, 1), rowsOf(all, rows, i, 1)) {
			t.Errorf("the row at position %d is another one alone", positions[i])
		}
	}
}

// Kernels that wait by themselves are launched early right behind a kernel, but for one that decodes a weight, and only there.
func TestEarlyLaunches(t *testing.T) {
	f := newFake()
	d := openFake(t, f, Options{})
	call := func(kind op.Kind, a op.Attr, types ...op.Type) device.Kernel {
		c, err := op.Make(kind, a, types...)
		if err != nil {
			t.Fatal(err)
		}
		k, err := d.Kernel(c)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	row := op.Type{DType: dtype.BF16, Shape: shape.Of(1, 1, 64)}
	square := op.Type{DType: dtype.BF16, Shape: shape.Of(64, 64)}
	product, scale := call(op.MatMul, op.Attr{TransB: true, Constant: true}, row, square), call(op.Scale, op.Attr{Scale: 2}, row)
	packed := op.Type{DType: quant.CompressedBF16, Shape: square.Shape}
	decode := call(op.Dequantize, op.Attr{To: dtype.BF16}, packed)
	tens := call(op.MatMul, op.Attr{TransB: true, Constant: true}, op.Type{DType: dtype.BF16, Shape: shape.Of(1, 16, 64)}, square) // by the copy engine's tiles
	m, err := d.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	q, err := d.Queue("compute")
	if err != nil {
		t.Fatal(err)
	}
	e, err := d.Event()
	if err != nil {
		t.Fatal(err)
	}
	at := func(offset, bytes int64) device.Buffer { return device.Buffer{Memory: m, Offset: offset, Bytes: bytes} }
	run := func(k device.Kernel) string {
		l := &device.Launch{Buffers: []device.Buffer{at(0, 128), at(4096, 128)}}
		if k == product {
			l.Buffers = []device.Buffer{at(0, 128), at(65536, 8192), at(4096, 128)}
		}
		if k == decode {
			l.Buffers = []device.Buffer{at(131072, packed.Bytes()), at(65536, 8192)}
		}
		if k == tens {
			l.Buffers = []device.Buffer{at(0, 2048), at(65536, 8192), at(4096, 2048)}
		}
		if err := q.Launch(k, l); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(f.last.Early)
	}
	got := run(product) + " " + run(product) + " " + run(scale) + " " + run(product)
	if err := q.Copy(at(0, 16), at(16, 16)); err != nil {
		t.Fatal(err)
	}
	got += ", copy " + run(product) + " " + run(product)
	if err := q.Record(e); err != nil {
		t.Fatal(err)
	}
	if err := q.Wait(e); err != nil {
		t.Fatal(err)
	}
	got += ", wait " + run(product) + " " + run(product) + ", tens " + run(tens) + " " + run(tens) + ", decoded " + run(decode) + " " + run(product) + " " + run(product)
	host, err := d.HostAlloc(64)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Free()
	d.gpu.reachesHost = true
	small := device.Buffer{Memory: host, Bytes: 16}
	for _, c := range []struct {
		name    string
		to, src device.Buffer
	}{{"there", at(65536, 16), small}, {"back", small, at(4096, 16)}} { // weights that come must be there before they are fetched
		if err := q.Copy(c.to, c.src); err != nil {
			t.Fatal(err)
		}
		got += ", " + c.name + " " + fmt.Sprint(f.last.Early) + " " + run(product)
	}
	if want := "false true false true, copy false true, wait false true, tens true true, decoded false false true, there true false, back true true"; got != want {
		t.Errorf("launched early: %s, want %s", got, want)
	}
}
