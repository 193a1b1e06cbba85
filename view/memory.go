package view

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"spillway/plan"
	"spillway/units"
)

// Memory is what the plan has in each tier, instruction by instruction. It is drawn from the
// plan, to the byte: nothing is sampled, so no peak is missed.
type Memory struct {
	Title        string       `json:"title"`
	Instructions int          `json:"instructions"`
	Tiers        []TierMemory `json:"tiers"`
}

// TierMemory is the memory of a tier over one iteration.
type TierMemory struct {
	Tier plan.Tier `json:"tier"`
	// Reserved is the size of the tier's arenas: the predicted peak. Peak is the most that
	// buffers take of it at once, after instruction PeakAt (-1: between iterations).
	Reserved int64 `json:"reserved_bytes"`
	Peak     int64 `json:"peak_bytes"`
	PeakAt   int   `json:"peak_at"`
	// Measured is what the run took of the tier, by the count of whoever gives it out: a GPU's
	// driver, the system; 0 where nobody counts. A driver counts context and libraries too.
	Measured int64  `json:"measured_bytes,omitempty"`
	Counted  string `json:"measured_by,omitempty"` // who counts
	// Changes are the instructions after which something is otherwise than before; Bytes
	// has a row per class, in the order of Classes, with what lives after each of them.
	Changes []int        `json:"changes"`
	Classes []plan.Class `json:"classes"`
	Bytes   [][]int64    `json:"bytes"`
	Arenas  []ArenaLives `json:"arenas"`
}

// ArenaLives is who sits where in an arena, and when.
type ArenaLives struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	Lives []Life `json:"lives"`
}

// Life is a buffer from its first write to its free.
type Life struct {
	Name   string     `json:"name"`
	Class  plan.Class `json:"class"`
	Offset int64      `json:"offset"`
	Bytes  int64      `json:"bytes"`
	From   int        `json:"from"` // instruction; -1 from the beginning
	To     int        `json:"to"`   // instruction after which it is gone; the number of them for a home
}

// MemoryOf is the memory of a plan.
func MemoryOf(p *plan.Plan) Memory {
	m := Memory{Title: "memory of " + p.Model, Instructions: len(p.Instructions)}
	began := make([]int, len(p.Buffers))
	lives := make([][]Life, len(p.Arenas))
	tiers := map[plan.Tier]*tierWalk{}
	for _, tier := range []plan.Tier{plan.OnDevice, plan.Pinned, plan.OnHost, plan.OnDisk} {
		tiers[tier] = &tierWalk{now: map[plan.Class]int64{}, peakAt: -1}
	}
	end := func(id, at int) {
		b := &p.Buffers[id]
		lives[b.Arena] = append(lives[b.Arena], Life{b.Name, b.Class, b.Offset, b.Bytes, began[id], at})
	}
	for c := range p.Lives() {
		b, w := &p.Buffers[c.Buffer], tiers[p.TierOf(c.Buffer)]
		if c.Alive {
			began[c.Buffer] = c.Instruction
			w.change(c.Instruction, b.Class, b.Bytes)
		} else {
			end(c.Buffer, c.Instruction)
			w.change(c.Instruction, b.Class, -b.Bytes)
		}
	}
	for id, b := range p.Buffers {
		if b.Home {
			end(id, len(p.Instructions))
		}
	}
	for _, tier := range []plan.Tier{plan.OnDevice, plan.Pinned, plan.OnHost, plan.OnDisk} {
		t := tiers[tier].done()
		t.Tier, t.Reserved = tier, p.Peak()[tier]
		for i, a := range p.Arenas {
			if a.Tier == tier {
				slices.SortFunc(lives[i], func(x, y Life) int { return cmp.Or(cmp.Compare(x.From, y.From), cmp.Compare(x.Offset, y.Offset)) })
				t.Arenas = append(t.Arenas, ArenaLives{a.Name, a.Bytes, lives[i]})
			}
		}
		if t.Reserved > 0 {
			m.Tiers = append(m.Tiers, t)
		}
	}
	return m
}

// Measured adds what a run took of the tiers, as far as its log says.
func (m Memory) Measured(r *Run) Memory {
	var measured, driver int64
	if n := len(r.Iterations); n > 0 {
		measured, driver = r.Iterations[n-1].MeasuredBytes, r.Iterations[n-1].DriverBytes
	} else if n := len(r.Generations); n > 0 {
		measured, driver = r.Generations[n-1].MeasuredBytes, r.Generations[n-1].DriverBytes
	}
	m.Tiers = slices.Clone(m.Tiers)
	for i := range m.Tiers {
		if t := &m.Tiers[i]; t.Tier == plan.OnDevice && driver > 0 {
			t.Measured, t.Counted = driver, "the driver, with context and libraries"
		} else if t.Tier == plan.OnDevice && measured > 0 {
			t.Measured, t.Counted = measured, "the device"
		}
	}
	return m
}

// tierWalk follows what lives in a tier. An instruction begins lives or, if it is a free,
// ends one, never both: what lives after it is all there is to know of it.
type tierWalk struct {
	now     map[plan.Class]int64
	total   int64
	peak    int64
	peakAt  int
	changes []int
	rows    []map[plan.Class]int64
}

func (w *tierWalk) change(at int, class plan.Class, bytes int64) {
	w.now[class] += bytes
	if w.total += bytes; w.total > w.peak {
		w.peak, w.peakAt = w.total, at
	}
	if n := len(w.changes); n > 0 && w.changes[n-1] == at {
		w.rows[n-1][class] = w.now[class]
		return
	}
	w.changes, w.rows = append(w.changes, at), append(w.rows, maps.Clone(w.now))
}

func (w *tierWalk) done() (t TierMemory) {
	t.Peak, t.PeakAt, t.Changes = w.peak, w.peakAt, w.changes
	for _, class := range Classes() {
		has, row := false, make([]int64, len(w.rows))
		for i, r := range w.rows {
			row[i] = r[class]
			has = has || row[i] > 0
		}
		if has {
			t.Classes, t.Bytes = append(t.Classes, class), append(t.Bytes, row)
		}
	}
	return t
}

// CSV writes a line per tier, instruction and class.
func (m Memory) CSV(w io.Writer) error {
	out := csv.NewWriter(w)
	out.Write([]string{"tier", "instruction", "class", "bytes"})
	for _, t := range m.Tiers {
		for i, at := range t.Changes {
			for c, class := range t.Classes {
				out.Write([]string{string(t.Tier), strconv.Itoa(at), string(class), strconv.FormatInt(t.Bytes[c][i], 10)})
			}
		}
	}
	out.Flush()
	return out.Error() // the first error of any write
}

const (
	stackHeight = 170
	arenaHeight = 150
	tierGap     = 58
)

// Picture draws the tiers one below the other: what lives, stacked by purpose, over the
// instructions of an iteration, and below it the addresses of the largest arena.
func (m Memory) Picture() Picture {
	d := &Picture{Width: wideWidth, Height: marginTop + 30}
	var names []string
	var colours []Colour
	for _, class := range Classes() {
		if class != plan.Gaps && slices.ContainsFunc(m.Tiers, func(t TierMemory) bool { return slices.Contains(t.Classes, class) }) {
			names, colours = append(names, string(class)), append(colours, ColourOf(class))
		}
	}
	names, colours = append(names, "reserved, not in use"), append(colours, ColourOf(plan.Gaps))
	if slices.ContainsFunc(m.Tiers, func(t TierMemory) bool { return t.Measured > 0 }) {
		names, colours = append(names, "line: measured"), append(colours, ink("late"))
	}
	d.label(marginLeft, 22, "start", m.Title, titleSize, ink("ink"))
	top := 34 + d.legend(marginLeft, 34, widePlot, names, colours) + 8
	for _, t := range m.Tiers {
		d.label(marginLeft, top+12, "start", t.label(), labelSize+1, ink("ink"))
		m.stack(d, t, top+20)
		top += 20 + stackHeight + 18
		if a := t.largest(); len(a.Lives) > 0 {
			d.label(marginLeft, top+12, "start", fmt.Sprintf("addresses of %s, %v", a.Name, units.Bytes(a.Bytes)), labelSize, ink("faint"))
			m.addresses(d, a, top+20)
			top += 20 + arenaHeight
		}
		top += tierGap - 20
	}
	d.label(wideWidth-marginRight, top-10, "end", "instruction of the plan", labelSize, ink("faint"))
	d.Height = top
	d.Title, d.Describe = m.Title, m.describe()
	return *d
}

func (t TierMemory) label() string {
	text := fmt.Sprintf("%s: %v reserved, %v in use at most", t.Tier, units.Bytes(t.Reserved), units.Bytes(t.Peak))
	if t.Measured > 0 {
		text += fmt.Sprintf("; %v measured by %s", units.Bytes(t.Measured), t.Counted)
	}
	return text
}

func (m Memory) describe() string {
	text := ""
	for _, t := range m.Tiers {
		text += t.label() + ". "
	}
	return text
}

func (t TierMemory) largest() (most ArenaLives) {
	for _, a := range t.Arenas {
		if a.Bytes > most.Bytes {
			most = a
		}
	}
	return most
}

// column is the pixel of an instruction.
func (m Memory) column(at int) float64 {
	return marginLeft + float64(at+1)/float64(m.Instructions+1)*widePlot
}

// stack draws what lives, class upon class. Of several changes on one pixel the one with most
// is drawn.
func (m Memory) stack(d *Picture, t TierMemory, top float64) {
	y := niceBytes(float64(max(t.Reserved, t.Measured)), 4)
	y.high = float64(max(t.Reserved, t.Measured))
	bottom := top + stackHeight
	reserved := y.at(float64(t.Reserved), bottom, top)
	d.rect(marginLeft, reserved, widePlot, bottom-reserved, ColourOf(plan.Gaps), t.label())
	var picked []int // change to draw, one per pixel
	for i := range t.Changes {
		if n := len(picked); n > 0 && int(m.column(t.Changes[i])) == int(m.column(t.Changes[picked[n-1]])) {
			if t.total(i) > t.total(picked[n-1]) {
				picked[n-1] = i
			}
			continue
		}
		picked = append(picked, i)
	}
	below := make([]int64, len(picked))
	for c, class := range t.Classes {
		var xs, ys, baseX, baseY []float64
		for k, i := range picked {
			from, to := m.column(t.Changes[i]), float64(marginLeft+widePlot)
			if k+1 < len(picked) {
				to = m.column(t.Changes[picked[k+1]])
			}
			low, high := y.at(float64(below[k]), bottom, top), y.at(float64(below[k]+t.Bytes[c][i]), bottom, top)
			xs, ys = append(xs, from, to), append(ys, high, high)
			baseX, baseY = append(baseX, from, to), append(baseY, low, low)
			below[k] += t.Bytes[c][i]
		}
		slices.Reverse(baseX)
		slices.Reverse(baseY)
		d.area(append(xs, baseX...), append(ys, baseY...), ColourOf(class), 0)
	}
	if t.Measured > 0 {
		at := y.at(float64(t.Measured), bottom, top)
		d.path([]float64{marginLeft, marginLeft + widePlot}, []float64{at, at}, ink("late"), 6, 4)
	}
	for _, mark := range y.marks {
		at := y.at(mark, bottom, top)
		d.line(marginLeft-4, at, marginLeft, at, ink("faint"))
		d.label(marginLeft-8, at+4, "end", units.Bytes(int64(mark)).String(), labelSize, ink("faint"))
	}
}

func (t TierMemory) total(i int) (sum int64) {
	for c := range t.Bytes {
		sum += t.Bytes[c][i]
	}
	return sum
}

// maxRects is how many buffers are drawn: the largest.
const maxRects = 4000

// addresses draws an arena: time to the right, addresses upwards.
func (m Memory) addresses(d *Picture, a ArenaLives, top float64) {
	d.rect(marginLeft, top, widePlot, arenaHeight, ColourOf(plan.Gaps), "")
	lives := a.Lives
	if len(lives) > maxRects {
		lives = slices.SortedFunc(slices.Values(lives), func(x, y Life) int { return cmp.Compare(y.Bytes, x.Bytes) })[:maxRects]
		slices.SortStableFunc(lives, func(x, y Life) int { return cmp.Or(cmp.Compare(x.From, y.From), cmp.Compare(x.Offset, y.Offset)) })
	}
	for _, l := range lives {
		x, w := m.column(l.From), m.column(l.To)-m.column(l.From)
		height := float64(l.Bytes) / float64(a.Bytes) * arenaHeight
		if height < 0.2 {
			continue
		}
		d.rect(x, top+arenaHeight-float64(l.Offset+l.Bytes)/float64(a.Bytes)*arenaHeight, max(w, 0.5), height, ColourOf(l.Class), fmt.Sprintf("%s, %s, %v", l.Name, l.Class, units.Bytes(l.Bytes)))
	}
}
