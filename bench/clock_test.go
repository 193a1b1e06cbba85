package bench

import (
	"strings"
	"testing"
	"time"
)

// Reports say of a clock that runs fast or slow by how much, and nothing of one that is right or that nothing can be compared with.
func TestClocksThatAreSet(t *testing.T) {
	for _, c := range []struct {
		rate float64
		know bool
		want string
	}{{1.054, true, "5.4% fast"}, {0.95, true, "5.0% slow"}, {1.001, true, ""}, {1.2, false, ""}} {
		var now time.Duration
		var notes []string
		done := watchClocks(&notes, func() time.Duration { return time.Duration(float64(now) * c.rate) }, func() (time.Duration, bool) { return now, c.know })
		now = 40 * time.Second
		done()
		got := strings.Join(notes, "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("rate %v: %q, want %q", c.rate, got, c.want)
		}
	}
	var notes []string
	watchClock(&notes)() // at once: nothing can be said
	if len(notes) > 0 {
		t.Error(notes)
	}
}
