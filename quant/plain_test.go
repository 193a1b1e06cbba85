package quant

// The plain forms that fast ones are compared with.

// plain is the code of x by comparing with every bound.
func (e *encoder) plain(x float32) byte {
	n := 0
	for _, r := range e.bounds {
		if x > r {
			n++
		}
	}
	return e.codes[n]
}

// encodePlain is Encode by its definition: the first of the values that are nearest.
func (d *Dynamic) encodePlain(dst []byte, src []float32, absmax float32) {
	r := Reciprocal(absmax)
	for i, x := range src {
		dst[i] = d.encoder.plain(x * r)
	}
}

// encodePlain is Encode element by element, by comparing with all values.
func (f *FourBit) encodePlain(codes []byte, absmax, src []float32, block int) {
	for i := range 2 * len(codes) {
		x := float32(0)
		if i < len(src) {
			part := src[i/block*block : min((i/block+1)*block, len(src))]
			absmax[i/block] = AbsMax(part)
			x = src[i] * Reciprocal(absmax[i/block])
		}
		if i%2 == 0 {
			codes[i/2] = f.encoder.plain(x) << 4
		} else {
			codes[i/2] |= f.encoder.plain(x)
		}
	}
}

// decodePlain is Decode element by element.
func (f *FourBit) decodePlain(dst []float32, codes []byte, absmax []float32, block int) {
	for i := range dst {
		c := codes[i/2] & 15
		if i%2 == 0 {
			c = codes[i/2] >> 4
		}
		dst[i] = f.Values[c] * absmax[i/block]
	}
}
