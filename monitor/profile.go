package monitor

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"spillway/eventlog"
	"spillway/executor"
	"spillway/graph"
	"spillway/machine"
	"spillway/op"
	"spillway/plan"
	"spillway/planner"
	"spillway/trace"
	"spillway/units"
)

// ProfileOf adds up what each op of a step took, by module of the model, with its arithmetic, its
// memory traffic and what the machine's rates allow at least. Copies and updates are rows
// too. Events are those of all instructions of p, in their order, and ops are the ops that were
// timed within them; without any, each run is a row.
func ProfileOf(p *plan.Plan, site planner.Site, events []trace.Event, ops []executor.OpTime) eventlog.Profile {
	f := profiler{plan: p, site: site, rows: map[profileKey]*eventlog.ProfileRow{}, times: map[string]func(op.Call) time.Duration{}}
	var begin, end int64
	timed := map[int]bool{}
	for _, o := range ops {
		timed[o.Instruction] = true
		f.op(o)
	}
	for i, e := range events {
		if i == 0 {
			begin = e.Start
		}
		begin, end = min(begin, e.Start), max(end, e.End)
		f.instruction(i, e, timed[i])
	}
	out := eventlog.Profile{Seconds: float64(end-begin) / 1e9, Rows: []eventlog.ProfileRow{}}
	for _, r := range f.rows {
		out.Rows = append(out.Rows, *r)
	}
	slices.SortFunc(out.Rows, func(a, b eventlog.ProfileRow) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Module, b.Module), cmp.Compare(a.Op, b.Op), cmp.Compare(a.Pass, b.Pass), cmp.Compare(a.Lane, b.Lane))
	})
	return out
}

// profiler adds up rows.
type profiler struct {
	plan *plan.Plan
	site planner.Site
	rows map[profileKey]*eventlog.ProfileRow
	// times are those of calls in forecasts, by the name of the device.
	times map[string]func(op.Call) time.Duration
}

type profileKey struct{ module, op, pass, lane string }

func (f *profiler) row(module, op, pass string, s *plan.Instruction) *eventlog.ProfileRow {
	k := profileKey{module, op, pass, f.plan.Devices[s.Device].Name + " " + string(s.Lane)}
	r := f.rows[k]
	if r == nil {
		r = &eventlog.ProfileRow{Module: k.module, Op: k.op, Pass: k.pass, Lane: k.lane}
		f.rows[k] = r
	}
	return r
}

// op adds an op of a run, or a launch of an update.
func (f *profiler) op(o executor.OpTime) {
	s := &f.plan.Instructions[o.Instruction]
	if s.Verb != plan.Run {
		return // updates and sums are rows as a whole
	}
	g := f.plan.Programs[s.Program].Graph
	node := g.Nodes[o.Op]
	block, pass := passOf(g.Name)
	r := f.row(moduleOf(g, node, block), string(node.Kind), pass, s)
	r.Calls++
	r.Seconds += float64(o.End-o.Start) / 1e9
	f.call(r, g.Call(node), s)
}

// call adds what a call takes at least, and what the forecast has it take.
func (f *profiler) call(r *eventlog.ProfileRow, c op.Call, s *plan.Instruction) {
	f.cost(r, c.Cost(), s)
	name := f.plan.Devices[s.Device].Name
	if f.times[name] == nil {
		f.times[name] = planner.CallTimes(f.site, name, f.plan.Cache != nil)
	}
	r.Forecast += f.times[name](c).Seconds()
}

// cost adds what a call takes at least.
func (f *profiler) cost(r *eventlog.ProfileRow, c op.Cost, s *plan.Instruction) {
	d := f.device(s)
	compute := over(c.Flops, float64(d.Compute.F32))
	if c.Matrix {
		compute = over(c.Flops, float64(d.Compute.Rate(f.site.DType)))
	}
	memory := over(float64(c.Bytes), float64(d.Bandwidth))
	r.Flops += c.Flops
	r.Bytes += c.Bytes
	r.Bound += max(compute, memory)
	if r.By = "memory"; compute > memory {
		r.By = "compute"
	}
}

// over is how long an amount takes at a rate; 0 where that is not known.
func over(amount, rate float64) float64 {
	if rate <= 0 {
		return 0
	}
	return amount / rate
}

// device is that of an instruction. The host's CPU has rates of its own where it only updates.
func (f *profiler) device(s *plan.Instruction) machine.Device {
	if f.plan.Devices[s.Device].Name == plan.HostName && f.site.CPU.Bandwidth > 0 {
		return f.site.CPU
	}
	return f.site.Device
}

// instruction adds an instruction: all of it, or of one whose ops are timed what they do not say.
func (f *profiler) instruction(i int, e trace.Event, timed bool) {
	s := &f.plan.Instructions[i]
	seconds := float64(e.End-e.Start) / 1e9
	switch s.Verb {
	case plan.Run:
		g := f.plan.Programs[s.Program].Graph
		block, pass := passOf(g.Name)
		f.saved(g, block, pass, s)
		if timed {
			return
		}
		r := f.row(block, "all", pass, s)
		r.Calls++
		r.Seconds += seconds
		for _, n := range g.Nodes {
			f.call(r, g.Call(n), s)
		}
	case plan.Move:
		b := f.plan.Buffers[s.Src]
		r := f.row(string(b.Class), "copy "+string(s.Lane), "", s)
		r.Calls++
		r.Seconds += seconds
		r.Bytes += b.Bytes
		r.Bound += over(float64(b.Bytes), float64(f.link(s)))
		r.By, r.Forecast = "link", r.Bound
	case plan.Update:
		slab := &f.plan.Slabs[s.Slab]
		r := f.row(starred(slab.Name), string(f.plan.Optimizer.Rule), "update", s)
		r.Calls++
		r.Seconds += seconds
		for _, span := range f.plan.Optimizer.Spans(slab, slab.Pieces[s.Piece]) {
			if call, err := f.plan.Optimizer.Call(span); err == nil { // the plan is verified
				f.call(r, call, s)
			}
		}
	case plan.Reduce:
		r := f.row("gradients", "sum", "", s)
		r.Calls++
		r.Seconds += seconds
	}
}

// link is the rate at which a copy crosses.
func (f *profiler) link(s *plan.Instruction) units.Rate {
	d := f.device(s)
	switch {
	case f.plan.Devices[s.Device].Name == plan.DiskName && s.Lane == plan.In:
		return f.site.Disk.Read
	case f.plan.Devices[s.Device].Name == plan.DiskName:
		return f.site.Disk.Write
	case s.Lane == plan.In:
		return d.Link.In
	case s.Lane == plan.Out:
		return d.Link.Out
	}
	return d.Bandwidth
}

// saved adds what a forward pass saves for the backward pass, to the op that makes it. What
// the block was given, and is saved too, is a row of its own.
func (f *profiler) saved(g *graph.Program, block, pass string, s *plan.Instruction) {
	if pass != "forward" {
		return
	}
	made := map[graph.Value]graph.Node{}
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			made[v] = n
		}
	}
	for _, port := range graph.Ports(g.Outputs, graph.Saved) {
		n, ok := made[port.Value]
		r := (*eventlog.ProfileRow)(nil)
		if ok {
			r = f.row(moduleOf(g, n, block), string(n.Kind), pass, s)
		} else {
			r = f.row(block, "input", pass, s)
		}
		r.Saved += g.Type(port.Value).Bytes()
	}
}

// passOf are the block and the pass that the name of a program says: "model.layers forward".
func passOf(name string) (block, pass string) {
	at := strings.LastIndexByte(name, ' ')
	if at < 0 {
		return name, "forward"
	}
	return name[:at], name[at+1:]
}

// moduleOf is the module that a node belongs to: that of the weight it reads or makes the gradient of,
// else the block. Of a fused op with several weights all of them: "mlp.gate_proj+up_proj"; vectors,
// such as those of norms, count where there is no matrix. Equal blocks are one.
func moduleOf(g *graph.Program, n graph.Node, block string) string {
	var matrices, vectors []string
	for _, list := range []struct {
		values []graph.Value
		ports  []graph.Port
		role   graph.Role
	}{{n.In, g.Inputs, graph.Param}, {n.Out, g.Outputs, graph.GradParam}} {
		for _, v := range list.values {
			for _, p := range list.ports {
				if p.Value != v || p.Role != list.role || p.Name == "" {
					continue
				}
				name := p.Name
				if at := strings.LastIndexByte(name, '.'); at > 0 {
					name = name[:at]
				}
				to := &vectors
				if len(g.Type(v).Shape) > 1 {
					to = &matrices
				}
				if name = starred(name); !slices.Contains(*to, name) {
					*to = append(*to, name)
				}
			}
		}
	}
	if len(matrices) == 0 {
		matrices = vectors
	}
	if len(matrices) == 0 {
		return block
	}
	return joined(matrices)
}

// joined are modules as one: what their names begin with, and what tells them apart.
func joined(names []string) string {
	first := names[0]
	text := first
	for _, name := range names[1:] {
		at := strings.LastIndexByte(first, '.') + 1
		if strings.HasPrefix(name, first[:at]) {
			name = name[at:]
		}
		text += "+" + name
	}
	return text
}

// starred writes a star for the number of a block.
func starred(name string) string {
	parts := strings.Split(name, ".")
	for i, p := range parts {
		if _, err := strconv.Atoi(p); err == nil {
			parts[i] = "*"
			break // numbers behind it are those of experts
		}
	}
	return strings.Join(parts, ".")
}
