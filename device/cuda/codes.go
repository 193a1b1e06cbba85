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

// cells are those of positive numbers in a word each: the lowest code from the 17th bit on,
// and below it what the lower bits of a number must be above to carry into it, taken off
// from all 17 bits: the lower half of the rung's bits, or one more than any number has.
func cells(d *quant.Dynamic) []uint32 {
	all := make([]uint32, codeCells)
	for i := range all {
		c := d.Cells()[i]
		rung := uint32(1 << 16)
		if c.Codes[0] != c.Codes[1] {
			rung = uint32(c.Bound) & 0xffff
		}
		all[i] = uint32(c.Codes[0])<<17 | (1<<17 - 1 - rung)
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
