package quant

import "spillway/dtype"

// split4 cuts the storage of an NF4 or FP4 tensor of n elements into its parts.
func split4(n int, b []byte) (codes, scales, groups, offset []byte) {
	codes, b = b[:ceil(n, 2)], b[ceil(n, 2):]
	blocks := ceil(n, dtype.BlockElements)
	scales, b = b[:blocks], b[blocks:]
	return codes, scales, b[:len(b)-4], b[len(b)-4:]
}

// View4 gives the codes and scales of an NF4 or FP4 tensor of n elements, in place. The
// storage must have its exact size.
func View4(n int, b []byte) (codes []byte, s Scales) {
	codes, scales, groups, offset := split4(n, b)
	return codes, Scales{scales, groups, getF32(offset, 0)}
}

func encode4(kind dtype.Type, dst []byte, src []float32) {
	codes, scales, groups, offset := split4(len(src), dst)
	absmax := make([]float32, len(scales))
	FourBitOf(kind).Encode(codes, absmax, src, dtype.BlockElements)
	s := Scales{Codes: scales, Groups: groups}
	s.encode(absmax, mean(absmax))
	putF32(offset, 0, s.Offset)
}

func decode4(kind dtype.Type, dst []float32, src []byte) {
	codes, scales := View4(len(dst), src)
	f := FourBitOf(kind)
	var room [dtype.GroupBlocks]float32
	for first := 0; first < len(scales.Codes); first += len(room) {
		absmax := room[:min(len(room), len(scales.Codes)-first)]
		scales.Absmax(absmax, first, &Signed.Values)
		from := first * dtype.BlockElements
		to := min(from+len(absmax)*dtype.BlockElements, len(dst))
		f.Decode(dst[from:to], codes[from/2:], absmax, dtype.BlockElements)
	}
}
