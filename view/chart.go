package view

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"spillway/units"
)

// Chart is curves over one axis.
type Chart struct {
	Title string `json:"title"`
	X     string `json:"x"` // what the axis counts
	Unit  Unit   `json:"unit"`
	Lines []Line `json:"lines"`

	several bool // runs are shown, each in a colour of its own
}

// Line is a curve. Where a run has more points than can be seen, one of these is several of
// the run's: the last of them, with the lowest and the highest.
type Line struct {
	Name   string    `json:"name"`
	X      []float64 `json:"x"`
	Y      []float64 `json:"y"`
	Low    []float64 `json:"low,omitempty"`
	High   []float64 `json:"high,omitempty"`
	Dashed bool      `json:"dashed,omitempty"`

	colour int // of lineColours
}

// Unit says how numbers are written.
type Unit string

// The units.
const (
	Plain   Unit = ""
	Bytes   Unit = "bytes"
	Seconds Unit = "seconds"
	Rate    Unit = "tokens/s"
	Share   Unit = "share"
	Count   Unit = "count" // of things that have no parts
)

// Format writes a number for people.
func (u Unit) Format(v float64) string {
	switch u {
	case Bytes:
		return units.Bytes(int64(v)).String()
	case Seconds:
		return Duration(v)
	case Share:
		return fmt.Sprintf("%.0f%%", 100*v)
	}
	return short(v)
}

// short writes at most four digits.
func short(v float64) string {
	a := math.Abs(v)
	switch {
	case a >= 1e9:
		return strconv.FormatFloat(v/1e9, 'g', 4, 64) + " G"
	case a >= 1e6:
		return strconv.FormatFloat(v/1e6, 'g', 4, 64) + " M"
	case a >= 1e4:
		return strconv.FormatFloat(v/1e3, 'g', 4, 64) + " k"
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// Duration writes seconds with a unit that suits.
func Duration(s float64) string {
	switch {
	case s >= 86400:
		return fmt.Sprintf("%d d %d h", int(s)/86400, int(s)/3600%24)
	case s >= 3600:
		return fmt.Sprintf("%d h %d min", int(s)/3600, int(s)/60%60)
	case s >= 120:
		return fmt.Sprintf("%d min %d s", int(s)/60, int(s)%60)
	case s >= 1:
		return strconv.FormatFloat(s, 'g', 3, 64) + " s"
	case s >= 1e-3:
		return strconv.FormatFloat(s*1e3, 'g', 3, 64) + " ms"
	case s == 0:
		return "0 s"
	}
	return strconv.FormatFloat(s*1e6, 'g', 3, 64) + " µs"
}

// reduce puts points that fall on one pixel together. The lowest and the highest of them stay,
// so that no spike is lost.
func reduce(name string, xs, ys []float64, points int) Line {
	l := Line{Name: name}
	finite := func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
	if len(xs) <= points || points <= 0 {
		for i := range xs {
			if finite(ys[i]) {
				l.X, l.Y = append(l.X, xs[i]), append(l.Y, ys[i])
			}
		}
		return l
	}
	for p := range points {
		from, to := p*len(xs)/points, (p+1)*len(xs)/points
		low, high, last, at := math.Inf(1), math.Inf(-1), math.NaN(), 0
		for i := from; i < to; i++ {
			if finite(ys[i]) {
				low, high, last, at = min(low, ys[i]), max(high, ys[i]), ys[i], i
			}
		}
		if finite(last) {
			l.X, l.Y, l.Low, l.High = append(l.X, xs[at]), append(l.Y, last), append(l.Low, low), append(l.High, high)
		}
	}
	return l
}

// CSV writes a line per point: the name of the curve, x and y.
func (c Chart) CSV(w io.Writer) error {
	out := csv.NewWriter(w)
	out.Write([]string{"run", c.X, string(c.Title)})
	for _, l := range c.Lines {
		for i := range l.X {
			out.Write([]string{l.Name, strconv.FormatFloat(l.X[i], 'g', -1, 64), strconv.FormatFloat(l.Y[i], 'g', -1, 64)})
		}
	}
	out.Flush()
	return out.Error() // the first error of any write
}

// span is the range of an axis, with the places of its marks.
type span struct {
	low, high float64
	marks     []float64
}

// nice makes a span that begins and ends near two numbers, with round marks in it.
func nice(low, high float64, count int) span {
	if !(high > low) {
		low, high = low-math.Max(math.Abs(low)*0.05, 1e-9), high+math.Max(math.Abs(high)*0.05, 1e-9)
	}
	raw := (high - low) / float64(max(count, 1))
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	step := 10 * power
	for _, m := range []float64{1, 2, 2.5, 5} {
		if m*power >= raw {
			step = m * power
			break
		}
	}
	s := span{low: low, high: high}
	for m := math.Ceil(low/step) * step; m <= high+step*1e-9; m += step {
		if math.Abs(m) < step*1e-9 {
			m = 0
		}
		s.marks = append(s.marks, m)
	}
	return s
}

// niceBytes has marks at powers and shares of powers of two.
func niceBytes(high float64, count int) span {
	s := span{high: math.Max(high, 1)}
	step := 1.0
	for step*float64(count) < s.high {
		step *= 2
	}
	for m := 0.0; m <= s.high*(1+1e-9); m += step {
		s.marks = append(s.marks, m)
	}
	return s
}

func (s span) at(v, from, to float64) float64 {
	return from + (v-s.low)/(s.high-s.low)*(to-from)
}

// The size of pictures, in pixels: of charts, which stand side by side, and of views that are as
// wide as a page.
const (
	chartWidth, chartHeight = 600, 270
	wideWidth               = 1000
	marginLeft, marginRight = 76, 16
	marginTop, marginBottom = 36, 40
	titleSize, labelSize    = 16, 13
	plotWidth               = chartWidth - marginLeft - marginRight
	widePlot                = wideWidth - marginLeft - marginRight
	DefaultPoints           = plotWidth // of a curve: one for each pixel
)

// extent is the range of all curves. Outliers of less than a fiftieth of the points do not
// squeeze the rest: curves are cut where they leave the picture.
func (c Chart) extent() (x, y span) {
	lowX, highX, lowY, highY := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, l := range c.Lines {
		for i := range l.X {
			lowX, highX = min(lowX, l.X[i]), max(highX, l.X[i])
			low, high := l.Y[i], l.Y[i]
			if l.Low != nil {
				low, high = l.Low[i], l.High[i]
			}
			lowY, highY = min(lowY, low), max(highY, high)
		}
	}
	if lowX > highX {
		lowX, highX, lowY, highY = 0, 1, 0, 1
	}
	x = nice(lowX, highX, 6)
	x.marks = slices.DeleteFunc(x.marks, func(m float64) bool { return m != math.Trunc(m) }) // there is no half of a step
	if c.Unit == Bytes {
		return x, niceBytes(highY*1.05, 6)
	}
	if c.Unit != Plain {
		lowY = 0
	}
	pad := (highY - lowY) * 0.04
	if lowY == 0 {
		y = nice(0, max(highY+pad, map[Unit]float64{Count: 1}[c.Unit]), 5)
		if c.Unit == Count {
			y.marks = slices.DeleteFunc(y.marks, func(m float64) bool { return m != math.Trunc(m) })
		}
		return x, y
	}
	return x, nice(lowY-pad, highY+pad, 5)
}

// Picture draws the chart.
func (c Chart) Picture() Picture {
	d := &Picture{Width: chartWidth, Height: chartHeight}
	x, y := c.extent()
	const left, right, top, bottom = marginLeft, chartWidth - marginRight, marginTop, chartHeight - marginBottom
	d.label(left, 22, "start", c.Title, titleSize, ink("ink"))
	for _, m := range y.marks {
		at := y.at(m, bottom, top)
		d.line(left, at, right, at, ink("grid"))
		d.label(left-8, at+4, "end", c.Unit.Format(m), labelSize, ink("faint"))
	}
	for _, m := range x.marks {
		at := x.at(m, left, right)
		d.line(at, bottom, at, bottom+4, ink("faint"))
		d.label(at, bottom+17, "middle", short(m), labelSize, ink("faint"))
	}
	d.label(right, bottom+33, "end", c.X, labelSize, ink("faint"))
	var names []string
	var colours []Colour
	for _, l := range c.Lines {
		colour := lineColour(l.colour)
		names, colours = append(names, l.Name), append(colours, colour)
		c.curve(d, l, colour, x, y)
	}
	if len(names) > 1 || c.several {
		d.legend(left, chartHeight-14, plotWidth-60, names, colours)
	}
	d.Title, d.Describe = c.Title, c.describe()
	return *d
}

// curve draws a line, and the band between its lowest and highest points.
func (c Chart) curve(d *Picture, l Line, colour Colour, x, y span) {
	const left, right, top, bottom = marginLeft, chartWidth - marginRight, marginTop, chartHeight - marginBottom
	xs, ys := make([]float64, len(l.X)), make([]float64, len(l.X))
	for i := range l.X {
		xs[i], ys[i] = x.at(l.X[i], left, right), y.at(l.Y[i], bottom, top)
	}
	if l.Low != nil {
		n := len(xs)
		bx, by := make([]float64, 2*n), make([]float64, 2*n)
		for i := range xs {
			bx[i], by[i] = xs[i], y.at(l.High[i], bottom, top)
			bx[2*n-1-i], by[2*n-1-i] = xs[i], y.at(l.Low[i], bottom, top)
		}
		d.area(bx, by, colour, 0.25)
	}
	var dash []float64
	if l.Dashed {
		dash = []float64{5, 4}
	}
	d.path(xs, ys, colour, dash...)
	if len(xs) == 1 {
		d.rect(xs[0]-2, ys[0]-2, 4, 4, colour, l.Name)
	}
}

// describe says what a curve does, for those who do not see it.
func (c Chart) describe() string {
	text := ""
	for _, l := range c.Lines {
		if n := len(l.Y); n > 0 {
			text += fmt.Sprintf("%s: %s at %s %s, %s at %s %s. ", l.Name, c.Unit.Format(l.Y[0]), c.X, short(l.X[0]), c.Unit.Format(l.Y[n-1]), c.X, short(l.X[n-1]))
		}
	}
	return text
}
