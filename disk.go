package spillway

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"spillway/device"
	"spillway/executor"
	"spillway/internal/vfs"
	"spillway/plan"
	"spillway/planner"
	"spillway/store"
	"spillway/tensorfile"
	"spillway/units"
	"spillway/weights"
)

// Rates of a disk that nobody measured or described: those of a plain NVMe drive.
const (
	assumedRead  units.Rate = 2e9
	assumedWrite units.Rate = 1e9
)

// generations of trained bytes on disk: that of the last iteration, and the one in
// the making.
const generations = 2

// trains says whether weights change.
func (o Options) trains() bool { return o.Task != Infer && o.Task != Eval }

// disk is the disk to plan for: the folder's, or for what is not here the machine's.
func (o Options) disk() (d planner.Disk, err error) {
	m := o.Machine.Disk
	d = planner.Disk{Budget: int64(m.Free), Read: m.Read, Write: m.Write}
	if d.Read == 0 || d.Write == 0 {
		d.Read, d.Write = assumedRead, assumedWrite
	}
	switch {
	case o.Disk != "":
		if d.Budget, err = store.Capacity(o.Disk); err != nil {
			return d, fmt.Errorf("asking for the free space of %s: %w", o.Disk, err)
		}
	case len(o.On) > 0:
		d.Budget = 0
	}
	if o.DiskBudget > 0 {
		d.Budget = min(d.Budget, o.DiskBudget)
	}
	if o.trains() {
		d.Budget, d.Copies = d.Budget/generations, generations
	}
	return d, nil
}

// inPlaceBytes is what frozen weights that lie in the model's files as they are wanted
// may take besides: on disk they cost nothing.
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

// checkDisk refuses a plan whose files do not fit in the folder: of a training, also a
// copy of what rests elsewhere is on disk.
func (j *Job) checkDisk() error {
	o, p := j.Options, j.Plan
	if o.Disk == "" || !hasDisk(p) {
		return nil
	}
	room, err := store.Capacity(o.Disk)
	if err != nil {
		return err
	}
	if o.DiskBudget > 0 {
		room = min(room, o.DiskBudget)
	}
	needed, err := store.FileBytes(diskBytes(p)-tapeBytes(p), j.regions(o.trains()))
	if o.trains() && err == nil {
		var tape int64
		tape, err = store.FileBytes(tapeBytes(p), nil)
		needed += tape
	}
	if err == nil && needed > room {
		err = &vfs.SpaceError{Dir: o.Disk, Needed: needed, Free: room}
	}
	if err != nil {
		return fmt.Errorf("planning %s: %w", p.Model, err)
	}
	return nil
}

// diskBytes is what a plan takes of the disk, one generation of it.
func diskBytes(p *plan.Plan) int64 {
	bytes := tapeBytes(p)
	for _, a := range p.Arenas {
		if a.Tier == plan.OnDisk {
			bytes += a.Bytes
		}
	}
	return bytes
}

// hasDisk says whether the last device of a plan is the disk.
func hasDisk(p *plan.Plan) bool {
	return p.Devices[len(p.Devices)-1].Name == plan.DiskName
}

// devices are those the plan runs on: the computing ones, the host's processor where it
// updates, and the disk, nil for none, as the last.
func (j *Job) devices(keep bool) (list []device.Device, disk *store.Disk, err error) {
	on, n := j.Options.On, 0
	for _, d := range j.Plan.Devices {
		if d.Name != plan.DiskName && d.Name != plan.HostName {
			n++
		}
	}
	if len(on) < n {
		return nil, nil, fmt.Errorf("the plan for %s is for %d devices, %d are here; open them and plan with them", j.Model.Name, n, len(on))
	}
	list = append(list, on[:n]...)
	if hasDisk(j.Plan) {
		if j.Options.Disk == "" {
			return nil, nil, fmt.Errorf("the plan for %s has bytes rest on disk; name a folder for them", j.Model.Name)
		}
		if disk, err = j.openDisk(keep); err != nil {
			return nil, nil, err
		}
	}
	if hostAt(j.Plan) >= 0 {
		host, err := device.Open("cpu", device.Options{})
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("opening the processor that updates: %w", err), closeDisk(disk, j.Options.Disk))
		}
		list = append(list, host)
	}
	if disk != nil {
		list = append(list, disk)
	}
	return list, disk, nil
}

// hostAt is the place of the host's processor among a plan's devices, -1 for none.
func hostAt(p *plan.Plan) int {
	return slices.IndexFunc(p.Devices, func(d plan.Device) bool { return d.Name == plan.HostName })
}

// closeOpened closes what devices has opened.
func (j *Job) closeOpened(on []device.Device, disk *store.Disk) error {
	err := closeDisk(disk, j.Options.Disk)
	if at := hostAt(j.Plan); at >= 0 {
		err = errors.Join(err, on[at].Close())
	}
	return err
}

// openDisk opens the folder. Its limit is what the plan and the copy of what rests
// elsewhere take: whether the disk has room for both generations shows when they are
// allocated.
func (j *Job) openDisk(keep bool) (*store.Disk, error) {
	disk, err := store.Open(store.Options{Dir: j.Options.Disk, Limit: diskBytes(j.Plan), Regions: j.regions(keep)})
	if err != nil {
		return nil, err
	}
	if err := clean(j.Options.Disk); err != nil {
		return nil, errors.Join(err, disk.Close())
	}
	return disk, nil
}

// clean removes what a killed run left beside its state. The disk must be open: it
// keeps others out.
func clean(dir string) error {
	if err := vfs.RemoveAll(vfs.OS, evaluationDir(dir)); err != nil {
		return fmt.Errorf("removing what an earlier run left at %s: %w", dir, err)
	}
	return nil
}

// evaluationDir is where the weights of an evaluation rest, beside the training's.
func evaluationDir(dir string) string { return filepath.Join(dir, ".evaluation") }

// regions say of everything the plan has on disk how it is kept: what is trained from
// iteration to iteration if wanted, what never changes where it lies already if it
// does, and anything else as long as the process lives.
func (j *Job) regions(keep bool) (list []store.Region) {
	fixed := map[int]plan.Slab{} // by buffer: weights that never change
	for _, s := range j.Plan.Slabs {
		if !changes(j.Plan, s) {
			fixed[s.Weight] = s
		}
	}
	for id, b := range j.Plan.Buffers {
		if j.Plan.TierOf(id) != plan.OnDisk {
			continue
		}
		s, never := fixed[id]
		switch {
		case never:
			list = append(list, j.fixedRegions(s, b.Offset)...)
		case keep && b.Class != plan.Gradient:
			list = append(list, store.Region{Kind: store.Journaled, Offset: b.Offset, Bytes: b.Bytes})
		default:
			list = append(list, store.Region{Kind: store.Scratch, Offset: b.Offset, Bytes: b.Bytes})
		}
	}
	return list
}

// changes says whether a slab is trained.
func changes(p *plan.Plan, s plan.Slab) bool { return p.Optimizer != nil && s.Elements > 0 }

func (j *Job) fixedRegions(s plan.Slab, offset int64) (list []store.Region) {
	for _, p := range s.Params {
		r := store.Region{Kind: store.Scratch, Bytes: p.Type.Bytes()}
		if t, ok := j.inPlace(p); ok {
			r = store.RegionOf(t, 0)
		}
		r.Offset = offset + p.Offset
		list = append(list, r)
	}
	return list
}

// inPlace finds the bytes of a param in the model's own files, if they are there just
// as the plan wants them.
func (j *Job) inPlace(p plan.SlabParam) (t tensorfile.Tensor, ok bool) {
	m := j.Model
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

// load gives the params their values, but those that have them: trained ones that
// were recovered, and those read in place. After an error the executor is closed.
func (j *Job) load(e *executor.Executor, from weights.Values, recovered bool) error {
	has := map[string]bool{}
	for _, s := range j.Plan.Slabs {
		fixed, onDisk := !changes(j.Plan, s), j.Plan.TierOf(s.Weight) == plan.OnDisk
		for _, p := range s.Params {
			_, placed := j.inPlace(p)
			has[p.Name] = recovered && !fixed || fixed && onDisk && placed
		}
	}
	if err := weights.LoadSome(e, from, func(p plan.SlabParam) bool { return !has[p.Name] }); err != nil {
		return errors.Join(err, e.Close())
	}
	return nil
}

// none is no iteration.
const none = int64(-1)

// recover finds the state that the disk holds. Where there is none, one begins, and
// the plan is kept beside it: the memory that is free another time may differ.
func (j *Job) recover(disk *store.Disk) (last int64, err error) {
	last, err = disk.Recover()
	if errors.Is(err, store.ErrNoCommit) {
		return none, j.savePlan()
	}
	return last, err
}

// closeDisk closes a disk, nil for none. The plan of a state that is not there is
// nothing to anybody.
func closeDisk(disk *store.Disk, dir string) (err error) {
	if disk == nil {
		return nil
	}
	if _, none := store.LastCommit(dir); errors.Is(none, store.ErrNoCommit) {
		err = vfs.RemoveAll(vfs.OS, filepath.Join(dir, diskPlanName))
	}
	return errors.Join(err, disk.Close(), removeInner(dir))
}

// diskCloser closes a disk after what was allocated on it.
type diskCloser struct {
	disk   *store.Disk
	kept   *durable // nil where nothing is kept
	dir    string
	remove bool // the folder too
}

func (c diskCloser) Close() (err error) {
	if c.kept != nil {
		err = c.kept.close()
	}
	err = errors.Join(err, closeDisk(c.disk, c.dir))
	if c.remove {
		err = errors.Join(err, vfs.OS.Remove(c.dir))
	}
	return err
}
