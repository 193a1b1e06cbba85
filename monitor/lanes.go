package monitor

import (
	"encoding/json"
	"slices"

	"spillway/eventlog"
	"spillway/machine"
	"spillway/trace"
)

// Works is what a run that goes on does with its computer: how long each lane works in a step,
// and what the tiers have in all.
type Works struct {
	Lanes []LaneShare `json:"lanes,omitempty"`
	// Step is the one whose instructions were timed; 0 where only the forecast is known.
	Step int64 `json:"timed_step,omitempty"`
	// Room is what the machine has in each tier; 0 where that is not known.
	Room eventlog.Tiers `json:"tier_capacity,omitzero"`
}

// LaneShare is the share of a step in which a lane works.
type LaneShare struct {
	Name     string  `json:"name"` // "gpu0 compute"
	Busy     float64 `json:"busy"` // as measured, or by the forecast where no step was timed
	Forecast float64 `json:"forecast,omitempty"`
}

// follower reads of a run's log what its line does not have. It passes over all other records.
type follower struct {
	reader             *eventlog.Reader
	measured, forecast eventlog.Trace
	works              Works
}

// passEachLook bounds the records that a look passes over, so that the log of a long run is read in
// several.
const passEachLook = 100_000

func followRun(dir string) (*follower, error) {
	r, err := eventlog.OpenReader(eventlog.PathOf(dir))
	if err != nil {
		return nil, err
	}
	return &follower{reader: r}, nil
}

// look reads what was written since. What cannot be read ends it: the run's line says so.
func (f *follower) look() Works {
	changed := false
	for range passEachLook {
		at := f.reader.At()
		kind, err := f.reader.Skip()
		if err != nil {
			break
		}
		if kind != eventlog.KindMachine && kind != eventlog.KindTrace {
			continue
		}
		f.reader.GoTo(at)
		_, payload, err := f.reader.Next()
		if err != nil {
			break
		}
		changed = true
		if kind == eventlog.KindMachine {
			f.works.Room = roomOf(payload)
			continue
		}
		if t, err := eventlog.DecodeTrace(payload); err == nil && t.Forecast {
			f.forecast = t
		} else if err == nil {
			f.measured = t
		}
	}
	if changed {
		f.works.Lanes, f.works.Step = lanesOf(f.measured, f.forecast), f.measured.Step
	}
	return f.works
}

// roomOf is what a machine has; nothing where the record is not one.
func roomOf(payload []byte) (t eventlog.Tiers) {
	var m machine.Machine
	if json.Unmarshal(payload, &m) != nil {
		return t
	}
	gpus := slices.ContainsFunc(m.Devices, func(d machine.Device) bool { return d.Kind == machine.GPU })
	for _, d := range m.Devices {
		if d.Kind == machine.GPU || !gpus { // next to GPUs the CPU is one too
			t.Device += int64(d.Memory)
		}
	}
	t.Pinned, t.Host, t.Disk = int64(m.Host.Memory), int64(m.Host.Memory), int64(m.Disk.Free)
	return t
}

// lanesOf are the lanes of a step, the busiest first.
func lanesOf(measured, forecast eventlog.Trace) (list []LaneShare) {
	of := func(t eventlog.Trace) (names []string, busy map[string]float64) {
		busy = map[string]float64{}
		var from, to int64
		for i, e := range t.Events {
			if i == 0 {
				from, to = e.Start, e.End
			}
			from, to = min(from, e.Start), max(to, e.End)
		}
		for _, e := range t.Events {
			if e.Verb == trace.Free {
				continue
			}
			name := e.Lane.Device + " " + e.Lane.Queue
			if _, known := busy[name]; !known {
				names = append(names, name)
			}
			busy[name] += float64(e.End-e.Start) / float64(max(to-from, 1))
		}
		return names, busy
	}
	names, took := of(measured)
	planned, should := of(forecast)
	if measured.Phase != forecast.Phase {
		planned, should = nil, nil
	}
	if len(names) == 0 {
		names, took = planned, should
	}
	for _, name := range names {
		list = append(list, LaneShare{name, min(took[name], 1), min(should[name], 1)})
	}
	slices.SortStableFunc(list, func(a, b LaneShare) int { return int(100*b.Busy) - int(100*a.Busy) })
	return list
}

// works are what the runs that go on do, each followed from look to look.
func (w *Watcher) works(r *RunInfo) {
	if w.followed == nil {
		w.followed = map[string]*follower{}
	}
	f := w.followed[r.Dir]
	if f == nil {
		var err error
		if f, err = followRun(r.Dir); err != nil {
			return // its line says why
		}
		w.followed[r.Dir] = f
	}
	works := f.look()
	r.Works = &works
}

// leave closes the logs of runs that no longer go on.
func (w *Watcher) leave(running []RunInfo) {
	for dir, f := range w.followed {
		if !slices.ContainsFunc(running, func(r RunInfo) bool { return r.Dir == dir && r.Works != nil }) {
			f.reader.Close() // it was only read
			delete(w.followed, dir)
		}
	}
}
