package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"spillway/quant"
)

// codeOf finds a code as the kernels do.
func codeOf(d *quant.Dynamic, table []uint32, x float32) byte {
	bits := math.Float32bits(x)
	code := (table[max(0, int(bits>>16&0x7fff)-quant.FirstCell)] + bits&0xffff + bits>>31) >> 17
	if bits>>31 == 1 {
		code = 2*uint32(d.Zero()) - min(code, 2*uint32(d.Zero()))
	}
	return byte(code)
}

// The tables of the kernels find the codes of package quant.
func TestCodeTables(t *testing.T) {
	for name, d := range map[string]*quant.Dynamic{"signed": quant.Signed, "unsigned": quant.Unsigned} {
		table := cells(d)
		for _, x := range hardNumbers(d) {
			var want [1]byte
			d.Encode(want[:], []float32{x}, 1)
			if got := codeOf(d, table, x); got != want[0] {
				t.Fatalf("%s: %v has the code %d, want %d", name, x, got, want[0])
			}
		}
	}
}

// hardNumbers are values, the middles between them, their neighbours, and random ones.
func hardNumbers(d *quant.Dynamic) []float32 {
	list := []float32{0, float32(math.Copysign(0, -1)), 1e-40, 1}
	for i, v := range d.Values {
		middle := (v + d.Values[min(i+1, 255)]) / 2
		list = append(list, v, middle, math.Nextafter32(middle, -1), math.Nextafter32(middle, 1))
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		f := float32(math.Pow(10, -9*random.Float64()))
		list = append(list, f)
		if d == quant.Signed {
			list = append(list, -f)
		}
	}
	return list
}

// Tables are written exactly, and only for files that use them.
func TestCodeTablesAreWritten(t *testing.T) {
	text, err := unit{file: "adam"}.source()
	for _, v := range []float32{quant.FourBitOf(quant.NF4).Values[1], quant.FourBitOf(quant.FP4).Values[9], quant.Signed.Values[3], quant.Unsigned.Values[200]} {
		if err != nil || !strings.Contains(text, fmt.Sprintf("%xf,", v)) {
			t.Errorf("%v is not among the tables: %v", v, err)
		}
	}
	if other, _ := (unit{file: "norm"}).source(); strings.Contains(other, "dynamicValues") {
		t.Error("kernels of norms have tables of codes")
	}
}
