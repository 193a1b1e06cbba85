package cuda

import (
	"fmt"
	"strings"

	"spillway/quant"
)

// coded are the files whose kernels read or write block formats: package quant has the
// fixed values, so that all devices know the same, and codes.h what is done with them.
var coded = map[string]bool{"dequantize": true, "coded": true, "update": true}

// codeCells is how many cells of a sign package quant searches in: all from its first
// to that of 1.
const codeCells = 127<<7 - quant.FirstCell + 1

// codeTables writes the values of package quant as arrays of kernels.
func codeTables() string {
	var text strings.Builder
	fmt.Fprintf(&text, "#define CELLS %d\n#define FIRST_CELL %d\n", codeCells, quant.FirstCell)
	floats(&text, "fourBitValues", quant.NF4.Values[:], quant.FP4.Values[:])
	floats(&text, "dynamicValues", quant.Signed.Values[:], quant.Unsigned.Values[:])
	floats(&text, "dynamicRungs", rungs(quant.Signed), rungs(quant.Unsigned))
	positive, negative, unsigned := cells(quant.Signed, 0), cells(quant.Signed, quant.SignCells), cells(quant.Unsigned, 0)
	fmt.Fprintf(&text, "__device__ const u8 dynamicCells[3][CELLS] = {%s, %s, %s};\n", list(positive), list(negative), list(unsigned))
	fmt.Fprintf(&text, "#define ZERO_CODE %d\n", quant.Signed.Zero())
	return text.String()
}

// rungs are the middles above each value of a code: what is above one has a higher code.
func rungs(d *quant.Dynamic) []float32 {
	all := make([]float32, len(d.Values))
	for i := range all[1:] {
		all[i] = (d.Values[i] + d.Values[i+1]) / 2
	}
	all[len(all)-1] = 2 // above everything
	return all
}

// cells are the lowest codes of the cells of a sign.
func cells(d *quant.Dynamic, from int) []byte {
	all := make([]byte, codeCells)
	for i := range all {
		all[i] = d.Cells()[from+i].Codes[0]
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

func list(numbers []byte) string {
	return "{" + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(numbers)), ","), "[]") + "}"
}
