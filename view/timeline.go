package view

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"

	"spillway/trace"
	"spillway/units"
)

// Timeline is one iteration: for each lane what the plan's forecast has, and below it what
// was measured.
type Timeline struct {
	Title string `json:"title"`
	Step  int64  `json:"step"`            // that was measured; 0 where none was
	Phase string `json:"phase,omitempty"` // of the plan; "" is its main instructions
	// ForecastSeconds and MeasuredSeconds are until the last instruction ends; 0 where there are
	// no times.
	ForecastSeconds float64  `json:"forecast_seconds"`
	MeasuredSeconds float64  `json:"measured_seconds"`
	Lanes           []Lane   `json:"lanes"`
	Names           []string `json:"names"` // of instructions, by Bar.Name
	Folds           []Fold   `json:"folds"` // what repeats, in order
}

// Lane is a queue of a device.
type Lane struct {
	Device   string  `json:"device"`
	Queue    string  `json:"queue"`
	Forecast float64 `json:"forecast_seconds"` // that it works
	Measured float64 `json:"measured_seconds"`
	Bytes    int64   `json:"bytes"` // that it moves
	Bars     []Bar   `json:"bars"`
}

// Bar is an instruction. Times are nanoseconds from the start of the iteration; a bar that was
// not measured has a MeasuredEnd of 0.
type Bar struct {
	Instruction int        `json:"i"`
	Verb        trace.Verb `json:"verb"`
	Name        int        `json:"name"`
	Bytes       int64      `json:"bytes"`
	Block       int        `json:"block"`
	MicroBatch  int        `json:"micro_batch"`
	Start       int64      `json:"start"`
	End         int64      `json:"end"`
	MeasuredAt  int64      `json:"measured_start"`
	MeasuredEnd int64      `json:"measured_end"`
	// After is the instruction that ended last of those it had to wait for; -1 for none, or where
	// the plan is not known. Critical: it is on the path that decides how long the step takes.
	After    int  `json:"after"`
	Critical bool `json:"critical,omitempty"`
}

// Late is how much longer a bar took than forecast, in nanoseconds.
func (b Bar) Late() int64 { return b.MeasuredEnd - b.MeasuredAt - (b.End - b.Start) }

// TimelineOf lays a forecast and a measurement of the same plan next to each other; either may
// be nil.
func TimelineOf(step int64, forecast, measured []trace.Event) (Timeline, error) {
	t := Timeline{Title: "one step: forecast above, measured below", Step: step, Lanes: []Lane{}, Names: []string{}, Folds: []Fold{}}
	if forecast != nil && measured != nil && len(forecast) != len(measured) {
		return t, fmt.Errorf("the forecast has %d instructions, the measured step %d: they are of different plans", len(forecast), len(measured))
	}
	lanes, names := map[trace.Lane]int{}, map[string]int{}
	base := forecast
	if base == nil {
		base = measured
	}
	for i := range base {
		e := &base[i]
		if e.Verb == trace.Free {
			continue
		}
		at, has := lanes[e.Lane]
		if !has {
			at = len(t.Lanes)
			lanes[e.Lane] = at
			t.Lanes = append(t.Lanes, Lane{Device: e.Lane.Device, Queue: e.Lane.Queue})
		}
		name, has := names[e.Name]
		if !has {
			name = len(t.Names)
			names[e.Name], t.Names = name, append(t.Names, e.Name)
		}
		b, l := Bar{Instruction: i, Verb: e.Verb, Name: name, Bytes: e.Bytes, Block: e.Block, MicroBatch: e.MicroBatch, After: -1}, &t.Lanes[at]
		if forecast != nil {
			b.Start, b.End = forecast[i].Start, forecast[i].End
			l.Forecast += float64(b.End-b.Start) / 1e9
			t.ForecastSeconds = max(t.ForecastSeconds, float64(b.End)/1e9)
		}
		if measured != nil {
			b.MeasuredAt, b.MeasuredEnd = measured[i].Start, measured[i].End
			l.Measured += float64(b.MeasuredEnd-b.MeasuredAt) / 1e9
			t.MeasuredSeconds = max(t.MeasuredSeconds, float64(b.MeasuredEnd)/1e9)
		}
		if e.Verb == trace.Move {
			l.Bytes += e.Bytes
		}
		l.Bars = append(l.Bars, b)
	}
	order := map[string]int{"compute": 0, "in": 1, "out": 2}
	slices.SortStableFunc(t.Lanes, func(a, b Lane) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(order[a.Queue], order[b.Queue]))
	})
	t.Folds = append(t.Folds, t.folds()...)
	return t, nil
}

// Timeline of a run: its latest measured step with the forecast of the same plan. It is empty
// where the log has no traces.
func (r *Run) Timeline() (Timeline, error) {
	forecast, measured := r.latestTraces()
	var events [2][]trace.Event
	var step int64
	phase := ""
	for i, at := range []int{forecast, measured} {
		if at < 0 {
			continue
		}
		tr, err := r.ReadTrace(r.Traces[at])
		if err != nil {
			return Timeline{}, err
		}
		if events[i], phase = tr.Events, tr.Phase; i == 1 {
			step = max(tr.Step, 1)
		}
	}
	t, err := TimelineOf(step, events[0], events[1])
	if err != nil {
		return t, err
	}
	if t.Phase = phase; phase != "" {
		t.Title = phase + ": forecast above, measured below"
	}
	p, err := r.Plan()
	if err == nil && p != nil && phase != "" {
		p, err = p.Phase(phase)
	}
	if err == nil && p != nil && len(p.Instructions) == max(len(events[0]), len(events[1])) {
		t.waits(p.Instructions)
	}
	return t, nil // without the plan nobody knows what waited for what
}

// latestTraces are the newest measured step with the forecast of the same plan and phase, as
// numbers of traces; -1 where there is none. A measured step before the forecast of its phase is
// of another plan.
func (r *Run) latestTraces() (forecast, measured int) {
	newest := map[string]int{} // forecast of each phase
	for i := len(r.Traces) - 1; i >= 0; i-- {
		at := r.Traces[i]
		if _, has := newest[at.Phase]; at.Forecast && !has {
			newest[at.Phase] = i
		}
	}
	for i := len(r.Traces) - 1; i >= 0; i-- {
		at := r.Traces[i]
		if f, has := newest[at.Phase]; !at.Forecast && (!has || f < i) {
			if !has {
				f = -1
			}
			return f, i
		}
	}
	if f, has := newest[""]; has {
		return f, -1
	}
	forecast = -1
	for _, f := range newest {
		forecast = max(forecast, f)
	}
	return forecast, -1
}

// Slip is an instruction that took longer than forecast.
type Slip struct {
	Lane     string  `json:"lane"`
	Name     string  `json:"name"`
	Verb     string  `json:"verb"`
	Forecast float64 `json:"forecast_seconds"`
	Measured float64 `json:"measured_seconds"`
	Bytes    int64   `json:"bytes"`
}

// Worst are the instructions that took longest beyond their forecast, at most n.
func (t Timeline) Worst(n int) (list []Slip) {
	if t.Step == 0 || t.ForecastSeconds == 0 {
		return nil
	}
	for _, l := range t.Lanes {
		for _, b := range l.Bars {
			if b.Late() > 0 {
				list = append(list, Slip{l.Device + " " + l.Queue, t.Names[b.Name], b.Verb.String(), float64(b.End-b.Start) / 1e9, float64(b.MeasuredEnd-b.MeasuredAt) / 1e9, b.Bytes})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b Slip) int { return cmp.Compare(b.Measured-b.Forecast, a.Measured-a.Forecast) })
	return list[:min(n, len(list))]
}

// CSV writes a line per instruction.
func (t Timeline) CSV(w io.Writer) error {
	out := csv.NewWriter(w)
	out.Write([]string{"instruction", "device", "lane", "verb", "name", "block", "micro_batch", "bytes", "forecast_start_ns", "forecast_end_ns", "measured_start_ns", "measured_end_ns", "waited_for", "critical"})
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	for _, l := range t.Lanes {
		for _, b := range l.Bars {
			out.Write([]string{strconv.Itoa(b.Instruction), l.Device, l.Queue, b.Verb.String(), t.Names[b.Name], strconv.Itoa(b.Block), strconv.Itoa(b.MicroBatch), number(b.Bytes), number(b.Start), number(b.End), number(b.MeasuredAt), number(b.MeasuredEnd), strconv.Itoa(b.After), strconv.FormatBool(b.Critical)})
		}
	}
	out.Flush()
	return out.Error() // the first error of any write
}

// Picture draws the lanes as rows. Of what repeats often only some is drawn, with dots where the
// rest is left out.
func (t Timeline) Picture() Picture {
	const row, gap = 20, 14
	d := &Picture{Width: wideWidth, Title: t.Title, Describe: t.describe()}
	d.label(marginLeft, 22, "start", t.Title, titleSize, ink("ink"))
	verbs := []trace.Verb{trace.Run, trace.Move, trace.Reduce, trace.Update}
	var names []string
	var colours []Colour
	for _, v := range verbs {
		names, colours = append(names, v.String()), append(colours, ColourOfVerb(v))
	}
	names, colours = append(names, "over a tenth longer than forecast", "critical path"), append(colours, ink("late"), ink("ink"))
	top := 34 + d.legend(marginLeft, 34, widePlot, names, colours) + 6
	planned, ran := t.axes()
	x := nice(0, max(float64(max(planned.total, ran.total))/1e9, 1e-9), 8)
	bottom := top + float64(len(t.Lanes))*(2*row+gap)
	for _, m := range x.marks {
		at := x.at(m, marginLeft, wideWidth-marginRight)
		d.line(at, top, at, bottom, ink("grid"))
		d.label(at, bottom+14, "middle", Duration(m), labelSize, ink("faint"))
	}
	for _, l := range t.Lanes {
		d.label(marginLeft-8, top+row-4, "end", l.Device, labelSize-1, ink("ink"))
		d.label(marginLeft-8, top+2*row-4, "end", l.Queue, labelSize-1, ink("faint"))
		t.bars(d, l, top, row, x, planned, false)
		if t.Step > 0 {
			t.bars(d, l, top+row, row-4, x, ran, true)
		}
		top += 2*row + gap
	}
	d.Height = top + 26
	if note := t.leftOut(); note != "" {
		d.label(marginLeft, top+32, "start", note, labelSize, ink("faint"))
		d.Height += 18
	}
	return *d
}

// leftOut says what a picture does not show.
func (t Timeline) leftOut() string {
	if len(t.Folds) == 0 {
		return ""
	}
	var hidden int
	var planned, ran int64
	for _, f := range t.Folds {
		hidden, planned, ran = hidden+f.Hidden, planned+f.To-f.From, ran+f.ToRan-f.FromRan
	}
	text := fmt.Sprintf("\u2026 %d equal parts are left out: %s by the forecast", hidden, Duration(float64(planned)/1e9))
	if t.Step > 0 {
		text += fmt.Sprintf(", %s measured", Duration(float64(ran)/1e9))
	}
	return text
}

// shownTime puts times on an axis that leaves stretches out.
type shownTime struct {
	cuts  [][2]int64
	gap   int64 // that a cut is wide
	total int64
}

// axes are those of the forecast and of the measured step.
func (t Timeline) axes() (planned, ran shownTime) {
	planned.total, ran.total = int64(t.ForecastSeconds*1e9), int64(t.MeasuredSeconds*1e9)
	for _, f := range t.Folds {
		planned.cuts, ran.cuts = append(planned.cuts, [2]int64{f.From, f.To}), append(ran.cuts, [2]int64{f.FromRan, f.ToRan})
	}
	for _, a := range []*shownTime{&planned, &ran} {
		end := a.total
		for _, c := range a.cuts {
			a.total -= c[1] - c[0]
		}
		a.gap = a.total / 50
		a.total, _ = a.at(end)
	}
	return planned, ran
}

// at is where a time is on the axis, and whether it is left out.
func (a shownTime) at(ns int64) (shown int64, hidden bool) {
	var out int64
	for _, c := range a.cuts {
		if ns <= c[0] {
			break
		}
		if ns < c[1] {
			return c[0] - out, true
		}
		out += c[1] - c[0] - a.gap
	}
	return ns - out, false
}

// bars draws one row. Bars that fall on one pixel are one.
func (t Timeline) bars(d *Picture, l Lane, top, height float64, x span, axis shownTime, measured bool) {
	place := func(ns int64) float64 { return x.at(float64(ns)/1e9, marginLeft, wideWidth-marginRight) }
	last := -1.0
	for _, b := range l.Bars {
		start, end := b.Start, b.End
		if measured {
			start, end = b.MeasuredAt, b.MeasuredEnd
		}
		shown, hidden := axis.at(start)
		ends, endHidden := axis.at(end)
		if hidden && endHidden {
			continue
		}
		from, to := place(shown), place(ends)
		if to-from < 0.5 && from < last+0.5 {
			continue
		}
		last = to
		title := fmt.Sprintf("%s %s, %s", b.Verb, t.Names[b.Name], Duration(float64(end-start)/1e9))
		if b.Bytes > 0 && end > start && b.Verb == trace.Move {
			title += fmt.Sprintf(", %v at %v", units.Bytes(b.Bytes), units.Rate(float64(b.Bytes)/(float64(end-start)/1e9)))
		}
		d.rect(from, top, max(to-from, 0.5), height-2, ColourOfVerb(b.Verb), title)
		if b.Critical && measured == (t.Step > 0) {
			d.rect(from, top, max(to-from, 0.5), 2, ink("ink"), "")
		}
		if late := b.Late(); measured && t.ForecastSeconds > 0 && late > (b.End-b.Start)/10 && to-from > 1 {
			d.rect(from, top+height-3, to-from, 2, ink("late"), "")
		}
	}
	for _, c := range axis.cuts {
		shown, _ := axis.at(c[0])
		d.label(place(shown+axis.gap/2), top+height/2+3, "middle", "\u2026", labelSize, ink("faint"))
	}
}

func (t Timeline) describe() string {
	text := ""
	for _, l := range t.Lanes {
		text += fmt.Sprintf("%s %s works %s by the forecast", l.Device, l.Queue, Duration(l.Forecast))
		if t.Step > 0 {
			text += fmt.Sprintf(" and %s measured", Duration(l.Measured))
		}
		text += ". "
	}
	return text
}
