package view

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"

	"spillway/plan"
	"spillway/units"
)

// Tradeoff is what device memory buys: plans by the memory they take and the time of a step.
type Tradeoff struct {
	Title  string          `json:"title"`
	Points []TradeoffPoint `json:"points"`
}

// TradeoffPoint is a plan.
type TradeoffPoint struct {
	Plan string    `json:"plan"` // its strategy
	Kind PointKind `json:"kind"`
	// Limit is the memory that was asked for; 0 where nobody asked.
	Limit      int64   `json:"limit_bytes,omitempty"`
	Memory     int64   `json:"device_bytes"`
	Seconds    float64 `json:"step_seconds"`
	LowerBound bool    `json:"lower_bound,omitempty"` // it takes at least so long
	Fits       bool    `json:"fits"`
}

// PointKind says where a plan of a tradeoff comes from.
type PointKind string

// The kinds.
const (
	OfRun    PointKind = "of the run"
	Rejected PointKind = "rejected"
	Asked    PointKind = "asked for"
)

// PlansOf are the plan of a run and those that were not chosen, with the reasons, each once: the planner meets
// some on several ways.
func PlansOf(p *plan.Plan) []plan.Alternative {
	chosen := plan.Alternative{Strategy: p.Strategy, Strategies: p.Strategies, Reason: "this is the plan: " + p.Reason, Fits: true, PeakBytes: p.Peak()}
	if p.Forecast != nil {
		chosen.StepSeconds = p.Forecast.StepSeconds
	}
	list := []plan.Alternative{chosen}
	for _, a := range p.Rejected {
		if !slices.ContainsFunc(list, func(b plan.Alternative) bool { return reflect.DeepEqual(a, b) }) {
			list = append(list, a)
		}
	}
	return list
}

// TradeoffOf is a run's plan among those that were rejected and those that were asked for, by
// the limit of memory.
func TradeoffOf(p *plan.Plan, asked map[int64]*plan.Plan) Tradeoff {
	t := Tradeoff{Title: "time per step by device memory, forecast", Points: []TradeoffPoint{}}
	add := func(kind PointKind, limit int64, a plan.Alternative) {
		if memory := a.PeakBytes[plan.OnDevice]; memory > 0 && a.StepSeconds > 0 {
			t.Points = append(t.Points, TradeoffPoint{a.Strategy, kind, limit, memory, a.StepSeconds, a.LowerBound, a.Fits})
		}
	}
	for i, a := range PlansOf(p) {
		kind := Rejected
		if i == 0 {
			kind = OfRun
		}
		add(kind, 0, a)
	}
	limits := make([]int64, 0, len(asked))
	for limit := range asked {
		limits = append(limits, limit)
	}
	slices.Sort(limits)
	for _, limit := range limits {
		add(Asked, limit, PlansOf(asked[limit])[0])
	}
	return t
}

// TokenTradeoff is what device memory buys where texts are generated: plans by the memory they take and
// the time of a token.
func TokenTradeoff(points []TradeoffPoint) Tradeoff {
	slices.SortFunc(points, func(a, b TradeoffPoint) int { return cmp.Compare(a.Limit, b.Limit) })
	return Tradeoff{Title: "time per token by device memory, forecast", Points: append([]TradeoffPoint{}, points...)}
}

// TierBytes is what a tier stores.
type TierBytes struct {
	Tier  plan.Tier `json:"tier"`
	Bytes int64     `json:"bytes"`
}

// WeightsOf is where a plan stores its weights between steps, fastest tier first.
func WeightsOf(p *plan.Plan) []TierBytes {
	stored := map[plan.Tier]int64{}
	for i, b := range p.Buffers {
		if b.Home && b.Class == plan.Weight {
			stored[p.TierOf(i)] += b.Bytes
		}
	}
	list := []TierBytes{}
	for _, tier := range []plan.Tier{plan.OnDevice, plan.Pinned, plan.OnHost, plan.OnDisk} {
		if stored[tier] > 0 {
			list = append(list, TierBytes{tier, stored[tier]})
		}
	}
	return list
}

// CSV writes a line per plan.
func (t Tradeoff) CSV(w io.Writer) error {
	out := csv.NewWriter(w)
	out.Write([]string{"plan", "kind", "limit_bytes", "device_bytes", "step_seconds", "lower_bound", "fits"})
	for _, p := range t.Points {
		limit := ""
		if p.Limit > 0 {
			limit = strconv.FormatInt(p.Limit, 10)
		}
		out.Write([]string{p.Plan, string(p.Kind), limit, strconv.FormatInt(p.Memory, 10), strconv.FormatFloat(p.Seconds, 'g', -1, 64), strconv.FormatBool(p.LowerBound), strconv.FormatBool(p.Fits)})
	}
	out.Flush()
	return out.Error() // the first error of any write
}

// doublings is an axis of bytes on which each doubling is as wide as the next.
func doublings(low, high float64) span {
	s := span{low: math.Log2(low) - 0.3, high: math.Log2(high) + 0.3}
	if math.Floor(s.high)-math.Ceil(s.low) < 1 { // two marks at least, with place for what is written below them
		s.low, s.high = math.Floor(s.low)-0.2, math.Ceil(s.high)+0.2
	}
	step := max(math.Ceil((s.high-s.low)/8), 1)
	for m := math.Ceil(s.low); m <= s.high; m += step {
		s.marks = append(s.marks, m)
	}
	return s
}

// Picture draws a point per plan: further left takes less memory, further down less time.
func (t Tradeoff) Picture() Picture {
	const left, right, top, bottom = marginLeft, chartWidth - marginRight, marginTop + 24, chartHeight - marginBottom + 24
	d := &Picture{Width: chartWidth, Height: chartHeight + 24, Title: t.Title, Describe: t.describe()}
	d.label(left, 20, "start", t.Title, titleSize, ink("ink"))
	colours := map[PointKind]Colour{OfRun: ink("late"), Asked: lineColour(0), Rejected: ink("faint")}
	d.legend(left, 32, plotWidth, []string{"plan of the run", "asked for", "rejected by the planner"}, []Colour{colours[OfRun], colours[Asked], colours[Rejected]})
	low, high, most := math.Inf(1), 1.0, 0.0
	for _, p := range t.Points {
		low, high, most = min(low, float64(p.Memory)), max(high, float64(p.Memory)), max(most, p.Seconds)
	}
	if math.IsInf(low, 1) {
		low, high, most = 1<<20, 1<<30, 1
	}
	x, y := doublings(low, high), nice(0, most*1.08, 5)
	for _, m := range y.marks {
		at := y.at(m, bottom, top)
		d.line(left, at, right, at, ink("grid"))
		d.label(left-8, at+4, "end", Duration(m), labelSize, ink("faint"))
	}
	for _, m := range x.marks {
		at := x.at(m, left, right)
		d.line(at, bottom, at, bottom+4, ink("faint"))
		d.label(at, bottom+17, "middle", units.Bytes(int64(math.Exp2(m))).String(), labelSize, ink("faint"))
	}
	d.label(right, bottom+33, "end", "device memory that the plan takes", labelSize, ink("faint"))
	if len(t.Points) == 0 {
		d.label((left+right)/2, (top+bottom)/2, "middle", "no plan was asked for yet", labelSize, ink("faint"))
	}
	var xs, ys []float64
	for _, p := range t.Points {
		if p.Kind == Asked {
			xs, ys = append(xs, x.at(math.Log2(float64(p.Memory)), left, right)), append(ys, y.at(p.Seconds, bottom, top))
		}
	}
	d.path(xs, ys, colours[Asked])
	for _, kind := range []PointKind{Rejected, Asked, OfRun} {
		size := map[PointKind]float64{Rejected: 6, Asked: 8, OfRun: 12}[kind]
		for _, p := range t.Points {
			if p.Kind == kind {
				d.rect(x.at(math.Log2(float64(p.Memory)), left, right)-size/2, y.at(p.Seconds, bottom, top)-size/2, size, size, colours[kind], p.String())
			}
		}
	}
	return *d
}

func (p TradeoffPoint) String() string {
	least := ""
	if p.LowerBound {
		least = "at least "
	}
	return fmt.Sprintf("%s (%s): %s%s with %v", p.Plan, p.Kind, least, Duration(p.Seconds), units.Bytes(p.Memory))
}

func (t Tradeoff) describe() string {
	text := ""
	for _, p := range t.Points {
		if p.Kind != Rejected {
			text += p.String() + ". "
		}
	}
	return text
}
