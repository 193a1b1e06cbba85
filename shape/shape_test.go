package shape

import (
	"math"
	"testing"
)

func TestShape(t *testing.T) {
	s := Of(4, 2048, 64)
	if s.Elements() != 4*2048*64 || s.Rows() != 4*2048 || s.Last() != 64 {
		t.Errorf("%v: %d elements, %d rows, last %d", s, s.Elements(), s.Rows(), s.Last())
	}
	if got := s.WithLast(3); !got.Equal(Of(4, 2048, 3)) || s.Last() != 64 {
		t.Errorf("WithLast gave %v and left %v", got, s)
	}
	if scalar := Of(); scalar.Elements() != 1 || scalar.Rows() != 1 || scalar.Last() != 1 {
		t.Error("a scalar has one element")
	}
}

func TestCheckRefusesOverflow(t *testing.T) {
	for _, bad := range []Shape{{-1}, {math.MaxInt64, 2}, {1 << 32, 1 << 31}, {3, math.MinInt64}} {
		if bad.Check() == nil {
			t.Errorf("%v was accepted", bad)
		}
	}
	for _, good := range []Shape{{}, {0, math.MaxInt64}, {1 << 31, 1 << 31}} {
		if err := good.Check(); err != nil {
			t.Errorf("%v: %v", good, err)
		}
	}
}
