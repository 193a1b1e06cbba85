package search

import (
	"cmp"
	"slices"

	"spillway/plan"
	"spillway/planner/layout"
	"spillway/planner/strategy"
)

// shortage is by how much a candidate does not fit: what it lacks of a device counts first, then what it lacks of whatever
// is shortest.
type shortage struct{ device, most int64 }

func (a shortage) compare(b shortage) int {
	return cmp.Or(cmp.Compare(a.device, b.device), cmp.Compare(a.most, b.most))
}

func (s *search) shortage(c *candidate) shortage {
	return shortage{max(c.lacks(), 0), s.lack(c.demand)}
}

// findSmallest finds the candidate that lacks least memory, now that it is known that none fits. Estimates are lower bounds,
// so plans are only written of lines that may lack less than the best so far; of equal ones the first counts.
func (s *search) findSmallest() error {
	type bounded struct {
		at    int
		least shortage
	}
	order := make([]bounded, len(s.tried))
	for i, a := range s.tried {
		least, err := s.leastShortage(a)
		if err != nil {
			return err
		}
		order[i] = bounded{i, least}
	}
	slices.SortStableFunc(order, func(a, b bounded) int { return a.least.compare(b.least) })
	found := -1
	for _, o := range order {
		if found >= 0 {
			if d := o.least.compare(s.shortage(s.smallest)); d > 0 || d == 0 && o.at > found {
				continue
			}
		}
		c, err := s.smallestOf(s.tried[o.at])
		if err != nil {
			return err
		}
		if found < 0 {
			s.smallest, found = c, o.at
		} else if d := s.shortage(c).compare(s.shortage(s.smallest)); d < 0 || d == 0 && o.at < found {
			s.smallest, found = c, o.at
		}
	}
	return s.measureExactly(s.smallest)
}

// smallestOf is the candidate of a line that lacks least, with its plan written.
func (s *search) smallestOf(a attempt) (*candidate, error) {
	if err := s.fit(a.candidate); err != nil {
		return nil, err
	}
	return s.leastOfHost(a.Line, a.candidate)
}

// leastShortage is what smallestOf an attempt lacks at least, by what homes take. On miniatures estimates bound nothing.
func (s *search) leastShortage(a attempt) (shortage, error) {
	if !s.whole() {
		return shortage{}, nil
	}
	least := s.shortage(a.candidate)
	if a.candidate.lacks() > 0 || a.candidate.Host <= s.b.Site.HostBudget {
		return least, nil
	}
	at, err := firstOf(0, a.Size, a.candidate.lacks(), func(i int) (int64, error) {
		c, err := s.estimate(a.Mix(i))
		if err != nil {
			return 0, err
		}
		return c.lacks(), nil
	})
	if err != nil {
		return least, err
	}
	c, err := s.estimate(a.Mix(at))
	if err != nil {
		return least, err
	}
	if other := s.shortage(c); other.compare(least) < 0 {
		least = other
	}
	return least, nil
}

// Fitting is what a plan takes that fits, nil where none does. A line fits if its smallest choice does for which the host has
// memory; the smallest lines come last. No fast plan is looked for, so it is quick.
func Fitting(b *layout.Layout) (map[plan.Tier]int64, error) {
	return newSearch(newTarget(b).itself()).fitting()
}

// AnyFits is nil when some choice fits, else a *goal.FitError.
func AnyFits(b *layout.Layout) error {
	s := newSearch(newTarget(b).itself())
	if peak, err := s.fitting(); peak != nil || err != nil {
		return err
	}
	if err := s.findSmallest(); err != nil {
		return err
	}
	return s.fitError()
}

// fitting looks for a candidate that fits, and notes what came of the lines where none does.
func (s *search) fitting() (map[plan.Tier]int64, error) {
	for _, w := range slices.Backward(s.parallelisms()) {
		for _, f := range slices.Backward(s.linesOf(w)) {
			f, c, err := s.withinHost(f, nil)
			if err == nil && c.fits { // by what its homes take
				f, c, err = s.fitWithinHost(f, c)
			}
			if err != nil {
				return nil, err
			}
			if c.fits {
				return c.peak, nil
			}
			s.tried = append(s.tried, attempt{f, c})
		}
	}
	return nil, nil
}

// MayFit is false where nothing fits by what homes alone take: what AnyFits says no to after it
// has written plans. It is quicker still, and says nothing of what is missing.
func MayFit(b *layout.Layout) (bool, error) {
	if storedBytes(b) > allBytes(b) {
		return false, nil
	}
	s := newSearch(newTarget(b).itself())
	for _, w := range slices.Backward(s.parallelisms()) {
		for _, f := range slices.Backward(s.linesOf(w)) {
			if _, c, err := s.withinHost(f, nil); err != nil || c.fits {
				return c != nil && c.fits, err
			}
		}
	}
	return false, nil
}

// storedBytes is what every plan stores somewhere: weights, master weights and optimizer state.
func storedBytes(b *layout.Layout) (sum float64) {
	for _, n := range b.Slabs.HomeBytes {
		sum += float64(n)
	}
	return sum
}

// allBytes is what there is to store it.
func allBytes(b *layout.Layout) float64 {
	sum := float64(b.Site.HostBudget) + float64(b.Site.Disk.Budget)
	if !b.Site.SharedMemory {
		for d := range max(b.Site.Devices, 1) {
			sum += float64(b.Site.DeviceBudget(d))
		}
	}
	return sum
}

// leastOfHost is the candidate of a line that takes least of the host, where the device has memory for the last of the line
// and the host has not: the first for which the device has. A refusal says what that lacks.
func (s *search) leastOfHost(f strategy.Line, last *candidate) (*candidate, error) {
	if last.lacks() > 0 || last.Host <= s.b.Site.HostBudget {
		return last, nil
	}
	at, err := firstOf(0, f.Size, last.lacks(), func(i int) (int64, error) {
		c, err := s.estimate(f.Mix(i))
		if err != nil {
			return 0, err
		}
		return s.predicted(c, last).lacks(), nil
	})
	if err != nil {
		return nil, err
	}
	c, err := s.estimate(f.Mix(at))
	if err != nil || s.fit(c) != nil || c.lacks() > 0 || c.Host >= last.Host {
		return last, err
	}
	return c, nil
}
