package kernel

func matvecTableAVX2(w *byte, x *int16, records *record, dst *float32, table *[32]byte, blocks int, scales scaling, next lookup)
func matvecTableVNNI(w *byte, x *int16, records *record, dst *float32, table *[32]byte, blocks int, scales scaling, next lookup)
func unpackTableAVX2(w *byte, pairs *int16, table *[32]byte, blocks int)
func lookAVX2(l lookup, blocks int)
func absmaxAVX2(s scaling, blocks int)

func tableAVX2() tableRoutines {
	return tableRoutines{matvec: matvecTableAVX2, unpack: unpackTableAVX2, look: lookAVX2, absmax: absmaxAVX2}
}
