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

// Smallest is a plan that fits, or where none does one that lacks least. A line fits if its smallest choice does for which
// the host has memory; the smallest lines come last. No fast plan is looked for, so it is quick.
func Smallest(b *layout.Layout) (fits bool, peak map[plan.Tier]int64, misfit error) {
	s := newSearch(newTarget(b).itself())
	for _, w := range slices.Backward(s.parallelisms()) {
		for _, f := range slices.Backward(s.linesOf(w)) {
			f, c, err := s.withinHost(f, nil)
			if err == nil && c.fits { // by what its homes take
				f, c, err = s.fitWithinHost(f, c)
			}
			if err != nil {
				return false, nil, err
			}
			if c.fits {
				return true, c.peak, nil
			}
			s.tried = append(s.tried, attempt{f, c})
		}
	}
	if err := s.findSmallest(); err != nil {
		return false, nil, err
	}
	return false, s.smallest.peak, s.fitError()
}

// AnyFits is nil when some choice fits, else a *FitError.
func AnyFits(b *layout.Layout) error {
	_, _, err := Smallest(b)
	return err
}

// MayFit is false where nothing fits by what homes alone take: what AnyFits says no to after it
// has written plans. It is quicker still, and says nothing of what is missing.
func MayFit(b *layout.Layout) (bool, error) {
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
