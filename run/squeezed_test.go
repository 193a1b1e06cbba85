package run

import (
	"errors"
	"fmt"
	"testing"

	"spillway/planner"
)

// A plan whose small steps lack some bytes is made again within less memory, a few times, also where it stays the same until it has
// much less: one byte too few must not make thousands of plans.
func TestSqueezedPlansAreFew(t *testing.T) {
	lacking := func(n int64) (int64, int64, error) {
		return 0, n, &planner.FitError{Needed: 100 + n, Budget: 100}
	}
	refused := &planner.FitError{Needed: 1}
	other := errors.New("a disk is full")
	for name, c := range map[string]struct {
		plan func(less int64) (int64, int64, error)
		want func(less int64) bool // where it fits
		err  error
		most int
	}{
		"it fits at once": {plan: func(less int64) (int64, int64, error) { return less, 0, nil }, want: func(less int64) bool { return less == 0 }, most: 1},
		"as much as it lacks": {plan: func(less int64) (int64, int64, error) {
			if less < 10 {
				return lacking(10)
			}
			return less, 0, nil
		}, want: func(less int64) bool { return less == 10 }, most: 2},
		"it lacks less and less": {plan: func(less int64) (int64, int64, error) {
			switch {
			case less < 10:
				return lacking(10)
			case less < 13:
				return lacking(3)
			}
			return less, 0, nil
		}, want: func(less int64) bool { return less == 13 }, most: 3},
		"it stays the same for long": {plan: func(less int64) (int64, int64, error) {
			if less < 1<<30 {
				return lacking(2)
			}
			return less, 0, nil
		}, want: func(less int64) bool { return less >= 1<<30 && less < 1<<31 }, most: 34},
		"between too much and nothing": {plan: func(less int64) (int64, int64, error) {
			switch {
			case less < 1<<30:
				return lacking(2)
			case less > 1<<30+1<<27:
				return 0, 0, fmt.Errorf("planning: %w", refused)
			}
			return less, 0, nil
		}, want: func(less int64) bool { return less >= 1<<30 && less <= 1<<30+1<<27 }, most: 40},
		"never": {plan: func(less int64) (int64, int64, error) {
			if less < 1<<30 {
				return lacking(1)
			}
			return 0, 0, fmt.Errorf("planning: %w", refused)
		}, err: refused, most: 40},
		"not at all": {plan: func(int64) (int64, int64, error) { return 0, 0, refused }, err: refused, most: 1},
		"something else": {plan: func(less int64) (int64, int64, error) {
			if less == 0 {
				return lacking(1)
			}
			return 0, 0, other
		}, err: other, most: 2},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			less, err := squeezed(func(less int64) (int64, int64, error) {
				if calls++; calls > 1000 {
					return 0, 0, errors.New("a thousand plans")
				}
				return c.plan(less)
			})
			if !errors.Is(err, c.err) || err == nil && !c.want(less) || calls > c.most {
				t.Errorf("within %d less, %v, after %d plans", less, err, calls)
			}
		})
	}
}
