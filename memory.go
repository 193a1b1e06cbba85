package spillway

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

// MemoryStats say where a model's bytes are and what moved, in bytes.
type MemoryStats struct {
	Strategy string         `json:"strategy"` // of what ran last
	Devices  []DeviceMemory `json:"devices"`
	Host     TierMemory     `json:"host"`
	Disk     TierMemory     `json:"disk"`
	// Parked is what waits in host memory, or in the folder, while another task has
	// the devices.
	Parked int64 `json:"parked"`
	// Modules of what ran last, in the order they run.
	Modules []ModuleMemory `json:"modules"`
	// SwapsIn and SwapsOut count what went to devices and came back since the model was
	// wrapped, batches and results left out; Routes count everything that moved.
	SwapsIn  executor.Transfers `json:"swaps_in"`
	SwapsOut executor.Transfers `json:"swaps_out"`
	Routes   []RouteTraffic     `json:"routes"`
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

// ModuleMemory is the most that a block has at once of each class of bytes. The peaks
// of different blocks and classes come at different times.
type ModuleMemory struct {
	Name           string   `json:"name"`
	Weights        Resident `json:"weights"`
	Gradients      Resident `json:"gradients"`
	OptimizerState Resident `json:"optimizer_state"` // masters and moments
	Activations    Resident `json:"activations"`     // its output, and what is kept for its backward
	Workspace      Resident `json:"workspace"`       // while it runs
}

// Resident is how many bytes rest in each tier; several devices add up.
type Resident struct {
	Device int64 `json:"device"`
	Host   int64 `json:"host"`
	Disk   int64 `json:"disk"`
}

// RouteTraffic is what moved on a route.
type RouteTraffic struct {
	executor.Route
	executor.Transfers
}

// MemoryStats of the model as it is now.
func (w *Wrapped) MemoryStats() MemoryStats {
	s := MemoryStats{Strategy: w.Strategy()}
	for _, d := range w.devices {
		info := d.Info()
		m := DeviceMemory{Name: info.Name, Limit: info.Limit}
		if meter, ok := d.(device.Meter); ok {
			m.Allocated, m.Peak = meter.Allocated()
		}
		s.Devices = append(s.Devices, m)
	}
	for _, r := range []*running{w.state, w.view} {
		if r != nil && r.e != nil {
			s.reserve(r)
		}
	}
	if w.parked != nil {
		s.Parked = w.parked.Bytes()
	}
	if w.latest != nil {
		s.Modules = modules(w.latest.job)
	}
	s.count(w.moved())
	return s
}

// reserve adds the arenas of an executor.
func (s *MemoryStats) reserve(r *running) {
	for i, a := range r.job.Plan.Arenas {
		to := &s.Host
		switch a.Tier {
		case plan.OnDevice:
			to = &s.Devices[a.Device].TierMemory
			s.Devices[a.Device].Budget = max(s.Devices[a.Device].Budget, r.job.Plan.Devices[a.Device].Budget)
		case plan.OnDisk:
			to = &s.Disk
		}
		to.Predicted += a.Bytes
		to.Reserved += r.e.ArenaBytes(i)
	}
}

// moved is the traffic of all executors since the model was wrapped.
func (w *Wrapped) moved() map[executor.Route]executor.Transfers {
	all := maps.Clone(w.past)
	for _, r := range []*running{w.state, w.view} {
		if r != nil && r.e != nil {
			add(all, r.e.Transfers())
		}
	}
	return all
}

func (s *MemoryStats) count(moved map[executor.Route]executor.Transfers) {
	for r, t := range moved {
		s.Routes = append(s.Routes, RouteTraffic{r, t})
		if r.Class == plan.BatchData || r.Class == plan.ResultData || r.From == r.To {
			continue
		}
		switch plan.OnDevice {
		case r.To:
			s.SwapsIn = executor.Transfers{Moves: s.SwapsIn.Moves + t.Moves, Bytes: s.SwapsIn.Bytes + t.Bytes}
		case r.From:
			s.SwapsOut = executor.Transfers{Moves: s.SwapsOut.Moves + t.Moves, Bytes: s.SwapsOut.Bytes + t.Bytes}
		}
	}
	slices.SortFunc(s.Routes, func(a, b RouteTraffic) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Class, b.Class))
	})
}

// modules finds the most bytes each block has at once.
func modules(j *Job) []ModuleMemory {
	list, names := make([]ModuleMemory, len(j.Spec.Blocks)), make([]string, len(j.Spec.Blocks))
	for i, b := range j.Spec.Blocks {
		list[i].Name, names[i] = b.Name, b.Name
	}
	p := j.Plan
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

// of is the part of a module's memory a class belongs to; what is of no interest goes
// to the workspace.
func (m *ModuleMemory) of(c plan.Class) *Resident {
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

func (r *Resident) in(t plan.Tier) *int64 {
	switch t {
	case plan.OnDevice:
		return &r.Device
	case plan.OnDisk:
		return &r.Disk
	}
	return &r.Host
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

func (r Resident) String() string {
	return fmt.Sprintf("%v + %v", units.Bytes(r.Device), units.Bytes(r.Host+r.Disk))
}
