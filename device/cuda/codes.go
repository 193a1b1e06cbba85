package cuda

import (
	"fmt"
	"strings"

	"spillway/quant"
)

// codeCells is how many cells of a sign package quant searches in: all from its first
// to that of 1.
const codeCells = 127<<7 - quant.FirstCell + 1

// codeTables writes the values of package quant as arrays of kernels.
func codeTables() string {
	var text strings.Builder
	fmt.Fprintf(&text, "#define CELLS %d\n#define FIRST_CELL %d\n#define ZERO_CODE %d\n", codeCells, quant.FirstCell, quant.Signed.Zero())
	floats(&text, "fourBitValues", quant.FourBitOf(quant.NF4).Values[:], quant.FourBitOf(quant.FP4).Values[:])
	floats(&text, "dynamicValues", quant.Signed.Values[:], quant.Unsigned.Values[:])
	fmt.Fprintf(&text, "__device__ const u32 dynamicCells[2][CELLS] = {%s, %s};\n", list(cells(quant.Signed)), list(cells(quant.Unsigned)))
	return text.String()
}

// cells packs the cells of positive numbers into a word each, so that one addition gives the
// code of a number. The lower code of a cell is in the bits from the 17th on. The 17 bits below
// are its bound, turned round: adding the lower half of a number's bits carries into the code
// where the number is above the bound, and nowhere else. A cell without a bound never carries.
func cells(d *quant.Dynamic) []uint32 {
	all := make([]uint32, codeCells)
	for i := range all {
		c := d.Cells()[i]
		bound := uint32(1 << 16) // above the lower half of any number
		if c.Codes[0] != c.Codes[1] {
			bound = uint32(c.Bound) & 0xffff
		}
		all[i] = uint32(c.Codes[0])<<17 | (1<<17 - 1 - bound)
	}
	return all
}

func floats(text *strings.Builder, name string, rows ...[]float32) {
	fmt.Fprintf(text, "__device__ const float %s[%d][%d] = {", name, len(rows), len(rows[0]))
	for _, row := range rows {
		text.WriteString("{")
		for _, f := range row {
			fmt.Fprintf(text, "%xf,", f) // exact
		}
		text.WriteString("},")
	}
	text.WriteString("};\n")
}

func list(numbers []uint32) string {
	return "{" + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(numbers)), ","), "[]") + "}"
}
