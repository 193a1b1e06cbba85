package lora

// lowRank is a matrix of low rank as a sum of terms, up·down each, lying as a weight
// does. With lengths, what it is added to is then multiplied by one for each output.
type lowRank struct {
	in, out     int
	outIn       bool // [out in], else [in out]
	terms       []term
	outputScale []float32 // nil for none
}

// term is a column times a row: element (o, i) is up[o]·down[i].
type term struct{ down, up []float32 }

// width is the length of a row as it lies.
func (l *lowRank) width() int {
	if l.outIn {
		return l.in
	}
	return l.out
}

// output is the output that an element belongs to.
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

// addRow adds a part of one row: four terms at a time, which is as many as one pass over
// the row keeps busy.
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
