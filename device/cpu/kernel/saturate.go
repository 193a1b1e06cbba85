package kernel

import "unsafe"

// Saturate keeps every worker busy with multiply-adds that never leave its registers,
// rounds of them in each chain, and returns how many operations that were. What they
// take is the least that so much arithmetic can take on this CPU.
func Saturate(p *Pool, rounds int) (operations float64) {
	s := &saturation{path: active, rounds: rounds, sums: make([]float32, p.Workers()*active.chains)}
	p.Launch(saturationPieces*p.Workers(), s)
	return 2 * float64(rounds) * float64(saturationPieces*len(s.sums))
}

// saturationPieces per worker: enough to make all of them end at the same time.
const saturationPieces = 16

type saturation struct {
	path   *routines
	rounds int
	sums   []float32 // of the chains of each worker: a round adds one
}

// Run runs the chains once.
func (s *saturation) Run(worker, _ int) {
	s.path.saturate(s.rounds, &s.sums[worker*s.path.chains])
}

// saturateGo has as many chains as keep a CPU's scalar units busy.
func saturateGo(rounds int, sums *float32) {
	const x, y = 0.5, 2
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	a, b := float32(x), float32(y)
	for range rounds {
		s0, s1, s2, s3 = s0+a*b, s1+a*b, s2+a*b, s3+a*b
		s4, s5, s6, s7 = s4+a*b, s5+a*b, s6+a*b, s7+a*b
	}
	*(*[8]float32)(unsafe.Pointer(sums)) = [8]float32{s0, s1, s2, s3, s4, s5, s6, s7}
}
