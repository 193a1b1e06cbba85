package kernel

func matvecTableAVX2(w *byte, x *int16, records *record, dst, scales *float32, table *[32]byte, blocks int)
func unpackTableAVX2(w *byte, pairs *int16, table *[32]byte, blocks int)
func absmaxAVX2(dst *float32, codes *byte, n int, values *[256]float32, groups *[8]float32, offset, factor float32)

func tableAVX2() tableRoutines {
	return tableRoutines{matvec: matvecTableAVX2, unpack: unpackTableAVX2, absmax: absmaxAVX2}
}
