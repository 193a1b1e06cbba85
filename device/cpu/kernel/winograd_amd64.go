package kernel

func winogradInAVX2(dst *float32, xi int, src *float32, row, col, n int)
func winogradOutAVX2(dst *float32, row, col int, src *float32, xi int, add *float32, n int)
func winogradWeightAVX2(dst *float32, xi, dstStep int, src *float32, step, rowStep, n int, reversed bool)
func winogradGradAVX2(dst *float32, xi int, src *float32, row, col, n int)
func winogradBackAVX2(dst *float32, step int, src *float32, xi, n int)

func winogradAVX2() winograd {
	return winograd{winogradInAVX2, winogradOutAVX2, winogradWeightAVX2, winogradGradAVX2, winogradBackAVX2}
}
