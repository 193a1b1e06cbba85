package main

import (
	"spillway/eventlog"
	"spillway/generate"
	"spillway/inference"
	"spillway/tokenizer"
)

// generated is the object of generate --json.
type generated struct {
	Text       string      `json:"text"`   // the first
	Tokens     []int32     `json:"tokens"` // of it
	End        string      `json:"finish_reason"`
	StopString string      `json:"stop_string,omitempty"`
	Texts      []oneText   `json:"texts,omitempty"` // all, where there are several
	Logprobs   []tokenRank `json:"logprobs,omitempty"`
	Prompt     []tokenRank `json:"prompt_logprobs,omitempty"`

	Model        string   `json:"model"` // the folder that was used
	Adapters     []string `json:"adapters,omitempty"`
	PromptTokens int      `json:"prompt_tokens"`
	NewTokens    int      `json:"new_tokens"`
	Unwritten    int      `json:"unwritten_tokens,omitempty"` // of them, those that the tokenizer does not have
	// Guessed tokens were computed with --draft, in so many branches at once on average, and Accepted are those that were right.
	Guessed  int     `json:"guessed_tokens,omitempty"`
	Branches float64 `json:"guessed_branches,omitempty"`
	Accepted int     `json:"accepted_tokens,omitempty"`
	PerStep  float64 `json:"tokens_per_step,omitempty"`

	LoadSeconds    float64 `json:"load_seconds"`
	PrefillSeconds float64 `json:"prefill_seconds"`
	DecodeSeconds  float64 `json:"decode_seconds"`
	PrefillRate    float64 `json:"prefill_tokens_per_second"`
	DecodeRate     float64 `json:"decode_tokens_per_second"`
	// The most that the machine's rates allow, and what limits it.
	PrefillRoofline float64 `json:"prefill_roofline_tokens_per_second,omitempty"`
	DecodeRoofline  float64 `json:"decode_roofline_tokens_per_second,omitempty"`
	PrefillBound    string  `json:"prefill_bound,omitempty"`
	DecodeBound     string  `json:"decode_bound,omitempty"`

	Predicted int64 `json:"predicted_peak_bytes"`
	Measured  int64 `json:"measured_peak_bytes"`

	// Profiles are of a step with the prompt and of one without, where --profile asked for them.
	Profiles []eventlog.Profile `json:"profiles,omitempty"`
}

// oneText is one of several texts.
type oneText struct {
	Prompt   *int        `json:"prompt,omitempty"` // which of --prompts, from 0
	Text     string      `json:"text"`
	Tokens   []int32     `json:"tokens"`
	End      string      `json:"finish_reason"`
	Score    *float64    `json:"score,omitempty"` // of a beam
	Logprobs []tokenRank `json:"logprobs,omitempty"`
}

// tokenRank is a token with its log-probability.
type tokenRank struct {
	ID      int32       `json:"id"`
	Token   string      `json:"token"`
	Logprob *float64    `json:"logprob"` // null for the first token of a prompt
	Top     []tokenRank `json:"top_logprobs,omitempty"`
}

func newGenerated(e *inference.Engine, g *generate.Generation, t *tokenizer.Tokenizer, o *generateFlags) generated {
	v := newStatistics(e, g.Statistics(), max(o.samples, o.beams))
	for i, r := range g.Results() {
		one := newOneText(r, t, o)
		if i == 0 {
			v.Text, v.Tokens, v.End, v.StopString, v.Logprobs = one.Text, one.Tokens, one.End, r.StopString, one.Logprobs
		}
		if o.samples > 1 {
			v.Texts = append(v.Texts, one)
		}
	}
	v.Prompt = ranks(g.Prompt(), t, true)
	return v
}

// newStatistics is an object with statistics alone, of so many texts at once.
func newStatistics(e *inference.Engine, s generate.Statistics, streams int) generated {
	v := generated{
		Tokens: []int32{}, Model: e.Model.Path, Adapters: e.Model.Subject().Adapters, PromptTokens: s.PromptTokens, NewTokens: s.NewTokens, Unwritten: s.Unwritten,
		LoadSeconds: e.Loading.Seconds(), PrefillSeconds: s.Prefill.Seconds(), DecodeSeconds: s.Decode.Seconds(),
		PrefillRate: s.PrefillRate(), DecodeRate: s.DecodeRate(), Predicted: e.PredictedPeak(), Measured: e.MeasuredPeak(),
	}
	if v.Guessed, v.Accepted = s.Guessed, s.Accepted; s.Guessed > 0 {
		v.PerStep, v.Branches = s.PerStep(), s.PerPass()
	}
	prefill, decode := e.Rooflines(s, streams)
	prefill, decode = prefill.Under(v.PrefillRate), decode.Under(v.DecodeRate)
	v.PrefillRoofline, v.PrefillBound, v.DecodeRoofline, v.DecodeBound = prefill.TokensPerSecond, prefill.Bound, decode.TokensPerSecond, decode.Bound
	return v
}

func newOneText(r generate.Result, t *tokenizer.Tokenizer, o *generateFlags) oneText {
	one := oneText{Text: r.Text, Tokens: []int32{}, End: string(r.End)}
	for _, token := range r.Tokens {
		one.Tokens = append(one.Tokens, token.ID)
	}
	if o.logprobs >= 0 {
		one.Logprobs = ranks(r.Tokens, t, false)
	}
	if o.beams > 1 {
		one.Score = &r.Score
	}
	return one
}

// ranks are tokens with their log-probabilities; the first of a prompt has none.
func ranks(tokens []generate.Token, t *tokenizer.Tokenizer, prompt bool) (list []tokenRank) {
	for i, token := range tokens {
		r := tokenRank{ID: token.ID, Token: textOf(t, token.ID)}
		if i > 0 || !prompt {
			r.Logprob = &token.Logprob
		}
		for _, a := range token.Top {
			r.Top = append(r.Top, tokenRank{ID: a.ID, Token: textOf(t, a.ID), Logprob: &a.Logprob})
		}
		list = append(list, r)
	}
	return list
}

// textOf is a token as the tokenizer's file writes it; "" without one.
func textOf(t *tokenizer.Tokenizer, id int32) string {
	if t == nil {
		return ""
	}
	text, _ := t.Token(id)
	return text
}
