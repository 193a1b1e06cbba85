package planner_test

import (
	"testing"

	"spillway/graph"
	"spillway/plan"
	"spillway/planner/strategy"
)

// Where half of the blocks, and a quarter, are too many to keep the values of, a few are
// still kept: no search ends with room that a block's values would have fitted in. And where
// the host updates, the slab whose gradient comes last is better updated by the device.
func TestSmallStridesFillTheDevice(t *testing.T) {
	r := named(t, "llama-3-8b", "h200:24GiB,host:125GiB@update=135GB/s", 8, 4096, graph.Train)
	r.Goal.Constraints = strategy.Constraints{Weights: plan.OnHost, State: plan.OnHost}
	p, _, err := r.Plan()
	if err != nil {
		t.Fatal(err)
	}
	host, device := updatesBy(p)
	if left := r.Site.Budget - p.Peak()[plan.OnDevice]; left > r.Site.Budget/8 || host == 0 || device == 0 {
		t.Errorf("%s: %d bytes of %d are left, the host makes %d updates and the device %d", p.Strategy, left, r.Site.Budget, host, device)
	}
}
