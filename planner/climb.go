package planner

// climbBudget bounds how many steps of plans a climb may write, so that planning
// stays quick for models of any size.
const climbBudget = 200_000

// climb improves on the best: it changes its mix by halving strides, as long as
// that is faster and fits.
func (s *search) climb() error {
	until := s.written + climbBudget
	for stride := len(s.b.model.Blocks) / 2; stride >= 1; stride /= 2 {
		for again := true; again; {
			from := s.best
			for _, m := range s.around(from.mix, stride) {
				if s.written > until {
					return nil
				}
				if err := s.step(m); err != nil {
					return err
				}
			}
			again = s.best != from
		}
	}
	return nil
}

// step tries one mix, if it may fit and be better than the best.
func (s *search) step(m mix) error {
	c, err := s.glance(m)
	if err != nil || !c.fits || !s.beats(c) {
		return err
	}
	if err := s.look(c); err != nil {
		return err
	}
	return s.time(c)
}

// around lists the mixes one change away: a number up or down, or one up and
// another down, which trades one saving for another.
func (s *search) around(m mix, stride int) (list []mix) {
	n := m
	numbers := [6]*int{&n.streamed, &n.offloaded, &n.recompute, &n.spilled, &n.onDisk, &n.hosted}
	most := [6]int{len(s.b.slabs.list), len(s.b.slabs.list), 2 * len(s.b.model.Blocks), len(s.b.model.Blocks), len(s.b.slabs.list), len(s.b.slabs.list)}
	if !s.b.training() {
		most[1], most[2], most[3] = 0, 0, 0
	}
	if s.b.site.Disk.Budget == 0 {
		most[4] = 0
	}
	if !s.b.hostsFast() {
		most[5] = 0
	}
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
	if s.b.delayable() && m.offloaded > 0 {
		n.delayed = !m.delayed
		keep()
	}
	for _, by := range []int{-1, 1} {
		n.window = min(max(m.window+by, 1), 4)
		keep()
		n.ahead = min(max(m.ahead+by, 0), 2)
		keep()
	}
	return list
}
