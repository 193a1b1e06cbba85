package view

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"

	"spillway/plan"
	"spillway/units"
)

// Map is where every weight lives: a column per parameter buffer, in the order of the model,
// and a row per purpose.
type Map struct {
	Title   string   `json:"title"`
	Columns []string `json:"columns"` // names of parameter buffers
	Rows    []MapRow `json:"rows"`
	// Updates says, for each column, which device runs the optimizer on it; "" for frozen ones.
	Updates []string `json:"updates"`
}

// MapRow is a purpose.
type MapRow struct {
	Class plan.Class `json:"class"`
	Cells []Cell     `json:"cells"`
}

// Cell is what one parameter buffer stores for one purpose.
type Cell struct {
	Tier    plan.Tier `json:"tier"` // "" where nothing is stored between steps
	Bytes   int64     `json:"bytes"`
	Streams bool      `json:"streams"` // it is copied to a device when it is needed
}

var tierColours = map[plan.Tier]Colour{
	plan.OnDevice: {"device", "#0b61a4", "#62b0e8", 32},
	plan.Pinned:   {"pinned", "#d98e04", "#f2bd4b", 172},
	plan.OnHost:   {"host", "#0f8a5f", "#4fcf9f", 36},
	plan.OnDisk:   {"disk", "#4b5563", "#a3acb9", 241},
}

var tiers = []plan.Tier{plan.OnDevice, plan.Pinned, plan.OnHost, plan.OnDisk}

// MapOf is the map of a plan.
func MapOf(p *plan.Plan) Map {
	m := Map{Title: "where the params of " + p.Model + " are stored", Columns: []string{}, Rows: []MapRow{}}
	streams := make([]bool, len(p.Buffers))
	for i := range p.Instructions {
		if s := &p.Instructions[i]; s.Verb == plan.Move && p.TierOf(s.Src) != plan.OnDevice && p.TierOf(s.Dst) == plan.OnDevice {
			streams[s.Src] = true
		}
	}
	updates := make([]string, len(p.Slabs))
	for i := range p.Instructions {
		if s := &p.Instructions[i]; s.Verb == plan.Update {
			updates[s.Slab] = p.Devices[s.Device].Name
		}
	}
	rows := map[plan.Class][]Cell{}
	for _, class := range []plan.Class{plan.Weight, plan.Master, plan.State, plan.Gradient} {
		rows[class] = make([]Cell, len(p.Slabs))
	}
	for i, s := range p.Slabs {
		m.Columns = append(m.Columns, s.Name)
		add := func(class plan.Class, buffer int) {
			if buffer < 0 {
				return
			}
			c := &rows[class][i]
			c.Tier, c.Bytes, c.Streams = p.TierOf(buffer), c.Bytes+p.Buffers[buffer].Bytes, c.Streams || streams[buffer]
		}
		add(plan.Weight, s.Weight)
		add(plan.Gradient, s.Gradient)
		for _, piece := range s.Pieces {
			add(plan.Master, piece.Master)
			add(plan.State, piece.State)
		}
	}
	m.Updates = updates
	for _, class := range []plan.Class{plan.Weight, plan.Master, plan.State, plan.Gradient} {
		if slices.ContainsFunc(rows[class], func(c Cell) bool { return c.Bytes > 0 }) {
			m.Rows = append(m.Rows, MapRow{class, rows[class]})
		}
	}
	return m
}

// CSV writes a line per cell.
func (m Map) CSV(w io.Writer) error {
	out := csv.NewWriter(w)
	out.Write([]string{"parameter buffer", "purpose", "tier", "bytes", "streams", "optimizer"})
	for _, r := range m.Rows {
		for i, c := range r.Cells {
			if c.Bytes > 0 {
				out.Write([]string{m.Columns[i], string(r.Class), string(c.Tier), strconv.FormatInt(c.Bytes, 10), strconv.FormatBool(c.Streams), m.Updates[i]})
			}
		}
	}
	out.Flush()
	return out.Error() // the first error of any write
}

// Picture draws the cells.
func (m Map) Picture() Picture {
	const height = 34
	d := &Picture{Width: wideWidth, Title: m.Title, Describe: m.describe()}
	d.label(marginLeft, 22, "start", m.Title, titleSize, ink("ink"))
	var names []string
	var colours []Colour
	for _, t := range tiers {
		names, colours = append(names, string(t)), append(colours, tierColours[t])
	}
	names, colours = append(names, "line below: streams to the device"), append(colours, ink("ink"))
	top := 34 + d.legend(marginLeft, 34, widePlot, names, colours) + 8
	width := widePlot / float64(max(len(m.Columns), 1))
	for _, r := range m.Rows {
		d.label(marginLeft-8, top+height/2, "end", string(r.Class), labelSize, ink("ink"))
		for i, c := range r.Cells {
			if c.Bytes == 0 {
				continue
			}
			x := marginLeft + float64(i)*width
			d.rect(x, top, max(width-1, 0.5), height-8, tierColours[c.Tier], m.title(r, i))
			if c.Streams {
				d.rect(x, top+height-7, max(width-1, 0.5), 3, ink("ink"), "")
			}
		}
		top += height
	}
	if slices.ContainsFunc(m.Updates, func(u string) bool { return u != "" }) {
		d.label(marginLeft-8, top+10, "end", "updated by", labelSize-1, ink("ink"))
		for i, u := range m.Updates {
			if u == "" {
				continue
			}
			colour := tierColours[plan.OnDevice]
			if u == plan.HostName {
				colour = tierColours[plan.OnHost]
			}
			d.rect(marginLeft+float64(i)*width, top, max(width-1, 0.5), 12, colour, fmt.Sprintf("%s: optimizer step by %s", m.Columns[i], u))
		}
		top += 18
	}
	d.label(marginLeft, top+14, "start", m.ends(), labelSize, ink("faint"))
	d.Height = top + 26
	return *d
}

// ends says what the columns are.
func (m Map) ends() string {
	if len(m.Columns) == 0 {
		return ""
	}
	return fmt.Sprintf("%d parameter buffers, from %s to %s", len(m.Columns), m.Columns[0], m.Columns[len(m.Columns)-1])
}

// title is what a cell says when it is pointed at.
func (m Map) title(r MapRow, i int) string {
	c := r.Cells[i]
	text := fmt.Sprintf("%s, %s: %v on %s", m.Columns[i], r.Class, units.Bytes(c.Bytes), c.Tier)
	if c.Streams {
		text += ", streams"
	}
	if m.Updates[i] != "" {
		text += ", optimizer step by " + m.Updates[i]
	}
	return text
}

func (m Map) describe() string {
	text := ""
	for _, r := range m.Rows {
		sums := map[plan.Tier]int64{}
		for _, c := range r.Cells {
			sums[c.Tier] += c.Bytes
		}
		for _, t := range tiers {
			if sums[t] > 0 {
				text += fmt.Sprintf("%s: %v on %s. ", r.Class, units.Bytes(sums[t]), t)
			}
		}
	}
	return text
}
