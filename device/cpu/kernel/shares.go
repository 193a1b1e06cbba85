package kernel

// shares cuts n units of memory-bound work into pieces for workers: long ones first, since memory
// is read fastest in long runs, and ever shorter ones, so that all workers end at the same time,
// also where one of them is disturbed. A round is a piece for each worker, half of what is left.
type shares struct{ n, workers int }

// shortest is the part of a worker's work that a piece has at least.
const shortest = 32

// round says how long the pieces of the next round are where so many units are left.
func (s shares) round(left int) int {
	return max(left/(2*s.workers), s.n/(shortest*s.workers), 1)
}

// pieces is how many there are.
func (s shares) pieces() (count int) {
	for left := s.n; left > 0; {
		each := s.round(left)
		count += min(ceil(left, each), s.workers)
		left -= min(left, each*s.workers)
	}
	return count
}

// piece is where a piece begins, and its length.
func (s shares) piece(i int) (first, n int) {
	for left := s.n; left > 0; {
		each := s.round(left)
		if i < s.workers {
			first = s.n - left + i*each
			return first, min(each, s.n-first)
		}
		i, left = i-s.workers, left-min(left, each*s.workers)
	}
	return s.n, 0
}
