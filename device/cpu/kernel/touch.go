package kernel

// Touch goes through memory as an update of Adam does and computes next to nothing: it reads w, g, m and v, of equal lengths, and adds
// g to the others, on all workers of the pool. What it takes is the least that such an update can take on this computer.
func Touch(p *Pool, w, g, m, v []float32) {
	t := &touching{path: active, tensors: [4][]float32{w, g, m, v}, shares: shares{ceil(len(w), touchedAtOnce), p.Workers()}}
	p.Launch(t.shares.pieces(), t)
}

// TouchBytes is how many bytes Touch moves for each element of w: four are read, three are written.
const TouchBytes = 7 * 4

// touchedAtOnce is the unit of elements that pieces are cut in.
const touchedAtOnce = 4096

type touching struct {
	path    *routines
	tensors [4][]float32
	shares  shares
}

// Run does one piece.
func (t *touching) Run(_, piece int) {
	first, n := t.shares.piece(piece)
	from := first * touchedAtOnce
	to := min(from+n*touchedAtOnce, len(t.tensors[0]))
	t.path.touch(t.tensors[0][from:to], t.tensors[1][from:to], t.tensors[2][from:to], t.tensors[3][from:to])
}

func touchGo(w, g, m, v []float32) {
	for i, x := range g {
		w[i], m[i], v[i] = w[i]+x, m[i]+x, v[i]+x
	}
}
