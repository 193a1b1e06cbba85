// Package run holds what it takes to run a model: a Model with its weights, Options, the
// plan made for both, open devices, the executor that carries the plan out, and the
// journal that makes its iterations survive a kill. Together they are a Run.
//
// A run is in one of three states:
//
//	planned    it has a plan and no memory
//	running    it has its memory: Executor iterates
//	parked     weights and optimizer states wait in host memory or in a file, the rest is given back
//
// Start and Resume bring it from planned to running, Park and Wake from running to parked
// and back, Replan from one plan to another between two iterations, and Close to its end.
// Training, evaluation and generation are loops over a Run, in packages of their own.
package run

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync/atomic"

	"spillway/device"
	"spillway/executor"
	"spillway/hf"
	"spillway/internal/vfs"
	"spillway/lora"
	"spillway/machine"
	"spillway/plan"
	"spillway/planner"
	"spillway/shape"
	"spillway/spec"
	"spillway/store"
	"spillway/store/journal"
	"spillway/units"
	"spillway/weights"
)

// Run is a model with a plan, and while it runs with everything the plan needs. It is
// used from one goroutine, but for RequestReplan.
type Run struct {
	Model *Model
	Planned
	// Notices are about what was asked for and means nothing here, or is done otherwise.
	Notices []string
	// Notice, if not nil, is given notices of what happens while the run lives: another
	// plan than the first, most of all.
	Notice func(string)
	// Parking is a folder for weights and states while the run is parked and host memory
	// is too small for them; "" is Options.Disk.
	Parking string
	// BeforeClaim, if not nil, is called before the run allocates memory: whatever else
	// uses the same devices may be given back.
	BeforeClaim func() error
	// Loading, if not nil, is called while weights are loaded, with how many bytes of them are
	// there; an error ends it.
	Loading func(done, total int64) error

	executor *executor.Executor // nil unless the run is running
	opened   []device.Device    // by the run, for the executor
	disk     *store.Disk        // nil where the plan stores nothing on disk
	journal  *journal.Journal   // nil where iterations are not journaled
	parked   *weights.Parked    // nil unless the run is parked
	past     Transfers          // of executors that are closed

	// compressed is the run once its policy has compressed the states, planned from the
	// plan compressedFrom; nil until it is asked for.
	compressed     *Run
	compressedFrom *plan.Plan

	changed    bool // the next plan trains other params than what is parked
	requested  atomic.Pointer[func(*Options)]
	onGradient GradientHook // nil for none
}

// Planned is the plan of a run, and what it was made of.
type Planned struct {
	Options Options // complete: what was left out is filled in
	Plan    *plan.Plan
	Spec    *spec.Model // the model as it was traced
	site    planner.Site
	onDisk  diskLayout
}

// cpuDevice is the driver that opens the CPU for updates.
const cpuDevice = "cpu"

// Start allocates everything the plan needs on its devices and loads the weights. Where
// a device or the host has less memory than the plan assumed, the run is planned again
// for what there is. The caller closes the run; the devices stay the caller's.
func (r *Run) Start() error { return r.start(false) }

// Resume is Start for a training run whose iterations are journaled where its plan stores
// bytes on disk: it goes on from what the journal holds.
func (r *Run) Resume() error { return r.start(true) }

func (r *Run) start(journaled bool) error {
	if r.parked != nil {
		return fmt.Errorf("the run of %s is parked; wake it, or close it first", r.Model.Name)
	}
	from, err := r.Weights()
	if err != nil {
		return err
	}
	for {
		if err := r.claim(journaled); err != nil {
			return err
		}
		_, _, recovered := r.journal.Recovered()
		err := r.load(from, recovered)
		if err == nil {
			return nil
		}
		if again, err := r.asBF16(err); !again {
			return err
		}
	}
}

// StartNoise is StartEmpty with weights that are made quickly: random numbers of the spread that the model's
// weights start with. Optimizer states are left as they are.
func (r *Run) StartNoise(seed uint64) error {
	noise, err := weights.Noise(r.Spec.Params, seed)
	if err != nil {
		return err
	}
	if err := r.claim(false); err != nil {
		return err
	}
	if err := weights.Replace(r.executor, noise, r.loading(func(plan.SlabParam) bool { return true })); err != nil {
		return errors.Join(err, r.release())
	}
	return nil
}

// StartEmpty is Start without loading weights. It is for measuring, where the numbers do
// not matter, and for callers that write the weights themselves.
func (r *Run) StartEmpty() error { return r.claim(false) }

// Executor carries out the plan; nil unless the run is running.
func (r *Run) Executor() *executor.Executor { return r.executor }

// Journal makes iterations durable; nil where they are not.
func (r *Run) Journal() *journal.Journal { return r.journal }

// Close gives all memory back. Devices that were open before stay open.
func (r *Run) Close() error {
	err := r.release()
	if r.parked != nil {
		err = errors.Join(err, r.parked.Close())
		r.parked = nil
	}
	return err
}

// claim allocates what the plan needs. Where a device or the host refuses, the run is
// planned again within what is left. A choice that was made has no second plan.
func (r *Run) claim(journaled bool) error {
	if r.executor != nil {
		return fmt.Errorf("the run of %s is running already; close it first", r.Model.Name)
	}
	if r.Options.Disk != "" {
		if err := store.CheckFolder(r.Options.Disk); err != nil {
			return err
		}
	}
	if r.BeforeClaim != nil {
		if err := r.BeforeClaim(); err != nil {
			return err
		}
	}
	if m, measures := r.site.CPU.Calls.(machine.Releaser); measures {
		if err := m.Release(); err != nil {
			return err
		}
	}
	debug.FreeOSMemory() // what planning took is free for arenas
	for {
		err := r.allocate(journaled)
		var refused *device.OutOfMemoryError
		if err == nil || !errors.As(err, &refused) || r.Options.Choose != nil {
			return err
		}
		o, smaller := r.Options.within(refused)
		if !smaller {
			return err
		}
		again, planning := r.Model.Plan(o)
		if planning != nil {
			return errors.Join(err, planning)
		}
		r.note("%s has %v left, the plan took %v: planned again, now %s instead of %s",
			refused.Device, units.Bytes(refused.Limit-refused.Allocated), units.Bytes(refused.Asked), again.Plan.Strategy, r.Plan.Strategy)
		r.Planned = again.Planned
	}
}

// allocate makes an executor without weights, on the devices of the plan.
func (r *Run) allocate(journaled bool) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, r.release())
		}
	}()
	on, err := r.devices(journaled)
	if err != nil {
		return err
	}
	// The system gives host memory when it is touched, so a plan that takes more than is
	// left would start and be killed. Where the system does not say, there is no check.
	usable, unknown := r.Options.System.Usable()
	var need int64
	for _, a := range r.Plan.Arenas {
		if a.Tier == plan.OnHost || a.Tier == plan.Pinned || a.Tier == plan.OnDevice && on[a.Device].Info().OnHost {
			need += a.Bytes
		}
	}
	if unknown == nil && need > int64(usable) {
		return &device.OutOfMemoryError{Device: hostName, Asked: need, Limit: int64(usable)}
	}
	journaled = journaled && r.disk != nil
	last := journal.None
	if journaled {
		if last, err = journal.Recover(r.disk); err == nil && last == journal.None {
			err = journal.SavePlan(r.Options.Disk, r.Plan.Write)
		}
		if err != nil {
			return err
		}
	}
	if r.executor, err = executor.New(r.Plan, on); err != nil {
		return err
	}
	if err := r.hookGradients(); err != nil {
		return err
	}
	if err := r.executor.WriteConstants(); err != nil || !journaled {
		return err
	}
	tensors := journaledTensors{r.executor, tensorsOffDisk(r.executor)}
	r.journal, err = journal.New(r.disk, r.Options.Disk, last, r.onDisk.tape, tensors)
	return err
}

// devices are those the plan runs on: the computing ones, the CPU where it updates, and
// the disk as the last.
func (r *Run) devices(journaled bool) (list []device.Device, err error) {
	on, n := r.Options.On, 0
	for _, d := range r.Plan.Devices {
		if d.Name != plan.DiskName && d.Name != plan.HostName {
			n++
		}
	}
	if len(on) < n {
		return nil, fmt.Errorf("the plan for %s is for %d devices, %d are here; open them and plan with them", r.Model.Name, n, len(on))
	}
	list = slices.Clone(on[:n])
	if slices.ContainsFunc(r.Plan.Devices, func(d plan.Device) bool { return d.Name == plan.HostName }) {
		cpu, err := device.Open(cpuDevice, device.Options{})
		if err != nil {
			return nil, fmt.Errorf("opening the CPU for updates: %w", err)
		}
		r.opened = append(r.opened, cpu)
		list = append(list, cpu)
	}
	if !hasDisk(r.Plan) {
		return list, nil
	}
	if r.Options.Disk == "" {
		return nil, fmt.Errorf("the plan for %s stores bytes on disk; name a folder for them", r.Model.Name)
	}
	regions := slices.Clone(r.onDisk.regions)
	for i := range regions {
		if regions[i].Kind == store.Journaled && !journaled { // then what is trained lives as long as the process
			regions[i].Kind = store.Scratch
		}
	}
	if r.disk, err = journal.OpenDisk(r.Options.Disk, r.onDisk.arenas+r.onDisk.tape, regions); err != nil {
		return nil, err
	}
	return append(list, r.disk), nil
}

// release closes the executor and what was opened for it, and remembers what it moved.
func (r *Run) release() error {
	var errs []error
	if r.executor != nil {
		r.past = r.past.Plus(r.executor.Transfers())
		errs = append(errs, r.executor.Close())
	}
	for _, d := range r.opened {
		errs = append(errs, d.Close())
	}
	errs = append(errs, r.journal.Close())
	if r.disk != nil {
		errs = append(errs, journal.CloseDisk(r.disk, r.Options.Disk))
		if r.Options.scratch {
			errs = append(errs, vfs.OS.Remove(r.Options.Disk))
		}
	}
	r.executor, r.opened, r.disk, r.journal = nil, nil, nil, nil
	return errors.Join(errs...)
}

// hostName is the device of an out-of-memory error that is about the host.
const hostName = "host"

// within is the options for what is left after a refusal. It says whether that is less
// than what was planned for, so that trying again comes to an end. Devices without memory
// of their own take from the host's.
func (o Options) within(refused *device.OutOfMemoryError) (_ Options, smaller bool) {
	left := refused.Limit - refused.Allocated
	switch {
	case left <= 0 || left >= refused.Asked || refused.Device == plan.DiskName:
		return o, false
	case refused.Device != hostName:
		smaller = o.Budget == 0 || left < o.Budget
		o.Budget = left
		return o, smaller
	}
	m, usable := &o.Machine, units.Bytes(left)
	m.Host.Usable = min(m.Host.Usable, usable)
	m.Devices = slices.Clone(m.Devices)
	for i := range m.Devices {
		if len(o.On) > 0 && o.On[0].Info().OnHost {
			m.Devices[i].Shared, m.Devices[i].Usable = true, min(m.Devices[i].Usable, usable)
		}
	}
	return o, true
}

// note gives a notice.
func (r *Run) note(format string, args ...any) {
	if r.Notice != nil {
		r.Notice(fmt.Sprintf(format, args...))
	}
}

// Weights is where the run's params come from: the model, and for what adapters train
// the adapter to begin from, or random ones.
func (r *Run) Weights() (weights.Values, error) {
	trained := r.adapted()
	from, err := r.Model.Values(r.Spec.Params, func(param string) bool { _, ok := trained[param]; return ok })
	if err != nil || r.Options.Adapter == nil {
		return from, err
	}
	if err := r.fitsAdapter(r.Options.Adapter); err != nil {
		return nil, err
	}
	return weights.Join(r.Options.Adapter.Has, r.Options.Adapter, from), nil
}

// Adapts says whether adapters are trained, next to frozen weights.
func (r *Run) Adapts() bool { return r.Options.adapts() }

// adapted is the shapes of what adapters train, by name; none where all weights are
// trained.
func (r *Run) adapted() map[string]shape.Shape {
	all := map[string]shape.Shape{}
	for _, p := range r.Spec.Params {
		if r.Options.adapts() && !p.Frozen {
			all[p.Name] = p.Type.Shape
		}
	}
	return all
}

func (r *Run) fitsAdapter(a *lora.Adapter) error {
	if !r.Options.adapts() {
		return fmt.Errorf("adapter %s is for a run with adapters; the task is %s", a.Name, r.Options.Task)
	}
	return a.Fits(r.adapted())
}

// SwitchAdapter gives the adapters of a running run other values, those of an adapter
// with the same options: one of many can be in use at a time, and the base stays where
// it is.
func (r *Run) SwitchAdapter(to *lora.Adapter) error {
	if err := r.fitsAdapter(to); err != nil {
		return err
	}
	return weights.LoadSome(r.executor, to, func(p plan.SlabParam) bool { return to.Has(p.Name) }, nil)
}

// Folder is what checkpoints of the run have next to tensors: the files of the model, or
// the config of its adapters. The model of adapters is known by what the user called it: a path,
// a name of the hub, which other computers know too, or the name of a preset.
func (r *Run) Folder() (model hf.Model, adapter *hf.AdapterConfig, err error) {
	if !r.Options.adapts() {
		model, err = r.Model.Files(r.Options.Precision)
		return model, nil, err
	}
	adapter, err = r.Options.Adapters.WithNames(maps.Keys(r.adapted())).PEFT(cmp.Or(r.Model.Origin, r.Model.Name), r.Model.Info.Transposed)
	return model, adapter, err
}
