package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"spillway"
	"spillway/internal/term"
	"spillway/plan"
	"spillway/planner"
	"spillway/recipe"
	"spillway/train"
	"spillway/units"
)

// adviceOptions is what plan is asked for besides the plan.
type adviceOptions struct {
	maxBatch, maxSeq, explain, compare bool
	timeline                           string // file for it; "" for none
	memorySnapshot                     string // file for it; "" for none
}

func adviceFlags(cmd *cobra.Command) *adviceOptions {
	a := &adviceOptions{}
	f := cmd.Flags()
	f.BoolVar(&a.maxBatch, "max-batch-size", false, "plan the largest micro-batch that fits, instead of --batch-size and --micro-batch-size")
	f.BoolVar(&a.maxSeq, "max-seq-len", false, "plan the longest sequences that fit, instead of --seq-len")
	f.BoolVar(&a.explain, "explain", false, "plan what is usually recommended when memory is short, and show what each would save and cost")
	f.BoolVar(&a.compare, "compare", false, "plan every strategy by itself and show them side by side")
	f.StringVar(&a.memorySnapshot, "memory-snapshot", "", "write the memory of a step to `FILE`: a snapshot that PyTorch's memory viewer (pytorch.org/memory_viz) opens, or a picture if it ends in .svg or .png")
	f.StringVar(&a.timeline, "timeline", "", "write when each instruction of a step will run, by the forecast, to `FILE`, which Perfetto and chrome://tracing show")
	return a
}

// advice is what plan says besides the plan.
type advice struct {
	Largest *largestReport     `json:"largest,omitempty"`
	Start   *planner.Usage     `json:"everything_on_the_device,omitempty"` // what the savings start from
	Savings []planner.Saving   `json:"savings,omitempty"`
	Compare []planner.Compared `json:"compare,omitempty"`
	// Compressed is the plan once the optimizer state is compressed.
	Compressed *compressedReport `json:"compressed,omitempty"`
}

// compressedReport is the plan that replaces the first one then.
type compressedReport struct {
	Policy   string              `json:"policy"`
	Strategy string              `json:"strategy"`
	States   int64               `json:"state_bytes"`
	Before   int64               `json:"state_bytes_before"`
	Peak     map[plan.Tier]int64 `json:"peak_bytes"`
	Seconds  float64             `json:"step_seconds"`
}

// planCompressed makes the plan that a policy on optimizer state leads to; nil where there is
// none.
func planCompressed(job *spillway.Run) (*compressedReport, error) {
	next, err := job.Compressed()
	if err != nil || next == nil {
		return nil, err
	}
	return &compressedReport{job.Options.StatePolicy.String(), next.Plan.Strategy, train.StateBytes(next.Plan), train.StateBytes(job.Plan), next.Plan.Peak(), next.Plan.Forecast.StepSeconds}, nil
}

func (l *compressedReport) String() string {
	text := fmt.Sprintf("policy %s: optimizer state of %v instead of %v, %s", l.Policy, units.Bytes(l.States), units.Bytes(l.Before), l.Strategy)
	for _, t := range []plan.Tier{plan.OnDevice, plan.Pinned, plan.OnHost, plan.OnDisk} {
		if n := l.Peak[t]; n > 0 {
			text += fmt.Sprintf(", %s %v", t, units.Bytes(n))
		}
	}
	return text + ", " + units.Seconds(l.Seconds) + " per step"
}

// largestReport is the largest size that fits and what one more would lack.
type largestReport struct {
	What  string            `json:"what"` // "sequences" or "tokens"
	Value int64             `json:"value"`
	Next  *planner.FitError `json:"next,omitempty"` // nil: the limit was reached
}

// maxContext bounds the sequences of models whose config does not.
const maxContext = 1 << 20

// planned makes the plan that is asked for.
func (a *adviceOptions) planned(m *spillway.Model, p *recipe.Plan, o spillway.Options) (*spillway.Run, *largestReport, error) {
	switch {
	case a.maxBatch:
		job, next, err := m.LargestBatch(o, recipe.MaxMicroBatchSize)
		if err != nil {
			return nil, nil, err
		}
		return job, &largestReport{"sequences", job.Options.MicroBatchSize, next}, nil
	case a.maxSeq:
		limit := m.Info.Context
		if limit == 0 {
			limit = maxContext
		}
		job, next, err := m.LargestSeq(o, limit)
		if err != nil {
			return nil, nil, err
		}
		return job, &largestReport{"tokens", job.Options.Seq, next}, nil
	case p.AutoBatch:
		job, _, err := m.FastestBatch(o, recipe.MaxMicroBatchSize)
		return job, nil, err
	}
	job, err := m.TryPlan(o) // where nothing fits, flags that do are looked for
	return job, nil, err
}

// advise plans the savings and the comparison.
func (a *adviceOptions) advise(m *spillway.Model, o spillway.Options) (out advice, err error) {
	if a.explain {
		start, savings, err := m.Savings(o)
		if err != nil {
			return out, err
		}
		out.Start, out.Savings = &start, savings
	}
	if a.compare {
		out.Compare, err = m.Compare(o)
	}
	return out, err
}

// write shows the advice.
func (a advice) write(p *page, shared bool) {
	if l := a.Largest; l != nil {
		p.line("largest", "%s", l)
	}
	if a.Compressed != nil {
		p.line("after warm-up", "%s", a.Compressed)
	}
	if a.Compare != nil {
		p.WriteString("\n")
		writeCompare(p, a.Compare, shared)
	}
	if a.Savings != nil {
		p.WriteString("\n")
		writeSavings(p, *a.Start, a.Savings)
	}
}

func (l *largestReport) String() string {
	if l.Next == nil {
		return fmt.Sprintf("%s %s fit; more were not tried", grouped(l.Value), l.What)
	}
	return fmt.Sprintf("%s %s; one more needs %v of %s memory, %v are available", grouped(l.Value), l.What, units.Bytes(l.Next.Needed), l.Next.Tier, units.Bytes(l.Next.Budget))
}

func writeCompare(p *page, list []planner.Compared, shared bool) {
	var t term.Table
	t.Row("strategy, its best plan", "device", "host", "step", "bound", "fits")
	for _, c := range list {
		if !c.Possible {
			continue
		}
		row := []string{"  " + c.Strategy, bytesText(c.Device), bytesText(c.Host), "", "", "no"}
		if c.Fits {
			row = append(row[:3], units.Seconds(c.Seconds), resource(c.Bound, shared), "yes")
		}
		t.Row(row...)
	}
	t.Write(p) // a page takes everything
	var details []string
	var not grouping
	for _, c := range list {
		if c.Fits && c.Detail != c.Strategy {
			details = append(details, c.Strategy+": "+strings.TrimPrefix(c.Detail, c.Strategy+", "))
		}
		if !c.Possible {
			not.add(c.Strategy, c.Reason)
		}
	}
	p.list("in detail", details)
	p.list("not possible", not.lines())
}

func writeSavings(p *page, start planner.Usage, savings []planner.Saving) {
	var t term.Table
	t.Row("if memory is short", "saves", "costs", "by itself", "fits", "with all above", "host", "fits")
	t.Row("  everything on the device", "", "", bytesText(start.Device), yesNo(start.Fits), "", "", "")
	for _, r := range savings {
		if r.Skipped != "" {
			continue
		}
		t.Row("  "+r.Name, signed(r.Saves), costText(r.Costs), bytesText(r.Alone.Device), yesNo(r.Alone.Fits),
			bytesText(r.SoFar.Device), bytesText(r.SoFar.Host), yesNo(r.SoFar.Fits))
	}
	t.Write(p) // a page takes everything
	var changes, skipped grouping
	for _, r := range savings {
		if r.Skipped != "" {
			skipped.add(r.Name, r.Skipped)
		} else if r.Changes != "" {
			changes.add(r.Name, r.Changes)
		}
	}
	p.list("what changes", changes.lines())
	p.list("left out", skipped.lines())
}

// grouping puts names with the same reason in one line.
type grouping struct {
	reasons []string
	names   map[string][]string
}

func (g *grouping) add(name, reason string) {
	if g.names == nil {
		g.names = map[string][]string{}
	}
	if g.names[reason] == nil {
		g.reasons = append(g.reasons, reason)
	}
	g.names[reason] = append(g.names[reason], name)
}

func (g *grouping) lines() (list []string) {
	for _, reason := range g.reasons {
		list = append(list, strings.Join(g.names[reason], ", ")+": "+reason)
	}
	return list
}

func bytesText(n int64) string { return units.Bytes(n).String() }

func signed(n int64) string {
	if n < 0 {
		return "-" + bytesText(-n)
	}
	return bytesText(n)
}

// costText is a difference of times: "+1.2 s".
func costText(s float64) string {
	if s < 0 {
		return "-" + units.Seconds(-s)
	}
	return "+" + units.Seconds(s)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
