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
	Step  int64  `json:"step"` // that was measured; 0 where none was
	// ForecastSeconds and MeasuredSeconds are until the last instruction ends; 0 where there are
	// no times.
	ForecastSeconds float64  `json:"forecast_seconds"`
	MeasuredSeconds float64  `json:"measured_seconds"`
	Lanes           []Lane   `json:"lanes"`
	Names           []string `json:"names"` // of instructions, by Bar.Name
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
}

// Late is how much longer a bar took than forecast, in nanoseconds.
func (b Bar) Late() int64 { return b.MeasuredEnd - b.MeasuredAt - (b.End - b.Start) }

// TimelineOf lays a forecast and a measurement of the same plan next to each other; either may
// be nil.
func TimelineOf(step int64, forecast, measured []trace.Event) (Timeline, error) {
	t := Timeline{Title: "one step: forecast above, measured below", Step: step, Lanes: []Lane{}, Names: []string{}}
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
		b, l := Bar{Instruction: i, Verb: e.Verb, Name: name, Bytes: e.Bytes, Block: e.Block, MicroBatch: e.MicroBatch}, &t.Lanes[at]
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
	return t, nil
}

// Timeline of a run: its latest measured step with the forecast of the same plan. It is empty
// where the log has no traces.
func (r *Run) Timeline() (Timeline, error) {
	var forecast, measured []trace.Event
	var step int64
	for i := len(r.Traces) - 1; i >= 0 && (forecast == nil || measured == nil); i-- {
		at := r.Traces[i]
		if at.Forecast && forecast != nil || !at.Forecast && (measured != nil || forecast != nil) {
			continue // a measured step before the plan's forecast is of another plan
		}
		tr, err := r.ReadTrace(at)
		if err != nil {
			return Timeline{}, err
		}
		if at.Forecast {
			forecast = tr.Events
		} else {
			measured, step = tr.Events, at.Step
		}
	}
	return TimelineOf(step, forecast, measured)
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
	out.Write([]string{"instruction", "device", "lane", "verb", "name", "block", "micro_batch", "bytes", "forecast_start_ns", "forecast_end_ns", "measured_start_ns", "measured_end_ns"})
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	for _, l := range t.Lanes {
		for _, b := range l.Bars {
			out.Write([]string{strconv.Itoa(b.Instruction), l.Device, l.Queue, b.Verb.String(), t.Names[b.Name], strconv.Itoa(b.Block), strconv.Itoa(b.MicroBatch), number(b.Bytes), number(b.Start), number(b.End), number(b.MeasuredAt), number(b.MeasuredEnd)})
		}
	}
	out.Flush()
	return out.Error() // the first error of any write
}

// Picture draws the lanes as rows.
func (t Timeline) Picture() Picture {
	const row, gap = 20, 14
	d := &Picture{Width: chartWidth}
	d.label(marginLeft, 20, "start", t.Title, titleSize, ink("ink"))
	verbs := []trace.Verb{trace.Run, trace.Move, trace.Reduce, trace.Update}
	var names []string
	var colours []Colour
	for _, v := range verbs {
		names, colours = append(names, v.String()), append(colours, ColourOfVerb(v))
	}
	names, colours = append(names, "over a tenth longer than forecast"), append(colours, ink("late"))
	top := 34 + d.legend(marginLeft, 34, plotWidth, names, colours) + 6
	end := max(t.ForecastSeconds, t.MeasuredSeconds)
	x := nice(0, max(end, 1e-9), 8)
	first := top
	for _, l := range t.Lanes {
		d.label(marginLeft-8, top+row-4, "end", l.Device, labelSize-1, ink("ink"))
		d.label(marginLeft-8, top+2*row-4, "end", l.Queue, labelSize-1, ink("faint"))
		t.bars(d, l, top, row, x, func(b Bar) (int64, int64) { return b.Start, b.End }, false)
		if t.Step > 0 {
			t.bars(d, l, top+row, row-4, x, func(b Bar) (int64, int64) { return b.MeasuredAt, b.MeasuredEnd }, true)
		}
		top += 2*row + gap
	}
	for _, m := range x.marks {
		at := x.at(m, marginLeft, chartWidth-marginRight)
		d.line(at, first, at, top, ink("grid"))
		d.label(at, top+14, "middle", Duration(m), labelSize, ink("faint"))
	}
	d.Height = top + 26
	d.Title, d.Describe = t.Title, t.describe()
	return *d
}

// bars draws one row. Bars that fall on one pixel are one.
func (t Timeline) bars(d *Picture, l Lane, top, height float64, x span, times func(Bar) (int64, int64), measured bool) {
	last := -1.0
	for _, b := range l.Bars {
		start, end := times(b)
		from, to := x.at(float64(start)/1e9, marginLeft, chartWidth-marginRight), x.at(float64(end)/1e9, marginLeft, chartWidth-marginRight)
		if to-from < 0.5 && from < last+0.5 {
			continue
		}
		last = to
		colour := ColourOfVerb(b.Verb)
		title := fmt.Sprintf("%s %s, %s", b.Verb, t.Names[b.Name], Duration(float64(end-start)/1e9))
		if b.Bytes > 0 && end > start && b.Verb == trace.Move {
			title += fmt.Sprintf(", %v at %v", units.Bytes(b.Bytes), units.Rate(float64(b.Bytes)/(float64(end-start)/1e9)))
		}
		d.rect(from, top, max(to-from, 0.5), height-2, colour, title)
		if late := b.Late(); measured && t.ForecastSeconds > 0 && late > (b.End-b.Start)/10 && to-from > 1 {
			d.rect(from, top+height-3, to-from, 2, ink("late"), "")
		}
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
