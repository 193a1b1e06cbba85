package search

import "spillway/planner/strategy"

// firstThatMay is the index of the first candidate of a line whose homes fit, given the last,
// whose homes do.
func (s *search) firstThatMay(f strategy.Line, last *candidate) (int, error) {
	return firstOf(0, f.Size, s.lack(last.demand), func(i int) (int64, error) {
		c, err := s.estimate(f.Mix(i))
		if err != nil {
			return 0, err
		}
		return s.lack(c.demand), nil
	})
}

// withinHost ends a line at the last candidate for which the host has memory, and returns that: along a line the device
// needs less and less, the host mostly more and more. What a plan takes beyond its homes is predicted from one that was
// written, if there is one. Where that candidate lacks something else the line stays as it is.
func (s *search) withinHost(f strategy.Line, written *candidate) (strategy.Line, *candidate, error) {
	over := func(i int) (c *candidate, over bool, err error) {
		if c, err = s.estimate(f.Mix(i)); err != nil {
			return nil, false, err
		}
		n := c.demand
		if written != nil && !c.written {
			n = s.predicted(c, written)
		}
		return c, n.Host > s.b.Site.HostBudget, nil
	}
	last, exceeds, err := over(f.Size)
	if err != nil || !exceeds {
		return f, last, err
	}
	found, lo := -1, 0
	for hi := f.Size; lo < hi; {
		mid := (lo + hi) / 2
		_, exceeds, err := over(mid)
		if err != nil {
			return f, last, err
		}
		if exceeds {
			hi = mid
		} else {
			found, lo = mid, mid+1
		}
	}
	if found < 0 {
		return f, last, nil
	}
	c, _, err := over(found)
	if err != nil || c.lacks() > 0 {
		return f, last, err
	}
	return strategy.Line{Size: found, Mix: f.Mix}, c, nil
}

// fitWithinHost sees whether the last candidate of a line fits, and ends the line earlier where its plan takes more of the
// host than its homes do, and more than there is.
func (s *search) fitWithinHost(f strategy.Line, last *candidate) (strategy.Line, *candidate, error) {
	for {
		if err := s.fit(last); err != nil || last.Host <= s.b.Site.HostBudget {
			return f, last, err
		}
		shorter, c, err := s.withinHost(f, last)
		if err != nil || shorter.Size == f.Size {
			return f, last, err
		}
		f, last = shorter, c
	}
}

// firstThatFits finds the first candidate of a line, from an index on, that fits, given the
// last, which does. What plans take beyond their homes differs little from one to the next, so
// it is predicted from the nearest plan that was written.
func (s *search) firstThatFits(f strategy.Line, lo int, last *candidate) (*candidate, error) {
	hi, found, near := f.Size, last, last
	for tries := 0; lo < hi; tries++ {
		at, err := s.guess(f, lo, hi, near)
		if err != nil {
			return nil, err
		}
		if tries > 2 {
			at = (lo + hi) / 2
		}
		if near, err = s.estimate(f.Mix(at)); err != nil {
			return nil, err
		}
		if err := s.fit(near); err != nil {
			return nil, err
		}
		if near.fits {
			hi, found = at, near
		} else {
			lo = at + 1
		}
	}
	return found, nil
}

// guess is the first index below hi that fits if it takes as much beyond its homes as a
// candidate whose plan was written.
func (s *search) guess(f strategy.Line, lo, hi int, near *candidate) (int, error) {
	lack := func(i int) (int64, error) {
		c, err := s.estimate(f.Mix(i))
		if err != nil {
			return 0, err
		}
		return s.lack(s.predicted(c, near)), nil
	}
	left, err := lack(hi)
	if err != nil {
		return 0, err
	}
	at, err := firstOf(lo, hi, min(left, 0), lack)
	return min(at, hi-1), err
}

// firstOf finds the least index from lo on that lacks nothing. Hi is known to lack nothing, with
// so much left. What is lacking falls with the index, nearly on a straight line, so the search
// looks where the line says, and every other time in the middle.
func firstOf(lo, hi int, left int64, lack func(int) (int64, error)) (int, error) {
	if lo >= hi {
		return hi, nil
	}
	short, err := lack(lo)
	if err != nil || short <= 0 {
		return lo, err
	}
	for even := true; hi-lo > 1; even = !even {
		mid := (lo + hi) / 2
		if even {
			part := float64(short) / float64(max(short-left, 1))
			mid = min(max(lo+int(part*float64(hi-lo)), lo+1), hi-1)
		}
		at, err := lack(mid)
		if err != nil {
			return 0, err
		}
		if at > 0 {
			lo, short = mid, at
		} else {
			hi, left = mid, at
		}
	}
	return hi, nil
}
