package search

import (
	"cmp"
	"slices"
	"spillway/planner/strategy"
)

// fine is how small a share of the blocks a stride gets: what less of them can change is
// within what a forecast is worth.
const strideShare = 32

// patience is how many strides in a row may bring nothing.
const patience = 2

// persistBudget bounds how many steps of plans are written before patience counts always.
const persistBudget = searchBudget / 10

// persists says whether more is tried than what mostly helps, and strides that lack nothing
// but memory are let pass, since a smaller one may fit: where plans are quickly written, of
// the model itself.
func (s *search) persists() bool { return s.whole() && s.written < persistBudget }

// starts is how many families are climbed from at most: what is best near one of them need
// not be near the best.
const climbStarts = 5

// climbAll climbs from the best of what was tried, and where plans are quickly written from
// others.
func (s *search) climbAll() error {
	blocks, others := len(s.b.Model.Blocks), s.others()
	if err := s.climb(blocks/2, max(blocks/strideShare, 1)); err != nil {
		return err
	}
	for _, c := range others {
		if !s.persists() {
			break
		}
		top := s.best
		s.best = c
		if err := s.climb(blocks/4, max(blocks/strideShare, 1)); err != nil {
			return err
		}
		found := s.best
		if s.best = top; s.beats(found) {
			s.best = found
		}
	}
	return nil
}

// others are what was tried but for the best: the fastest, the fastest of two more kinds,
// then whatever is fastest. Of those that take equally long one will do.
func (s *search) others() (list []*candidate) {
	tried := slices.Clone(s.tried)
	slices.SortStableFunc(tried, func(a, b attempt) int { return cmp.Compare(a.seconds, b.seconds) })
	kinds, times := map[strategy.Kinds]bool{s.best.mix.Kinds(): true}, map[float64]bool{s.best.seconds: true}
	take := func(most int, also func(*candidate) bool) {
		for _, a := range tried {
			if a.fits && !a.bound && len(list) < most && !times[a.seconds] && also(a.candidate) {
				kinds[a.candidate.mix.Kinds()], times[a.seconds] = true, true
				list = append(list, a.candidate)
			}
		}
	}
	take(1, func(*candidate) bool { return true })
	take(3, func(c *candidate) bool { return !kinds[c.mix.Kinds()] })
	take(climbStarts-1, func(*candidate) bool { return true })
	return list
}

// climb improves on the best: it changes its mix by a stride, which is halved when that
// no longer helps, down to the least, as long as it is faster and fits.
func (s *search) climb(stride, least int) error {
	for idle := 0; stride >= least && idle < patience; stride /= 2 {
		idle++
		for again := true; again; {
			from := s.best
			for _, m := range s.neighbours(from.mix, stride) {
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
			if again = s.best.seconds < worthwhile*from.seconds; again {
				idle = 0
			}
		}
	}
	return nil
}

// step tries one mix, if it may fit and be better than the best, and says whether memory
// is all it lacks.
func (s *search) step(m strategy.Mix) (lacks bool, err error) {
	c, err := s.estimate(m)
	if err != nil || !s.beats(c) {
		return false, err
	}
	if !c.fits || s.surelyLacks(c) {
		return true, nil
	}
	if err := s.fit(c); err != nil {
		return false, err
	}
	return !c.fits, s.time(c)
}

// surely is how much more than there is, as a share, a candidate must be predicted to
// take to be left alone.
const surelyShare = 0.005

// surelyLacks says whether a candidate does not fit, judging by the best, which does:
// what it takes beyond a glance is as much, unless it has less on the way.
func (s *search) surelyLacks(c *candidate) bool {
	if s.best == nil || !s.best.exact || c.mix.Parallelism != s.best.mix.Parallelism || c.mix.Prefetch < s.best.mix.Prefetch || c.mix.PrefetchStates < s.best.mix.PrefetchStates {
		return false
	}
	n := s.predicted(c, s.best)
	return s.lack(n) > int64(surelyShare*float64(n.budget))
}

// around lists the mixes near one: those one change away, a number up or down, or one up
// and another down, which trades one saving for another; and those that treat updates, or
// what is on its way, otherwise.
func (s *search) neighbours(m strategy.Mix, stride int) []strategy.Mix {
	v := &neighbourhood{Mix: m, of: m, stride: stride, most: s.b.Facts().Most()}
	for i := range v.Numbers() {
		for _, by := range []int{-stride, stride} {
			v.change(i, by)
			v.add()
		}
		for j := range v.Numbers() {
			if i != j {
				v.change(i, -stride)
				v.change(j, stride)
				v.add()
			}
		}
	}
	if m.OffloadedActivations < v.most[3] {
		v.OffloadedActivations = v.most[3] // what more is kept waits there too
		v.change(2, -stride)
		v.add()
	}
	s.otherUpdates(v)
	s.otherReach(v)
	return v.list
}

// vicinity is the mixes near one: those kept so far, and the one that is being changed.
type neighbourhood struct {
	strategy.Mix
	of     strategy.Mix
	stride int
	most   [6]int
	list   []strategy.Mix
}

// change moves a number of the mix within its range.
func (v *neighbourhood) change(i, by int) {
	n := v.Numbers()[i]
	*n = min(max(*n+by, 0), v.most[i])
}

// keep adds the mix as it is now, and begins anew.
func (v *neighbourhood) add() {
	if v.Mix != v.of {
		v.list = append(v.list, v.Mix)
	}
	v.Mix = v.of
}

// mostRear is how many slabs at most the device updates because their gradients come last.
const mostRear = 3

// otherUpdates has others update what is trained, or at another time. What the device
// updates instead of the host had better be there in time.
func (s *search) otherUpdates(v *neighbourhood) {
	if v.of.UpdatedByCPU > 0 && v.of.PrefetchStates == 0 {
		v.change(5, -v.stride)
		v.PrefetchStates = 1
		v.add()
	}
	for rear := 0; s.persists() && v.of.UpdatedByCPU > 0 && rear <= min(mostRear, v.most[5]); rear++ {
		for _, ahead := range []int{v.of.PrefetchStates, s.mostAhead()} {
			v.FirstOnDevice, v.PrefetchStates = rear, ahead
			v.add()
		}
	}
	if s.b.Delayable() && v.of.OffloadedState > 0 {
		v.DelayedUpdates = !v.DelayedUpdates
		v.add()
	}
}

// otherReach has more on its way to the device, or less. What that takes, others give.
func (s *search) otherReach(v *neighbourhood) {
	for _, by := range []int{-1, 1} {
		for _, give := range []int{0, by * v.stride} {
			v.Prefetch = min(max(v.Prefetch+by, 1), 4)
			v.change(0, give)
			v.add()
			if s.b.Training() && (give == 0 || s.persists()) {
				v.PrefetchStates = s.aheadBy(v.PrefetchStates, by)
				v.change(2, give)
				v.add()
			}
		}
	}
}

// mostAhead is for how many updates state is fetched beforehand at most: as many as the
// largest slab has pieces and one. It is for slabs whose gradient is the last of all: what
// their update needs may all have come by then.
func (s *search) mostAhead() int { return max(s.b.MostPieces()+1, 2) }

// aheadBy is for how many updates state is fetched beforehand, some steps from so many on:
// none, one, two, or the most.
func (s *search) aheadBy(ahead, steps int) int {
	list := []int{0, 1, 2, s.mostAhead()}
	return list[min(max(slices.Index(list, ahead)+steps, 0), len(list)-1)]
}
