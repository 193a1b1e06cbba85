package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"spillway/device"
	"spillway/device/cpu"
	"spillway/device/cuda"
	"spillway/machine"
	"spillway/plan"
)

// rig is this computer with the devices of a run, open and alike.
type rig struct {
	machine machine.Machine
	device  machine.Device // that plans are made for: the first
	on      []device.Device
	why     string // this one, where nobody chose it
	choice  deviceChoice
	gpus    []openGPU
}

// deviceHelp explains --device where devices are opened.
const deviceHelp = "run on `NAME`: cpu, cuda:0, a share of a card such as cuda:0/2, or several that are alike, separated by commas; tf32 at the end lets cards round f32 operands of products and attention to 10 bits of fraction (default: the first GPU that opens, else the CPU)"

// rig opens devices by the names of --device, and looks at the computer they are in.
// The caller closes it.
func (sh shell) rig(names string, o machine.Options) (r *rig, err error) {
	r = &rig{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if r.choice, err = parseDevices(names); err != nil {
		return r, usageError{err}
	}
	if names == "" {
		err = r.first(sh)
	} else {
		err = r.open(sh, 0)
	}
	if err != nil {
		return r, err
	}
	for _, c := range r.gpus {
		o.Devices = append(o.Devices, c.described)
	}
	if r.machine, err = sh.probe(o); err != nil {
		return r, err
	}
	for i, o := range r.choice.gpus {
		if o.TF32 {
			r.machine.Devices[i] = asTF32(r.machine.Devices[i])
		}
	}
	r.device = r.machine.Devices[0]
	if r.why != "" {
		r.machine.Notes = append(r.machine.Notes, fmt.Sprintf("%s was chosen: %s", r.device.Name, r.why))
	}
	return r, nil
}

// first opens the first card, or the CPU, and says why.
func (r *rig) first(sh shell) error {
	r.choice = deviceChoice{gpus: []cuda.Options{{}}}
	err := r.open(sh, 0)
	switch {
	case err == nil:
		r.why = "the first GPU"
		return nil
	case !missing(err):
		return fmt.Errorf("%w; --device cpu runs without it", err)
	}
	r.why = "no GPU could be opened: " + brief(err)
	r.choice = deviceChoice{cpus: 1}
	return r.open(sh, 0)
}

// limited opens the devices again, so that each gives at most so many bytes.
func (r *rig) limited(sh shell, bytes int64) error {
	if err := r.close(); err != nil {
		return err
	}
	return r.open(sh, bytes)
}

// open opens what was chosen. A limit of 0 is all there is.
func (r *rig) open(sh shell, limit int64) error {
	for _, o := range r.choice.gpus {
		o.Limit = limit
		if err := r.add(sh, o); err != nil {
			return err
		}
	}
	for range r.choice.cpus {
		r.on = append(r.on, cpu.Open(cpu.Options{Limit: limit}))
	}
	return nil
}

func (r *rig) close() error {
	var errs []error
	for _, d := range r.on {
		errs = append(errs, d.Close())
	}
	r.on, r.gpus = nil, nil
	return errors.Join(errs...)
}

// allocated is the most that was in use of all devices, bytes.
func (r *rig) allocated() (sum int64) {
	for _, d := range r.on {
		if m, counts := d.(device.Meter); counts {
			_, most := m.Allocated()
			sum += most
		}
	}
	return sum
}

// predicted is what the cards' driver will count when the plan, whose kernels were asked
// for, has its arenas; 0 where there are no cards. Bytes.
func (r *rig) predicted(p *plan.Plan) (sum int64) {
	for _, i := range r.apart() {
		var card, host int64
		for _, a := range p.Arenas {
			switch {
			case a.Tier == plan.Pinned:
				host += a.Bytes
			case a.Tier == plan.OnDevice && r.choice.gpus[a.Device].Ordinal == r.choice.gpus[i].Ordinal:
				card += a.Bytes
			}
		}
		sum += r.gpus[i].Footprint(card, host)
	}
	return sum
}

// held is how much of the cards' memory is taken, by this program and others, as
// their driver counts.
func (r *rig) held() (sum int64, err error) {
	for _, i := range r.apart() {
		free, total, err := r.gpus[i].Memory()
		if err != nil {
			return 0, err
		}
		sum += total - free
	}
	return sum, nil
}

// apart are the places of the cards, each once where several devices are shares of it.
func (r *rig) apart() (list []int) {
	for i := range r.gpus {
		if !slices.ContainsFunc(r.choice.gpus[:i], func(o cuda.Options) bool { return o.Ordinal == r.choice.gpus[i].Ordinal }) {
			list = append(list, i)
		}
	}
	return list
}

// deviceChoice is what --device says.
type deviceChoice struct {
	gpus []cuda.Options
	cpus int
}

// parseDevices reads names such as "cuda:0,cuda:1" and "cuda:0,tf32".
func parseDevices(names string) (c deviceChoice, err error) {
	if names == "" {
		return c, nil
	}
	for _, name := range strings.Split(names, ",") {
		driver, config, _ := strings.Cut(name, ":")
		switch {
		case name == "cpu" || name == "cpu0":
			c.cpus++
		case driver == "cuda":
			o, err := parseGPU(config)
			if err != nil {
				return c, fmt.Errorf("--device %s: %w", name, err)
			}
			c.gpus = append(c.gpus, o)
		case name == tf32Name && len(c.gpus) > 0:
			for i := range c.gpus {
				c.gpus[i].TF32 = true
			}
		default:
			return c, fmt.Errorf("--device %q; it is cpu or cuda:0, or several that are alike, such as cuda:0,cuda:1", name)
		}
	}
	if c.cpus > 0 && len(c.gpus) > 0 {
		return c, fmt.Errorf("--device %s: a run is on devices that are alike, either CPUs or cards", names)
	}
	return c, nil
}

// parseCard reads "1" or "0/2".
func parseGPU(config string) (o cuda.Options, err error) {
	number, share, shared := strings.Cut(config, "/")
	if config != "" {
		o.Ordinal, err = strconv.Atoi(number)
	}
	if err == nil && shared {
		o.Share, err = strconv.Atoi(share)
	}
	if err != nil || o.Ordinal < 0 || shared && o.Share < 1 {
		return o, fmt.Errorf("%q; cards are numbered from 0, and 0/2 is one half of the first", config)
	}
	return o, nil
}
