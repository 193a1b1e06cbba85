package monitor

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"spillway/eventlog"
	"spillway/units"
)

// Screen draws snapshots for a terminal. It remembers some of the past, for small curves.
type Screen struct {
	// Colour allows colours of 256; without it text is plain.
	Colour bool
	Every  time.Duration // between two looks, for the first line

	links map[int][2][]float64 // of GPUs: rates in and out, newest last
	busy  []float64
}

// history is how many looks are remembered.
const history = 240

func remember(list []float64, v float64) []float64 {
	list = append(list, v)
	return list[max(len(list)-history, 0):]
}

// Add takes in a snapshot.
func (s *Screen) Add(at Snapshot) {
	if s.links == nil {
		s.links = map[int][2][]float64{}
	}
	s.busy = remember(s.busy, at.Host.Busy)
	for _, g := range at.GPUs {
		had := s.links[g.Index]
		s.links[g.Index] = [2][]float64{remember(had[0], float64(g.Received)), remember(had[1], float64(g.Sent))}
	}
}

// Draw gives the lines of a snapshot for a terminal of a size. No line is wider, and there are
// no more than fit.
func (s *Screen) Draw(at Snapshot, width, height int) []string {
	d := &painter{width: max(width, 20), colour: s.Colour}
	d.header(at, s.Every)
	d.host(at.Host, s.busy)
	for _, g := range at.GPUs {
		d.gpu(g, s.links[g.Index])
	}
	d.runs(at.Runs)
	d.alerts(at.Runs)
	d.processes(at.GPUs)
	for _, note := range at.Notes {
		d.add(d.faint(clip(note, d.width)))
	}
	if len(d.lines) > height {
		d.lines = d.lines[:max(height-1, 0)]
		d.add(d.faint(clip("more lines than this terminal has", d.width)))
	}
	return d.lines
}

// painter collects lines.
type painter struct {
	width  int
	colour bool
	lines  []string
}

func (d *painter) add(line string) { d.lines = append(d.lines, line) }

// Colours of 256 that are used here; those of tiers and verbs are the view's.
const (
	faintColour, titleColour, goodColour, badColour = 245, 74, 36, 167
)

func (d *painter) paint(code int, text string) string {
	if !d.colour || text == "" {
		return text
	}
	return fmt.Sprintf("\x1b[38;5;%dm%s\x1b[0m", code, text)
}

func (d *painter) faint(text string) string { return d.paint(faintColour, text) }

// clip cuts a text without colours to a width.
func clip(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(width-1, 0)]) + "…"
}

// pad fills a text up to a width, or cuts it.
func pad(text string, width int) string {
	text = clip(text, width)
	return text + strings.Repeat(" ", max(width-utf8.RuneCountInString(text), 0))
}

func (d *painter) title(text string) { d.add(d.paint(titleColour, clip(text, d.width))) }

func (d *painter) header(at Snapshot, every time.Duration) {
	right := at.Time.Format("15:04:05")
	if every > 0 {
		right = fmt.Sprintf("every %v · q quits · %s", every, right)
	}
	left := "spillway top · " + printable(at.Host.Name)
	gap := d.width - utf8.RuneCountInString(left) - utf8.RuneCountInString(right)
	if gap < 1 {
		d.title(left)
		return
	}
	d.add(d.paint(titleColour, left) + strings.Repeat(" ", gap) + d.faint(right))
}

// bar is a share as a bar of cells, with a mark where one is.
func bar(share float64, width int, mark float64) string {
	if width <= 0 {
		return ""
	}
	share = min(max(share, 0), 1)
	full := int(math.Round(share * float64(width)))
	cells := []rune(strings.Repeat("█", full) + strings.Repeat("░", width-full))
	if mark > 0.01 && mark <= 1 {
		cells[min(int(mark*float64(width)), width-1)] = '│'
	}
	return string(cells)
}

func (d *painter) barWidth() int { return min(max(d.width/4, 8), 40) }

func (d *painter) host(h Host, busy []float64) {
	n := d.barWidth()
	text := fmt.Sprintf("%s %4.0f%% of %d cores", bar(h.Busy, n, 0), 100*h.Busy, h.Cores)
	left := d.width - 8 - utf8.RuneCountInString(text) - 2
	d.row("CPU", text+"  "+sparkTo(1, busy, min(left, 40)))
	if h.Total > 0 {
		text := fmt.Sprintf("%s %v of %v used", bar(1-float64(h.Available)/float64(h.Total), n, 0), units.Bytes(h.Total-h.Available), units.Bytes(h.Total))
		if h.Pressure > 0.01 {
			text += fmt.Sprintf(", pressure %.0f%%", 100*h.Pressure)
		}
		d.row("memory", text)
	}
}

// row writes a name and a text.
func (d *painter) row(name, text string) { d.add(d.faint(pad(name, 7)) + " " + clip(text, d.width-8)) }

func (d *painter) gpu(g GPU, link [2][]float64) {
	n := d.barWidth()
	d.title(fmt.Sprintf("GPU %d  %s", g.Index, printable(g.Name)))
	if g.Busy >= 0 {
		d.row("busy", fmt.Sprintf("%s %4d%%  %s", bar(float64(g.Busy)/100, n, 0), g.Busy, g.GPU.String()))
	} else {
		d.row("state", g.GPU.String())
	}
	if g.Memory > 0 {
		d.row("memory", fmt.Sprintf("%s %v of %v used", bar(float64(g.MemoryUsed)/float64(g.Memory), n, 0), units.Bytes(g.MemoryUsed), units.Bytes(g.Memory)))
	}
	for i, name := range []string{"in", "out"} {
		rate := [2]int64{g.Received, g.Sent}[i]
		if rate < 0 {
			continue
		}
		text, best := fmt.Sprintf("%10v", units.Rate(rate)), [2]int64{g.LinkIn, g.LinkOut}[i]
		if best > 0 {
			text += fmt.Sprintf(" %4.0f%% of %v", 100*float64(rate)/float64(best), units.Rate(best))
		}
		d.row(name, text+"  "+sparkTo(float64(best), link[i], min(d.width-10-utf8.RuneCountInString(text), 60)))
	}
}

func (d *painter) runs(list []RunInfo) {
	if len(list) == 0 {
		d.row("runs", "none of spillway's in the last ten minutes")
		return
	}
	d.title("runs")
	// What every run has takes 68 columns behind its name, what limits it and its memory 40 more.
	wide := d.width >= 120
	name := d.width - 68
	if wide {
		name -= 40
	}
	name = min(max(name, 10), 32)
	head := pad("  run", name) + pad("step", 16) + pad("loss", 9) + pad("tokens/s", 10) + pad("roofline", 10) + pad("left", 12) + pad("state", 11)
	if wide {
		head += pad("limited by", 17) + "memory"
	}
	d.add(d.faint(clip(head, d.width)))
	for _, r := range list {
		d.add(d.run(r, name, wide))
		if r.State == Running {
			d.tiers(r, wide)
		}
		if wide && r.State == Running && len(r.Recent) > 1 {
			var losses []float64
			for _, it := range r.Recent {
				losses = append(losses, it.Loss)
			}
			d.add(clip("  "+pad("loss", 7)+spark(losses, min(d.width-12, 60)), d.width))
		}
	}
}

func (d *painter) run(r RunInfo, name int, wide bool) string {
	line := pad("  "+printable(filepath.Base(r.Dir)), name-1) + " "
	if r.Error != "" && r.Last == nil {
		return clip(line+" "+printable(r.Error), d.width)
	}
	if r.Generated != nil {
		return d.generating(r, line, wide)
	}
	it := r.Last
	if it == nil {
		it = &eventlog.Iteration{}
	}
	step := fmt.Sprint(it.Step)
	if it.MaxSteps > 0 {
		step += fmt.Sprintf("/%d", it.MaxSteps)
	}
	eta := ""
	if r.State == Running && it.ETA > 0 {
		eta = (time.Duration(it.ETA) * time.Second).String()
	}
	line += pad(step, 16) + pad(fmt.Sprintf("%.4f", it.Loss), 9) + pad(fmt.Sprintf("%.0f", it.TokensPerSecond), 10) + pad(shareText(it.ShareOfRoofline), 10) + pad(eta, 12) + pad(string(r.State), 11)
	if wide {
		line += pad(it.Bound.String(), 16) + fmt.Sprintf(" %v of %v", units.Bytes(it.MeasuredBytes), units.Bytes(it.PredictedBytes))
	}
	return d.state(r.State, clip(line, d.width))
}

// state is the line of a run in the colour of its state.
func (d *painter) state(s State, line string) string {
	switch s {
	case Running:
		return d.paint(goodColour, line)
	case Failed, Killed:
		return d.paint(badColour, line)
	}
	return line
}

// generating is the line of a run that generates texts.
func (d *painter) generating(r RunInfo, line string, wide bool) string {
	g := r.Generated
	line += pad(fmt.Sprintf("%d tokens", g.TotalNew), 16) + pad("", 9) + pad(fmt.Sprintf("%.0f", rateOf(r)), 10) + pad(shareText(g.ShareOfRoofline), 10) + pad(fmt.Sprintf("%d open", g.Sequences), 12) + pad(string(r.State), 11)
	if wide {
		line += pad(g.Bound.String(), 16) + fmt.Sprintf(" %v of %v", units.Bytes(g.MeasuredBytes), units.Bytes(g.PredictedBytes))
	}
	return d.state(r.State, clip(line, d.width))
}

// rateOf is the newest rate of a run in tokens a second: trained on, or new ones.
func rateOf(r RunInfo) float64 {
	if r.Last != nil {
		return r.Last.TokensPerSecond
	}
	for i := len(r.RecentGenerations) - 1; i >= 0; i-- {
		if rate := r.RecentGenerations[i].DecodeRate(); rate > 0 {
			return rate
		}
	}
	return 0
}

// tiers shows what is in use of each tier as a bar with a mark where the plan is, of the cache the
// pages in use, and how long each lane works in a step.
func (d *painter) tiers(r RunInfo, wide bool) {
	var t eventlog.Tiers
	var measured int64
	var bound eventlog.Resource
	var parts []string
	works := r.Works
	if works == nil {
		works = &Works{}
	}
	switch {
	case r.Last != nil:
		t, measured, bound = r.Last.Tiers, r.Last.MeasuredBytes, r.Last.Bound
	case r.Generated != nil:
		t, measured, bound = r.Generated.Tiers, r.Generated.MeasuredBytes, r.Generated.Bound
	}
	for _, tier := range []struct {
		name                string
		plan, measured, has int64
	}{{"device", t.Device, measured, works.Room.Device}, {"pinned", t.Pinned, 0, works.Room.Pinned}, {"host", t.Host, 0, works.Room.Host}, {"disk", t.Disk, 0, works.Room.Disk}} {
		if tier.plan == 0 {
			continue
		}
		text, used := tier.name+" ", tier.plan
		if tier.measured > 0 {
			used = tier.measured
		}
		if tier.has > 0 {
			text += bar(float64(used)/float64(tier.has), 8, float64(tier.plan)/float64(tier.has)) + " "
		}
		if text += units.Bytes(used).String(); used != tier.plan {
			text += fmt.Sprintf(", plan %v", units.Bytes(tier.plan))
		}
		parts = append(parts, text)
	}
	if g := r.Generated; g != nil && g.Pages > 0 {
		parts = append(parts, fmt.Sprintf("cache %s %d of %d pages", bar(float64(g.PagesUsed)/float64(g.Pages), 8, 0), g.PagesUsed, g.Pages))
	}
	d.flow("memory", parts)
	parts = nil
	if name := bound.String(); !wide && name != "" { // there is no column for it
		parts = append(parts, "limited by "+name)
	}
	for _, l := range works.Lanes {
		parts = append(parts, fmt.Sprintf("%s %s %.0f%%", printable(l.Name), bar(l.Busy, 8, l.Forecast), 100*l.Busy))
	}
	name := "lanes"
	if len(works.Lanes) > 0 && works.Step == 0 {
		name = "forecast"
	}
	d.flow(name, parts)
}

// flow writes parts one after the other, on as many lines as they need.
func (d *painter) flow(name string, parts []string) {
	const indent = 13
	line := pad("    "+name, indent)
	empty := true
	for _, p := range parts {
		if !empty && utf8.RuneCountInString(line)+2+utf8.RuneCountInString(p) > d.width {
			d.add(d.faint(clip(line, d.width)))
			line, empty = strings.Repeat(" ", indent), true
		}
		if !empty {
			line += "  "
		}
		line, empty = line+p, false
	}
	if len(parts) > 0 {
		d.add(d.faint(clip(line, d.width)))
	}
}

func (d *painter) alerts(list []RunInfo) {
	const most = 4
	shown := 0
	for _, r := range list {
		for i := len(r.Alerts) - 1; i >= 0 && shown < most; i-- {
			d.add(d.paint(badColour, clip(fmt.Sprintf("  %s, %s", printable(filepath.Base(r.Dir)), printable(r.Alerts[i].String())), d.width)))
			shown++
		}
	}
}

func (d *painter) processes(gpus []GPU) {
	first := true
	for _, g := range gpus {
		for _, p := range g.Named {
			if first {
				d.title("processes")
				d.add(d.faint(clip("     GPU      PID      memory  program", d.width)))
				first = false
			}
			size := ""
			if p.Bytes >= 0 {
				size = units.Bytes(p.Bytes).String()
			}
			d.add(clip(fmt.Sprintf("  %6d %8d %11s  %s", g.Index, p.PID, size, p.Name), d.width))
		}
	}
}

// spark is a curve in braille, two points a character, four heights: the shape of what it shows.
func spark(list []float64, width int) string {
	list = list[max(len(list)-2*max(width, 0), 0):]
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range list {
		low, high = min(low, v), max(high, v)
	}
	if low > 0 && low > high/2 { // the shape of a loss, rather than its height
		low -= (high - low) / 8
	} else {
		low = min(low, 0)
	}
	return braille(list, low, high)
}

// sparkTo is a curve from nothing to most, or to the highest point where that is higher.
func sparkTo(most float64, list []float64, width int) string {
	list = list[max(len(list)-2*max(width, 0), 0):]
	for _, v := range list {
		most = max(most, v)
	}
	return braille(list, 0, most)
}

// braille draws points between two heights.
func braille(list []float64, low, high float64) string {
	left, right := [5]rune{0, 0x40, 0x44, 0x46, 0x47}, [5]rune{0, 0x80, 0xa0, 0xb0, 0xb8}
	level := func(v float64) int {
		if high <= low || math.IsNaN(v) {
			return 1
		}
		return min(max(int(math.Ceil((v-low)/(high-low)*4)), 1), 4)
	}
	var b strings.Builder
	for i := 0; i < len(list); i += 2 {
		c := 0x2800 + left[level(list[i])]
		if i+1 < len(list) {
			c += right[level(list[i+1])]
		}
		b.WriteRune(c)
	}
	return b.String()
}

// Lines are a snapshot as plain text, for pipes and logs: one for the host, one for each GPU
// and run.
func (at Snapshot) Lines() (list []string) {
	stamp := at.Time.Format(time.RFC3339)
	h := at.Host
	list = append(list, fmt.Sprintf("%s host %s cpu %.0f%% memory %v of %v", stamp, printable(h.Name), 100*h.Busy, units.Bytes(h.Total-h.Available), units.Bytes(h.Total)))
	for _, g := range at.GPUs {
		list = append(list, fmt.Sprintf("%s gpu %d busy %d%% memory %v of %v in %s out %s %s", stamp, g.Index, g.Busy, units.Bytes(max(g.MemoryUsed, 0)), units.Bytes(max(g.Memory, 0)),
			rateText(g.Received, g.LinkIn), rateText(g.Sent, g.LinkOut), g.GPU.String()))
	}
	for _, r := range at.Runs {
		if g := r.Generated; g != nil {
			list = append(list, fmt.Sprintf("%s run %s %s tokens %d tokens/s %.0f roofline %s limited by %s sequences %d pages %d of %d", stamp, printable(filepath.Base(r.Dir)), r.State, g.TotalNew, rateOf(r),
				shareText(g.ShareOfRoofline), g.Bound, g.Sequences, g.PagesUsed, g.Pages))
			continue
		}
		if r.Last == nil {
			list = append(list, fmt.Sprintf("%s run %s %s", stamp, printable(filepath.Base(r.Dir)), r.State))
			continue
		}
		list = append(list, fmt.Sprintf("%s run %s %s step %d of %d loss %.4f tokens/s %.0f roofline %s limited by %s", stamp, printable(filepath.Base(r.Dir)), r.State, r.Last.Step, r.Last.MaxSteps, r.Last.Loss,
			r.Last.TokensPerSecond, shareText(r.Last.ShareOfRoofline), r.Last.Bound))
	}
	return list
}

// rateText is a rate of a link, with its share of what was measured.
func rateText(rate, best int64) string {
	text := units.Rate(max(rate, 0)).String()
	if best > 0 {
		text += fmt.Sprintf(" (%.0f%%)", 100*float64(max(rate, 0))/float64(best))
	}
	return text
}

// Columns are those of a snapshot as a table, Rows its lines: one for the host, and one for each
// GPU. What is not known is empty.
var Columns = []string{"time", "what", "busy_percent", "memory_used_bytes", "memory_bytes", "link_in_bytes_per_second", "link_out_bytes_per_second", "temperature_c", "power_w", "clock_mhz", "link_in_measured_bytes_per_second", "link_out_measured_bytes_per_second"}

// Rows are described at Columns.
func (at Snapshot) Rows() (rows [][]string) {
	stamp := at.Time.Format(time.RFC3339)
	number := func(n int64) string {
		if n < 0 {
			return ""
		}
		return fmt.Sprint(n)
	}
	h := at.Host
	rows = append(rows, []string{stamp, "host", fmt.Sprintf("%.1f", 100*h.Busy), number(h.Total - h.Available), number(h.Total), "", "", "", "", "", "", ""})
	measured := func(n int64) string {
		if n <= 0 {
			return ""
		}
		return fmt.Sprint(n)
	}
	for _, g := range at.GPUs {
		power := ""
		if g.Power >= 0 {
			power = fmt.Sprintf("%.1f", float64(g.Power)/1000)
		}
		rows = append(rows, []string{stamp, fmt.Sprintf("gpu%d", g.Index), number(int64(g.Busy)), number(g.MemoryUsed), number(g.Memory), number(g.Received), number(g.Sent), number(int64(g.Temperature)), power, number(int64(g.Clock)), measured(g.LinkIn), measured(g.LinkOut)})
	}
	return rows
}

// shareText is a share of the roofline. One above it says that the computer was slower when its
// rates were measured.
func shareText(share float64) string {
	if share > 1 {
		return "over 100%"
	}
	return fmt.Sprintf("%.0f%%", 100*share)
}
