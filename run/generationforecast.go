package run

import (
	"encoding/json"
	"math"
	"slices"

	"spillway/graph"
	"spillway/op"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/rig"
)

// GenerationForecast is what a plan to generate is expected to do.
type GenerationForecast struct {
	Context int64  `json:"context"`
	Streams int64  `json:"streams"`
	Chunk   int64  `json:"chunk"`
	Key     string `json:"key_dtype"`
	Value   string `json:"value_dtype"`
	Exact   bool   `json:"exact"` // bits of a sequence do not depend on others

	Page       int64 `json:"page_tokens"`
	Pages      int64 `json:"pages"` // of the layer that has most: one with a window needs fewer
	CacheBytes int64 `json:"cache_bytes"`
	TokenBytes int64 `json:"cache_bytes_per_token"` // in all layers that see it

	ChunkSeconds  float64 `json:"chunk_seconds"`  // a whole chunk of a new prompt
	PromptTokens  int64   `json:"prompt_tokens"`  // 1,000, or the context
	PromptSeconds float64 `json:"prompt_seconds"` // until the first token after such a prompt
	// PassTokens is how many tokens of prompts go through each block before the next where weights
	// stream, so that each streams once for all of them, and PassSeconds how long that takes; 0
	// where a chunk is all.
	PassTokens  int64   `json:"pass_tokens,omitempty"`
	PassSeconds float64 `json:"pass_seconds,omitempty"`

	Decode []DecodeForecast `json:"decode"`
	// Division is who computes what of a model that is larger than its device; nil where all of its
	// weights are there.
	Division *Division `json:"division,omitempty"`
}

// Division is how the blocks of a model larger than its device are divided, when a text grows by a
// token. It is fixed when a run is planned: results of a CPU and of a GPU differ in their last bits.
type Division struct {
	Blocks int `json:"blocks"`
	Device int `json:"device_blocks"` // whose weights stay on the device
	Stream int `json:"streamed_blocks"`
	CPU    int `json:"cpu_blocks"` // that the CPU computes, from host memory
	// CPURows is the most rows of a step in which it does; prompts are computed by the device.
	CPURows     int64 `json:"cpu_rows,omitempty"`
	StreamBytes int64 `json:"streamed_bytes"` // of weights, each token
	CPUBytes    int64 `json:"cpu_bytes"`      // of weights that the CPU reads, each token
	// Link and CPUTime are the shares of a token's time in which the link brings and the CPU computes.
	Link    float64 `json:"link_share"`
	CPUTime float64 `json:"cpu_share"`
	// Disk of the streamed blocks are read from the disk, DiskBytes each token, and Reading is the share of a token's
	// time in which it reads.
	Disk      int     `json:"disk_blocks,omitempty"`
	DiskBytes int64   `json:"disk_bytes,omitempty"`
	Reading   float64 `json:"disk_share,omitempty"`
}

// DecodeForecast is a step of one token of some sequences.
type DecodeForecast struct {
	Streams  int64        `json:"streams"`
	Captured bool         `json:"captured"` // as a graph
	Half     StepForecast `json:"half_context"`
	Full     StepForecast `json:"full_context"`
}

// StepForecast is a step over sequences that have so many positions.
type StepForecast struct {
	Positions    int64   `json:"positions"`
	Seconds      float64 `json:"seconds"`
	TokensPerSec float64 `json:"tokens_per_second"`
	Bytes        int64   `json:"memory_bytes"` // that kernels read and write
	Bound        string  `json:"bound"`        // memory, compute, launches, or a link
	// Roofline is what the slowest of memory, arithmetic, link and disk needs at least, and RooflineBound
	// which it is.
	Roofline      float64 `json:"roofline_seconds"`
	RooflineBound string  `json:"roofline_bound"`
}

// ForecastGeneration forecasts the steps of a plan to generate; nil of other tasks.
func (r *Run) ForecastGeneration() (*GenerationForecast, error) {
	c := r.Plan.Cache
	if c == nil {
		return nil, nil
	}
	f := &GenerationForecast{Context: c.Context, Streams: c.Streams, Chunk: c.Chunk, Key: c.Key.String(), Value: c.Value.String(), Exact: c.Exact,
		Page: c.Page, PromptTokens: min(1000, c.Context)}
	for _, b := range r.Plan.Buffers {
		if b.Class == plan.Cache && b.Home {
			f.CacheBytes += b.Bytes
		}
	}
	for i := range r.Spec.Blocks {
		p := r.Spec.Program(i)
		for _, port := range graph.Ports(p.Inputs, graph.Cache) {
			t := p.Type(port.Value)
			f.TokenBytes += t.Bytes() / (t.Shape[0] * c.Page)
			f.Pages = max(f.Pages, t.Shape[0])
		}
	}
	first, err := r.step(r.Plan.Seq, min(r.Plan.Seq, c.Context))
	if err != nil {
		return nil, err
	}
	f.ChunkSeconds = first.Seconds
	prompt, err := r.ForecastPrompts(1, f.PromptTokens)
	if err != nil {
		return nil, err
	}
	f.PromptSeconds = prompt.Seconds
	if most := r.passFor(math.MaxInt64); most > 1 {
		pass, err := r.pass(most, int64(most)*c.Chunk)
		if err != nil {
			return nil, err
		}
		f.PassTokens, f.PassSeconds = int64(most)*c.Chunk, pass.Seconds
	}
	for _, n := range r.Options.Generation.stepSizes() {
		if n > c.Streams {
			continue
		}
		d := DecodeForecast{Streams: n}
		for _, at := range []struct {
			positions int64
			to        *StepForecast
		}{{max(c.Context/2, 1), &d.Half}, {c.Context, &d.Full}} {
			if *at.to, err = r.ForecastStep(n, at.positions); err != nil {
				return nil, err
			}
		}
		for _, ph := range r.Plan.Phases {
			d.Captured = d.Captured || ph.Name == plan.Step(n) && ph.Captured
		}
		f.Decode = append(f.Decode, d)
	}
	f.Division, err = r.division()
	return f, err
}

// division looks at the instructions of the smallest step.
func (r *Run) division() (*Division, error) {
	p, name := r.Plan, ""
	if r.stepFor(1) != r.Plan.Seq {
		name = plan.Step(r.stepFor(1))
		view, err := p.Phase(name)
		if err != nil {
			return nil, err
		}
		p = view
	}
	d := &Division{Blocks: len(r.Spec.Blocks)}
	streamed, read := map[int]bool{}, map[int]bool{}
	binds := func(s *plan.Instruction, of map[int]bool) bool {
		return slices.ContainsFunc(s.Bindings, func(b plan.Binding) bool { return b.Region == plan.InWeight && of[b.Buffer] })
	}
	for i := range p.Instructions {
		s := &p.Instructions[i]
		if s.Verb == plan.Move && p.TierOf(s.Src) == plan.OnDisk {
			d.DiskBytes += p.Buffers[s.Src].Bytes
			read[s.Dst] = true
		}
		switch {
		case s.Verb == plan.Move && p.Buffers[s.Src].Class == plan.Weight && p.TierOf(s.Dst) == plan.OnDevice:
			streamed[s.Dst], read[s.Dst] = true, read[s.Dst] || read[s.Src]
			d.StreamBytes += p.Buffers[s.Src].Bytes
		case s.Verb != plan.Run:
		case p.Devices[s.Device].Name == plan.HostName:
			d.CPU++
			for _, b := range s.Bindings {
				if b.Region == plan.InWeight && !lookedUp(p, s) {
					d.CPUBytes += p.Buffers[b.Buffer].Bytes
				}
			}
		case binds(s, streamed):
			if d.Stream++; binds(s, read) {
				d.Disk++
			}
		default:
			d.Device++
		}
	}
	if d.CPU+d.Stream == 0 {
		return nil, nil
	}
	var c strategy.Choice
	if err := json.Unmarshal(r.Plan.Choices, &c); err != nil {
		return nil, err
	}
	for _, n := range c.CPURows {
		if n < strategy.AllRows {
			d.CPURows = max(d.CPURows, n)
		}
	}
	f, err := planner.Filled(r.Plan, r.site, name, r.Plan.Cache.Context)
	if err != nil {
		return nil, err
	}
	d.Link, d.CPUTime, d.Reading = f.Busy["link to device"], f.Busy["CPU"], f.Busy["disk read"]
	return d, nil
}

// lookedUp says whether a run only looks rows of its weights up.
func lookedUp(p *plan.Plan, s *plan.Instruction) bool {
	return !slices.ContainsFunc(p.Programs[s.Program].Graph.Nodes, func(n graph.Node) bool { return n.Kind == op.MatMul || n.Kind.ReadsCache() })
}

// ForecastStep forecasts the smallest step that has place for some rows, over sequences of so many
// positions. It is of a plan to generate.
func (r *Run) ForecastStep(rows, positions int64) (StepForecast, error) {
	s, err := r.step(r.stepFor(rows), positions)
	if err != nil {
		return s, err
	}
	if r.picks(rows) {
		s.Seconds += r.picking(rows)
		s.TokensPerSec = float64(r.stepFor(rows)) / s.Seconds
	}
	return s, nil
}

// ForecastBranch forecasts what it takes to begin a branch of a sequence, in seconds: the last page of every cache is copied.
func (r *Run) ForecastBranch() float64 {
	var bytes, copies int64
	for i := range r.Spec.Blocks {
		p := r.Spec.Program(i)
		for _, port := range graph.Ports(p.Inputs, graph.Cache) {
			t := p.Type(port.Value)
			bytes, copies = bytes+t.Bytes()/t.Shape[0], copies+1
		}
	}
	d := r.site.Device
	seconds := float64(copies) * d.Launch.Seconds()
	if d.Bandwidth > 0 {
		seconds += 2 * float64(bytes) / float64(d.Bandwidth)
	}
	return seconds
}

// picks says whether the tokens of a step of some rows are picked on the host from logits, and not drawn by the device.
func (r *Run) picks(rows int64) bool {
	return !slices.ContainsFunc(r.Plan.Phases, func(ph plan.Phase) bool { return ph.Name == plan.Draw(r.stepFor(rows)) })
}

// picking is the time in which a core of the host picks so many tokens, each the most likely one.
func (r *Run) picking(tokens int64) float64 {
	last := r.Spec.Program(len(r.Spec.Blocks) - 1)
	results := graph.Ports(last.Outputs, graph.Result)
	if len(results) == 0 {
		return 0
	}
	t, rate := last.Type(results[0].Value), assumedPicks
	if len(r.Options.On) > 0 && t.DType.IsPlain() {
		rate = rig.Picks(t.DType)
	}
	return float64(tokens*t.Shape.Last()) / rate
}

// assumedPicks is how many logits a core compares in a second where it is only described.
const assumedPicks = 1e9

// ForecastPrompts forecasts how long some prompts of so many tokens each take, in chunks: until
// the first token of the last.
func (r *Run) ForecastPrompts(prompts, tokens int64) (s StepForecast, err error) {
	s.Positions = tokens
	for left, at := prompts*tokens, int64(0); left > 0; {
		chunks := r.passFor(left)
		n := min(int64(chunks)*r.Plan.Cache.Chunk, left)
		filled := tokens // of several prompts, of which each begins anew
		if rest := tokens - at; n <= rest {
			filled = at + n
		}
		var one StepForecast
		if chunks > 1 {
			one, err = r.pass(chunks, filled)
		} else {
			one, err = r.step(r.stepFor(n), filled)
		}
		if err != nil {
			return s, err
		}
		s.Seconds, s.Roofline, s.Bytes = s.Seconds+one.Seconds, s.Roofline+one.Roofline, s.Bytes+one.Bytes
		s.Bound, s.RooflineBound = one.Bound, one.RooflineBound
		left, at = left-n, (at+n)%tokens
	}
	if r.picks(prompts) {
		s.Seconds += r.picking(prompts) // their first tokens
	}
	s.TokensPerSec = float64(prompts*tokens) / s.Seconds
	return s, nil
}

// stepFor is the rows of the smallest step that has place for some.
func (r *Run) stepFor(rows int64) int64 {
	for _, n := range r.Options.Generation.stepSizes() {
		if n >= rows {
			return n
		}
	}
	return r.Plan.Seq
}

// passFor is how many chunks the smallest pass has that has place for some rows, or the largest pass
// there is; 1 where there is none, or they are few enough for a step.
func (r *Run) passFor(rows int64) int {
	chunks := 1
	for _, ph := range r.Plan.Phases {
		if ph.MicroBatches > chunks && int64(chunks)*r.Plan.Cache.Chunk < rows {
			chunks = ph.MicroBatches
		}
	}
	return chunks
}

// pass forecasts a pass of some chunks, the last of which has so many positions before it: on average
// they have half of that.
func (r *Run) pass(chunks int, positions int64) (StepForecast, error) {
	p, err := r.Plan.Phase(plan.Pass(chunks))
	if err != nil {
		return StepForecast{}, err
	}
	return r.forecastOf(p, plan.Pass(chunks), (positions+r.Plan.Cache.Chunk)/2)
}

// step forecasts a step of some rows over sequences of so many positions.
func (r *Run) step(rows, positions int64) (s StepForecast, err error) {
	name, p := plan.Step(rows), r.Plan
	if rows == r.Plan.Seq {
		name = ""
	} else if p, err = r.Plan.Phase(name); err != nil {
		return s, err
	}
	s, err = r.forecastOf(p, name, positions)
	s.Seconds += r.noticed(p)
	s.TokensPerSec = float64(rows) / s.Seconds
	return s, err
}

// noticed is the time until the host, which waits for each step, knows that one has ended and the device has the next: of a captured one that is
// all, of others each launch is counted too. Seconds.
func (r *Run) noticed(p *plan.Plan) float64 {
	seconds := r.site.Device.Handoff.Seconds()
	if !p.Captured {
		seconds /= 2
	}
	return seconds
}

// forecastOf forecasts a phase.
func (r *Run) forecastOf(p *plan.Plan, name string, positions int64) (s StepForecast, err error) {
	f, err := planner.Filled(r.Plan, r.site, name, positions)
	if err != nil {
		return s, err
	}
	s = StepForecast{Positions: positions, Seconds: f.StepSeconds, TokensPerSec: f.TokensPerSec, Bound: f.Bound}
	var flops, link, disk float64
	for _, i := range p.Instructions {
		switch {
		case i.Verb == plan.Move && p.TierOf(i.Src) == plan.OnDisk:
			disk += float64(p.Buffers[i.Src].Bytes)
		case i.Verb == plan.Move && i.Lane == plan.In:
			link += float64(p.Buffers[i.Src].Bytes)
		}
		if i.Verb != plan.Run {
			continue
		}
		g := p.Programs[i.Program].Graph
		for _, n := range g.Nodes {
			if n.Kind.ReadsCache() {
				n.Attr.Document = positions
			}
			cost := g.Call(n).Cost()
			s.Bytes += cost.Bytes
			flops += cost.Flops
		}
	}
	d := r.site.Device
	memory, compute := float64(s.Bytes)/float64(d.Bandwidth), flops/float64(d.Compute.Rate(r.Options.Precision))
	for _, b := range []struct {
		name    string
		seconds float64
	}{{"memory", memory}, {"compute", compute}, {"link", link / float64(d.Link.In)}, {"disk", disk / float64(r.site.Disk.Read)}} {
		if b.seconds > s.Roofline && b.seconds < math.MaxFloat64 {
			s.Roofline, s.RooflineBound = b.seconds, b.name
		}
	}
	if f.Bound != "compute" {
		return s, nil
	}
	switch {
	case memory >= compute && memory >= s.Seconds/2:
		s.Bound = "memory"
	case compute < s.Seconds/2:
		s.Bound = "launches"
	}
	return s, nil
}
