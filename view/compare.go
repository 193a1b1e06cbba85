package view

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"spillway/eventlog"
	"spillway/machine"
	"spillway/plan"
	"spillway/units"
)

// Comparison is several runs side by side.
type Comparison struct {
	Runs    []string `json:"runs"`
	Figures []Row    `json:"figures"`
	// Settings, Machines and Plans are what is not the same in all runs.
	Settings []Row `json:"settings"`
	Machines []Row `json:"machines"`
	Plans    []Row `json:"plans"`
}

// Row is a line of a comparison: a value for each run, as people read it and where it is a
// number as that. Null stands for none.
type Row struct {
	Name   string     `json:"name"`
	Values []string   `json:"values"`
	Number []*float64 `json:"numbers,omitempty"`
}

// Compare puts runs side by side.
func Compare(runs []*Run) (Comparison, error) {
	c := Comparison{Figures: []Row{}, Settings: []Row{}, Machines: []Row{}, Plans: []Row{}}
	for _, r := range runs {
		c.Runs = append(c.Runs, r.Name)
	}
	for _, f := range figures {
		row := Row{Name: f.name}
		for _, r := range runs {
			v, has := f.of(r)
			if !has {
				row.Values, row.Number = append(row.Values, ""), append(row.Number, nil)
				continue
			}
			row.Values, row.Number = append(row.Values, f.unit.Format(v)), append(row.Number, &v)
		}
		if slices.ContainsFunc(row.Number, func(v *float64) bool { return v != nil }) {
			c.Figures = append(c.Figures, row)
		}
	}
	settings, machines, plans := make([]map[string]string, len(runs)), make([]map[string]string, len(runs)), make([]map[string]string, len(runs))
	for i, r := range runs {
		settings[i] = map[string]string{}
		for _, s := range r.Settings {
			settings[i][s.Name] = s.Value
		}
		machines[i] = machineFacts(r.Machine)
		p, err := r.Plan()
		if err != nil {
			return c, err
		}
		plans[i] = planFacts(p)
	}
	c.Settings, c.Machines, c.Plans = differences(settings), differences(machines), differences(plans)
	return c, nil
}

// differences are the keys whose values are not the same everywhere.
func differences(all []map[string]string) []Row {
	keys := map[string]bool{}
	for _, m := range all {
		for k := range m {
			keys[k] = true
		}
	}
	rows := []Row{}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		row, same := Row{Name: k}, true
		for _, m := range all {
			row.Values = append(row.Values, m[k])
			same = same && m[k] == all[0][k]
		}
		if !same {
			rows = append(rows, row)
		}
	}
	return rows
}

// machineFacts are what makes a machine another.
func machineFacts(raw json.RawMessage) map[string]string {
	var m machine.Machine
	facts := map[string]string{}
	if json.Unmarshal(raw, &m) != nil {
		return facts // of another version
	}
	var names []string
	for _, d := range m.Devices {
		names = append(names, fmt.Sprintf("%s %v", cmp.Or(d.Model, d.Name), d.Memory))
	}
	facts["devices"], facts["cores"], facts["host memory"] = strings.Join(names, ", "), strconv.Itoa(m.Host.Cores), m.Host.Memory.String()
	if m.Host.CPU != "" {
		facts["CPU"] = m.Host.CPU
	}
	return facts
}

// planFacts are what makes a plan another.
func planFacts(p *plan.Plan) map[string]string {
	facts := map[string]string{}
	if p == nil {
		return facts
	}
	facts["strategy"], facts["batch"] = p.Strategy, fmt.Sprintf("%d × micro-batch %d × seq %d", p.MicroBatches, p.MicroBatchSize, p.Seq)
	for tier, n := range p.Peak() {
		if n > 0 {
			facts["memory, "+string(tier)] = units.Bytes(n).String()
		}
	}
	for class, tiers := range p.HomeUsage() {
		for tier, n := range tiers {
			facts[fmt.Sprintf("%s stored on %s", class, tier)] = units.Bytes(n).String()
		}
	}
	if f := p.Forecast; f != nil {
		facts["forecast"], facts["limited by"] = Duration(f.StepSeconds), f.Bound
	}
	return facts
}

// figure is a number of a whole run.
type figure struct {
	name string
	unit Unit
	of   func(*Run) (float64, bool)
}

// last is a figure of the newest step.
func last(of func(*eventlog.Iteration) float64) func(*Run) (float64, bool) {
	return func(r *Run) (float64, bool) {
		if len(r.Iterations) == 0 {
			return 0, false
		}
		v := of(&r.Iterations[len(r.Iterations)-1])
		return v, v != 0
	}
}

// mean is a figure over all steps but the first three, in which caches are cold.
func mean(of func(*eventlog.Iteration) float64) func(*Run) (float64, bool) {
	return func(r *Run) (float64, bool) {
		list := r.Iterations
		if len(list) > 6 {
			list = list[3:]
		}
		var sum float64
		n := 0
		for i := range list {
			if !list[i].Traced {
				sum += of(&list[i])
				n++
			}
		}
		return sum / float64(max(n, 1)), n > 0
	}
}

var figures = []figure{
	{"steps", Plain, func(r *Run) (float64, bool) { return float64(r.Step()), true }},
	{"loss, first", Plain, func(r *Run) (float64, bool) {
		if len(r.Iterations) == 0 {
			return 0, false
		}
		return r.Iterations[0].Loss, true
	}},
	{"loss, last", Plain, last(func(it *eventlog.Iteration) float64 { return it.Loss })},
	{"eval loss, best", Plain, last(func(it *eventlog.Iteration) float64 { return it.BestEval })},
	{"time per step", Seconds, mean(func(it *eventlog.Iteration) float64 { return it.Seconds })},
	{"time per step, forecast", Seconds, last(func(it *eventlog.Iteration) float64 { return it.Forecast })},
	{"tokens/s", Rate, mean(func(it *eventlog.Iteration) float64 { return it.TokensPerSecond })},
	{"prompt tokens", Plain, generated(func(g *eventlog.Generation) float64 { return float64(g.TotalPrompt) })},
	{"new tokens", Plain, generated(func(g *eventlog.Generation) float64 { return float64(g.TotalNew) })},
	{"prompt tokens/s", Rate, generatedRate(func(g *eventlog.Generation) (int64, float64) { return g.PromptTokens, g.PrefillSeconds })},
	{"new tokens/s", Rate, generatedRate(func(g *eventlog.Generation) (int64, float64) {
		if g.PromptTokens > 0 {
			return 0, 0 // some of the new tokens came with prompts
		}
		return g.NewTokens, g.DecodeSeconds
	})},
	{"keys and values, at last", Bytes, generated(func(g *eventlog.Generation) float64 { return float64(g.CacheBytes) })},
	{"share of roofline", Share, mean(func(it *eventlog.Iteration) float64 { return it.ShareOfRoofline })},
	{"device memory", Bytes, last(func(it *eventlog.Iteration) float64 { return float64(it.MeasuredBytes) })},
	{"device memory, predicted", Bytes, last(func(it *eventlog.Iteration) float64 { return float64(it.PredictedBytes) })},
	{"pinned memory", Bytes, last(func(it *eventlog.Iteration) float64 { return float64(it.Tiers.Pinned) })},
	{"host memory", Bytes, last(func(it *eventlog.Iteration) float64 { return float64(it.Tiers.Host) })},
	{"disk", Bytes, last(func(it *eventlog.Iteration) float64 { return float64(it.Tiers.Disk) })},
	{"optimizer state", Bytes, last(func(it *eventlog.Iteration) float64 { return float64(it.StateBytes) })},
	{"alerts", Plain, func(r *Run) (float64, bool) { return float64(len(r.Alerts)), true }},
}

// generated is a number of the newest stretch of generating.
func generated(of func(*eventlog.Generation) float64) func(*Run) (float64, bool) {
	return func(r *Run) (float64, bool) {
		n := len(r.Generations)
		if n == 0 {
			return 0, false
		}
		return of(&r.Generations[n-1]), true
	}
}

// generatedRate is tokens over seconds, of all stretches.
func generatedRate(of func(*eventlog.Generation) (int64, float64)) func(*Run) (float64, bool) {
	return func(r *Run) (float64, bool) {
		var tokens int64
		var seconds float64
		for i := range r.Generations {
			n, s := of(&r.Generations[i])
			tokens, seconds = tokens+n, seconds+s
		}
		return float64(tokens) / seconds, tokens > 0 && seconds > 0
	}
}

// Tables are the parts of a comparison that have rows, with their titles.
func (c Comparison) Tables() (list []Table) {
	for _, t := range []Table{{"figures", c.Figures}, {"settings that differ", c.Settings}, {"plans", c.Plans}, {"machines", c.Machines}} {
		if len(t.Rows) > 0 {
			list = append(list, t)
		}
	}
	return list
}

// Table is a part of a comparison.
type Table struct {
	Title string
	Rows  []Row
}

// CSV writes a line per run, with a column per figure; numbers are plain.
func (c Comparison) CSV(w io.Writer) error {
	out := csv.NewWriter(w)
	head := []string{"run"}
	for _, f := range c.Figures {
		head = append(head, f.Name)
	}
	out.Write(head)
	for i, run := range c.Runs {
		line := []string{run}
		for _, f := range c.Figures {
			text := ""
			if v := f.Number[i]; v != nil {
				text = strconv.FormatFloat(*v, 'g', -1, 64)
			}
			line = append(line, text)
		}
		out.Write(line)
	}
	out.Flush()
	return out.Error() // the first error of any write
}
