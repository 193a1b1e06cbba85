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
