package demo

import (
	"strings"
	"testing"
)

// What does not hold is reported.
func TestDemoChecks(t *testing.T) {
	good := Report{ResidentBefore: 10, ResidentPeak: 1010, ResidentPredicted: 1000, ResidentAllowance: 100}
	good.LossFirst, good.LossLast, good.Budget, good.Standard, good.Predicted, good.Measured = 5, 2.9, 10, 20, 1000, 1010
	if good.check(); len(good.Failed) != 0 {
		t.Errorf("all holds, but %v", good.Failed)
	}
	for name, spoil := range map[string]func(*Report){
		"the loss":    func(r *Report) { r.LossLast = 3.1 },
		"the budget":  func(r *Report) { r.Budget = 20 },
		"predicted":   func(r *Report) { r.Measured = 1011 },
		"the process": func(r *Report) { r.ResidentPeak = 1111 },
	} {
		bad := good
		spoil(&bad)
		if bad.check(); len(bad.Failed) != 1 || !strings.Contains(bad.Failed[0], name) {
			t.Errorf("%s is spoiled: %v", name, bad.Failed)
		}
	}
}

// The process must not grow beyond the plan: a document costs its tokens and nothing else.
func TestDocumentsCostTheirTokens(t *testing.T) {
	list := texts{Text[:4096]}
	if n := testing.AllocsPerRun(10, func() { _, _ = list.Document(0) }); n > 1 {
		t.Errorf("a document takes %v allocations, the slice of its tokens is one", n)
	}
}
