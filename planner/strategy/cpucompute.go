package strategy

import "fmt"

// CPUCompute has the CPU compute blocks of a model that generates, from host memory, while the link
// brings others to the device.
var CPUCompute = &Strategy{
	Name:    "cpu-compute",
	Title:   "CPU compute",
	Doc:     "to generate, the CPU computes some blocks from host memory while others stream to the device",
	OfSteps: true,
	In:      func(c Choice) bool { return c.CPURows != nil },
	Describe: func(c Choice) string {
		text := fmt.Sprintf("CPU computes %d of %d blocks", c.CPUBlocks(1), len(c.CPURows))
		if always := c.CPUBlocks(AllRows); always > 0 && always < c.CPUBlocks(1) {
			text += fmt.Sprintf(", %d of them of every step and the others", always)
		}
		switch rows := c.cpuRows(); {
		case rows == 1:
			text += " of steps of one row"
		case rows > 1:
			text += fmt.Sprintf(" of steps of up to %d rows", rows)
		}
		return text
	},
}

// cpuRows is the most rows of a step of which the CPU computes more than of every step.
func (c Choice) cpuRows() (most int64) {
	for _, n := range c.CPURows {
		if n < AllRows {
			most = max(most, n)
		}
	}
	return most
}
