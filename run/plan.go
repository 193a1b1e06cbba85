package run

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"spillway/dtype"
	"spillway/machine"
	"spillway/optim"
	"spillway/placement"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/quant"
	"spillway/quant/stored"
	"spillway/spec"
	"spillway/store"
	"spillway/store/journal"
	"spillway/tensorfile"
	"spillway/units"
)

// Plan makes the run with the fastest plan that fits: the one of a choice that was made,
// or the best of those with the numbers of micro-batches that may be fast. Where none
// fits, the error is a *planner.FitError with changes that do fit. A run that was killed
// and whose disk has its iterations gets the plan it had.
//
// To compute with on a CPU in 16 bits, weights are held with rows interleaved, where their types
// can be and all fit into memory. Those of a GGUF file that are not are decoded when they are
// read where that fits, since multiplying by their codes takes longer there. Weights in bf16 are held in
// 12 bits each where that is faster, see Compression.
func (m *Model) Plan(o Options) (*Run, error) {
	r, lacking, err := m.planCompressed(o)
	if r != nil || err != nil {
		return r, err
	}
	r, err = m.planUncompressed(o)
	var tooLarge *planner.FitError
	if lacking != nil && errors.As(err, &tooLarge) && lacking.less(tooLarge) {
		return lacking.options.withinDriver(m.plan) // the same again, with changes that fit
	}
	return r, err
}

// planUncompressed is Plan with weights in 16 bits.
func (m *Model) planUncompressed(o Options) (*Run, error) {
	if m.interleaves(o) {
		woven := o
		woven.interleaved, woven.decoded, woven.tries = true, true, true
		if r, err := woven.withinDriver(m.plan); err == nil && !readsDisk(r.Plan) {
			r.Options.tries = o.tries
			return r, nil
		}
	}
	if m.decodes(o) {
		plain := o
		plain.decoded = true
		var tooLarge *planner.FitError
		if r, err := plain.withinDriver(m.plan); !errors.As(err, &tooLarge) {
			return r, err
		}
	}
	return o.withinDriver(m.plan)
}

// decodes says whether codes of a GGUF file would be multiplied by a CPU.
func (m *Model) decodes(o Options) bool {
	if m.Folder == nil || o.Task != Infer && o.Task != Generate {
		return false
	}
	if !slices.ContainsFunc(m.Folder.Tensors(), func(t tensorfile.Tensor) bool { return t.Type.Block() && stored.Library(t.Type) == "" }) {
		return false
	}
	o, err := o.withDefaults(m)
	return err == nil && o.computesOnCPU()
}

// computesOnCPU says whether the device that computes is a CPU.
func (o Options) computesOnCPU() bool {
	site, _, err := o.site()
	return err == nil && site.Device.Kind == machine.CPU
}

// plan makes the run where the kernels it asks for take what is expected.
func (m *Model) plan(o Options) (*Run, error) {
	q, err := m.ask(o)
	if err != nil {
		return nil, err
	}
	if r, err := q.journaled(); err != nil || r != nil {
		return r, err
	}
	if o = q.options; o.DeviceMap != nil {
		if q.notices, err = o.DeviceMap.Apply(&q.Request, q.memory); err != nil {
			return nil, err
		}
	}
	if o.Choose != nil {
		q.cut(max(q.Goal.MicroBatches, 1))
		s, err := q.Trace(q.MicroBatchSize, q.Seq)
		if err != nil {
			return nil, err
		}
		p, err := planner.Build(s, q.Goal, q.Site, o.Choose)
		if err != nil {
			return nil, err
		}
		return q.run(p, s)
	}
	b := planner.Batch{Size: o.BatchSize, MicroBatches: o.MicroBatches}
	if o.PreferDataParallel && o.Strategy == "" {
		b.Prefer = strategy.ZeRO2
	}
	if o.Task == Generate {
		r, err := q.generation(b)
		return r, o.ofStrategy(err)
	}
	p, s, notices, err := q.PlanBatch(b)
	if err != nil {
		return nil, o.ofStrategy(err)
	}
	q.notices = append(q.notices, notices...)
	return q.run(p, s)
}

// ofStrategy names the strategy that was asked for in an error.
func (o Options) ofStrategy(err error) error {
	if err != nil && o.Strategy != "" {
		return fmt.Errorf("strategy %s: %w", o.Strategy, err)
	}
	return err
}

// TryPlan is Plan without looking for changes that fit where nothing does.
func (m *Model) TryPlan(o Options) (*Run, error) {
	return m.Plan(o.trying())
}

// PlanOrRefuse is Plan without looking for changes that fit where nothing does, for who looks for them otherwise.
func (m *Model) PlanOrRefuse(o Options) (*Run, error) {
	o.refuses = true
	return m.Plan(o)
}

// Fitting is what a plan takes that was found to fit.
type Fitting struct {
	Options Options // with the sizes of its batch
	Peak    map[plan.Tier]int64
	Device  int64 // bytes that plans may take of the first device
}

// Fits finds out whether TryPlan finds a plan; if not, the error is not nil. Where it can it looks for no fast one, and is much
// quicker.
func (m *Model) Fits(o Options) (Fitting, error) {
	q, err := m.ask(o.trying())
	if err != nil {
		return Fitting{}, err
	}
	if o = q.options; !o.Task.Trains() || o.DeviceMap != nil || o.Choose != nil || o.PreferDataParallel || o.Disk != "" || len(o.On) > 0 && o.MaxMemory != "" {
		r, err := m.TryPlan(o)
		if err != nil {
			return Fitting{}, err
		}
		return Fitting{r.Options, r.Plan.Peak(), r.Plan.Devices[0].Budget}, nil
	}
	r, peak, err := q.Request.Fits(planner.Batch{Size: o.BatchSize, MicroBatches: o.MicroBatches})
	if err != nil {
		return Fitting{}, o.ofStrategy(err)
	}
	o.MicroBatchSize, o.Seq, o.MicroBatches, o.tries = r.MicroBatchSize, r.Seq, r.Goal.MicroBatches, false
	return Fitting{o, peak, r.Site.DeviceBudget(0)}, nil
}

// trying are options for which nothing else is planned where nothing fits.
func (o Options) trying() Options {
	o.tries = true
	return o
}

// UsePlan makes a run of a plan that was made before, without a search. The sizes of its
// batches count. It is checked against the model, the optimizer and the memory there is.
func (m *Model) UsePlan(p *plan.Plan, o Options) (*Run, error) {
	o.BatchSize, o.MicroBatchSize, o.MicroBatches, o.GradientAccumulation, o.Seq, o.Document = 0, p.MicroBatchSize, p.MicroBatches, 0, p.Seq, p.Document
	o.CanonicalSums = p.CanonicalSums
	o.AllLogits = o.Task == Infer && !slices.ContainsFunc(p.Batch, func(b plan.BatchTensor) bool { return b.Name == "outputs" })
	if p.Cache != nil {
		o.Generation, o.Seq = GenerationOf(p.Cache), 0
	}
	holds := func(some func(t dtype.Type) bool) bool {
		return slices.ContainsFunc(p.Slabs, func(s plan.Slab) bool {
			return slices.ContainsFunc(s.Params, func(q plan.SlabParam) bool { return some(q.Type.DType) })
		})
	}
	o.interleaved = o.computesOnCPU() && holds(func(t dtype.Type) bool { return quant.InterleavedOf(t) != dtype.Invalid })
	o.compressedWeights = compressedIn(p)
	o.decoded = !holds(func(t dtype.Type) bool { return t.Block() && quant.InterleavedOf(t) == dtype.Invalid })
	q, err := m.ask(o)
	if err != nil {
		return nil, err
	}
	return q.use(p)
}

// question is what the planner is asked for some options, with everything it needs to
// know computed once.
type question struct {
	planner.Request
	model   *Model
	options Options
	memory  placement.Memory // of each device and of the host, within the limits
	notices []string
	traceAs func(o Options, microBatchSize, seq int64) (*spec.Model, error) // Trace, with other options
}

// ask completes options to what the planner needs.
func (m *Model) ask(o Options) (*question, error) {
	o, err := o.withDefaults(m)
	if err != nil {
		return nil, err
	}
	if o.Disk != "" && o.StatePolicy != (optim.Policy{}) && !o.compressed && o.Task.Trains() {
		if _, err := store.LastCommit(journal.CompressedDir(o.Disk)); err == nil {
			o = o.compressing() // a run on disk that was killed after its policy had
		}
	}
	if _, err := o.Task.graph(); err != nil {
		return nil, err
	}
	net, err := m.network(o)
	if err != nil {
		return nil, err
	}
	o.layers = layersOf(net)
	q := &question{model: m, options: o}
	q.MicroBatchSize, q.Seq = o.MicroBatchSize, o.Seq
	q.Trace = func(microBatchSize, seq int64) (*spec.Model, error) { return m.trace(net, o, microBatchSize, seq) }
	q.traceAs = func(o Options, microBatchSize, seq int64) (*spec.Model, error) {
		return m.trace(net, o, microBatchSize, seq)
	}
	if q.Site, q.memory, err = o.site(); err != nil {
		return nil, err
	}
	q.readInTurn()
	q.Site.Disk.Budget += m.inPlaceBytes(o)
	if q.Goal, err = o.goal(); err != nil {
		return nil, err
	}
	if o.MicroBatches == 0 {
		q.cut(1) // until the search chooses
	}
	switch {
	case o.tries || o.refuses:
		q.Changes = func(*planner.FitError) []planner.FitOption { return nil }
	case o.Task == Generate:
		q.Changes = func(*planner.FitError) []planner.FitOption { return m.generatesWithin(o) }
	}
	return q, q.boundDataParallel()
}

// run is the answer: a run with a plan, whose files fit on the disk.
func (q *question) run(p *plan.Plan, s *spec.Model) (_ *Run, err error) {
	o := q.options
	if _, without := p.Phase(plan.Evaluate); without != nil && (o.Evaluates || o.Outputs) && o.Task.Trains() {
		if p, err = planner.WithEvaluation(p, q.Site); err != nil {
			return nil, err
		}
	}
	if o.Task == Generate && len(p.Phases) == 0 && len(p.Choices) > 0 { // one that is only looked at has no choices
		steps, err := q.steps(p)
		if err != nil {
			return nil, err
		}
		if p, err = planner.WithSteps(p, q.Goal, q.Site, steps); err != nil {
			return nil, err
		}
	}
	for _, k := range s.Kinds {
		if k.Program.WholeBatch && p.MicroBatches > 1 {
			return nil, fmt.Errorf("planning %s: its loss is of all samples of a batch together, since it compares them or does not end in nn.Mean with every term, and the batch is cut into %d micro-batches; plan with one (MicroBatches 1)", p.Model, p.MicroBatches)
		}
	}
	if !o.tries && o.Task != Generate {
		if q.Site, err = planner.Rehearse(p, q.Site); err != nil {
			return nil, err
		}
	}
	o.MicroBatchSize, o.Seq, o.MicroBatches = p.MicroBatchSize, p.Seq, p.MicroBatches
	o.BatchSize = o.MicroBatchSize * int64(o.MicroBatches)
	layout, err := q.model.layDisk(p, o)
	if err != nil {
		return nil, fmt.Errorf("planning %s: %w", p.Model, err)
	}
	notices := q.notices
	if o.Disk != "" && !hasDisk(p) {
		notices = append(slices.Clone(notices), fmt.Sprintf("nothing is stored in %s: all of it fits in memory", o.Disk))
	}
	if most := q.model.Info.Context; most > 0 && o.Seq > most && o.Task != Generate { // whose rows are of several sequences; learned positions refuse this when they are traced
		notices = append(slices.Clone(notices), fmt.Sprintf("sequences have %d positions (--seq-len), %s was made for %d (max_position_embeddings): text that is longer has positions that it never saw; give --seq-len %d unless that is what it is to learn",
			o.Seq, q.model.Name, most, most))
	}
	return &Run{Model: q.model, Planned: Planned{Options: o, Plan: p, Spec: s, site: q.Site, onDisk: layout}, Notices: notices}, nil
}

// use makes a run of a given plan.
func (q *question) use(p *plan.Plan) (*Run, error) {
	s, err := q.Trace(max(q.MicroBatchSize, 1), q.Seq)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(sameGoal(p, s, q.Goal), fits(p, q.Site)); err != nil {
		return nil, err
	}
	steps, err := q.steps(p)
	if err != nil {
		return nil, err
	}
	if p, err = planner.Rebuild(s, q.Goal, q.Site, p, steps...); err != nil {
		return nil, fmt.Errorf("the plan was changed, or is for other settings or another kind of device: %w", err)
	}
	return q.run(p, s)
}

// cut divides the batch into so many micro-batches.
func (q *question) cut(microBatches int) {
	q.Goal.MicroBatches, q.MicroBatchSize = microBatches, q.options.BatchSize/int64(microBatches)
}

// journaled makes a run of the plan that the iterations on disk are laid out for; nil
// for none. A plan for what is free now might store things elsewhere, and the iterations
// would be lost.
func (q *question) journaled() (*Run, error) {
	o := q.options
	if o.Disk == "" || !o.Task.Trains() {
		return nil, nil
	}
	iteration, err := store.LastCommit(o.Disk)
	if errors.Is(err, store.ErrNoCommit) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var p *plan.Plan
	raw, err := journal.ReadPlan(o.Disk)
	if err == nil {
		p, err = plan.Read(bytes.NewReader(raw))
	}
	var r *Run
	if err == nil && o.MicroBatches == 0 && p.MicroBatchSize*int64(p.MicroBatches) == o.BatchSize {
		q.cut(p.MicroBatches) // as the planner chose when the run began
	}
	if err == nil {
		r, err = q.use(p)
	}
	if err != nil {
		return nil, fmt.Errorf("%s holds iteration %d of a training run: %w; or use another folder", o.Disk, iteration, err)
	}
	return r, nil
}

// sameGoal compares a plan with what is asked for now.
func sameGoal(p *plan.Plan, s *spec.Model, g planner.Goal) error {
	const hint = "use the settings that the plan was made with"
	if p.Model != s.Name {
		return fmt.Errorf("it is a plan for %s, the model is %s: %s", p.Model, s.Name, hint)
	}
	if p.Task != string(s.Config.Task) || p.MicroBatchSize != s.Config.MicroBatchSize || p.Seq != s.Config.Seq || p.MicroBatches != max(g.MicroBatches, 1) {
		return fmt.Errorf("the plan is to %s, %d micro-batches of %d × %d, now it is to %s, %d of %d × %d: %s", p.Task, p.MicroBatches, p.MicroBatchSize, p.Seq,
			s.Config.Task, g.MicroBatches, s.Config.MicroBatchSize, s.Config.Seq, hint)
	}
	planned := map[string]plan.SlabParam{}
	for _, slab := range p.Slabs {
		for _, q := range slab.Params {
			planned[q.Name] = q
		}
	}
	for _, q := range s.Params {
		was, ok := planned[q.Name]
		decays := !q.Frozen && g.Decay != nil && g.Decay(q.Name)
		if !ok || !was.Type.Equal(q.Type) || was.Frozen() != q.Frozen || was.Decay != decays || g.Group != nil && !q.Frozen && was.Group != g.Group(q.Name) {
			return fmt.Errorf("the plan has param %s in another type, or trains it otherwise: %s", q.Name, hint)
		}
	}
	if len(planned) != len(s.Params) {
		return fmt.Errorf("the plan has %d params, the model %d: %s", len(planned), len(s.Params), hint)
	}
	if u, now := p.Optimizer, g.Optimizer; (u == nil) != (now == nil) || u != nil && (u.Rule != now.Rule || u.Clip != now.Clip || u.Held != now.Held || u.Averaged != now.Averaged || u.Outputs != s.Config.Outputs || u.Centralized != s.Config.Centralize) {
		return fmt.Errorf("the plan is for another optimizer, or clips gradients otherwise: %s", hint)
	}
	if p.CanonicalSums != g.CanonicalSums {
		return fmt.Errorf("the plan has canonical sums: %v, now they are asked for: %v: %s", p.CanonicalSums, g.CanonicalSums, hint)
	}
	return nil
}

// fits compares what a plan takes with what there is now.
func fits(p *plan.Plan, site planner.Site) error {
	var host int64
	for _, a := range p.Arenas {
		if free := site.DeviceBudget(a.Device); a.Tier == plan.OnDevice && a.Bytes > free {
			return fmt.Errorf("the plan takes %v of %s, %v are free: allow as much", units.Bytes(a.Bytes), a.Name, units.Bytes(free))
		}
		if a.Tier == plan.OnHost || a.Tier == plan.Pinned || a.Tier == plan.OnDevice && site.SharedMemory {
			host += a.Bytes
		}
	}
	if host > site.HostBudget {
		return fmt.Errorf("the plan takes %v of host memory, %v are free: allow as much", units.Bytes(host), units.Bytes(site.HostBudget))
	}
	return nil
}

// boundDataParallel rules ZeRO-1 and ZeRO-2 out where the weights are too large a share
// of a device.
func (q *question) boundDataParallel() error {
	o := q.options
	if o.DataParallelThreshold == 0 || q.Site.Devices < 2 {
		return nil
	}
	m, err := q.Trace(max(q.MicroBatchSize, 1), q.Seq)
	if err != nil {
		return err
	}
	var weights int64
	for _, p := range m.Params {
		weights += p.Type.Bytes()
	}
	limit := o.DataParallelThreshold * float64(memoryOf(q.Site).Devices[0])
	if float64(weights) < limit {
		return nil
	}
	if c := q.Goal.Constraints; c.Parallelism == strategy.ZeRO1 || c.Parallelism == strategy.ZeRO2 {
		return fmt.Errorf("%s: the weights take %v, the threshold allows %v on each device; raise it or take zero-3", c.Parallelism, units.Bytes(weights), units.Bytes(limit))
	}
	q.Goal.Bounds.Without = append(slices.Clone(q.Goal.Bounds.Without), strategy.ZeRO1, strategy.ZeRO2)
	return nil
}
