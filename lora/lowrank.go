package lora

// lowRank is what adapters add to a weight: a sum of terms, each a column times a row. It
// is laid out as the weight is.
type lowRank struct {
	in, out int
	outIn   bool // [out in], else [in out]
	terms   []term
	// outputScale multiplies each output of the sum of weight and terms, for DoRA; nil
	// for LoRA.
	outputScale []float32
}

// term is a column times a row: element (o, i) is up[o]·down[i].
type term struct{ down, up []float32 }

// width is the length of a row of the weight as it is stored.
func (l *lowRank) width() int {
	if l.outIn {
		return l.in
	}
	return l.out
}

// outputOf is the output of the layer that an element belongs to.
func (l *lowRank) outputOf(element int) int {
	if l.outIn {
		return element / l.in
	}
	return element % l.out
}

// add adds the elements from the first-th on to dst.
func (l *lowRank) add(dst []float32, first int64) {
	width := l.width()
	for at := 0; at < len(dst); {
		row, from := (int(first)+at)/width, (int(first)+at)%width
		part := dst[at:min(len(dst), at+width-from)]
		l.addRow(part, row, from)
		at += len(part)
	}
	if l.outputScale != nil {
		for i := range dst {
			dst[i] *= l.outputScale[l.outputOf(int(first)+i)]
		}
	}
}

// addRow adds to a part of one row, four terms in each pass over it, so that the row is
// read and written a quarter as often.
func (l *lowRank) addRow(dst []float32, row, from int) {
	along := func(t term) ([]float32, float32) {
		if l.outIn {
			return t.down[from : from+len(dst)], t.up[row]
		}
		return t.up[from : from+len(dst)], t.down[row]
	}
	terms := l.terms
	for ; len(terms) >= 4; terms = terms[4:] {
		a, x := along(terms[0])
		b, y := along(terms[1])
		c, z := along(terms[2])
		d, w := along(terms[3])
		for i := range dst {
			dst[i] += (a[i]*x + b[i]*y) + (c[i]*z + d[i]*w)
		}
	}
	for _, t := range terms {
		a, x := along(t)
		for i := range dst {
			dst[i] += a[i] * x
		}
	}
}
