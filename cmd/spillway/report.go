package main

import (
	"fmt"

	"spillway/dtype"
	"spillway/machine"
	"spillway/plan"
	"spillway/planner"
	"spillway/spec"
	"spillway/units"
)

// planReport is the object of plan --json; write in plantext.go says the same to
// people.
type planReport struct {
	Model   modelReport   `json:"model"`
	Machine machineReport `json:"machine"`
	Goal    goalReport    `json:"goal"`

	Fits     bool           `json:"fits"`
	Strategy string         `json:"strategy,omitempty"`
	Reason   string         `json:"reason"`
	Forecast *plan.Forecast `json:"forecast,omitempty"`
	// Homes is where bytes rest between iterations, AtPeak what each tier holds when
	// it is fullest: the two differ by what lives for a while only.
	Homes    usage               `json:"homes,omitempty"`
	AtPeak   usage               `json:"at_peak,omitempty"`
	Free     map[plan.Tier]int64 `json:"free_bytes"`
	Rejected []plan.Option       `json:"rejected"`

	// Of a plan that does not fit:
	Tier    plan.Tier           `json:"tier,omitempty"` // that is too small
	Needed  int64               `json:"needed_bytes,omitempty"`
	Budget  int64               `json:"budget_bytes,omitempty"`
	Options []planner.FitOption `json:"options,omitempty"`

	plan    *plan.Plan // nil where it does not fit
	misfit  *planner.FitError
	site    planner.Site
	compute dtype.Type
}

// machineReport is a machine with its description and the device that was planned for.
type machineReport struct {
	machine.Machine
	Description string `json:"description"`
	Device      string `json:"device"`
}

// modelReport describes a model.
type modelReport struct {
	Name        string `json:"name"`
	Arch        string `json:"arch"`
	Params      int64  `json:"params"`
	Trainable   int64  `json:"trainable"`
	Blocks      int    `json:"blocks"`       // of the commonest kind: the layers
	BlockParams int64  `json:"block_params"` // of one of them
	Vocabulary  int64  `json:"vocabulary,omitempty"`
	Context     int64  `json:"context,omitempty"`
}

// describeModel counts what a model consists of. traced is nil where it could not
// be traced.
func describeModel(m *model, traced *spec.Model) modelReport {
	r := modelReport{Name: m.name, Arch: m.info.Type, Vocabulary: m.info.Vocab, Context: m.info.Context}
	if traced == nil {
		return r
	}
	r.Params, r.Trainable = traced.Count(), traced.Trainable()
	times := make([]int, len(traced.Kinds))
	for _, b := range traced.Blocks {
		times[b.Kind]++
		if times[b.Kind] > r.Blocks {
			r.Blocks, r.BlockParams = times[b.Kind], paramsOf(traced, b)
		}
	}
	return r
}

func paramsOf(m *spec.Model, b spec.Block) (n int64) {
	for _, id := range b.Params {
		n += m.Params[id].Type.Shape.Elements()
	}
	return n
}

// String is the model in a line.
func (r modelReport) String() string {
	text := fmt.Sprintf("%s params, %d blocks of %s", units.Count(r.Params), r.Blocks, units.Count(r.BlockParams))
	if r.Vocabulary > 0 {
		text += ", vocabulary " + grouped(r.Vocabulary)
	}
	if r.Trainable != r.Params {
		text += fmt.Sprintf(", %s trainable (%.2g%%)", units.Count(r.Trainable), 100*float64(r.Trainable)/float64(r.Params))
	}
	return text
}

// fill derives the figures of the report from the plan or the misfit.
func (r *planReport) fill() {
	r.Rejected = []plan.Option{}
	r.Free = map[plan.Tier]int64{plan.OnDevice: r.site.Budget, hostTier(r.site): r.site.HostBudget}
	if r.misfit != nil {
		e := r.misfit
		r.Tier, r.Needed, r.Budget, r.Options = e.Tier, e.Needed, e.Budget, e.Options
		r.Reason = fmt.Sprintf("the leanest plan needs %v of %s memory, %v are free", units.Bytes(e.Needed), e.Tier, units.Bytes(e.Budget))
		return
	}
	r.Strategy, r.Reason, r.Forecast = r.plan.Strategy, r.plan.Reason, r.plan.Forecast
	r.Homes, r.AtPeak = homes(r.plan), atPeak(r.plan)
	r.Rejected = append(r.Rejected, r.plan.Rejected...)
}

// hostTier is the tier the planner puts host memory in.
func hostTier(s planner.Site) plan.Tier {
	if s.HostPinned {
		return plan.Pinned
	}
	return plan.OnHost
}
