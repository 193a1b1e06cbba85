package planner

// window streams the weights of slabs that rest on the host. At any moment the
// device holds the slabs of the use at hand and, up to the window's size, those of
// the uses that come next; what is not among them is dropped, since the home has
// the same bytes.
type window struct {
	e    *emitter
	need [][]int // by use: the streamed slabs it reads
}

func newWindow(e *emitter, uses []use) *window {
	w := &window{e: e, need: make([][]int, len(uses))}
	for i, u := range uses {
		for _, k := range e.b.slabs.of[u.block] {
			if e.c.Streamed[k] {
				w.need[i] = append(w.need[i], k)
			}
		}
	}
	return w
}

// ahead lists the slabs the device should hold at use i: its own, then the next
// ones as far as the window reaches.
func (w *window) ahead(i int) []int {
	hold := append([]int(nil), w.need[i]...)
	for n := i + 1; n < len(w.need) && len(hold) < w.e.c.Window; n++ {
		for _, k := range w.need[n] {
			if indexOf(hold, k) < 0 && len(hold) < w.e.c.Window {
				hold = append(hold, k)
			}
		}
	}
	return hold
}

// enter fetches what is missing before use i.
func (w *window) enter(i int) {
	for _, k := range w.ahead(i) {
		if state := &w.e.slabs[k]; state.weight < 0 {
			state.weight = w.e.moveIn(w.e.p.Slabs[k].Weight, w.e.b.owner[k], -1)
		}
	}
}

// leave drops what the next use and its window do not need.
func (w *window) leave(i int) {
	var hold []int
	if i+1 < len(w.need) {
		hold = w.ahead(i + 1)
	}
	for k := range w.e.slabs {
		if w.e.c.Streamed[k] && indexOf(hold, k) < 0 {
			w.e.slabs[k].weight = -1
		}
	}
}
