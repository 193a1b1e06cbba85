package view

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strconv"

	"spillway/trace"
)

// ForecastCheck lays the time that each instruction took against its forecast.
type ForecastCheck struct {
	Title  string  `json:"title"`
	Step   int64   `json:"step"`
	Points []Point `json:"points"`
	Worst  []Slip  `json:"worst"`
}

// Point is an instruction with both of its times, in seconds.
type Point struct {
	Lane     string     `json:"lane"`
	Name     string     `json:"name"`
	Verb     trace.Verb `json:"verb"`
	Forecast float64    `json:"forecast_seconds"`
	Measured float64    `json:"measured_seconds"`
}

// CheckForecast compares the instructions of a timeline that has both.
func CheckForecast(t Timeline) ForecastCheck {
	c := ForecastCheck{Title: "instructions: measured against forecast", Step: t.Step, Points: []Point{}, Worst: t.Worst(10)}
	if t.Step == 0 || t.ForecastSeconds == 0 {
		return c
	}
	for _, l := range t.Lanes {
		for _, b := range l.Bars {
			c.Points = append(c.Points, Point{l.Device + " " + l.Queue, t.Names[b.Name], b.Verb, float64(b.End-b.Start) / 1e9, float64(b.MeasuredEnd-b.MeasuredAt) / 1e9})
		}
	}
	return c
}

// CSV writes a line per instruction.
func (c ForecastCheck) CSV(w io.Writer) error {
	out := csv.NewWriter(w)
	out.Write([]string{"lane", "verb", "name", "forecast_seconds", "measured_seconds"})
	for _, p := range c.Points {
		out.Write([]string{p.Lane, p.Verb.String(), p.Name, strconv.FormatFloat(p.Forecast, 'g', -1, 64), strconv.FormatFloat(p.Measured, 'g', -1, 64)})
	}
	out.Flush()
	return out.Error() // the first error of any write
}

// Picture draws a point per instruction, on axes of powers of ten. Above the diagonal something
// took longer than forecast. Points that fall on one place are one.
func (c ForecastCheck) Picture() Picture {
	const left, right, top, bottom = marginLeft, wideWidth - marginRight, 76, 484
	d := &Picture{Width: wideWidth, Height: bottom + 44}
	d.label(left, 22, "start", c.Title, titleSize, ink("ink"))
	verbs := []trace.Verb{trace.Run, trace.Move, trace.Reduce, trace.Update}
	var names []string
	var colours []Colour
	for _, v := range verbs {
		names, colours = append(names, v.String()), append(colours, ColourOfVerb(v))
	}
	d.legend(left, 34, widePlot, names, colours)
	low, high := math.Inf(1), math.Inf(-1)
	for _, p := range c.Points {
		if p.Forecast > 0 && p.Measured > 0 {
			low, high = min(low, p.Forecast, p.Measured), max(high, p.Forecast, p.Measured)
		}
	}
	if low > high {
		low, high = 1e-6, 1e-3
	}
	first, last := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high)+1e-9)
	if first == last {
		last++
	}
	axis := span{low: first, high: last}
	for e := first; e <= last; e++ {
		x, y := axis.at(e, left, right), axis.at(e, bottom, top)
		d.line(left, y, right, y, ink("grid"))
		d.line(x, top, x, bottom, ink("grid"))
		d.label(left-8, y+4, "end", Duration(math.Pow(10, e)), labelSize, ink("faint"))
		anchor := "middle"
		if e == last {
			anchor = "end" // the picture ends there
		}
		d.label(x, bottom+17, anchor, Duration(math.Pow(10, e)), labelSize, ink("faint"))
	}
	d.line(left, bottom, right, top, ink("faint"))
	d.label(right, bottom+34, "end", "forecast", labelSize, ink("faint"))
	d.label(left, top-6, "start", "measured", labelSize, ink("faint"))
	seen := map[[3]int]bool{}
	for _, p := range c.Points {
		if p.Forecast <= 0 || p.Measured <= 0 {
			continue
		}
		x, y := axis.at(math.Log10(p.Forecast), left, right), axis.at(math.Log10(p.Measured), bottom, top)
		key := [3]int{int(x / 2), int(y / 2), int(p.Verb)}
		if seen[key] {
			continue
		}
		seen[key] = true
		d.rect(x-2, y-2, 4, 4, ColourOfVerb(p.Verb), fmt.Sprintf("%s %s on %s: forecast %s, measured %s", p.Verb, p.Name, p.Lane, Duration(p.Forecast), Duration(p.Measured)))
	}
	d.Title, d.Describe = c.Title, c.describe()
	return *d
}

func (c ForecastCheck) describe() string {
	var forecast, measured float64
	for _, p := range c.Points {
		forecast, measured = forecast+p.Forecast, measured+p.Measured
	}
	return fmt.Sprintf("%d instructions, together %s by the forecast and %s measured.", len(c.Points), Duration(forecast), Duration(measured))
}
