package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"spillway"
	"spillway/device"
	"spillway/dtype"
	"spillway/generate"
	"spillway/internal/stopwatch"
	"spillway/lora"
	"spillway/machine"
	"spillway/op"
	"spillway/plan"
	"spillway/quant"
	"spillway/quant/stored"
	"spillway/rig"
	"spillway/run"
	"spillway/units"
)

// GenerationOptions say which models generate how much. Zero values have defaults.
type GenerationOptions struct {
	Options
	// Models are presets and shapes of the benchmarks, with weights made in memory, or folders.
	Models []string
	// Streams are how many texts there are at once, Contexts how many tokens each has in the end.
	Streams, Contexts []int64
	NewTokens         int64      // of Contexts: how many are added, one at a time
	Precision         dtype.Type // Invalid is the model's
	Key, Value        dtype.Type // of the cache; Invalid is Precision
	MaxMemory         string     // of the device, as in spillway.Options
	MaxHost           units.Bytes
	Disk              string // a folder for weights that fit in no memory; "" for none
	// Progress, if not nil, is called with how many bytes of something that takes long are done.
	Progress func(what string, done, total int64)
	// Quantization is the format of linear layers that are made in memory: one of Quantizations; "" is
	// Precision.
	Quantization string
	// CompressWeights: run.Options.CompressWeights.
	CompressWeights run.Compression
}

// Quantizations names the formats of weights that are made in memory: those of libraries of Python, and
// mixtures of GGUF files.
func Quantizations() []string { return append(stored.Written(), run.GGUFMixtures()...) }

// GenerationReport is what Generation measured: the object of bench generate --json.
type GenerationReport struct {
	Device  string           `json:"device"`
	Reads   float64          `json:"read_bytes_per_second"` // of the device's memory, by a kernel that writes nothing
	Rates   machine.Device   `json:"rates"`
	Results []*GenerationRow `json:"results"`
	// PrefillOff and DecodeOff are how far forecasts of time are off, as a share of what was
	// measured: the median, and the most of nine in ten.
	PrefillOff [2]float64 `json:"prefill_off"`
	DecodeOff  [2]float64 `json:"decode_off"`
	Notes      []string   `json:"notes"`
}

// GenerationRow is some texts of one length at once. Rates are tokens of all texts in a second;
// forecasts are of the plan, made before.
type GenerationRow struct {
	Name     string `json:"name"` // "llama-3-8b bf16, 16 × 1024"
	Model    string `json:"model"`
	DType    string `json:"dtype"`
	Key      string `json:"key_dtype"`
	Value    string `json:"value_dtype"`
	Streams  int64  `json:"streams"`
	Context  int64  `json:"context"`
	Prompt   int64  `json:"prompt_tokens"` // of each text
	New      int64  `json:"new_tokens"`    // of each text
	Strategy string `json:"strategy"`
	Captured bool   `json:"captured"` // steps that add a token are replayed from a CUDA graph

	Prefill GenerationPhase `json:"prefill"`
	Decode  GenerationPhase `json:"decode"`

	// Division is who computes what of a model that is larger than its device, and Overlap what of that
	// worked at the same time in a step; nil where all weights are on the device.
	Division *run.Division `json:"division,omitempty"`
	Overlap  *Overlap      `json:"overlap,omitempty"`
	// Formula is what a step takes at least where weights stream within the memory of a CPU, or come from a disk; nil elsewhere.
	Formula *Formula `json:"formula,omitempty"`

	// Predicted and Measured are bytes of the plan's memory on the device; the others what the
	// driver of a GPU was predicted to count, and counted.
	Predicted       int64 `json:"predicted_peak_bytes"`
	Measured        int64 `json:"measured_peak_bytes"`
	DriverPredicted int64 `json:"driver_predicted_bytes,omitempty"`
	Driver          int64 `json:"driver_peak_bytes,omitempty"`
}

// GenerationPhase is how fast prompts were computed, or tokens added.
type GenerationPhase struct {
	Seconds float64 `json:"seconds"` // of all prompts, or the median of the steps that add a token
	Best    float64 `json:"best_seconds"`
	// CPU is what the process took of all cores for it, or for a step on average: where others use
	// the computer too, it says more than the time. It is 0 where the system does not tell.
	CPU      float64 `json:"cpu_seconds,omitempty"`
	Rate     float64 `json:"tokens_per_second"`
	Forecast float64 `json:"forecast_tokens_per_second"`
	Off      float64 `json:"time_off"` // of the measured time; above 0 where it was slower than forecast
	// Share is that of the roofline, 0 where it was faster: what fits the caches is not read from
	// memory. Bound is what limits it: memory, compute, or the link where weights stream.
	Share float64 `json:"share_of_roofline,omitempty"`
	Bound string  `json:"bound,omitempty"`
}

// Usual sizes, where nobody says.
var (
	usualGenerationCPU = GenerationOptions{Models: []string{"llama-50m"}, Streams: []int64{1, 2, 8}, Contexts: []int64{256}, NewTokens: 16}
	usualGenerationGPU = GenerationOptions{Models: []string{"llama-3-8b"}, Streams: []int64{1, 16, 128}, Contexts: []int64{1024}, NewTokens: 32}
)

// withDefaults fills in what was left out.
func (o GenerationOptions) withDefaults(gpu bool) GenerationOptions {
	usual := usualGenerationCPU
	if gpu {
		usual = usualGenerationGPU
	}
	if len(o.Models) == 0 {
		o.Models = usual.Models
	}
	if len(o.Streams) == 0 {
		o.Streams = usual.Streams
	}
	if len(o.Contexts) == 0 {
		o.Contexts = usual.Contexts
	}
	o.NewTokens = cmp.Or(o.NewTokens, usual.NewTokens)
	return o
}

// Generation measures how fast models compute prompts and add tokens, as generate --prompts does
// it, with forecasts and predicted memory next to what was measured.
func Generation(ctx context.Context, o GenerationOptions) (r *GenerationReport, err error) {
	here, err := rig.Open(o.Device, o.Rig)
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, here) }()
	d := here.Machine.Devices[0]
	o = o.withDefaults(d.Kind == machine.GPU)
	r = &GenerationReport{Device: cmp.Or(d.Model, here.Machine.Host.CPU, d.Name), Results: []*GenerationRow{}, Notes: []string{}}
	defer watchClock(&r.Notes)()
	o.report("reading memory")
	if r.Reads, err = readRate(here.Devices[0]); err != nil {
		return nil, err
	}
	r.Rates = d
	r.Rates.Tables, r.Rates.Calls = nil, nil
	for _, name := range o.Models {
		for _, length := range o.Contexts {
			rows, err := o.measure(ctx, here, name, length, r.Reads)
			r.Results = append(r.Results, rows...)
			if ctx.Err() != nil {
				r.Notes = append(r.Notes, "interrupted in "+name)
				r.conclude()
				return r, nil
			}
			if err != nil {
				r.Notes = append(r.Notes, fmt.Sprintf("%s in a context of %d was not measured: %v", name, length, err))
			}
		}
	}
	r.conclude()
	if len(r.Results) == 0 && len(r.Notes) > 0 {
		return r, errors.New(r.Notes[0])
	}
	return r, nil
}

// conclude says how far forecasts are off.
func (r *GenerationReport) conclude() {
	r.PrefillOff = spread(r.Results, func(g *GenerationRow) float64 { return g.Prefill.Off })
	r.DecodeOff = spread(r.Results, func(g *GenerationRow) float64 { return g.Decode.Off })
}

// spread is the median of what rows are off by, and the most of nine in ten.
func spread(rows []*GenerationRow, of func(*GenerationRow) float64) (s [2]float64) {
	var list []float64
	for _, row := range rows {
		list = append(list, math.Abs(of(row)))
	}
	if slices.Sort(list); len(list) > 0 {
		s = [2]float64{list[len(list)/2], list[(9*len(list)+9)/10-1]}
	}
	return s
}

// readBytes is more than caches hold; on a GPU so much more that launching a kernel takes nothing next to reading it.
const readBytes, readBytesGPU = 256 << 20, 4 << 30

// readRate is how many bytes a second a kernel reads that writes next to nothing.
func readRate(dev device.Device) (float64, error) {
	bytes := int64(readBytes)
	if d, counts := dev.(device.DriverMemory); counts {
		if free, _, err := d.Memory(); err == nil && free > 2*readBytesGPU {
			bytes = readBytesGPU
		}
	}
	call, err := op.Make(op.SumSquares, op.Attr{}, op.Type{DType: dtype.F32, Shape: []int64{bytes / 4}})
	if err != nil {
		return 0, err
	}
	took, err := rig.Time(dev, call)
	if err != nil {
		return 0, fmt.Errorf("measuring reads: %w", err)
	}
	return float64(bytes) / took.Seconds(), nil
}

// measure plans a model for the most texts that are wanted, and times some at once after the
// other.
func (o GenerationOptions) measure(ctx context.Context, here *rig.Rig, name string, length int64, reads float64) (rows []*GenerationRow, err error) {
	m, err := openBench(name)
	if err != nil {
		return nil, err
	}
	defer m.Close() // opened for reading
	w := &generationRun{options: o, here: here, model: m, name: name, length: length, reads: reads}
	if err := w.quantize(); err != nil {
		return nil, err
	}
	if err := w.plan(slices.Max(o.Streams)); err != nil {
		return nil, err
	}
	if err := w.load(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.job.Close()) }()
	for _, n := range o.Streams {
		row, err := w.row(ctx, n)
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// generationRun is a model in memory that generates.
type generationRun struct {
	options   GenerationOptions
	here      *rig.Rig
	model     *spillway.Model
	name      string
	base      dtype.Type // of linear layers; Invalid where they are not quantized, or the network says so
	length    int64      // of a text in the end
	reads     float64
	job       *spillway.Run
	session   *generate.Session
	predicted int64 // that the driver will count
	division  *run.Division
	stepBytes int64 // that kernels of a step that adds a token read and write
}

// quantize has linear layers held in the format that is wanted.
func (w *generationRun) quantize() error {
	name := w.options.Quantization
	switch {
	case name == "":
		return nil
	case w.model.Folder != nil:
		return fmt.Errorf("%s has weights of its own, which %s is not for; quantize the folder, or name a preset", w.name, name)
	case slices.Contains(stored.Written(), name):
		w.name += " " + name
		var err error
		w.base, err = quant.ParseWeights(name)
		return err
	}
	packed, err := w.model.AsGGUF(name)
	if err == nil {
		w.model, w.name = packed, w.name+" "+name
	}
	return err
}

// plan plans for so many texts at once.
func (w *generationRun) plan(streams int64) (err error) {
	o, on := w.options, w.here.Machine
	if o.MaxHost > 0 {
		on.Host.Usable = min(on.Host.Usable, o.MaxHost)
	}
	if o.MaxMemory != "" && w.here.Devices[0].Info().OnHost { // as fast as it is in this minute
		s, err := rig.MeasureStreaming(w.here.Devices[0])
		if err != nil {
			return err
		}
		on.Devices = slices.Clone(on.Devices)
		link := &on.Devices[0].Link
		link.In, link.Out, link.HostBandwidth = s.Copy, s.Copy, 2*s.CopyWith+s.ReadWith
	}
	precision := cmp.Or(o.Precision, w.model.Info.DType)
	if !precision.IsPlain() || w.model.Folder == nil && o.Precision == dtype.Invalid {
		precision = dtype.BF16
	}
	w.job, err = w.model.Plan(spillway.Options{Task: spillway.Generate, Precision: precision, Machine: on, Device: on.Devices[0].Name, On: w.here.Devices,
		MaxMemory: o.MaxMemory, Disk: o.Disk, CompressWeights: o.CompressWeights, Adapters: lora.Options{Base: w.base}, Generation: run.Generation{Context: w.length, Streams: streams, Key: o.Key, Value: o.Value}})
	return err
}

// foresee makes the forecasts once, since calls that they measure take memory that a run has for itself.
func (w *generationRun) foresee() error {
	for _, n := range w.options.Streams {
		if err := w.forecast(w.newRow(n)); err != nil {
			return err
		}
	}
	p := w.job.Plan
	if !slices.ContainsFunc(p.Slabs, func(s plan.Slab) bool { return p.TierOf(s.Weight) != plan.OnDevice }) {
		return nil
	}
	f, err := w.job.ForecastGeneration()
	if err == nil {
		w.division = f.Division
	}
	return err
}

// newRow is a row of so many texts, not measured yet.
func (w *generationRun) newRow(streams int64) *GenerationRow {
	c := w.job.Plan.Cache
	fresh := max(min(w.options.NewTokens, w.length/2), 2)
	g := &GenerationRow{
		Model: w.name, DType: w.job.Options.Precision.String(), Key: c.Key.String(), Value: c.Value.String(),
		Streams: streams, Context: w.length, Prompt: w.length - fresh, New: fresh, Strategy: w.job.Plan.Strategy,
	}
	g.Name = fmt.Sprintf("%s %s, %d × %d", g.Model, g.DType, streams, w.length)
	return g
}

// load allocates the memory, and fills it with the weights of a folder or with random numbers.
func (w *generationRun) load(ctx context.Context) (err error) {
	if err := w.foresee(); err != nil {
		return err
	}
	w.predicted = run.DriverPredicted(w.here, w.job.Plan)
	w.job.Loading = func(done, total int64) error {
		if w.options.Progress != nil {
			w.options.Progress(fmt.Sprintf("weights of %s", w.name), done, total)
		}
		return ctx.Err()
	}
	if w.model.Folder != nil {
		err = w.job.Start()
	} else {
		err = w.job.StartNoise(1)
	}
	if err == nil {
		w.session, err = generate.NewSession(w.job)
	}
	if err != nil {
		err = errors.Join(err, w.job.Close())
	}
	return err
}

// warmUps is how often texts are made before they are timed. The first time prepares what is made when it is first
// needed, memory among it that steps of these sizes touch; steps that are captured are when they run again.
func (w *generationRun) warmUps() int {
	p := w.job.Plan
	if p.Captured || slices.ContainsFunc(p.Phases, func(ph plan.Phase) bool { return ph.Captured }) {
		return 2
	}
	return 1
}

// row times some texts at once, after others like them.
func (w *generationRun) row(ctx context.Context, streams int64) (g *GenerationRow, err error) {
	o := w.options
	g = w.newRow(streams)
	for _, ph := range w.job.Plan.Phases {
		g.Captured = g.Captured || (ph.Name == plan.Step(streams) || ph.Name == plan.Draw(streams)) && ph.Captured
	}
	o.report(g.Name)
	if err := w.forecast(g); err != nil {
		return nil, err
	}
	for range w.warmUps() {
		if _, err := w.texts(ctx, streams, g.Prompt, 3); err != nil {
			return nil, err
		}
	}
	before, err := w.streaming()
	if err != nil {
		return nil, err
	}
	var prompts, tokens []stepTime
	for range w.rounds(g) {
		t, err := w.texts(ctx, streams, g.Prompt, g.New)
		if err != nil {
			return nil, err
		}
		prompts, tokens = append(prompts, t[0]), append(tokens, t[1:]...)
	}
	after, err := w.streaming()
	if err != nil {
		return nil, err
	}
	g.Prefill.measured(prompts, float64(streams*g.Prompt))
	g.Decode.measured(tokens, float64(streams))
	peak := w.job.Plan.Peak()
	g.Predicted, g.Measured, g.DriverPredicted = peak[plan.OnDevice], w.here.Allocated(), w.predicted
	if g.Driver, err = w.here.DriverUsed(); err != nil {
		return g, err
	}
	g.Formula = w.formula(g, before, after)
	g.Division, g.Overlap, err = w.overlap(ctx, streams)
	return g, err
}

// shortTexts is how long texts are made at least, in seconds, in mostRounds at most: of less, the first steps after a prompt, which
// find nothing in caches, and moments in which the system does something else say more than a rate.
const shortTexts, mostRounds = 0.05, 25

// rounds is how often texts are made and timed.
func (w *generationRun) rounds(g *GenerationRow) int {
	forecast := float64(g.Streams*g.Prompt)/g.Prefill.Forecast + float64(g.Streams*g.New)/g.Decode.Forecast
	return max(1, min(mostRounds, int(math.Ceil(shortTexts/forecast))))
}

// forecast fills in what the plan foresees, and the rooflines.
func (w *generationRun) forecast(g *GenerationRow) error {
	prompts, err := w.job.ForecastPrompts(g.Streams, g.Prompt)
	if err != nil {
		return err
	}
	step, err := w.job.ForecastStep(g.Streams, g.Prompt+g.New/2)
	if err != nil {
		return err
	}
	w.stepBytes = step.Bytes
	d := w.here.Machine.Devices[0]
	for _, p := range []struct {
		to     *GenerationPhase
		from   run.StepForecast
		tokens float64
	}{{&g.Prefill, prompts, float64(g.Streams * g.Prompt)}, {&g.Decode, step, float64(g.Streams)}} {
		roofline := p.from.Roofline
		if p.from.RooflineBound == "memory" && w.reads > 0 { // as reads alone reach it
			roofline *= float64(d.Bandwidth) / max(w.reads, float64(d.Bandwidth))
		}
		*p.to = GenerationPhase{Forecast: p.tokens / p.from.Seconds, Share: roofline, Bound: p.from.RooflineBound}
	}
	return nil
}

// measured fills in the times of something that gives so many tokens each time.
func (p *GenerationPhase) measured(steps []stepTime, tokens float64) {
	times := make([]float64, len(steps))
	for i, s := range steps {
		times[i] = s.seconds
		p.CPU += s.cpu / float64(len(steps))
	}
	slices.Sort(times)
	p.Best, p.Seconds = times[0], times[len(times)/2]
	p.Rate = tokens / p.Seconds
	p.Off = 1 - p.Rate/p.Forecast
	if p.Share /= p.Seconds; p.Share > 1 {
		p.Share, p.Bound = 0, ""
	}
}

// texts generates some texts at once, from prompts of random tokens, and gives the times of
// the prompts and of each step after them, with what is done on the host in between.
func (w *generationRun) texts(ctx context.Context, streams, prompt, fresh int64) (steps []stepTime, err error) {
	requests := make([]generate.Request, streams)
	for i := range requests {
		ids := make([]int32, prompt)
		for j := range ids {
			ids[j] = int32(op.Uniform(uint64(i), 1, uint64(j)) * float32(max(w.model.Info.Vocab, 1)))
		}
		requests[i] = generate.Request{Prompt: ids, MaxNewTokens: int(fresh)}
	}
	e := &timedEngine{Engine: w.session}
	b, err := generate.NewBatch(e, nil, requests)
	if err != nil {
		return nil, err
	}
	for _, err := range b.All(ctx) {
		if err != nil {
			return nil, err
		}
	}
	e.mark()
	for i, next := range e.marks[1:] {
		steps = append(steps, stepTime{next.at.Sub(e.marks[i].at).Seconds(), next.cpu - e.marks[i].cpu})
	}
	if len(steps) < 2 {
		return nil, fmt.Errorf("%d steps are too few to be timed; add more tokens", len(steps))
	}
	return steps, nil
}

// stepTime is what a step took, by the clock and of all cores.
type stepTime struct{ seconds, cpu float64 }

// timedEngine marks when steps begin. It computes all prompts before the first token, so that
// steps after that have all texts.
type timedEngine struct {
	generate.Engine
	marks []struct {
		at  time.Time
		cpu float64 // seconds that the process had taken
	}
}

func (e *timedEngine) mark() {
	e.marks = append(e.marks, struct {
		at  time.Time
		cpu float64
	}{stopwatch.Now(), processSeconds()})
}

// Step computes all that waits.
func (e *timedEngine) Step(ctx context.Context) error {
	e.mark()
	return e.Engine.Step(ctx)
}

// Bandwidth is the rate that rooflines of memory are held against.
func (r *GenerationReport) Bandwidth() units.Rate {
	return max(r.Rates.Bandwidth, units.Rate(r.Reads))
}
