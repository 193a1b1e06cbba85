package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"spillway"
	"spillway/arch"
	"spillway/data"
	"spillway/dtype"
	"spillway/executor"
	"spillway/nn"
	"spillway/op"
	"spillway/plan"
	"spillway/planner"
	"spillway/probe"
	"spillway/shape"
	"spillway/train"
	"spillway/units"
)

// gpuRow is one piece of work on a card.
type gpuRow struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"` // of an iteration, the best
	// The bound is the time the card's measured link or arithmetic alone would take,
	// whichever is longer; Share is that over Seconds.
	Bound        string  `json:"bound"`
	BoundSeconds float64 `json:"bound_seconds"`
	Share        float64 `json:"share_of_bound"`
	Forecast     float64 `json:"forecast_seconds"`

	Arena           int64 `json:"arena_bytes"` // of the card
	Driver          int64 `json:"driver_bytes"`
	DriverPredicted int64 `json:"driver_predicted_bytes"`

	// Theirs are seconds of the peers, Ratio how many times faster ours is.
	Theirs map[string]float64 `json:"theirs"`
	Ratio  map[string]float64 `json:"ratio"`

	model   string
	options spillway.PlanOptions
}

// Names of the rows that peers know too.
const (
	forwardShort = "forward of 8B from the host, 1 × 512 tokens"
	forwardLong  = "forward of 8B from the host, 4 × 2048 tokens"
	trainKept    = "training of 1.1B on the card, 4 × 2048 tokens, all kept"
	trainAgain   = "training of 1.1B on the card, 4 × 2048 tokens, recomputed"
)

// forwardBudget is what a forward from the host may take of the card.
const forwardBudget = int64(4 * units.GiB)

// gpuRows are what is measured: the work that peers do too, and trainings of other
// sizes that hold forecasts to account.
func gpuRows() []*gpuRow {
	streamed := planner.Alike(true, false, planner.KeepAll, 3)
	row := func(name, model string, o spillway.PlanOptions) *gpuRow {
		o.Precision = dtype.BF16
		return &gpuRow{Name: name, model: model, options: o}
	}
	training := func(rows, seq int64, level planner.Level) spillway.PlanOptions {
		return spillway.PlanOptions{Task: spillway.Train, Rows: rows, Seq: seq, Choose: planner.Alike(false, false, level, 1)}
	}
	list := []*gpuRow{
		row(forwardShort, "llama-3-8b", spillway.PlanOptions{Task: spillway.Eval, Rows: 1, Seq: 512, Budget: forwardBudget, Choose: streamed}),
		row(forwardLong, "llama-3-8b", spillway.PlanOptions{Task: spillway.Eval, Rows: 4, Seq: 2048, Budget: forwardBudget, Choose: streamed}),
		row(trainKept, model11B, training(4, 2048, planner.KeepAll)),
		row(trainAgain, model11B, training(4, 2048, planner.KeepNone)),
	}
	for _, seq := range []int64{512, 1024} {
		for _, rows := range []int64{1, 4} {
			size := fmt.Sprintf("%d × %d tokens", rows, seq)
			list = append(list,
				row("training of llama-50m, "+size, "llama-50m", training(rows, seq, planner.KeepAll)),
				row("training of 1.1B in 8 GiB, "+size, model11B, spillway.PlanOptions{Task: spillway.Train, Rows: rows, Seq: seq, Budget: int64(8 * units.GiB)}))
		}
	}
	return list
}

// model11B is the Llama shape of 1.1 billion params that peers train.
const (
	model11B  = "llama-1.1b"
	config11B = `{"model_type":"llama","vocab_size":32000,"hidden_size":2048,"num_hidden_layers":22,
"num_attention_heads":32,"num_key_value_heads":4,"intermediate_size":5632,"rms_norm_eps":1e-5,
"tie_word_embeddings":false,"max_position_embeddings":2048}`
)

// openBench opens a published shape, or the one of the peers.
func openBench(name string) (*spillway.Model, error) {
	if name != model11B {
		return spillway.Open(name)
	}
	_, info, err := arch.FromConfig([]byte(config11B))
	if err != nil {
		return nil, err
	}
	m := spillway.Define(name, func() (nn.Model, error) {
		made, _, err := arch.FromConfig([]byte(config11B))
		return made, err
	})
	m.Info = info
	return m, nil
}

// wants says whether a row was asked for.
func (o benchOptions) wants(row string) bool {
	return o.only == "" || slices.ContainsFunc(strings.Split(o.only, ","), func(words string) bool { return strings.Contains(row, words) })
}

// measure plans, runs and times the row on a card of its own. The rig is closed
// before and after.
func (g *gpuRow) measure(ctx context.Context, sh shell, here *rig, rates probe.Rates) (err error) {
	if err := here.open(sh, 0); err != nil {
		return joinClose(err, here)
	}
	defer func() { err = joinClose(err, here) }()
	m, err := openBench(g.model)
	if err != nil {
		return err
	}
	defer m.Close() // opened for reading
	o := g.options
	o.Machine, o.Device, o.On = here.machine, here.device.Name, here.on
	job, err := m.Plan(o)
	if err != nil {
		return err
	}
	e, err := executor.New(job.Plan, here.on)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	if err := errors.Join(e.Prepare(), fillNoise(e)); err != nil {
		return err
	}
	step, err := stepOf(ctx, e, m.Info.Vocab, g.options)
	if err != nil {
		return err
	}
	best, err := bestOf(gpuTries, step)
	if err != nil {
		return err
	}
	g.Seconds = best.Seconds()
	g.account(job.Plan, rates)
	g.DriverPredicted = g.Arena + here.overhead()
	g.Driver, err = here.held()
	return err
}

// gpuTries is how many iterations are timed.
const gpuTries = 5

func joinClose(err error, r *rig) error { return errors.Join(err, r.close()) }

// account holds the time against the bound that the same run measured.
func (g *gpuRow) account(p *plan.Plan, rates probe.Rates) {
	f := p.Forecast
	g.Arena, g.Forecast = p.Peak()[plan.OnDevice], f.StepSeconds
	bounds := map[string]float64{
		"arithmetic": f.Flops / float64(rates.Compute.BF16), "link in": float64(f.BytesIn) / float64(rates.In), "link out": float64(f.BytesOut) / float64(rates.Out),
	}
	for _, name := range slices.Sorted(maps.Keys(bounds)) {
		if bounds[name] > g.BoundSeconds {
			g.Bound, g.BoundSeconds = name, bounds[name]
		}
	}
	g.Share = g.BoundSeconds / g.Seconds
}

func (g *gpuRow) peers() string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(g.Theirs)) {
		list = append(list, fmt.Sprintf("%s %s, %.2f×", name, seconds(g.Theirs[name]), g.Ratio[name]))
	}
	return strings.Join(list, "; ")
}

// stepOf is an iteration of random tokens.
func stepOf(ctx context.Context, e *executor.Executor, vocabulary int64, o spillway.PlanOptions) (func() error, error) {
	loader, err := data.NewLoader(randomTokens(vocabulary), data.Config{Length: int(o.Seq)})
	if err != nil {
		return nil, err
	}
	feed := train.NewTokens(loader)
	if o.Task == spillway.Train {
		t, err := train.New(e, feed, train.Config{})
		return func() error { _, err := t.Step(); return err }, err
	}
	if _, err := feed.Next(train.PartsOf(e)); err != nil {
		return nil, err
	}
	return func() error { return e.Iterate(ctx, executor.Numbers{}) }, nil
}

// noisePart is how many different numbers weights have; they repeat.
const noisePart = 1 << 18

// fillNoise gives weights small random numbers, faster than starting them well:
// the time of an iteration is the same. Moments begin at zero.
func fillNoise(e *executor.Executor) error {
	parts := map[dtype.Type][]byte{}
	for _, w := range append(e.Weights(), e.States()...) {
		if w.State != "" && w.State != executor.Master {
			continue
		}
		t := w.Type.DType
		if parts[t] == nil {
			raw, err := noise(t)
			if err != nil {
				return err
			}
			parts[t] = raw
		}
		err := e.Write(w, func(_ int64, chunk []byte) error {
			for at := 0; at < len(chunk); {
				at += copy(chunk[at:], parts[t])
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func noise(t dtype.Type) ([]byte, error) {
	a := op.NewArray(op.Type{DType: t, Shape: shape.Of(noisePart)})
	for i := range a.F {
		a.F[i] = 0.04 * (float64(op.Uniform(1, 0, uint64(i))) - 0.5)
	}
	return a.Encode()
}

// gpuPeers are the programs of peers on cards, with the rows they know.
var gpuPeers = []struct {
	file string
	rows []string
}{
	{"torch_offload_forward.py", []string{forwardShort, forwardLong}},
	{"torch_train_gpu.py", []string{trainKept, trainAgain}},
}

// onGPU runs the programs of rows that were measured. What cannot be run is noted.
func (p *peers) onGPU(ctx context.Context, r *gpuReport, show func(string)) {
	for _, program := range gpuPeers {
		known := func(row *gpuRow) bool { return slices.Contains(program.rows, row.Name) }
		if !slices.ContainsFunc(r.Results, known) {
			continue
		}
		show("peers, " + program.file)
		start := time.Now()
		answer, err := p.run(ctx, peerProgram{file: program.file})
		if err != nil {
			r.Notes = append(r.Notes, fmt.Sprintf("no comparison by %s: %v", program.file, err))
			continue
		}
		r.Peers = append(r.Peers, fmt.Sprintf("%s, %s in all", answer.Version, seconds(time.Since(start).Seconds())))
		for _, result := range answer.Results {
			for _, row := range r.Results {
				if known(row) && program.rows[result.Row] == row.Name {
					row.keep(result.Peer, result.Seconds)
				}
			}
		}
	}
}

// keep keeps the best time of a peer.
func (g *gpuRow) keep(peer string, seconds float64) {
	if g.Theirs == nil {
		g.Theirs = map[string]float64{}
	}
	if had, ok := g.Theirs[peer]; !ok || seconds < had {
		g.Theirs[peer] = seconds
	}
}
