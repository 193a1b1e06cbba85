package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway"
	"spillway/chat"
	"spillway/data"
	"spillway/internal/term"
	"spillway/plan"
	"spillway/train"
)

// dataOptions are the flags about what is trained on.
type dataOptions struct {
	files, evalFiles []string
	format, fields   string
	template         string
	today            string
	tokenizer        string
	packing          string
	tokenBytes       int
	skipBad          bool
	trainOnPrompts   bool
	evalSplit        float64 // held out
}

// autoForm finds the form of lines by their fields.
const autoForm = "auto"

// usualDay is the date that chat templates are told, so that a run is the same
// whenever it is done. Llama's templates tell it to models where no clock is at hand.
const usualDay = "2024-07-26"

func dataFlags(cmd *cobra.Command) *dataOptions {
	o := &dataOptions{}
	f := cmd.Flags()
	f.StringArrayVar(&o.files, "data", nil, "train on `FILE`; may be given several times")
	f.StringVar(&o.format, "format", autoForm, "JSON lines hold `auto|text|completion|instruct|chat`; auto looks at the names of their fields")
	f.StringVar(&o.fields, "fields", "", "`NAMES` of the fields of JSON lines, with colons between them: text, or prompt:completion, or instruction:input:output,\nor messages (default: these)")
	f.StringVar(&o.template, "chat-template", "", "write conversations with the Jinja template in `FILE` (default: the model's own)")
	f.StringVar(&o.today, "today", usualDay, "the `DATE` that chat templates which ask for it are told")
	f.StringVar(&o.tokenizer, "tokenizer", "", "a tokenizer.json `FILE`, a .bin file as llama2.c has them, or bytes (default: the model's own; bytes for a model of 256 tokens)")
	f.IntVar(&o.tokenBytes, "token-bytes", 0, "a token in a .bin file has `2|4` bytes (default: 2 where the vocabulary allows it)")
	f.BoolVar(&o.skipBad, "skip-bad-lines", false, "leave out lines that cannot be used, and count them, instead of refusing the file")
	f.BoolVar(&o.trainOnPrompts, "learn-prompts", false, "learn questions too, not only answers")
	f.StringVar(&o.packing, "packing", "", "`cut|whole`: what is left of a sample gets a part of the next document, or padding\n(default: whole where answers are learned, else cut)")
	f.StringArrayVar(&o.evalFiles, "eval-data", nil, "evaluate on `FILE`")
	f.Float64Var(&o.evalSplit, "eval-split", 0, "hold out a share `X` of the documents to evaluate on (default: 0.05 if an evaluation is asked for without --eval-data)")
	return o
}

// check refuses flags that make no sense.
func (o *dataOptions) check() error {
	forms := []string{autoForm}
	for _, f := range data.Formats {
		forms = append(forms, string(f))
	}
	switch {
	case len(o.files) == 0:
		return usageErrorf("--data is missing: name a file of text to train on")
	case !slices.Contains(forms, o.format):
		return usageErrorf("--format %q; it is one of %s", o.format, strings.Join(forms, ", "))
	case !slices.Contains([]string{"", "cut", "whole"}, o.packing):
		return usageErrorf("--packing %q; it is cut or whole", o.packing)
	case !slices.Contains([]int{0, 2, 4}, o.tokenBytes):
		return usageErrorf("--token-bytes %d; it is 2 or 4", o.tokenBytes)
	case !(o.evalSplit >= 0 && o.evalSplit < 1):
		return usageErrorf("--eval-split %v; it is a share from 0 to 1", o.evalSplit)
	case o.evalSplit > 0 && len(o.evalFiles) > 0:
		return usageErrorf("--eval-split and --eval-data: give one of them")
	}
	_, err := o.day()
	return err
}

func (o *dataOptions) day() (time.Time, error) {
	day, err := time.Parse(time.DateOnly, o.today)
	if err != nil {
		return day, usageErrorf("--today %q; it is a date such as %s", o.today, usualDay)
	}
	return day, nil
}

// reading is what files are read with.
type reading struct {
	tokenizer  data.Tokenizer // nil where all files hold tokens
	vocabulary int64
	end        *int32
	template   func() (*chat.Template, error)
}

func (o *dataOptions) reading(m *spillway.Model, arg string) (r reading, err error) {
	if o.readsText() || o.tokenizer != "" {
		if r.tokenizer, err = findTokenizer(m, o.tokenizer); err != nil {
			return r, err
		}
	}
	r.vocabulary = m.Info.Vocab
	r.end, err = eosToken(arg)
	r.template = func() (*chat.Template, error) { return o.openTemplate(m) }
	return r, err
}

// readsText says whether some file holds anything but tokens.
func (o *dataOptions) readsText() bool {
	return slices.ContainsFunc(slices.Concat(o.files, o.evalFiles), func(name string) bool { return filepath.Ext(name) != tokensExt })
}

// openTemplate is the one of the flag, or the model's.
func (o *dataOptions) openTemplate(m *spillway.Model) (*chat.Template, error) {
	dir := ""
	if m.Folder != nil {
		dir = m.Folder.Dir
	}
	var t *chat.Template
	err := chat.ErrNoTemplate
	switch {
	case o.template != "":
		t, err = chat.OpenFile(o.template, dir)
	case dir != "":
		t, err = chat.Open(dir)
	}
	if errors.Is(err, chat.ErrNoTemplate) {
		return nil, fmt.Errorf("%s is asked to learn conversations: %w; name one with --chat-template", m.Name, err)
	}
	if err != nil {
		return nil, err
	}
	t.Now, err = o.day()
	return t, err
}

// dataReport says what there is to train on.
type dataReport struct {
	Documents     int64  `json:"documents"`
	Tokens        int64  `json:"tokens,omitempty"`
	LossTokens    int64  `json:"learned_tokens,omitempty"`
	Longest       int    `json:"longest_document,omitempty"` // tokens
	Cut           int64  `json:"cut_documents,omitempty"`    // longer than a sample
	EvalDocuments int64  `json:"held_out_documents,omitempty"`
	Skipped       int64  `json:"skipped_lines,omitempty"`
	FirstBad      string `json:"first_skipped_line,omitempty"`
}

// write says it to people.
func (r dataReport) write(p *page) {
	text := grouped(r.Documents) + " documents"
	if r.Tokens > 0 {
		text += fmt.Sprintf(", %s tokens, %s of them learned", grouped(r.Tokens), percent(float64(r.LossTokens)/float64(r.Tokens)))
	}
	if r.EvalDocuments > 0 {
		text += fmt.Sprintf("; %s held out", grouped(r.EvalDocuments))
	}
	p.line("data", "%s", text)
	if r.Cut > 0 {
		p.line("", "%s of them are longer than a sample and are cut", grouped(r.Cut))
	}
	if r.Skipped > 0 {
		p.line("", "%s bad lines left out; the first: %s", grouped(r.Skipped), r.FirstBad)
	}
}

// material is data that is ready to be trained on.
type material struct {
	feed, held train.Feed // held is nil where nothing is evaluated
	iterations int64
	report     dataReport
	files      *corpus
}

// prepare opens the data, counts it, and makes feeds for a plan.
func (o *trainOptions) prepare(line *term.Line, m *spillway.Model, arg string, p *plan.Plan) (t material, err error) {
	r, err := o.data.reading(m, arg)
	if err != nil {
		return t, err
	}
	show := func(what string, done, total int64) {
		line.Show(func() string { return fmt.Sprintf("%s  %s", what, percent(float64(done)/float64(max(total, 1)))) })
	}
	defer line.Done()
	if t.files, err = o.data.openCorpus(o.data.files, r, show); err != nil {
		return t, err
	}
	if err = o.fillMaterial(&t, r, p, show); err != nil {
		return t, errors.Join(err, t.files.close())
	}
	return t, nil
}

func (o *trainOptions) fillMaterial(t *material, r reading, p *plan.Plan, show func(what string, done, total int64)) error {
	source, apart, err := o.split(t.files, r, show)
	if err != nil {
		return err
	}
	c := data.Config{Length: int(p.Seq), Seed: o.seed, WholeDocuments: o.data.whole(t.files)}
	if o.steps == 0 {
		c.Epochs = o.epochs
	}
	t.report = dataReport{Documents: source.Len(), Skipped: t.files.skipped}
	if t.files.firstBad != nil {
		t.report.FirstBad = t.files.firstBad.Error()
	}
	if t.iterations, err = o.count(t, source, &c, p.MicroBatchSize*int64(p.MicroBatches), show); err != nil {
		return err
	}
	if t.feed, err = o.tokens(source, c); err != nil || apart == nil {
		return err
	}
	t.report.EvalDocuments = apart.Len()
	t.held, err = o.tokens(apart, data.Config{Length: int(p.Seq), InOrder: true, WholeDocuments: c.WholeDocuments, Epochs: 1})
	return err
}

// whole says whether documents are kept whole: with answers cut off from their
// questions there would be little to learn.
func (o *dataOptions) whole(c *corpus) bool {
	return o.packing == "whole" || o.packing == "" && c.answers
}

// countedBytes is the size of files, in bytes, up to which all is counted also where
// the number of iterations is given: some minutes of tokenizing.
const countedBytes = 1 << 30

// count surveys the documents, so that a run that goes on with others is refused, and
// gives the number of iterations: those asked for, or what the passes over the data come
// to.
func (o *trainOptions) count(t *material, source data.Source, c *data.Config, samples int64, show func(what string, done, total int64)) (int64, error) {
	if o.steps > 0 && t.files.bytes > countedBytes {
		return o.steps, nil
	}
	v, err := data.NewSurvey(source, func(done, total int64) { show("tokenizing", done, total) })
	if err != nil {
		return 0, err
	}
	c.Digest = v.Digest
	t.report.Tokens, t.report.LossTokens, t.report.Longest, t.report.Cut = v.Tokens, v.LossTokens, v.Longest, v.Longer(c.Length)
	if o.steps > 0 {
		return o.steps, nil
	}
	return (v.Rows(*c) + samples - 1) / samples, nil
}

func (o *trainOptions) tokens(s data.Source, c data.Config) (train.Feed, error) {
	l, err := data.NewLoader(s, c)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", filepath.Base(o.data.files[0]), err)
	}
	return train.NewTokens(l), nil
}

// evalShare of the data is held out where no file is given to evaluate on.
const evalShare = 0.05

// split keeps some of the data for evaluation; nil for none.
func (o *trainOptions) split(all *corpus, r reading, show func(what string, done, total int64)) (source, apart data.Source, err error) {
	if !o.evaluates() {
		return all.Source, nil, nil
	}
	if len(o.data.evalFiles) > 0 {
		other, err := o.data.openCorpus(o.data.evalFiles, r, show)
		if err != nil {
			return nil, nil, err
		}
		all.open = append(all.open, other.open...)
		return all.Source, other.Source, nil
	}
	if all.Len() < 2 {
		return nil, nil, fmt.Errorf("the data is one document, so none can be held out: give --eval-data")
	}
	share := o.data.evalSplit
	if share == 0 {
		share = evalShare
	}
	return data.Split(all.Source, max(share, 1/float64(all.Len())), o.seed)
}
