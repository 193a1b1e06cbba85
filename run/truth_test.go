package run_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"spillway"
	"spillway/dtype"
	"spillway/lora"
	"spillway/machine"
	"spillway/plan"
	"spillway/planner"
	"spillway/quant"
)

// truthCases is how many random questions are asked of plans, truthSeed which; many take minutes or hours.
var (
	truthCases = flag.Int("truth", 3, "random questions that plans are asked, each on half a dozen machines")
	truthSeed  = flag.Uint64("truth-seed", 1, "which of them")
)

// tolerance is what a plan on the better machine may take longer: a search does not look at every plan.
const tolerance = 1.03

// computer is a machine in numbers that can grow.
type computer struct {
	gpus     int
	memory   int // MiB of each
	link     int // GB/s
	tflops   int
	host     int // MiB
	disk     int // GiB, 0 for none
	peer     int // GB/s, 0 for none
	laptop   bool
	diskRate int // tenths of GB/s
}

func (c computer) String() string {
	s := fmt.Sprintf("%dxgpu:%dMiB@%dGB/s/%dTFLOPS,host:%dMiB", c.gpus, c.memory, c.link, c.tflops, c.host)
	if c.laptop {
		s = fmt.Sprintf("cpu:%dMiB,host:%dMiB@20GB/s/1TFLOPS", c.memory, c.host)
	}
	if c.peer > 0 && c.gpus > 1 && !c.laptop {
		s += fmt.Sprintf(",peer@%dGB/s", c.peer)
	}
	if c.disk > 0 {
		s += fmt.Sprintf(",disk:%dGiB@%d00MB/s", c.disk, c.diskRate)
	}
	return s
}

// better are computers with more of one thing.
func (c computer) better() map[string]computer {
	list := map[string]computer{}
	add := func(what string, change func(*computer)) {
		d := c
		change(&d)
		list[what] = d
	}
	add("device memory", func(d *computer) { d.memory += d.memory / 8 })
	add("host memory", func(d *computer) { d.host += d.host / 8 })
	add("disk", func(d *computer) { d.disk, d.diskRate = 2*d.disk+100, max(d.diskRate, 20) })
	if !c.laptop {
		add("link", func(d *computer) { d.link *= 2 })
		add("GPUs", func(d *computer) { d.gpus *= 2 })
	}
	return list
}

// question is what a plan is asked for.
type question struct {
	model string
	spillway.Options
}

func (q question) String() string {
	return fmt.Sprintf("%s, %s, batch %d, seq %d, %+v, %s", q.model, q.Task, q.BatchSize, q.Seq, q.Generation, q.Precision)
}

func randomQuestion(r *rand.Rand, large bool) (q question, c computer) {
	models := []string{"gpt2", "llama-50m", "qwen2.5-0.5b", "qwen3-0.6b"}
	if large {
		models = append(models, "gpt2-xl", "llama-3.2-1b", "qwen2.5-7b", "llama-3-8b", "mistral-7b", "qwen2.5-32b", "llama-3-70b")
	}
	q.model = models[r.IntN(len(models))]
	m, err := spillway.Open(q.model)
	if err != nil {
		panic(err) // a preset
	}
	params := inBF16(m)
	q.Task = []spillway.Task{spillway.Train, spillway.LoRA, spillway.QLoRA, spillway.Infer, spillway.Generate}[r.IntN(5)]
	q.Precision = dtype.BF16
	switch {
	case q.Task == spillway.Generate:
		q.Generation = spillway.Generation{Context: 512 << r.IntN(4), Streams: 1 << r.IntN(4)}
	default:
		q.BatchSize, q.Seq = 1<<r.IntN(4), 128<<r.IntN(4)
	}
	if most := m.Info.Context; most > 0 { // models with learned positions have no others
		q.Seq, q.Generation.Context = min(q.Seq, most), min(q.Generation.Context, most)
	}
	if q.Task == spillway.LoRA || q.Task == spillway.QLoRA {
		q.Adapters = lora.Options{Rank: 16, Alpha: 32, Targets: []string{lora.AllLinear}}
		if q.Task == spillway.QLoRA {
			q.Adapters.Base = quant.NF4
		}
	}
	mib := int(params >> 20)
	c = computer{gpus: []int{1, 1, 2, 4}[r.IntN(4)], memory: 700 + mib*(1+r.IntN(24))/12, link: 6 << r.IntN(4), tflops: 40 << r.IntN(4), host: 512 + mib*(1+r.IntN(40))/6, diskRate: 5 + r.IntN(60)}
	if r.IntN(3) == 0 {
		c.disk = 20 + mib*20/1024
	}
	if r.IntN(3) == 0 {
		c.peer = 50 << r.IntN(4)
	}
	if r.IntN(6) == 0 {
		c.laptop, c.gpus = true, 1
	}
	return q, c
}

// inBF16 is what the weights of a model take.
func inBF16(m *spillway.Model) int64 {
	s, err := m.Trace(spillway.Options{Task: spillway.Infer, Precision: dtype.BF16}, 1, 1)
	if err != nil {
		panic(err) // a preset
	}
	return 2 * s.Count()
}

// outcome is what a plan says.
type outcome struct {
	fits    bool
	seconds float64 // of a step, or to generate of a token for each sequence
	text    string
	plan    *plan.Plan
}

func ask(t *testing.T, q question, on computer) outcome {
	t.Helper()
	m := open(t, q.model)
	o := q.Options
	var err error
	if o.Machine, err = machine.Parse(on.String()); err != nil {
		t.Fatal(err)
	}
	o.Device = o.Machine.Devices[0].Name
	job, err := m.TryPlan(o)
	if errors.As(err, new(*planner.FitError)) {
		return outcome{text: "does not fit"}
	}
	if err != nil {
		t.Fatalf("%v on %v: %v", q, on, err)
	}
	a := outcome{true, job.Plan.Forecast.StepSeconds, job.Plan.Strategy, job.Plan}
	if o.Task == spillway.Generate {
		f, err := job.ForecastGeneration()
		if err != nil {
			t.Fatal(err)
		}
		a.seconds = f.Decode[len(f.Decode)-1].Half.Seconds
	}
	return a
}

// More memory of any tier, a faster link and more devices are never forecast to be slower, what fitted still fits, and no
// forecast is below what the hardware allows.
func TestPlansAreTrueAcrossMachines(t *testing.T) {
	random := rand.New(rand.NewPCG(*truthSeed, 7))
	for range *truthCases {
		q, c := randomQuestion(random, *truthCases > 20)
		had := ask(t, q, c)
		if had.fits {
			holdsBounds(t, q, c, had)
		}
		list := c.better()
		for _, what := range slices.Sorted(keys(list)) {
			now := ask(t, q, list[what])
			switch {
			case had.fits && !now.fits:
				t.Errorf("more %s: %v fits %v, and not %v", what, q, c, list[what])
			case had.fits && now.seconds > tolerance*had.seconds:
				t.Errorf("more %s: %v takes %.4g s on %v (%s), and %.4g on %v (%s)", what, q, had.seconds, c, had.text, now.seconds, list[what], now.text)
			}
		}
		if q.BatchSize > 1 && had.fits {
			less := q
			less.BatchSize /= 2
			if now := ask(t, less, c); !now.fits || now.seconds > tolerance*had.seconds {
				t.Errorf("half the batch: %v takes %.4g s on %v (%s), and half of it %.4g (%s)", q, had.seconds, c, had.text, now.seconds, now.text)
			}
		}
	}
}

func keys(m map[string]computer) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// holdsBounds compares a plan with formulas that know nothing of planning: arithmetic by params and tokens, weights over the
// link, bytes of weights and optimizer state.
func holdsBounds(t *testing.T, q question, c computer, a outcome) {
	t.Helper()
	m := open(t, q.model)
	s, err := m.Trace(spillway.Options{Task: spillway.Infer, Precision: dtype.BF16}, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	var linear int64 // params of layers, without embedding and lm_head
	for i, b := range s.Blocks {
		if i == 0 || i == len(s.Blocks)-1 {
			continue
		}
		for _, id := range b.Params {
			linear += s.Params[id].Type.Shape.Elements()
		}
	}
	params := s.Count()
	stored := map[spillway.Task]float64{spillway.Train: 14, spillway.LoRA: 2, spillway.Infer: 2, spillway.Generate: 2}[q.Task] * float64(params)
	if q.Task == spillway.QLoRA {
		stored = float64(linear) / 2
	}
	var takes float64
	for _, n := range a.plan.Peak() {
		takes += float64(n)
	}
	if takes < stored {
		t.Errorf("%v on %v takes %.4g bytes in all, its weights and states are %.4g", q, c, takes, stored)
	}
	if c.laptop {
		return
	}
	flops := map[spillway.Task]float64{spillway.Train: 6, spillway.LoRA: 4, spillway.QLoRA: 4, spillway.Infer: 2}[q.Task] * float64(linear) * float64(q.BatchSize*q.Seq)
	if least := flops / float64(c.tflops) / 1e12 / float64(c.gpus); a.seconds < 0.99*least {
		t.Errorf("%v on %v takes %.4g s, its arithmetic takes %.4g", q, c, a.seconds, least)
	}
	weights := map[spillway.Task]float64{spillway.Train: 2, spillway.LoRA: 2, spillway.QLoRA: 0.5, spillway.Infer: 2}[q.Task] * float64(linear)
	away := weights - float64(c.gpus)*float64(c.memory)*(1<<20)
	if least := away / float64(c.gpus) / float64(c.link) / 1e9; a.seconds < 0.99*least {
		t.Errorf("%v on %v takes %.4g s, weights that do not fit take %.4g over the links", q, c, a.seconds, least)
	}
}
