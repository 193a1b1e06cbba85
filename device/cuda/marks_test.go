package cuda

import (
	"slices"
	"strings"
	"testing"

	"spillway/device/cuda/driver"
)

// A queue runs no further ahead of the GPU than some hundreds of launches; a failure that
// it meets then is reported at once.
func TestQueuesDoNotRunFarAhead(t *testing.T) {
	r := newRig(t, Options{})
	k, l := r.scale(t)
	launch := func(n int) error {
		for range n {
			if err := r.q.Launch(k, l); err != nil {
				return err
			}
		}
		return nil
	}
	calls := func(n int, name string) (count int) {
		for _, s := range r.since(n) {
			if s == name {
				count++
			}
		}
		return count
	}
	n := len(r.log)
	if err := launch(3*markEvery + markEvery/2); err != nil {
		t.Fatal(err)
	}
	if records, waits := calls(n, "Record"), calls(n, "SyncEvent"); records != 3 || waits != 0 {
		t.Errorf("%d marks and %d waits in %d launches", records, waits, 3*markEvery+markEvery/2)
	}
	n = len(r.log)
	if err := launch(2 * markEvery); err != nil {
		t.Fatal(err)
	}
	order := slices.DeleteFunc(r.since(n), func(s string) bool { return s == "SetCurrent" || s == "Launch" })
	if want := []string{"SyncEvent", "Record", "SyncEvent", "Record"}; !slices.Equal(order, want) {
		t.Errorf("calls %v, want %v", order, want)
	}
	r.failing("SyncEvent", &driver.Error{Call: "cuEventQuery", Code: 700, Name: "CUDA_ERROR_ILLEGAL_ADDRESS", Text: "an illegal memory access"})
	if err := launch(markEvery); err == nil || !strings.Contains(err.Error(), "ILLEGAL_ADDRESS") || !strings.Contains(err.Error(), "scale(f32[64])") {
		t.Errorf("got %v", err)
	}
}
