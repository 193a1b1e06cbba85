package view

import (
	"fmt"
	"io"
	"time"

	"spillway/eventlog"
	"spillway/plan"
	"spillway/units"
)

// Plot is a picture with the table of its numbers behind it.
type Plot struct {
	Picture string // SVG of this package, which escapes texts
	Columns []string
	Rows    [][]string
}

// reportData is what a report shows.
type reportData struct {
	Title    string
	Made     string
	Compare  Comparison
	Alerts   []eventlog.Alert
	Plots    []Plot
	Settings []eventlog.Setting
	Strategy string
	Reason   string
	Others   []plan.Alternative
	Slips    []Slip
	Damaged  []string
}

// WriteReport writes a page about runs that needs nothing else: pictures, tables and style are
// in it, and it asks no server for anything. It is the same for the same logs and time.
func WriteReport(w io.Writer, runs []*Run, now time.Time) error {
	if len(runs) == 0 {
		return fmt.Errorf("a report needs at least one run")
	}
	c, err := Compare(runs)
	if err != nil {
		return err
	}
	d := reportData{Title: "run " + runs[0].Name, Made: now.UTC().Format("2006-01-02 15:04 UTC"), Compare: c}
	if len(runs) > 1 {
		d.Title = fmt.Sprintf("%d runs", len(runs))
	}
	for _, r := range runs {
		d.Alerts = append(d.Alerts, r.Alerts...)
		if r.Damaged != nil {
			d.Damaged = append(d.Damaged, r.Damaged.Error())
		}
	}
	for _, m := range Metrics {
		if chart := Curves(runs, m, DefaultPoints); len(chart.Lines) > 0 {
			d.Plots = append(d.Plots, chart.plot())
		}
	}
	if len(runs) == 1 {
		if err := d.addPlan(runs[0]); err != nil {
			return err
		}
	}
	_, err = io.WriteString(w, d.page())
	return err
}

// addPlan adds what a report of one run has: its plan.
func (d *reportData) addPlan(r *Run) error {
	d.Settings = r.Settings
	p, err := r.Plan()
	if err != nil || p == nil {
		return err
	}
	d.Strategy, d.Reason, d.Others = p.Strategy, p.Reason, p.Rejected
	d.Plots = append(d.Plots, MemoryOf(p).plot())
	t, err := r.Timeline()
	if err != nil {
		return err
	}
	if len(t.Lanes) > 0 {
		d.Plots, d.Slips = append(d.Plots, t.plot()), t.Worst(10)
	}
	return nil
}

// tableRows is how many lines of numbers a page has behind a plot.
const tableRows = 50

// plot is the chart with a table of some of its points.
func (c Chart) plot() Plot {
	p := Plot{Picture: c.Picture().SVG(), Columns: []string{"run", c.X, c.Title}}
	for _, l := range c.Lines {
		every := max(len(l.X)/tableRows, 1)
		for i := range l.X {
			if i%every == 0 || i == len(l.X)-1 {
				p.Rows = append(p.Rows, []string{l.Name, short(l.X[i]), c.Unit.Format(l.Y[i])})
			}
		}
	}
	return p
}

// plot is the memory with a table of each tier's peak by purpose.
func (m Memory) plot() Plot {
	p := Plot{Picture: m.Picture().SVG(), Columns: []string{"tier", "purpose", "at its peak"}}
	for _, t := range m.Tiers {
		p.Rows = append(p.Rows, []string{string(t.Tier), "reserved", units.Bytes(t.Reserved).String()})
		for c, class := range t.Classes {
			var most int64
			for _, n := range t.Bytes[c] {
				most = max(most, n)
			}
			p.Rows = append(p.Rows, []string{string(t.Tier), string(class), units.Bytes(most).String()})
		}
	}
	return p
}

// plot is the timeline with a table of its lanes.
func (t Timeline) plot() Plot {
	p := Plot{Picture: t.Picture().SVG(), Columns: []string{"lane", "works, forecast", "works, measured", "moves"}}
	for _, l := range t.Lanes {
		measured := ""
		if t.Step > 0 {
			measured = Duration(l.Measured)
		}
		p.Rows = append(p.Rows, []string{l.Device + " " + l.Queue, Duration(l.Forecast), measured, units.Bytes(l.Bytes).String()})
	}
	return p
}
