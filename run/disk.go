package run

import (
	"errors"

	"spillway/dtype"
	"spillway/executor"
	"spillway/internal/vfs"
	"spillway/plan"
	"spillway/store"
	"spillway/store/journal"
	"spillway/tensorfile"
	"spillway/units"
	"spillway/weights"
)

// Rates of a disk that nobody measured or described: those of a plain NVMe drive.
const (
	assumedRead  units.Rate = 2e9
	assumedWrite units.Rate = 1e9
)

// generations of trained bytes on disk: that of the last commit, and the next one.
const generations = 2

// compressing is the options once the policy has compressed the states: on disk they are
// in a folder of their own.
func (o Options) compressing() Options {
	if o.compressed = true; o.Disk != "" {
		o.Disk = journal.CompressedDir(o.Disk)
	}
	return o
}

// inPlaceBytes is what frozen weights that the model's files hold as the plan wants them
// may take in addition to the disk's budget: they cost nothing there.
func (m *Model) inPlaceBytes(o Options) (bytes int64) {
	if m.Folder == nil || o.Disk == "" || o.Task == Train {
		return 0
	}
	for _, t := range m.Folder.Tensors() {
		if t.Type == o.Precision {
			bytes += t.Bytes
		}
	}
	return bytes
}

// hasDisk says whether a plan stores bytes on disk, which is then its last device.
func hasDisk(p *plan.Plan) bool { return p.Devices[len(p.Devices)-1].Name == plan.DiskName }

// diskLayout is what a run stores on disk: the arenas of its plan, made of regions, and
// the tape of its journal. Sizes are of one generation, in bytes.
type diskLayout struct {
	regions      []store.Region
	arenas, tape int64
}

// layDisk finds the disk layout of a plan of the model, and refuses one whose files do not
// fit in the folder.
func (m *Model) layDisk(p *plan.Plan, o Options) (l diskLayout, err error) {
	if !hasDisk(p) {
		return l, nil
	}
	for _, a := range p.Arenas {
		if a.Tier == plan.OnDisk {
			l.arenas += a.Bytes
		}
	}
	l.regions, l.tape = m.regions(p, o.Task.Trains()), tapeBytes(p)
	if o.Disk == "" || l.arenas == 0 {
		return l, nil
	}
	free, err := store.Capacity(o.Disk)
	if err != nil {
		return l, err
	}
	if o.DiskBudget > 0 {
		free = min(free, o.DiskBudget)
	}
	needed, err := store.FileBytes(l.arenas, l.regions)
	if o.Task.Trains() && err == nil {
		var tape int64
		tape, err = store.FileBytes(l.tape, nil)
		needed += tape
	}
	if err == nil && needed > free {
		err = &vfs.SpaceError{Dir: o.Disk, Needed: needed, Free: free}
	}
	return l, err
}

// regions say of everything the plan has on disk how it is stored: what is trained is
// journaled, what never changes stays in the model's files if it is there, and anything
// else lives as long as the process.
func (m *Model) regions(p *plan.Plan, trains bool) (list []store.Region) {
	fixed := map[int][]plan.SlabParam{} // by buffer: weights that never change
	for _, s := range p.Slabs {
		if !isTrained(p, s) {
			fixed[s.Weight] = s.Params
		}
	}
	for id, b := range p.Buffers {
		if p.TierOf(id) != plan.OnDisk {
			continue
		}
		for _, param := range fixed[id] {
			region := store.Region{Kind: store.Scratch, Bytes: param.Type.Bytes()}
			if t, ok := m.inPlace(param); ok {
				region = store.RegionOf(t, 0)
			}
			region.Offset = b.Offset + param.Offset
			list = append(list, region)
		}
		if fixed[id] == nil {
			region := store.Region{Kind: store.Scratch, Offset: b.Offset, Bytes: b.Bytes}
			if trains && b.Class != plan.Gradient {
				region.Kind = store.Journaled
			}
			list = append(list, region)
		}
	}
	return list
}

// isTrained says whether a slab is trained.
func isTrained(p *plan.Plan, s plan.Slab) bool { return p.Optimizer != nil && s.Elements > 0 }

// inPlace finds the bytes of a param in the model's own files, if they are there just as
// the plan wants them.
func (m *Model) inPlace(p plan.SlabParam) (t tensorfile.Tensor, ok bool) {
	if m.Folder == nil {
		return t, false
	}
	for _, name := range m.Info.FileNames(p.Name) {
		if t, ok = m.Folder.Tensor(name); ok {
			return t, t.InPlace && t.Type == p.Type.DType && t.Shape.Equal(p.Type.Shape)
		}
	}
	return t, false
}

// load gives the params their values, but those that have them: trained ones that are
// there already, and those read in place. After an error the run is released.
func (r *Run) load(from weights.Values, hasTrained bool) error {
	has := map[string]bool{}
	for _, s := range r.Plan.Slabs {
		fixed, onDisk := !isTrained(r.Plan, s), r.Plan.TierOf(s.Weight) == plan.OnDisk
		for _, p := range s.Params {
			_, placed := r.Model.inPlace(p)
			has[p.Name] = hasTrained && !fixed || fixed && onDisk && placed
		}
	}
	wanted := func(p plan.SlabParam) bool { return !has[p.Name] }
	if err := weights.LoadSome(r.executor, from, wanted, r.loading(wanted)); err != nil {
		return errors.Join(err, r.release())
	}
	return nil
}

// loading counts the bytes of params that are wanted, for Run.Loading.
func (r *Run) loading(wanted func(plan.SlabParam) bool) weights.Report {
	if r.Loading == nil {
		return nil
	}
	var done, total int64
	for _, s := range r.Plan.Slabs {
		for _, p := range s.Params {
			if wanted(p) {
				total += p.Type.Bytes()
			}
		}
	}
	return func(bytes int64) error {
		done += bytes
		return r.Loading(done, total)
	}
}

// tapeBytes is the size of the tape: for all that is trained and not stored on disk.
func tapeBytes(p *plan.Plan) (bytes int64) {
	offDisk := func(home int) bool { return home >= 0 && p.TierOf(home) != plan.OnDisk }
	for _, s := range p.Slabs {
		if !isTrained(p, s) {
			continue
		}
		weight, master, states := s.Weight, s.Pieces[0].Master, s.Pieces[0].State
		for _, q := range s.Params {
			if offDisk(weight) {
				bytes += q.Type.Bytes()
			}
			if offDisk(master) {
				bytes += dtype.F32.Bytes(q.Type.Shape.Elements())
			}
			for _, state := range q.States {
				if offDisk(states) {
					bytes += state.Bytes()
				}
			}
		}
	}
	return journal.TapeBytes(bytes)
}

// journaledTensors are the tensors of an executor that a journal copies to its tape.
type journaledTensors struct {
	*executor.Executor
	list []executor.Tensor
}

// tensorsOffDisk lists the trained tensors that are not stored on disk. All pieces of a
// slab are in one tier.
func tensorsOffDisk(e *executor.Executor) (list []executor.Tensor) {
	p, slab := e.Plan(), map[string]plan.Slab{}
	for _, s := range p.Slabs {
		for _, q := range s.Params {
			slab[q.Name] = s
		}
	}
	for _, t := range append(e.Weights(), e.States()...) {
		s := slab[t.Param.Name]
		if !isTrained(p, s) {
			continue
		}
		home := s.Pieces[0].State
		switch t.State {
		case "":
			home = s.Weight
		case executor.Master:
			home = s.Pieces[0].Master
		}
		if p.TierOf(home) != plan.OnDisk {
			list = append(list, t)
		}
	}
	return list
}

// Read implements journal.Tensors.
func (t journaledTensors) Read(use func(chunk []byte) error) error {
	for _, tensor := range t.list {
		if err := t.Executor.Read(tensor, func(_ int64, chunk []byte) error { return use(chunk) }); err != nil {
			return err
		}
	}
	return nil
}

// Write implements journal.Tensors.
func (t journaledTensors) Write(fill func(chunk []byte) error) error {
	for _, tensor := range t.list {
		if err := t.Executor.Write(tensor, func(_ int64, chunk []byte) error { return fill(chunk) }); err != nil {
			return err
		}
	}
	return nil
}
