package bench

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"spillway"
	"spillway/eventlog"
	"spillway/executor"
	"spillway/finetune"
	"spillway/internal/stopwatch"
	"spillway/internal/vfs"
	"spillway/planner"
	"spillway/recipe"
	"spillway/trace"
	"spillway/train"
)

// RandomReport holds forecasts of training runs drawn at random against what was measured:
// the object of bench cpu|gpu --random --json.
type RandomReport struct {
	Device  string       `json:"device"`
	Seed    uint64       `json:"seed"`
	Drawn   bool         `json:"-"`       // from the seed
	Results []*RandomRow `json:"results"` // the worst forecast of time first
	// TimeOff is how far the forecasts of time are off, as a share of the measured time: the
	// median, the most of nine in ten, and the most of all.
	TimeOff      float64  `json:"time_off_median"`
	TimeOffMost  float64  `json:"time_off_nine_in_ten"`
	TimeOffWorst float64  `json:"time_off_worst"`
	Notes        []string `json:"notes"`
}

// RandomRow is a training run drawn at random.
type RandomRow struct {
	Name      string             `json:"name"` // "17: llama of 12 × 1024, 3 × 1500, bf16 lora"
	Model     json.RawMessage    `json:"model"`
	Settings  map[string]string  `json:"settings"`  // of spillway train
	Documents int                `json:"documents"` // tokens of a document on average; 0 is one document throughout
	Strategy  string             `json:"strategy"`
	Steps     int                `json:"steps"`
	Seconds   float64            `json:"seconds_per_step"` // the median, after a warm-up, of steps that other programs left alone
	Forecast  float64            `json:"forecast_seconds_per_step"`
	Off       float64            `json:"time_off"`                 // of the measured time; above 0 where the run was slower
	Captured  bool               `json:"captured"`                 // steps are replayed from a CUDA graph
	Issuing   float64            `json:"issuing_seconds_per_step"` // of the thread that launches
	Launches  float64            `json:"launches_per_step"`
	Busy      map[string]float64 `json:"forecast_busy"` // shares of the step, by resource
	// Spent and ForecastSpent are where the time of a step went, in seconds: "cuda:0 compute
	// layer forward", "cuda:0 in move", "host compute update", and what each lane waited.
	Spent         map[string]float64 `json:"spent"`
	ForecastSpent map[string]float64 `json:"forecast_spent"`
	// CallsSpent is ForecastSpent by calls by themselves, as plans are compared: ForecastSpent has programs as they were run
	// on the device before.
	CallsSpent map[string]float64 `json:"forecast_spent_by_calls,omitempty"`
	// Ops are what the ops of a step took one by one, and what the forecast has them take, each by itself.
	Ops []eventlog.ProfileRow `json:"ops"`
	// Misses are those by module, the most of them first, that differ most from their forecast. Timing takes some time of
	// each call, at least Probe seconds, which do not count.
	Misses []eventlog.ProfileRow `json:"misses"`
	Probe  float64               `json:"probe_seconds_per_call"`
	// Prepare is how many seconds passed until the first step, or the last of two plans where memory
	// is limited, Run how many the steps took.
	Prepare float64 `json:"prepare_seconds"`
	Run     float64 `json:"run_seconds"`
	finetune.Memory

	timelines [2][]trace.Event // measured and forecast
	job       *spillway.Run
	issued    []issued // after each step
}

// issued is what an executor has done so far, and how long it gave instructions to queues.
type issued struct {
	executor.Counters
	issuing time.Duration
}

// randomStep bounds the forecast of a step, in seconds, so that many runs take minutes.
var randomStep = [2]float64{2e-3, 1.2}

// Differences says in which kinds of work the time of a step differs most from its forecast.
func (r *RandomRow) Differences() string {
	type difference struct {
		of   string
		more float64
	}
	var list []difference
	for of := range union(r.Spent, r.ForecastSpent) {
		if more := r.Spent[of] - r.ForecastSpent[of]; math.Abs(more) > leastDifference*r.Seconds {
			list = append(list, difference{of, more})
		}
	}
	slices.SortFunc(list, func(a, b difference) int {
		return cmp.Or(cmp.Compare(math.Abs(b.more), math.Abs(a.more)), cmp.Compare(a.of, b.of))
	})
	var texts []string
	for _, d := range list[:min(len(list), mostDifferences)] {
		texts = append(texts, fmt.Sprintf("%s %+.3g ms", d.of, 1e3*d.more))
	}
	return strings.Join(texts, ", ")
}

// At most so many differences are named, of at least such a share of the step.
const (
	mostDifferences = 4
	leastDifference = 0.01
)

// union has the keys of both.
func union(a, b map[string]float64) map[string]bool {
	keys := map[string]bool{}
	for _, m := range []map[string]float64{a, b} {
		for k := range m {
			keys[k] = true
		}
	}
	return keys
}

// Random draws n training runs from a seed, carries each out as spillway train does, on packed
// documents, and compares forecasts with measurements. Run i depends on the seed and on i
// alone.
func Random(ctx context.Context, n int, seed uint64, o Options) (*RandomReport, error) {
	var list []func() (*RandomRow, error)
	for i := range n {
		if o.Only == "" || slices.Contains(strings.Split(o.Only, ","), strconv.Itoa(i)) {
			list = append(list, func() (*RandomRow, error) { return randomRow(ctx, i, seed, o) })
		}
	}
	r, err := compare(ctx, list, o)
	r.Drawn, r.Seed = true, seed
	return r, err
}

// compare carries out training runs and compares their forecasts with what is measured.
func compare(ctx context.Context, list []func() (*RandomRow, error), o Options) (*RandomReport, error) {
	r := &RandomReport{Device: o.Device, Results: []*RandomRow{}, Notes: []string{}}
	defer watchClock(&r.Notes)()
	for i, run := range list {
		row, err := interruptible(ctx, run)
		if ctx.Err() != nil {
			r.Notes = append(r.Notes, fmt.Sprintf("interrupted in run %d of %d", i+1, len(list)))
			break
		}
		if err != nil {
			r.Notes = append(r.Notes, fmt.Sprintf("run %s was not measured: %v", row.Name, err))
			continue
		}
		o.report(fmt.Sprintf("%s: %.4g ms a step, %.4g forecast; prepared in %.2g s, ran for %.2g", row.Name, 1e3*row.Seconds, 1e3*row.Forecast, row.Prepare, row.Run))
		r.Results = append(r.Results, row)
	}
	if err := saveTimelines(o.Timeline, r.Results); err != nil {
		return r, err
	}
	slices.SortStableFunc(r.Results, func(a, b *RandomRow) int { return cmp.Compare(math.Abs(b.Off), math.Abs(a.Off)) })
	if n := len(r.Results); n > 0 {
		off := func(i int) float64 { return math.Abs(r.Results[i].Off) }
		r.TimeOff, r.TimeOffMost, r.TimeOffWorst = off(n/2), off(n/10), off(0)
	}
	return r, nil
}

// interruptible ends when f does, or when a context is cancelled: what was measured so far is
// reported then, and the program ends before f does.
func interruptible(ctx context.Context, f func() (*RandomRow, error)) (*RandomRow, error) {
	type outcome struct {
		row *RandomRow
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		row, err := f()
		done <- outcome{row, err}
	}()
	select {
	case o := <-done:
		return o.row, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// randomTries is how often a run is drawn until its forecast is within bounds and it fits.
const randomTries = 40

// randomRow draws a run until one fits and its steps are neither too short nor too long to be
// measured, and carries it out.
func randomRow(ctx context.Context, i int, seed uint64, o Options) (*RandomRow, error) {
	d := drawing{Rand: rand.New(rand.NewPCG(seed, uint64(i))), gpu: !IsCPU(o.Device)}
	dir, remove, err := vfs.TempDir("spillway-random")
	if err != nil {
		return &RandomRow{Name: strconv.Itoa(i)}, err
	}
	defer remove() // nothing of it is needed again
	for try := 1; ; try++ {
		row := d.run(i)
		err := row.carryOut(ctx, dir, d, o)
		var unfit *planner.FitError
		if retry := errors.As(err, &unfit) || errors.Is(err, errUnmeasurable); !retry || try == randomTries {
			return row, err
		}
	}
}

var errUnmeasurable = errors.New("too short or too long to be measured")

// carryOut writes the model's config and tokens to a folder, and trains.
func (r *RandomRow) carryOut(ctx context.Context, dir string, d drawing, o Options) error {
	model, tokens := filepath.Join(dir, "config.json"), filepath.Join(dir, "tokens.bin")
	if err := errors.Join(os.WriteFile(model, r.Model, 0o644), os.WriteFile(tokens, d.tokens(r), 0o644)); err != nil {
		return err
	}
	var preset string
	if json.Unmarshal(r.Model, &preset) == nil {
		model = preset
	}
	began, clock := stopwatch.Now(), stepClock{used: processSeconds(), last: stopwatch.Now()}
	run, err := r.prepareWithin(d.share, func(limit string) (*finetune.Run, error) { return r.prepare(model, tokens, limit, o, &clock) })
	if err != nil {
		return err
	}
	return errors.Join(r.train(ctx, run, d, o, began, &clock), run.Close())
}

// stepClock has what steps took.
type stepClock struct {
	times, cores []float64 // seconds, and how many cores the process had, a step each
	used         float64   // seconds of the process
	last         time.Time
}

func (c *stepClock) step(seconds float64) {
	now, at := processSeconds(), stopwatch.Now()
	c.times, c.cores = append(c.times, seconds), append(c.cores, (now-c.used)/at.Sub(c.last).Seconds())
	c.used, c.last = now, at
}

// prepare plans the run as train does, within a limit of memory; "" is none.
func (r *RandomRow) prepare(model, tokens, limit string, o Options, clock *stepClock) (*finetune.Run, error) {
	s := recipe.New()
	settings := map[string]string{recipe.ModelKey: model, "data": tokens, "device": o.Device, "max-memory": limit, "token-bytes": "4", "max-steps": "1000"}
	for _, from := range []map[string]string{settings, r.Settings} {
		for name, value := range from {
			if err := s.Flags().Set(name, value); value != "" && err != nil {
				return nil, fmt.Errorf("--%s %s: %w", name, value, err)
			}
		}
	}
	timeline := func(_ int64, events []trace.Event) { r.timelines[0] = events }
	return finetune.Prepare(s, finetune.Options{Rig: o.Rig, NoSave: true, Timeline: timeline, Profile: true, TraceLast: true, Report: func(p train.Report) {
		clock.step(p.SecondsPerIteration)
		if e := r.job.Executor(); e != nil {
			r.issued = append(r.issued, issued{e.Counters(), e.Issuing()})
		}
	}})
}

// prepareWithin prepares a run within a share of the memory that everything on the device would take. The
// share is drawn once that is known to be planned.
func (r *RandomRow) prepareWithin(draw func() float64, prepare func(limit string) (*finetune.Run, error)) (*finetune.Run, error) {
	run, err := prepare("")
	if err != nil {
		return nil, err
	}
	share := draw()
	if share >= 1 {
		return run, nil
	}
	arenas := int64(share * float64(finetune.StandardPeak(run.Job.Plan)))
	limit := fmt.Sprintf("%dMiB", max((arenas+run.Job.Plan.Devices[0].Context)>>20, 1))
	if err := run.Close(); err != nil {
		return nil, err
	}
	r.Settings["max-memory"] = limit
	r.Name += " in " + limit
	return prepare(limit)
}

// train takes as many steps as a measurement needs, and compares them with the forecast.
func (r *RandomRow) train(ctx context.Context, run *finetune.Run, d drawing, o Options, began time.Time, clock *stepClock) (err error) {
	f := run.Job.Plan.Forecast
	if r.Forecast = f.StepSeconds; !d.named && (r.Forecast < randomStep[0] || r.Forecast > randomStep[1]) {
		return fmt.Errorf("%w: a step of %.4g s is forecast", errUnmeasurable, r.Forecast)
	}
	o.report(r.Name)
	r.job, r.Captured, r.Busy = run.Job, run.Job.Plan.Captured, f.Busy
	if r.timelines[1], err = run.Job.Timeline(); err != nil {
		return err
	}
	byCalls, err := run.Job.TimelineByCalls()
	if err != nil {
		return err
	}
	r.CallsSpent = timeByLane(byCalls)
	warm := max(int(math.Ceil(warmUp(f).Seconds()/r.Forecast)), randomFirst)
	run.Corpus.Steps = int64(warm + max(randomLeast, int(math.Ceil(randomTimed/r.Forecast))) + randomTraced)
	start := stopwatch.Now()
	r.Prepare = start.Sub(began).Seconds()
	done, err := run.Train(ctx)
	end := len(clock.times) - randomTraced
	if err != nil || end <= warm {
		return err
	}
	r.Run = stopwatch.Since(start).Seconds()
	times := clock.times[warm:end]
	if IsCPU(o.Device) {
		times = undisturbed(times, clock.cores[warm:end])
	}
	if end > warm+1 && end <= len(r.issued) {
		from, to := r.issued[warm], r.issued[end-1]
		steps := float64(to.Iterations - from.Iterations)
		r.Issuing, r.Launches = (to.issuing-from.issuing).Seconds()/steps, float64(to.Launches-from.Launches)/steps
	}
	slices.Sort(times)
	r.Strategy, r.Memory, r.Steps, r.Seconds = done.Strategy, done.Memory, len(times), times[len(times)/2]
	r.Off = (r.Seconds - r.Forecast) / r.Seconds
	if done.Profile != nil {
		r.Ops = done.Profile.Merge(func(o eventlog.ProfileRow) eventlog.ProfileRow {
			return eventlog.ProfileRow{Op: o.Op, Pass: o.Pass, Lane: o.Lane}
		})
		r.Misses, r.Probe = misses(done.Profile.Rows)
	}
	r.Spent, r.ForecastSpent = timeByLane(r.timelines[0]), timeByLane(r.timelines[1])
	return nil
}

// undisturbed are the times of steps in which the process had about as many cores as in the step in which it had most:
// in the others programs next to it took some. A forecast is of a computer that is left alone. The half of the steps with the most
// cores, and undisturbedLeast of them, count in any case.
func undisturbed(times, cores []float64) (left []float64) {
	sorted := slices.Sorted(slices.Values(cores))
	least := min(undisturbedShare*sorted[len(sorted)-1], sorted[max(min(len(sorted)/2, len(sorted)-undisturbedLeast), 0)])
	for i, t := range times {
		if cores[i] >= least {
			left = append(left, t)
		}
	}
	return left
}

// undisturbedShare is what a step has at least of the cores, and undisturbedLeast how many steps count at least.
const undisturbedShare, undisturbedLeast = 0.95, 5

// timeByLane is how many seconds each lane spent on each kind of work, and waited.
func timeByLane(events []trace.Event) map[string]float64 {
	sums, lanes := map[string]float64{}, map[trace.Lane]bool{}
	for _, e := range events {
		if e.Verb != trace.Free && !lanes[e.Lane] {
			lanes[e.Lane] = true
			for kind, seconds := range timeByKind(events, e.Lane) {
				sums[e.Lane.Device+" "+e.Lane.Queue+" "+kind] = seconds
			}
		}
	}
	return sums
}

// randomTimed is how many seconds of steps are timed, in at least randomLeast of them. The first
// few prepare the others. Of those at the end one is traced and one profiled.
const (
	randomTimed  = 0.7
	randomLeast  = 3
	randomFirst  = 5
	randomTraced = 2
)

// drawing draws runs. Every figure comes from its random numbers, in a fixed order.
type drawing struct {
	*rand.Rand
	gpu   bool
	named bool // the run is given, its data alone are drawn
}

// share of the memory that everything on the device would take; half of the runs are not limited.
func (d drawing) share() float64 {
	if d.named {
		return 1
	}
	return one(d, 1, d.between(0.1, 1))
}

// one of some values.
func one[T any](d drawing, values ...T) T { return values[d.IntN(len(values))] }

// between two numbers, all magnitudes equally often.
func (d drawing) between(least, most float64) float64 {
	return least * math.Pow(most/least, d.Float64())
}

// architecture is a model drawn at random, with sizes of a batch for it.
type architecture struct {
	kind           string
	config         json.RawMessage
	layers, hidden int
	rows, seq      int
}

// architecture draws a model and the sizes of a batch.
func (d drawing) architecture() architecture {
	width, layers, rows, seq := d.between(64, 320), d.between(2, 8), d.between(1, 8), d.between(16, 512)
	if d.gpu {
		width, layers, rows, seq = d.between(512, 4096), d.between(4, 32), d.between(1, 16), d.between(128, 4096)
	}
	head := one(d, 64, 128)
	if !d.gpu {
		head = one(d, 16, 32, 64)
	}
	heads := max(1, int(width)/head)
	groups := one(d, 1, 2, 4)
	for heads%groups != 0 {
		groups--
	}
	kind := one(d, "llama", "qwen2", "qwen3", "mistral", "gpt2")
	hidden, n := heads*head, int(layers)
	config := map[string]any{
		"model_type": kind, "hidden_size": hidden, "num_hidden_layers": n, "num_attention_heads": heads, "num_key_value_heads": heads / groups,
		"intermediate_size": int(d.between(2.5, 4.2)*float64(hidden)) / 8 * 8, "vocab_size": one(d, 1000, 4096, 32000, 50257, 128256),
		"max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "rope_theta": 1e4, "hidden_act": "silu", "tie_word_embeddings": one(d, true, false),
		"eos_token_id": randomEnd, "head_dim": head,
	}
	if kind == "gpt2" {
		config = map[string]any{"model_type": kind, "n_embd": hidden, "n_layer": n, "n_head": heads, "n_positions": 8192, "vocab_size": config["vocab_size"],
			"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "eos_token_id": randomEnd, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
	}
	if kind == "mistral" {
		config["sliding_window"] = one(d, 256, 1024, 4096)
	}
	raw, err := json.Marshal(config)
	if err != nil { // strings and numbers
		panic(err)
	}
	return architecture{kind, raw, n, hidden, int(rows), int(seq)}
}

// run draws an architecture, its sizes and the settings of a training run.
func (d drawing) run(i int) *RandomRow {
	a := d.architecture()
	precision := one(d, "fp32", "fp32", "bf16")
	if d.gpu {
		precision = one(d, "bf16", "bf16", "bf16", "pure-bf16", "fp16", "fp32")
	}
	settings := map[string]string{
		"method": one(d, "full", "full", "lora", "qlora"), "precision": precision, "micro-batch-size": strconv.Itoa(a.rows), "seq-len": strconv.Itoa(a.seq),
		"optimizer": one(d, "adamw", "adamw", "adamw_8bit", "sgd", "lion"), "max-grad-norm": one(d, "", "1"), "gradient-accumulation-steps": one(d, "1", "1", "2", "3"),
	}
	if settings["method"] != "full" {
		settings["lora-rank"] = one(d, "8", "16", "64")
	}
	documents := one(d, 0, a.seq/4+8, int(d.between(16, 2000)))
	name := fmt.Sprintf("%d: %s of %d × %d, %d × %d, %s %s", i, a.kind, a.layers, a.hidden, a.rows, a.seq, precision, settings["method"])
	if documents > 0 {
		name += fmt.Sprintf(", documents of %d", documents)
	}
	return &RandomRow{Name: name, Model: a.config, Settings: settings, Documents: documents}
}

// presetVocabulary is no larger than that of any preset that is trained.
const presetVocabulary = 32000

// randomEnd is the token at the end of documents.
const randomEnd = 2

// tokens are documents whose lengths fall off exponentially from the mean, as a file of
// token ids of 4 bytes.
func (d drawing) tokens(r *RandomRow) []byte {
	of := struct {
		Vocab int32 `json:"vocab_size"`
	}{presetVocabulary}
	if err := json.Unmarshal(r.Model, &of); err != nil && !d.named { // written by run
		panic(err)
	}
	const total = 1 << 18
	raw := make([]byte, 0, 4*total)
	left := -1
	for range total {
		if r.Documents > 0 && left < 0 {
			left = int(d.ExpFloat64() * float64(r.Documents))
		}
		token := 3 + d.Int32N(of.Vocab-3)
		if left--; left == -1 && r.Documents > 0 {
			token = randomEnd
		}
		raw = binary.LittleEndian.AppendUint32(raw, uint32(token))
	}
	return raw
}

// saveTimelines writes the timelines of runs, measured and forecast, to a file each in a
// folder; "" is nowhere.
func saveTimelines(folder string, rows []*RandomRow) error {
	for _, row := range rows {
		for i, kind := range []string{"measured", "forecast"} {
			if folder == "" {
				continue
			}
			number, _, _ := strings.Cut(row.Name, ":")
			f, err := trace.CreateChrome(filepath.Join(folder, number+"-"+kind+".json"))
			if err != nil {
				return err
			}
			f.Write(1, row.timelines[i])
			if err := f.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}
