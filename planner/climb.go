package planner

// fine is how small a share of the blocks a stride gets: what less of them can change is
// within what a forecast is worth.
const fine = 32

// patience is how many strides in a row may bring nothing.
const patience = 2

// persistBudget bounds how many steps of plans are written before patience counts always.
const persistBudget = searchBudget / 10

// persists says whether strides that lack nothing but memory are let pass, since a smaller
// one may fit: where plans are quickly written, of the model itself.
func (s *search) persists() bool { return s.whole() && s.written < persistBudget }

// climb improves on the best: it changes its mix by a stride, which is halved when that
// no longer helps, down to the least, as long as it is faster and fits.
func (s *search) climb(stride, least int) error {
	for idle := 0; stride >= least && idle < patience; stride /= 2 {
		idle++
		for again := true; again; {
			from := s.best
			for _, m := range s.around(from.mix, stride) {
				if s.written > searchBudget {
					return nil
				}
				lacks, err := s.step(m)
				if err != nil {
					return err
				}
				if lacks && s.persists() {
					idle = 0
				}
			}
			if again = s.best.seconds < worth*from.seconds; again {
				idle = 0
			}
		}
	}
	return nil
}

// step tries one mix, if it may fit and be better than the best, and says whether memory
// is all it lacks.
func (s *search) step(m mix) (lacks bool, err error) {
	c, err := s.glance(m)
	if err != nil || !s.beats(c) {
		return false, err
	}
	if !c.fits || s.surelyLacks(c) {
		return true, nil
	}
	if err := s.look(c); err != nil {
		return false, err
	}
	return !c.fits, s.time(c)
}

// surely is how much more than there is, as a share, a candidate must be predicted to
// take to be left alone.
const surely = 0.005

// surelyLacks says whether a candidate does not fit, judging by the best, which does:
// what it takes beyond a glance is as much, unless it has less on the way.
func (s *search) surelyLacks(c *candidate) bool {
	if s.best == nil || !s.best.exact || c.mix.way != s.best.mix.way || c.mix.window < s.best.mix.window || c.mix.ahead < s.best.mix.ahead {
		return false
	}
	n := s.predicted(c, s.best)
	return s.lack(n) > int64(surely*float64(n.budget))
}

// around lists the mixes one change away: a number up or down, or one up and
// another down, which trades one saving for another.
func (s *search) around(m mix, stride int) (list []mix) {
	n := m
	numbers, most := n.numbers(), s.most()
	change := func(i, by int) { *numbers[i] = min(max(*numbers[i]+by, 0), most[i]) }
	keep := func() {
		if n != m {
			list = append(list, n)
		}
		n = m
	}
	for i := range numbers {
		for _, by := range []int{-stride, stride} {
			change(i, by)
			keep()
		}
		for j := range numbers {
			if i != j {
				change(i, -stride)
				change(j, stride)
				keep()
			}
		}
	}
	if m.spilled < most[3] {
		n.spilled = most[3] // what more is kept waits there too
		change(2, -stride)
		keep()
	}
	if m.hosted > 0 && m.ahead == 0 {
		change(5, -stride) // what the device updates then had better be there in time
		n.ahead = 1
		keep()
	}
	if s.b.delayable() && m.offloaded > 0 {
		n.delayed = !m.delayed
		keep()
	}
	for _, by := range []int{-1, 1} {
		n.window = min(max(m.window+by, 1), 4)
		keep()
		n.window = min(max(m.window+by, 1), 4)
		change(0, by*stride) // which makes room for the window, or takes it
		keep()
		n.ahead = min(max(m.ahead+by, 0), 2)
		keep()
	}
	return list
}

// numbers are those of a mix that say how many.
func (m *mix) numbers() [6]*int {
	return [6]*int{&m.streamed, &m.offloaded, &m.recompute, &m.spilled, &m.onDisk, &m.hosted}
}

// most that each number can be.
func (s *search) most() [6]int {
	blocks, slabs := len(s.b.model.Blocks), len(s.b.slabs.list)
	most := [6]int{slabs, slabs, s.b.recomputes(), blocks, slabs, slabs}
	if !s.b.training() {
		most[1], most[2], most[3] = 0, 0, 0
	}
	if s.b.site.Disk.Budget == 0 {
		most[4] = 0
	}
	if !s.b.hostsFast() {
		most[5] = 0
	}
	return most
}
