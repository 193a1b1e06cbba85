package recipe

import (
	"fmt"
	"slices"
	"strings"

	"spillway"
	"spillway/dtype"
	"spillway/machine"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner"
	"spillway/quant"
	"spillway/units"
)

// How many ways out are looked for, and how many are tried.
const (
	maxWays  = 4
	maxTries = 10
)

// way is a change of the options, and the flags that make it.
type way struct {
	flags  string
	change func(o *spillway.Options)
}

// WaysOut plans changes of options that do not fit, alone and several at once, and gives those
// that fit: the Change of each is flags that one can paste. Task is the name of the setting
// that says what is trained; described is the machine as --machine has it, "" for this
// computer.
func (p *Plan) WaysOut(m *spillway.Model, o spillway.Options, fit *planner.FitError, task, described string) (list []planner.FitOption) {
	tries := 0
	try := func(ways ...way) bool {
		if tries++; len(list) == maxWays || tries > maxTries {
			return false
		}
		changed, flags := o, []string(nil)
		for _, w := range ways {
			w.change(&changed)
			flags = append(flags, w.flags)
		}
		f, err := m.Fits(changed)
		if err != nil {
			return false
		}
		r := f.Options
		list = append(list, planner.FitOption{Change: strings.Join(flags, " "), Peak: f.Peak, MicroBatchSize: r.MicroBatchSize, Seq: r.Seq, MicroBatches: r.MicroBatches,
			Device: f.Device, Host: int64(changed.Machine.Host.Usable)})
		return true
	}
	if o.Task == spillway.Generate {
		narrower, packed := p.precisions(o), p.quantized(m, o)
		if len(narrower) > 0 && len(packed) > 0 {
			packed = append(packed, joined(narrower[0], packed[0]))
		}
		for _, ways := range slices.Concat([][]way{narrower, packed}, p.smallerCaches(m, o), [][]way{p.memory(o, fit, described)}) {
			tries = 0
			_ = slices.ContainsFunc(ways, func(w way) bool { return try(w) })
		}
		return list
	}
	small, short, states, methods := p.smaller(o), p.shorter(m, o), p.states(o), p.methods(o, task)
	one := false
	for _, w := range slices.Concat(p.memory(o, fit, described), methods, states, p.precisions(o), p.quantized(m, o)) {
		one = try(w) || one
	}
	for _, list := range [][]way{small, short} {
		one = slices.ContainsFunc(list, func(w way) bool { return try(w) }) || one
	}
	if !one { // several at once
		least := append(append([]way{}, last(methods)...), last(small)...)
		for _, w := range append([]way{{}}, short...) {
			if w.change == nil && try(append(least, states...)...) || w.change != nil && try(append(append(least, states...), w)...) {
				break
			}
		}
	}
	return list
}

func last(list []way) []way {
	if len(list) == 0 {
		return nil
	}
	return list[len(list)-1:]
}

// joined makes two changes at once.
func joined(a, b way) way {
	return way{a.flags + " " + b.flags, func(o *spillway.Options) {
		a.change(o)
		b.change(o)
	}}
}

// smaller are smaller micro-batches of the same batch.
func (p *Plan) smaller(o spillway.Options) (list []way) {
	for n := o.MicroBatchSize / 2; n >= 1; n /= 2 {
		list = append(list, way{fmt.Sprintf("--micro-batch-size %d", n), func(o *spillway.Options) { o.MicroBatchSize = n }})
	}
	return list
}

// shorter are shorter sequences.
func (p *Plan) shorter(m *spillway.Model, o spillway.Options) (list []way) {
	seq := o.Seq
	if seq == 0 {
		seq = m.UsualSeq()
	}
	for n := seq / 2; n >= 64; n /= 2 {
		list = append(list, way{fmt.Sprintf("--seq-len %d", n), func(o *spillway.Options) { o.Seq = n }})
	}
	return list
}

// states has the optimizer state in 8 bits.
func (p *Plan) states(o spillway.Options) []way {
	name := o.Optimizer.Name + "_8bit"
	of, err := optim.Parse(name)
	if !o.Task.Trains() || err != nil || strings.Contains(o.Optimizer.String(), "8bit") || len(of.States()) == 0 {
		return nil
	}
	of.LR, of.WeightDecay = o.Optimizer.LR, o.Optimizer.WeightDecay
	return []way{{"--optimizer " + name, func(o *spillway.Options) { o.Optimizer = of }}}
}

// precisions has it computed in bf16.
func (p *Plan) precisions(o spillway.Options) []way {
	if o.Precision != dtype.F32 {
		return nil
	}
	return []way{{"--precision bf16", func(o *spillway.Options) { o.Precision = dtype.BF16 }}}
}

// quantized has the linear weights of a model that is only run in 4 bits, where they are not quantized.
func (p *Plan) quantized(m *spillway.Model, o spillway.Options) []way {
	if o.Task != spillway.Generate && o.Task != spillway.Infer || o.Adapters.Base != dtype.Invalid || p.Mixture != "" {
		return nil
	}
	if _, stored := m.QuantizedType(); stored {
		return nil
	}
	return []way{{"--quantization nf4", func(o *spillway.Options) { o.Adapters.Base = quant.NF4 }}}
}

// methods train less: adapters next to frozen weights, and next to quantized ones.
func (p *Plan) methods(o spillway.Options, task string) (list []way) {
	usual := NewPlan().Adapters
	if o.Task == spillway.Train {
		list = append(list, way{"--" + task + " lora", func(o *spillway.Options) {
			o.Task, o.Adapters = spillway.LoRA, usual
			o.Adapters.Alpha = 2 * float64(usual.Rank)
		}})
	}
	if o.Task == spillway.Train || o.Task == spillway.LoRA {
		list = append(list, way{"--" + task + " qlora", func(o *spillway.Options) {
			if o.Task == spillway.Train {
				o.Adapters = usual
				o.Adapters.Alpha = 2 * float64(usual.Rank)
			}
			o.Task = spillway.QLoRA
		}})
	}
	return list
}

// memory is more of it: within a limit that was given, or on a machine that was described.
func (p *Plan) memory(o spillway.Options, fit *planner.FitError, described string) (list []way) {
	if n := fit.DeviceNeed(); o.MaxMemory != "" && !strings.Contains(o.MaxMemory, "=") && n > 0 {
		for _, n := range o.Limits(n) {
			limit := fmt.Sprintf("%dMiB", (n+fit.Context+int64(units.MiB)-1)/int64(units.MiB))
			list = append(list, way{"--max-memory " + limit, func(o *spillway.Options) { o.MaxMemory = limit }})
		}
	}
	if n := units.Bytes(fit.NeededHost); p.MaxHostMemory > 0 && n > p.MaxHostMemory && n <= p.hostMemory {
		limit := (n + units.MiB - 1) / units.MiB * units.MiB
		list = append(list, way{fmt.Sprintf("--max-host-memory %dMiB", limit/units.MiB), func(o *spillway.Options) { o.Machine.Host.Usable = min(limit, p.hostMemory) }})
	}
	if described == "" {
		if o.Disk == "" && o.Task.Trains() {
			list = append(list, way{"--disk ./spillway-disk", func(o *spillway.Options) { o.Machine.Disk = assumedDisk }})
		}
		return list
	}
	var parts []string
	hostFigures := "" // its rates stay
	for part := range strings.SplitSeq(described, ",") {
		part = strings.TrimSpace(part)
		if kind, size, _ := strings.Cut(part, ":"); !strings.EqualFold(kind, "host") {
			parts = append(parts, part)
		} else if at := strings.IndexByte(size, '@'); at >= 0 {
			hostFigures = size[at:]
		}
	}
	add := func(text string) {
		if m, err := machine.Parse(text); err == nil {
			list = append(list, way{"--machine " + text, func(o *spillway.Options) { o.Machine = p.Within(m) }})
		}
	}
	d := o.Machine.Devices[0]
	share := float64(o.Machine.Host.Usable) / float64(o.Machine.Host.Memory)
	host := fmt.Sprintf("host:%dGiB%s", int64(float64(fit.NeededHost)/share)/int64(units.GiB)+1, hostFigures)
	if kind, size, sized := strings.Cut(parts[0], ":"); sized && fit.DeviceNeed() > 0 { // the first device by its size
		_, figures, rated := strings.Cut(size, "@")
		more := (fit.DeviceNeed()+int64(d.Memory-d.Usable))/int64(units.MiB) + 1
		text := fmt.Sprintf("%s:%dMiB", kind, more)
		if rated {
			text += "@" + figures
		}
		if fit.NeededHost > fit.BudgetHost { // and the host with it
			add(strings.Join(append([]string{text}, append(parts[1:len(parts):len(parts)], host)...), ","))
		} else {
			add(strings.Replace(described, parts[0], text, 1))
		}
	}
	for _, part := range parts { // the disk by its size
		kind, size, _ := strings.Cut(part, ":")
		if strings.EqualFold(kind, "disk") && fit.Tier == plan.OnDisk && fit.Budget > 0 {
			_, figures, rated := strings.Cut(size, "@")
			copies := float64(o.Machine.Disk.Free) / float64(fit.Budget) // of everything, so that a kill loses nothing
			text := fmt.Sprintf("%s:%dGiB", kind, int64(copies*float64(fit.Needed))/int64(units.GiB)+1)
			if rated {
				text += "@" + figures
			}
			add(strings.Replace(described, part, text, 1))
		}
	}
	for _, more := range []string{host, "disk:2TiB"} {
		text := strings.Join(append(parts[:len(parts):len(parts)], more), ",")
		if strings.HasPrefix(more, "disk") {
			text = described + "," + more
		}
		add(text)
	}
	return list
}

// assumedDisk is a disk that is not there yet, with space for anything.
var assumedDisk = func() machine.Disk {
	m, err := machine.Parse("cpu:1GiB,disk:4TiB")
	if err != nil {
		panic(err) // a description it knows
	}
	return m.Disk
}()
