package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"spillway/dtype"
	"spillway/graph"
	"spillway/machine"
	"spillway/op"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/quant"
	"spillway/spec"
)

// Generation is the cache of keys and values of the task Generate, and how many rows its steps
// compute. Zero values have defaults.
type Generation struct {
	// Context is the most tokens of a sequence, prompt included; 0 is the model's, at most 2048.
	Context int64
	// Streams is how many sequences there are at once; 0 is 1.
	Streams int64
	// Chunk is the most rows of a step: longer prompts are computed in several. 0 is up to 512
	// on a CPU and 2048 on a GPU.
	Chunk int64
	// Key and Value are the types keys and values are stored in: F32, BF16, F16, quant.RowI8,
	// quant.RowF8 or quant.RowI4. Invalid is Precision.
	Key, Value dtype.Type
	// Page is how many positions share a page; 0 is 64.
	Page int64
	// Outputs is how many rows of a step have logits, at least: for those who want them of every
	// token of a prompt. 0 is one for each sequence.
	Outputs int64
	// Exact: the logits of a sequence have the same bits whatever is computed with it, and however its
	// prompt is cut. A CPU gives that anyway; on GPUs it costs some speed.
	Exact bool
	// Drafts is how many guessed tokens of each sequence a step computes at most in addition to the one
	// that is certain (generate.Speculation); 0 for none.
	Drafts int64
	// Branches is how many further continuations of a sequence are computed next to it while they are
	// guessed, and Apart how many of their last tokens may differ; 0 is Drafts and one.
	Branches, Apart int64

	draws bool // steps give tokens: graph.KVCache.Draws
}

// Usual sizes, where nobody says.
const (
	usualPage     = 64
	usualChunkCPU = 512
	usualChunkGPU = 2048
	// mostOutputs bounds how many rows of a chunk of prompts get logits: as many sequences can
	// end their prompts in one step.
	mostOutputs = 32
)

// check refuses settings of a batch for the task Generate, and of generation for others.
func (g Generation) check(o Options) error {
	if o.Task != Generate {
		if g != (Generation{}) {
			return fmt.Errorf("a context, streams, chunk or types of a cache are given, and the task is %s; they are for the task %s", o.Task, Generate)
		}
		return nil
	}
	switch {
	case o.BatchSize > 1 || o.MicroBatchSize > 1 || o.MicroBatches > 1 || o.GradientAccumulation > 1:
		return fmt.Errorf("a batch of sequences is given, and the task is %s; say with streams how many sequences there are at once", Generate)
	case o.Seq != 0 && o.Seq != g.Chunk:
		return fmt.Errorf("sequences of %d positions are given, and the task is %s; say with context how long they may become", o.Seq, Generate)
	case o.Packed || o.Document > 0:
		return fmt.Errorf("packed documents are given, and the task is %s, which has none", Generate)
	case g.Drafts < 0 || g.Drafts > maxDrafts:
		return fmt.Errorf("%d guessed tokens at once; 0 to %d", g.Drafts, maxDrafts)
	case g.Branches < 0 || g.Branches > maxBranches || g.Apart < 0 || g.Apart > maxSeq:
		return fmt.Errorf("%d branches of %d tokens at once; 0 to %d, of up to %d", g.Branches, g.Apart, maxBranches, maxSeq)
	case g.Apart > 0 && g.Branches == 0:
		return fmt.Errorf("branches that differ in their last %d tokens, and there are none; say how many", g.Apart)
	case g.Context < 0 || g.Streams < 0 || g.Chunk < 0 || g.Page < 0 || g.Outputs < 0:
		return fmt.Errorf("a context of %d, %d streams, chunks of %d, pages of %d, %d outputs: none can be negative", g.Context, g.Streams, g.Chunk, g.Page, g.Outputs)
	case g.Context > maxSeq || g.Streams > maxStreams || g.Chunk > maxChunk || g.Page > maxSeq || g.Outputs > maxStreams:
		return fmt.Errorf("a context of %d, %d streams, chunks of %d: at most %d, %d and %d are planned", g.Context, g.Streams, g.Chunk, maxSeq, maxStreams, maxChunk)
	}
	for _, t := range []dtype.Type{g.Key, g.Value} {
		if t != dtype.Invalid && !op.CacheType(t) {
			return fmt.Errorf("a cache in %v; use f32, bf16, f16, int8, fp8 or int4", t)
		}
	}
	return nil
}

// Limits far above any run.
const (
	maxStreams = 1 << 14
	maxChunk   = 1 << 17
	maxDrafts  = 1 << 10
	// maxBranches is for each sequence.
	maxBranches = 1 << 6
)

// withDefaults fills in what was left out.
func (g Generation) withDefaults(m *Model, o Options) Generation {
	if g.Context == 0 {
		g.Context = m.UsualSeq()
	}
	g.Streams, g.Page = max(g.Streams, 1), max(g.Page, 0)
	if g.Page == 0 {
		g.Page = usualPage
	}
	if g.Chunk == 0 {
		g.Chunk = usualChunkCPU
		if onGPU(o) {
			g.Chunk = usualChunkGPU
		}
		g.Chunk = min(g.Chunk, max(g.Context, g.Streams))
	}
	if g.Branches > 0 && g.Apart == 0 {
		g.Apart = g.Drafts + 1
	}
	if g.Key == dtype.Invalid {
		g.Key = o.Precision
	}
	if g.Value == dtype.Invalid {
		g.Value = o.Precision
	}
	return g
}

func onGPU(o Options) bool {
	for _, d := range o.Machine.Devices {
		if o.Device == "" || d.Name == o.Device {
			return d.Kind == machine.GPU
		}
	}
	return false
}

// cache is that of a step of so many rows.
func (g Generation) cache(rows int64) *graph.KVCache {
	c := &graph.KVCache{Streams: g.Streams, Context: g.Context, Page: g.Page, Chunk: g.Chunk, Key: g.Key, Value: g.Value,
		Outputs: rows, Filled: g.Context, Exact: g.Exact, Draws: g.draws && rows <= g.Streams, Drafts: g.Drafts, Branches: g.Branches, Apart: g.Apart}
	if rows > c.DecodeRows() {
		c.Outputs, c.Filled = min(max(min(g.Streams, mostOutputs), g.Outputs), rows), min(rows, g.Context)
	}
	return c
}

// GenerationOf is the settings that a plan's cache was made with.
func GenerationOf(c *graph.KVCache) Generation {
	g := Generation{Context: c.Context, Streams: c.Streams, Chunk: c.Chunk, Key: c.Key, Value: c.Value, Page: c.Page, Exact: c.Exact, Drafts: c.Drafts, Branches: c.Branches, Apart: c.Apart}
	if c.Chunk > c.Streams && c.Outputs > min(c.Streams, mostOutputs) {
		g.Outputs = c.Outputs
	}
	return g
}

// stepSizes are the rows of the steps besides the largest: one for each sequence, in powers
// of two, and shares of a chunk for short prompts.
func (g Generation) stepSizes() []int64 {
	sizes, decode := []int64{}, g.cache(1).DecodeRows()
	for n := int64(1); n < decode; n *= 2 {
		sizes = append(sizes, n)
	}
	sizes = append(sizes, g.Streams, decode)
	const least = 16
	for n := g.Chunk / 2; n >= least; n /= 2 {
		sizes = append(sizes, n)
	}
	slices.Sort(sizes)
	return slices.DeleteFunc(slices.Compact(sizes), func(n int64) bool { return n == g.Chunk })
}

// steps are the models of the steps besides the largest, of a plan.
func (q *question) steps(p *plan.Plan) (list []planner.Step, err error) {
	if q.options.Task != Generate {
		return nil, nil
	}
	for _, n := range q.options.Generation.stepSizes() {
		m, err := q.Trace(1, n)
		if err != nil {
			return nil, err
		}
		list = append(list, planner.Step{Rows: n, Model: m})
	}
	draws, err := q.draws()
	if err != nil {
		return nil, err
	}
	passes, err := q.passes(p)
	return slices.Concat(draws, list, passes), err
}

// mostPass is how many tokens of prompts pass all blocks at once, at most, where weights stream: with
// more of them a GPU computes longer than the link takes.
const mostPass = 16384

// passShare is the most that what chunks of a pass hand from block to block, or their results, may
// take of the device, or of the host.
const passShare = 16

// passes are steps of several chunks, where weights stream.
func (q *question) passes(p *plan.Plan) (list []planner.Step, err error) {
	var c strategy.Choice
	if err := json.Unmarshal(p.Choices, &c); err != nil || strategy.Count(c.Streamed) == 0 {
		return nil, err
	}
	g := q.options.Generation
	m, err := q.Trace(1, g.Chunk)
	if err != nil {
		return nil, err
	}
	var handed, result int64
	for i := range m.Blocks {
		for _, port := range m.Program(i).Outputs {
			switch bytes := m.Program(i).Type(port.Value).Bytes(); port.Role {
			case graph.Carry:
				handed = max(handed, bytes)
			case graph.Result:
				result = bytes
			}
		}
	}
	tokens := min(g.Context*g.Streams, mostPass)
	for n := int64(2); (n/2)*g.Chunk < tokens && n*handed <= q.Site.DeviceBudget(0)/passShare && n*result <= q.Site.HostBudget/passShare; n *= 2 {
		list = append(list, planner.Step{Rows: g.Chunk, Model: m, Chunks: int(n)})
	}
	return list, nil
}

// draws are steps of one row for each sequence that draw tokens on a GPU, so that no logits cross the
// link. On a CPU there is none to cross.
func (q *question) draws() (list []planner.Step, err error) {
	o := q.options
	if !onGPU(o) || q.Site.Devices > 1 {
		return nil, nil
	}
	o.Generation.draws = true
	for _, n := range o.Generation.stepSizes() {
		if n > o.Generation.Streams {
			continue
		}
		m, err := q.traceAs(o, 1, n)
		if err != nil {
			return nil, err
		}
		head := m.Program(len(m.Blocks) - 1)
		for _, node := range head.Nodes {
			if _, err := q.Site.Kernels.Kernel(head.Call(node)); node.Kind == op.Sample && err != nil {
				return nil, nil // the device has none
			}
		}
		list = append(list, planner.Step{Rows: n, Model: m, Draws: true})
	}
	return list, nil
}

// generatesWithin plans smaller caches, where those that were asked for do not fit: fewer
// sequences, shorter ones, and keys and values in 8 bits.
func (m *Model) generatesWithin(o Options) (list []planner.FitOption) {
	o.Choose = nil
	try := func(change string, g Generation) bool {
		q, err := m.ask(withGeneration(o, g))
		if err != nil {
			return false
		}
		s, err := q.Trace(1, q.Seq)
		if err != nil {
			return false
		}
		p, err := planner.Make(s, q.Goal, q.Site)
		if err != nil {
			return false
		}
		list = append(list, planner.FitOption{Change: change, Peak: p.Peak(), MicroBatchSize: 1, Seq: q.Seq, MicroBatches: 1, Device: q.Site.Budget, Host: q.Site.HostBudget})
		return true
	}
	g := o.Generation
	for n := g.Streams / 2; n >= 1; n /= 2 {
		smaller := g
		if smaller.Streams = n; try(fmt.Sprintf("streams of %d instead of %d", n, g.Streams), smaller) {
			break
		}
	}
	for n := g.Context / 2; n >= 64; n /= 2 {
		shorter := g
		if shorter.Context = n; try(fmt.Sprintf("a context of %d instead of %d", n, g.Context), shorter) {
			break
		}
	}
	if coded := g; !g.Key.Block() && !g.Value.Block() {
		coded.Key, coded.Value = quant.RowI8, quant.RowI8
		if !try("a cache in 8 bits", coded) {
			coded.Key, coded.Value = quant.RowI4, quant.RowI4
			try("a cache in 4 bits", coded)
		}
	}
	return list
}

// Limits are what to allow of a device where the smallest plan needs so many bytes, from less to more: a
// plan to generate needs some for kernels of its small steps next to what the search counts.
func (o Options) Limits(need int64) []int64 {
	if o.Task != Generate {
		return []int64{need}
	}
	return []int64{need, need + need/16, need + need/8, need + need/4}
}

func withGeneration(o Options, g Generation) Options {
	o.Generation, o.Seq = g, 0
	return o
}

// generation makes the run of the task Generate. Kernels of small steps may need more scratch
// memory than those of the largest, for which the plan is searched: then it is searched again
// within as much less.
func (q *question) generation(b planner.Batch) (*Run, error) {
	site := q.Site
	decode, err := q.Trace(1, min(q.options.Generation.Streams, q.options.Generation.Chunk))
	if err != nil {
		return nil, err
	}
	return squeezed(func(less int64) (*Run, int64, error) { return q.generationWithin(b, decode, site, less) })
}

// generationWithin makes the run within less memory. lacks is what small steps need more than there is, of a plan whose largest step fits.
func (q *question) generationWithin(b planner.Batch, decode *spec.Model, site planner.Site, less int64) (r *Run, lacks int64, err error) {
	notices := q.contextNotices()
	more := planner.Rows{Sizes: q.options.Generation.stepSizes(), Trace: func(rows int64) (*spec.Model, error) { return q.Trace(1, rows) }}
	q.Site = lessMemory(site, less)
	p, s, said, err := q.planCaches(b)
	var fit *planner.FitError
	if errors.As(err, &fit) && fit.Tier == plan.OnDevice {
		fit.Needed, fit.Budget = fit.Needed+less, fit.Budget+less
	}
	if err == nil {
		p, err = planner.ForDecoding(p, s, decode, q.Goal, q.Site, more)
	}
	q.Site = site
	if err != nil {
		return nil, 0, err
	}
	before := q.notices
	q.notices = slices.Concat(notices, said)
	r, err = q.run(p, s)
	if q.notices = before; errors.As(err, &fit) {
		lacks = max(fit.Needed-fit.Budget, 0)
	}
	return r, lacks, err
}

// contextNotices are those of the question, and one of a context that the model was not made for.
func (q *question) contextNotices() []string {
	notices := slices.Clone(q.notices)
	if context, made := q.options.Generation.Context, q.model.Info.Context; made > 0 && context > made {
		notices = append(notices, fmt.Sprintf("a context of %d tokens, and the model was made for %d: what it writes beyond may make no sense", context, made))
	}
	return notices
}

// squeezed plans within less and less memory until small steps have enough. plan gives the bytes that they lack, 0 where they have
// enough, or a FitError where the largest step alone does not fit. As long as small steps lack the same, what is taken away doubles:
// a plan that lacks a byte may not change before it has a megabyte less. Between a plan that lacks bytes and none at all the middle is
// tried, until both are within a sixteenth.
func squeezed[R any](plan func(less int64) (r R, lacks int64, err error)) (R, error) {
	r, lacks, err := plan(0)
	low, step := int64(0), lacks
	var none R
	var high int64 // within as much less nothing fits, as refusal says
	var refusal error
	for lacks > 0 {
		less := low + step
		if refusal != nil {
			if less = low + (high-low)/2; high-low <= max(lacks, high/16) {
				return none, refusal
			}
		}
		next, n, failed := plan(less)
		var fit *planner.FitError
		switch {
		case failed == nil:
			return next, nil
		case !errors.As(failed, &fit):
			return none, failed
		case n == 0:
			high, refusal = less, failed
		case n == lacks:
			low, step = less, 2*step
		default:
			low, step, lacks = less, n, n
		}
	}
	return r, err
}

// planCaches plans with keys and values on the device or, where nothing fits then, in host memory.
func (q *question) planCaches(b planner.Batch) (p *plan.Plan, s *spec.Model, said []string, err error) {
	changes := q.Changes
	q.Changes = func(*planner.FitError) []planner.FitOption { return nil }
	var least *planner.FitError // what lacks the least memory of the device
	for _, q.Goal.HostCaches = range []bool{q.Goal.HostCaches, true} {
		p, s, said, err = q.PlanBatch(b)
		var fit *planner.FitError
		if !errors.As(err, &fit) {
			break
		}
		if least == nil || least.Tier == plan.OnDevice && fit.Tier == plan.OnDevice && fit.Needed < least.Needed {
			least = fit
		}
		if q.Goal.HostCaches || q.Site.Devices > 1 {
			break
		}
	}
	q.Changes = changes
	var fit *planner.FitError
	switch {
	case errors.As(err, &fit): // with what would fit
		q.Goal.HostCaches = false
		if changes != nil {
			least.Options = changes(least)
		}
		return nil, nil, nil, least
	case err == nil && q.Goal.HostCaches:
		said = append(slices.Clone(said), "keys and values are in host memory, and go to the device block by block: there they do not fit")
	}
	return p, s, said, err
}

// lessMemory is a site with less memory on each device.
func lessMemory(site planner.Site, less int64) planner.Site {
	site.Budget -= less
	site.Budgets = slices.Clone(site.Budgets)
	for d, n := range site.Budgets {
		if n > 0 {
			site.Budgets[d] = max(n-less, 1)
		}
	}
	return site
}
