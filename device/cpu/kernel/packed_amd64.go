package kernel

import "golang.org/x/sys/cpu"

func matvecQ4_0AVX2(w *byte, x *int16, records *record, dst *float32, blocks, groups int)
func matvecQ8_0AVX2(w *byte, x *int16, records *record, dst *float32, blocks, groups int)
func matvecQ4KAVX2(w *byte, x *int16, records *record, dst *float32, blocks, groups int)
func matvecQ6KAVX2(w *byte, x *int16, records *record, dst *float32, blocks, groups int)
func unpackQ4_0AVX2(w *byte, pairs *int16, scales, minima *float32, blocks int)
func unpackQ8_0AVX2(w *byte, pairs *int16, scales, minima *float32, blocks int)
func unpackQ4KAVX2(w *byte, pairs *int16, scales, minima *float32, blocks int)
func unpackQ6KAVX2(w *byte, pairs *int16, scales, minima *float32, blocks int)
func packedTile1AVX2(x *int16, xStep int, records *record, recordStep int, pairs *int16, scales, minima *float32, c *float32, cStep, subs, length int)
func packedTile2AVX2(x *int16, xStep int, records *record, recordStep int, pairs *int16, scales, minima *float32, c *float32, cStep, subs, length int)
func packedTile4AVX2(x *int16, xStep int, records *record, recordStep int, pairs *int16, scales, minima *float32, c *float32, cStep, subs, length int)
func packedTile6AVX2(x *int16, xStep int, records *record, recordStep int, pairs *int16, scales, minima *float32, c *float32, cStep, subs, length int)
func matvecQ4_0VNNI(w *byte, x *int16, records *record, dst *float32, blocks, groups int)
func matvecQ8_0VNNI(w *byte, x *int16, records *record, dst *float32, blocks, groups int)
func matvecQ4KVNNI(w *byte, x *int16, records *record, dst *float32, blocks, groups int)
func matvecQ6KVNNI(w *byte, x *int16, records *record, dst *float32, blocks, groups int)
func packedTile1VNNI(x *int16, xStep int, records *record, recordStep int, pairs *int16, scales, minima *float32, c *float32, cStep, subs, length int)
func packedTile2VNNI(x *int16, xStep int, records *record, recordStep int, pairs *int16, scales, minima *float32, c *float32, cStep, subs, length int)
func packedTile4VNNI(x *int16, xStep int, records *record, recordStep int, pairs *int16, scales, minima *float32, c *float32, cStep, subs, length int)
func packedTile8VNNI(x *int16, xStep int, records *record, recordStep int, pairs *int16, scales, minima *float32, c *float32, cStep, subs, length int)
func packedTile12VNNI(x *int16, xStep int, records *record, recordStep int, pairs *int16, scales, minima *float32, c *float32, cStep, subs, length int)
func splitInputsAVX2(x *int16, n int)
func roundInputsAVX2(dst *int16, sums *blockSums, x *float32, blocks, bits int)

func packedAVX2() packedRoutines {
	r := packedRoutines{round: roundInputsAVX2, heights: []int{6, 4, 2, 1}, table: tableAVX2(), split: splitInputsAVX2, splits: [packedFormats]bool{true, false, true, true}}
	r.matvec = [packedFormats]func(w *byte, x *int16, records *record, dst *float32, blocks, groups int){matvecQ4_0AVX2, matvecQ8_0AVX2, matvecQ4KAVX2, matvecQ6KAVX2}
	r.unpack = [packedFormats]func(w *byte, pairs *int16, scales, minima *float32, blocks int){unpackQ4_0AVX2, unpackQ8_0AVX2, unpackQ4KAVX2, unpackQ6KAVX2}
	r.tiles = [packedRows + 1]packedTileFunc{1: packedTile1AVX2, 2: packedTile2AVX2, 4: packedTile4AVX2, 6: packedTile6AVX2}
	return r
}

// packedAVX512 has instructions that multiply, widen and add (VNNI), where the CPU has them.
func packedAVX512() packedRoutines {
	r := packedAVX2()
	if !cpu.X86.HasAVX512VNNI {
		return r
	}
	r.matvec = [packedFormats]func(w *byte, x *int16, records *record, dst *float32, blocks, groups int){matvecQ4_0VNNI, matvecQ8_0VNNI, matvecQ4KVNNI, matvecQ6KVNNI}
	r.heights = []int{12, 8, 4, 2, 1}
	r.tiles = [packedRows + 1]packedTileFunc{1: packedTile1VNNI, 2: packedTile2VNNI, 4: packedTile4VNNI, 8: packedTile8VNNI, 12: packedTile12VNNI}
	r.table.matvec = matvecTableVNNI
	return r
}
