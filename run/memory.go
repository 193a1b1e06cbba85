package run

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"spillway/device"
	"spillway/executor"
	"spillway/plan"
	"spillway/units"
)

// MemoryStats say where the bytes of some runs of one model are and what moved, in bytes.
type MemoryStats struct {
	Strategy string         `json:"strategy"` // of the run used last
	Devices  []DeviceMemory `json:"devices"`
	Host     TierMemory     `json:"host"`
	Disk     TierMemory     `json:"disk"`
	// Parked is what waits in host memory, or in a file, while another run has the
	// devices.
	Parked int64 `json:"parked"`
	// Modules of the run used last, in the order they run.
	Modules []ModuleMemory `json:"modules"`
	// SwapsIn and SwapsOut count what went to devices and came back since the runs began,
	// batches and results left out; Routes count everything that moved.
	SwapsIn  executor.Transfers `json:"swaps_in"`
	SwapsOut executor.Transfers `json:"swaps_out"`
	Routes   []RouteTransfers   `json:"routes"`
}

// TierMemory is the memory of a tier, by the plans and as it was allocated.
type TierMemory struct {
	Predicted int64 `json:"predicted"`
	Reserved  int64 `json:"reserved"`
}

// DeviceMemory is the memory of a device.
type DeviceMemory struct {
	Name   string `json:"name"`
	Limit  int64  `json:"limit"`  // the most it gives in all
	Budget int64  `json:"budget"` // the most the plan may take; 0 where it takes none
	TierMemory
	// Allocated is what the device has given by its own count, to anyone, now and at
	// most; 0 where it does not count.
	Allocated int64 `json:"allocated"`
	Peak      int64 `json:"peak"`
}

// ModuleMemory is the most that a block has at once of each class of bytes. The peaks of
// different blocks and classes come at different times.
type ModuleMemory struct {
	Name           string    `json:"name"`
	Weights        TierBytes `json:"weights"`
	Gradients      TierBytes `json:"gradients"`
	OptimizerState TierBytes `json:"optimizer_state"` // master weights and states
	Activations    TierBytes `json:"activations"`     // its output, and what is saved for its backward
	Workspace      TierBytes `json:"workspace"`       // while it runs
}

// TierBytes is how many bytes are stored in each tier; several devices add up.
type TierBytes struct {
	Device int64 `json:"device"`
	Host   int64 `json:"host"`
	Disk   int64 `json:"disk"`
}

// Transfers is what moved, by route.
type Transfers map[executor.Route]executor.Transfers

// Plus adds transfers up.
func (t Transfers) Plus(more map[executor.Route]executor.Transfers) Transfers {
	sum := Transfers{}
	maps.Copy(sum, t)
	for r, m := range more {
		sum[r] = sum[r].Plus(m)
	}
	return sum
}

// RouteTransfers is what moved on a route.
type RouteTransfers struct {
	executor.Route
	executor.Transfers
}

// Allocated is the most that was in use of devices that count it, in bytes.
func (r *Run) Allocated() (sum int64) {
	for _, d := range r.Options.On {
		if m, ok := d.(device.Meter); ok {
			_, most := m.Allocated()
			sum += most
		}
	}
	return sum
}

// Moved is what the run has moved since it began.
func (r *Run) Moved() Transfers {
	if r.executor == nil {
		return r.past
	}
	return r.past.Plus(r.executor.Transfers())
}

// Memory is where the bytes of runs on the same devices are. Latest, which may be nil,
// is the run used last; past is what earlier runs have moved.
func Memory(devices []device.Device, latest *Run, past Transfers, runs ...*Run) MemoryStats {
	var s MemoryStats
	for _, d := range devices {
		info := d.Info()
		m := DeviceMemory{Name: info.Name, Limit: info.Limit}
		if meter, ok := d.(device.Meter); ok {
			m.Allocated, m.Peak = meter.Allocated()
		}
		s.Devices = append(s.Devices, m)
	}
	for _, r := range runs {
		if r.parked != nil {
			s.Parked += r.parked.Bytes()
		}
		past = past.Plus(r.Moved())
		for i, a := range r.Plan.Arenas {
			if r.executor == nil {
				break
			}
			to := &s.Host
			switch a.Tier {
			case plan.OnDevice:
				d := &s.Devices[a.Device]
				to, d.Budget = &d.TierMemory, max(d.Budget, r.Plan.Devices[a.Device].Budget)
			case plan.OnDisk:
				to = &s.Disk
			}
			to.Predicted += a.Bytes
			to.Reserved += r.executor.ArenaBytes(i)
		}
	}
	if latest != nil {
		s.Strategy, s.Modules = latest.Plan.Strategy, latest.modules()
	}
	for r, t := range past {
		s.Routes = append(s.Routes, RouteTransfers{r, t})
		switch {
		case r.Class == plan.BatchData || r.Class == plan.ResultData || r.From == r.To:
		case r.To == plan.OnDevice:
			s.SwapsIn = s.SwapsIn.Plus(t)
		case r.From == plan.OnDevice:
			s.SwapsOut = s.SwapsOut.Plus(t)
		}
	}
	slices.SortFunc(s.Routes, func(a, b RouteTransfers) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Class, b.Class))
	})
	return s
}

// modules finds the most each block has at once, by walking over the plan.
func (r *Run) modules() []ModuleMemory {
	list, names := make([]ModuleMemory, len(r.Spec.Blocks)), make([]string, len(r.Spec.Blocks))
	for i, b := range r.Spec.Blocks {
		list[i].Name, names[i] = b.Name, b.Name
	}
	p := r.Plan
	of, now := p.BlocksOf(names), make([]ModuleMemory, len(list))
	for c := range p.Lives() {
		block, b := of[c.Buffer], &p.Buffers[c.Buffer]
		if block < 0 {
			continue
		}
		bytes := b.Bytes
		if !c.Alive {
			bytes = -bytes
		}
		at, most := now[block].of(b.Class).in(p.TierOf(c.Buffer)), list[block].of(b.Class).in(p.TierOf(c.Buffer))
		*at += bytes
		*most = max(*most, *at)
	}
	return list
}

// of is the part of a module's memory that a class belongs to; what is of no interest
// goes to the workspace.
func (m *ModuleMemory) of(c plan.Class) *TierBytes {
	switch c {
	case plan.Weight:
		return &m.Weights
	case plan.Gradient:
		return &m.Gradients
	case plan.Master, plan.State:
		return &m.OptimizerState
	case plan.Activation:
		return &m.Activations
	}
	return &m.Workspace
}

func (b *TierBytes) in(t plan.Tier) *int64 {
	switch t {
	case plan.OnDevice:
		return &b.Device
	case plan.OnDisk:
		return &b.Disk
	}
	return &b.Host
}

// String is the statistics for people.
func (s MemoryStats) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "strategy %s\n", s.Strategy)
	for i, d := range s.Devices {
		fmt.Fprintf(&b, "device %d, %s: predicted %v, reserved %v, peak %v; budget %v\n", i, d.Name,
			units.Bytes(d.Predicted), units.Bytes(d.Reserved), units.Bytes(d.Peak), units.Bytes(d.Budget))
	}
	fmt.Fprintf(&b, "host: predicted %v, reserved %v; disk: %v; parked %v\n", units.Bytes(s.Host.Predicted), units.Bytes(s.Host.Reserved), units.Bytes(s.Disk.Reserved), units.Bytes(s.Parked))
	fmt.Fprintf(&b, "swaps: %d in, %v; %d out, %v\n", s.SwapsIn.Moves, units.Bytes(s.SwapsIn.Bytes), s.SwapsOut.Moves, units.Bytes(s.SwapsOut.Bytes))
	fmt.Fprintf(&b, "%-24s %20s %20s %20s %20s\n", "module, device + away", "weights", "gradients", "optimizer state", "activations")
	for _, m := range s.Modules {
		fmt.Fprintf(&b, "%-24s %20s %20s %20s %20s\n", m.Name, m.Weights, m.Gradients, m.OptimizerState, m.Activations)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func (b TierBytes) String() string {
	return fmt.Sprintf("%v + %v", units.Bytes(b.Device), units.Bytes(b.Host+b.Disk))
}
