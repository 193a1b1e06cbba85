package inference

import (
	"cmp"
	"context"
	"errors"
	"math"

	"spillway"
	"spillway/finetune"
	"spillway/internal/stopwatch"
	"spillway/plan"
	"spillway/recipe"
	"spillway/rig"
	"spillway/train"
)

// Evaluation is how well a model predicts data.
type Evaluation struct {
	Subject
	Loss       float64          `json:"loss"` // mean over tokens, natural logarithm
	Perplexity float64          `json:"perplexity"`
	Tokens     int64            `json:"tokens"` // in the loss
	Data       finetune.Summary `json:"data"`

	Seconds         float64 `json:"seconds"`
	TokensPerSecond float64 `json:"tokens_per_second"`
	Predicted       int64   `json:"predicted_peak_bytes"`
	Measured        int64   `json:"measured_peak_bytes"`
}

// Perplexity evaluates a model on the data of a recipe, with the batches of the recipe: the
// loss is that of training's evaluation, bit for bit where the micro-batches are the same.
func (m *Model) Perplexity(ctx context.Context, r *recipe.Recipe) (v Evaluation, err error) {
	r.Model, r.Task, r.Eval.Files = m.Path, spillway.Eval, r.Data.Files
	r.Data.Tokenizer = cmp.Or(r.Data.Tokenizer, m.s.Tokenizer)
	r.Data.ChatTemplate = cmp.Or(r.Data.ChatTemplate, m.s.ChatTemplate, m.runsTemplate)
	corpus, err := finetune.OpenCorpus(r, m.Model, m.s.Progress)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, corpus.Close()) }()
	if corpus.Chats {
		m.chatTemplate() // says whose it is
	}
	return m.evaluate(ctx, r, func(p *plan.Plan) (train.Feed, finetune.Summary, error) {
		err := corpus.Pack(p)
		return corpus.Eval, corpus.Summary, err
	})
}

// evaluate plans what a recipe asks for, and computes the loss of what pack makes for the plan.
func (m *Model) evaluate(ctx context.Context, r *recipe.Recipe, pack func(p *plan.Plan) (train.Feed, finetune.Summary, error)) (v Evaluation, err error) {
	on, job, _, err := m.prepare(ctx, func(on *rig.Rig) spillway.Options {
		o := r.Complete(on.Machine.Devices[0])
		if m.s.Precision == 0 {
			m.s.Precision = o.Precision
		}
		return o
	})
	defer func() { err = errors.Join(err, on.Close()) }()
	if err != nil {
		return v, err
	}
	batches, summary, err := pack(job.Plan)
	if err != nil {
		return v, err
	}
	if err := m.load(ctx, job); err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, job.Close()) }()
	start := stopwatch.Now()
	feed := &watchedFeed{Feed: batches, ctx: ctx, report: m.s.Progress, total: summary.LossTokens}
	e := train.Evaluation{Feed: feed}
	if v.Loss, err = e.Loss(job.Executor()); err != nil {
		return v, err
	}
	v.Perplexity, v.Tokens, v.Data, v.Seconds = math.Exp(v.Loss), feed.counted, summary, stopwatch.Since(start).Seconds()
	v.TokensPerSecond = float64(v.Tokens) / max(v.Seconds, 1e-9)
	v.Predicted, v.Measured = job.Plan.Peak()[plan.OnDevice], on.Allocated()
	v.Subject = m.Subject()
	return v, nil
}

// watchedFeed reports how far a feed has come, and ends when its context is done.
type watchedFeed struct {
	train.Feed
	ctx            context.Context
	report         func(what string, done, total int64)
	counted, total int64
}

func (f *watchedFeed) Next(p train.Parts) (train.Filled, error) {
	if err := f.ctx.Err(); err != nil {
		return train.Filled{}, err
	}
	f.report("evaluating", f.counted, f.total)
	filled, err := f.Feed.Next(p)
	f.counted += filled.Counted
	return filled, err
}
