package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"spillway"
	"spillway/dtype"
	"spillway/internal/term"
	"spillway/machine"
	"spillway/plan"
	"spillway/units"
)

// The page: the width of the labels, and of a line, in characters.
const (
	labels  = 16
	columns = 100
)

// page collects lines that begin with a label.
type page struct{ strings.Builder }

// line writes a text next to its label, in as many lines as it takes.
func (p *page) line(label, format string, args ...any) {
	line := label
	for _, word := range phrases(fmt.Sprintf(format, args...)) {
		if utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > columns && len(line) > labels {
			p.WriteString(line + "\n")
			line = ""
		}
		pad := max(labels-utf8.RuneCountInString(line), 1)
		line += strings.Repeat(" ", pad) + word
	}
	p.WriteString(line + "\n")
}

// phrases are the words of a text; a number and its unit stay together.
func phrases(text string) []string {
	var list []string
	for _, word := range strings.Fields(text) {
		if n := len(list); n > 0 && isUnit[strings.TrimRight(word, ",;:")] {
			list[n-1] += " " + word
			continue
		}
		list = append(list, word)
	}
	return list
}

var isUnit = map[string]bool{"s": true, "ms": true, "µs": true, "KiB": true, "MiB": true, "GiB": true, "TiB": true}

// list writes one line per item; the first has the label.
func (p *page) list(label string, items []string) {
	for _, item := range items {
		p.line(label, "%s", item)
		label = ""
	}
}

// write shows the plan on one screen.
func (r *planReport) write(w io.Writer) error {
	var p page
	model := r.Model
	if !spillway.Task(r.Goal.Task).Trains() {
		model.Trainable = model.Params // nothing is trained, packed weights or not
	}
	p.line(model.Name, "%s", modelLine(model))
	p.line("machine", "%s", machineLine(r.Machine.Machine, r.Machine.Device, max(len(r.Devices), 1)))
	if r.deviceReason != "" {
		p.line("device", "%s (%s)", deviceTitle(r.Machine.Device), r.deviceReason)
	}
	if text := assumptions(r.Machine, r.compute, r.cpuWorks(), r.Available[plan.OnDisk] > 0); text != "" {
		p.line("assumed", "%s", text)
	}
	p.line("goal", "%v", r.Goal)
	p.WriteString("\n")
	if r.Fits {
		r.writePlan(&p)
	} else {
		r.writeMisfit(&p)
	}
	r.advice.write(&p, r.Machine.shared())
	p.list("notices", r.Notices)
	_, err := io.WriteString(w, p.String())
	return err
}

// planOf describes the plan of a job that is about to run, with that of its state policy
// later, and why its device was chosen.
func planOf(job *spillway.Run, why string) (r *planReport, err error) {
	r = describePlan(job, nil)
	m := job.Options.Machine
	r.deviceReason, r.Goal, r.Machine = why, describeGoal(job.Options), machineReport{m, m.String(), job.Options.Device}
	r.Compressed, err = planCompressed(job)
	return r, err
}

// showPlan tells the plan of a job to people, before it runs.
func showPlan(w io.Writer, job *spillway.Run, why string) error {
	r, err := planOf(job, why)
	if err == nil {
		err = r.write(w)
	}
	if err == nil {
		_, err = io.WriteString(w, "\n")
	}
	return err
}

func (r *planReport) writeMisfit(p *page) {
	p.line("does not fit", "%s; everything on the device would need %v", r.Reason, units.Bytes(r.Standard))
	if len(r.Options) == 0 {
		p.line("to make it fit", "nothing that was tried is enough: use a smaller model, or a machine with more memory")
		return
	}
	var items []string
	for _, o := range r.Options {
		items = append(items, fmt.Sprintf("%s: %s suffice", o.Change, tierList(o.Peak)))
	}
	p.list("to make it fit", items)
}

func (r *planReport) writePlan(p *page) {
	p.line("strategy", "%s", r.Strategy)
	p.line("because", "%s", r.Reason)
	if r.Quantized != "" {
		p.line("quantized", "%s", r.Quantized)
	}
	p.WriteString("\n")
	r.writeUsage(p)
	p.WriteString("\n")
	r.writeForecast(p)
	p.list("also possible", r.alternatives(true))
	p.list("rejected", r.alternatives(false))
}

// usageRows are the rows of the memory table, with the classes that each adds up.
var usageRows = []struct {
	name    string
	classes []plan.Class
}{
	{"weights", []plan.Class{plan.Weight}},
	{"master + optimizer state", []plan.Class{plan.Master, plan.State}},
	{"key-value cache", []plan.Class{plan.Cache}},
	{"gradients", []plan.Class{plan.Gradient}},
	{"activations", []plan.Class{plan.Activation}},
	{"workspace", []plan.Class{plan.Workspace}},
	{"batch, constants", []plan.Class{plan.BatchData, plan.ResultData, plan.Constant}},
	{"gaps", []plan.Class{plan.Gaps}},
}

// minShownGaps is the least size of gaps that is worth a line, in bytes.
const minShownGaps = int64(units.MiB)

// writeUsage shows what each tier holds at its peak, and what is available.
func (r *planReport) writeUsage(p *page) {
	var t term.Table
	tiers := r.tiers()
	head := []string{"memory at the peak"}
	for _, tier := range tiers {
		head = append(head, r.tierName(tier))
	}
	t.Row(head...)
	for _, row := range usageRows {
		if cells := r.usageCells(row.classes, tiers); strings.Join(cells, "") != "" {
			t.Row(append([]string{"  " + row.name}, cells...)...)
		}
	}
	for _, sum := range []struct {
		name  string
		bytes map[plan.Tier]int64
	}{{"  peak", r.Forecast.PeakBytes}, {"  available", r.Available}} {
		line := []string{sum.name}
		for _, tier := range tiers {
			line = append(line, units.Bytes(sum.bytes[tier]).String())
		}
		t.Row(line...)
	}
	t.Write(p) // a page takes everything
	if len(r.Devices) > 0 && r.Devices[0].Context > 0 {
		p.line("  context", "%v of each GPU for its context and libraries, next to what is available; --max-memory counts them too", units.Bytes(r.Devices[0].Context))
	}
	if len(r.Devices) > 1 {
		var each []string
		for _, d := range r.Devices {
			each = append(each, fmt.Sprintf("%s %v", d.Name, units.Bytes(d.Peak)))
		}
		p.line("  of each", "%s; each has %v", strings.Join(each, ", "), units.Bytes(r.Devices[0].Budget))
	}
}

func (r *planReport) tierName(t plan.Tier) string {
	if n := len(r.Devices); t == plan.OnDevice && n > 1 {
		return fmt.Sprintf("%d devices", n)
	}
	return string(t)
}

// tiers are the columns of the table: those that the machine has or the plan uses.
func (r *planReport) tiers() []plan.Tier {
	return slices.DeleteFunc([]plan.Tier{plan.OnDevice, plan.Pinned, plan.OnHost, plan.OnDisk}, func(t plan.Tier) bool {
		return r.Available[t] == 0 && r.Forecast.PeakBytes[t] == 0
	})
}

// usageCells adds up some classes in each tier; a cell is empty where there is nothing.
func (r *planReport) usageCells(classes []plan.Class, tiers []plan.Tier) []string {
	cells := make([]string, len(tiers))
	for i, tier := range tiers {
		n := int64(0)
		for _, c := range classes {
			n += r.AtPeak[c][tier]
		}
		if n > 0 && (classes[0] != plan.Gaps || n >= minShownGaps) {
			cells[i] = units.Bytes(n).String()
		}
	}
	return cells
}

func (r *planReport) writeForecast(p *page) {
	if r.Generation != nil {
		writeGeneration(p, r.Generation, r.Machine.shared())
		return
	}
	f := r.Forecast
	p.line("forecast", "%s per %s, %s tokens/s, %s-bound", units.Seconds(f.StepSeconds), r.Goal.step(), grouped(int64(f.TokensPerSec)), resource(f.Bound, r.Machine.shared()))
	var busy []string
	for _, name := range slices.Sorted(maps.Keys(f.Busy)) {
		busy = append(busy, resource(name, r.Machine.shared())+" "+percent(f.Busy[name]))
	}
	p.line("", "busy: %s", strings.Join(busy, ", "))
	if f.InputMatters() && !r.Machine.shared() {
		p.line("input", "%v", f.Input)
	}
	if r.SumOrder != "" {
		p.line("sums", "%s", r.SumOrder)
	}
	if r.SumPrice != nil {
		p.line("", "a step takes %+.1f%% longer than without --canonical-sums", 100**r.SumPrice)
	}
	if r.Evaluation > 0 {
		p.line("evaluation", "%s per %s sequences, in the same memory", units.Seconds(r.Evaluation), grouped(r.Goal.MicroBatchSize*int64(r.Goal.MicroBatches)))
	}
}

// resource is a resource of a forecast by the name that profilers show. Where the device
// shares the host's memory, no link is in between.
func resource(name string, shared bool) string {
	names := map[string]string{"link to device": "PCIe H2D", "link to host": "PCIe D2H"}
	if shared {
		names = map[string]string{"link to device": "copies in", "link to host": "copies out"}
	}
	if known, ok := names[name]; ok {
		return known
	}
	return name
}

// shared says whether the device of the plan shares the host's memory.
func (r machineReport) shared() bool {
	d, _ := r.Machine.Device(r.Device)
	return d.Shared
}

// optionTime is how long a step of an alternative takes, as far as is known.
func optionTime(o plan.Alternative) string {
	if o.LowerBound {
		return "at least " + units.Seconds(o.StepSeconds)
	}
	return units.Seconds(o.StepSeconds)
}

// shownAlternatives is how many alternatives are shown; --json has all.
const shownAlternatives = 3

// alternatives lists the fastest of those that fit, or the smallest of each strategy of those
// that do not.
func (r *planReport) alternatives(fit bool) []string {
	var items []string
	shown := map[string]bool{r.Strategy: true}
	order := func(a, b plan.Alternative) int {
		return cmp.Or(cmp.Compare(a.StepSeconds, b.StepSeconds), cmp.Compare(a.PeakBytes[plan.OnDevice], b.PeakBytes[plan.OnDevice]))
	}
	for _, o := range slices.SortedStableFunc(slices.Values(r.Rejected), order) {
		text := fmt.Sprintf("%s: %s", o.Strategy, o.Reason)
		if fit {
			text = fmt.Sprintf("%s: %s, %s", o.Strategy, optionTime(o), tierList(o.PeakBytes))
		}
		key := o.Strategy
		if !fit {
			key = o.Strategies[0]
		}
		if o.Fits == fit && !shown[key] && len(items) < shownAlternatives {
			shown[key] = true
			items = append(items, text)
		}
	}
	return items
}

// tierList is "device 17.2 GiB, pinned 76.3 GiB".
func tierList(peak map[plan.Tier]int64) string {
	var parts []string
	for _, t := range []plan.Tier{plan.OnDevice, plan.Pinned, plan.OnHost, plan.OnDisk} {
		if peak[t] > 0 {
			parts = append(parts, fmt.Sprintf("%s %v", t, units.Bytes(peak[t])))
		}
	}
	return strings.Join(parts, ", ")
}

// machineLine describes the machine and the device that the plan uses, or so many of them.
func machineLine(m machine.Machine, device string, used int) string {
	d, _ := m.Device(device)
	name := string(d.Kind)
	if d.Model != "" {
		name = d.Model
	}
	parts := []string{fmt.Sprintf("%s %v", name, d.Memory)}
	if used > 1 {
		parts[0] = fmt.Sprintf("%d × %s", used, parts[0])
	} else if len(m.Devices) > 1 {
		parts[0] = fmt.Sprintf("%s (%s of %d devices)", parts[0], device, len(m.Devices))
	}
	if d.Shared {
		parts[0] += ", shared with the host"
	} else {
		parts = append(parts, "link "+linkText(d.Link))
	}
	if used > 1 && len(m.Peers) > 0 {
		parts = append(parts, peersText(m.Peers))
	}
	parts = append(parts, fmt.Sprintf("host %v", m.Host.Memory), fmt.Sprintf("%d cores", m.Host.Cores))
	if m.HasDisk() {
		parts = append(parts, fmt.Sprintf("disk %v at %v", m.Disk.Free, m.Disk.Read))
	}
	return strings.Join(parts, " · ")
}

func linkText(l machine.Link) string {
	switch {
	case l.In != l.Out:
		return fmt.Sprintf("%v in, %v out", l.In, l.Out)
	case l.Bidirectional > machine.HalfDuplex:
		return fmt.Sprintf("%v each way", l.In)
	}
	return fmt.Sprintf("%v one way at a time", l.In)
}

// peersText says how fast the direct links between GPUs are, the slowest first where they differ.
func peersText(peers []machine.Peer) string {
	slowest, fastest := peers[0].Rate, peers[0].Rate
	for _, p := range peers {
		slowest, fastest = min(slowest, p.Rate), max(fastest, p.Rate)
	}
	if slowest < fastest {
		return fmt.Sprintf("direct links %v to %v", slowest, fastest)
	}
	return fmt.Sprintf("direct links %v", slowest)
}

// cpuWorks says whether the CPU updates weights or computes blocks next to a GPU, at the rate of host memory.
func (r *planReport) cpuWorks() bool {
	return slices.Contains(r.Strategies, "cpu-update") || slices.Contains(r.Strategies, "cpu-compute")
}

// assumptions lists the rates in the forecast that were neither given nor measured.
func assumptions(m machineReport, precision dtype.Type, usesCPU, usesDisk bool) string {
	d, _ := m.Machine.Device(m.Device)
	var list []string
	for _, f := range []struct {
		key  string
		text string
	}{
		{precision.String(), fmt.Sprintf("%v matmuls at %v", precision, d.Compute.Rate(precision))},
		{"bandwidth", fmt.Sprintf("device memory at %v", d.Bandwidth)},
		{"in", fmt.Sprintf("link at %v", d.Link.In)},
	} {
		if d.Sources[f.key] == machine.Assumed {
			list = append(list, f.text)
		}
	}
	if text := assumedPeers(m.Machine, d); text != "" {
		list = append(list, text)
	}
	if m.Host.Sources["memory"] == machine.Assumed && !d.Shared {
		list = append(list, fmt.Sprintf("%v of host memory", m.Host.Memory))
	}
	if m.Host.Sources["update"] == machine.Assumed && usesCPU {
		list = append(list, fmt.Sprintf("host memory at %v", m.Host.Update))
	}
	if text := assumedDisk(m.Machine); usesDisk && text != "" {
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

// assumedPeers says which direct links GPUs have, where the description does not; "" where it does, or they were measured.
func assumedPeers(m machine.Machine, d machine.Device) string {
	switch {
	case d.Kind != machine.GPU || len(m.Devices) < 2 || d.Sources["in"] == machine.Measured:
		return ""
	case len(m.Peers) > 0 && m.Peers[0].Source == machine.Published && len(m.Devices) > machine.BoardGPUs:
		return fmt.Sprintf("NVLink within each %d GPUs and none between them", machine.BoardGPUs)
	case len(m.Peers) > 0 && m.Peers[0].Source == machine.Published:
		return fmt.Sprintf("NVLink at %v each way, as SXM modules have (without: --machine …,peer:none)", m.Peers[0].Rate)
	case len(m.Peers) > 0 || len(m.UsualPeers()) > 0:
		return ""
	case d.Known():
		return "no direct links between GPUs, as such GPUs have none unless bridged (then --machine …,peer@50GB/s)"
	}
	return "no direct links between GPUs (NVLink: --machine …,peer@300GB/s)"
}

// assumedDisk lists the rates of the disk where they were not measured; "" where they were.
func assumedDisk(m machine.Machine) string {
	if m.Disk.Sources["read"] != machine.Assumed {
		return ""
	}
	return fmt.Sprintf("disk reads at %v, writes at %v", m.Disk.Read, m.Disk.Write)
}

// deviceTitle names a device for people: "CPU", or "cuda:0".
func deviceTitle(name string) string {
	if strings.HasPrefix(name, "cpu") {
		return "CPU"
	}
	return name
}
