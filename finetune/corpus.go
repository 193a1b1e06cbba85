package finetune

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"spillway"
	"spillway/chat"
	"spillway/data"
	"spillway/internal/vfs"
	"spillway/plan"
	"spillway/recipe"
	"spillway/run"
	"spillway/tokenizer"
	"spillway/train"
)

// Corpus is the data of a run: documents of tokens to train on, and some to evaluate on.
// Its files stay open.
type Corpus struct {
	// Summary says what there is, for people and programs.
	Summary Summary
	// Steps is how many optimizer steps the recipe asks for.
	Steps int64
	// Sample is the first text, with what of it is in the loss; nil where all files hold tokens.
	Sample []SamplePart
	Chats  bool // some of it is conversations
	// Train and Eval give the batches. Eval is nil where nothing is evaluated.
	Train, Eval train.Feed

	recipe          *recipe.Recipe
	documents, held data.Source    // to train on, and to evaluate on
	survey          data.Survey    // of the documents to train on
	packs           recipe.Packing // documents into sequences
	tokens          *data.Cache    // of conversations; nil without any
	open            []io.Closer
}

// Summary counts a corpus.
type Summary struct {
	Documents     int64  `json:"documents"`
	Tokens        int64  `json:"tokens,omitempty"`
	LossTokens    int64  `json:"loss_tokens,omitempty"` // tokens in the loss
	Longest       int    `json:"longest_document,omitempty"`
	Split         int64  `json:"split_documents,omitempty"`  // longer than a sequence
	Unused        int64  `json:"unused_documents,omitempty"` // without a token in the loss
	EvalDocuments int64  `json:"eval_documents,omitempty"`
	Skipped       int64  `json:"skipped_lines,omitempty"`
	FirstSkipped  string `json:"first_skipped_line,omitempty"`
}

// Progress reports how far reading is: what is read, and how much of it.
type Progress func(what string, done, total int64)

// OpenCorpus opens the files of a recipe, tokenizes and counts them. The caller closes the
// corpus, and packs it into sequences before its batches are asked for.
func OpenCorpus(r *recipe.Recipe, m *spillway.Model, progress Progress) (*Corpus, error) {
	c := &Corpus{recipe: r}
	if err := c.fill(m, progress); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Close closes the files.
func (c *Corpus) Close() error {
	var errs []error
	for _, f := range c.open {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

func (c *Corpus) fill(m *spillway.Model, progress Progress) error {
	r := c.recipe
	in, err := newReader(r, m, progress)
	if err != nil {
		return err
	}
	if c.documents, err = c.read(in, r.Data.Files); err != nil {
		return err
	}
	if r.Evaluates() {
		if c.documents, c.held, err = c.evalPart(r, in, c.documents); err != nil {
			return err
		}
		c.Summary.EvalDocuments = c.held.Len()
		if c.documents.Len() == 0 && c.held.Len() > 0 {
			return fmt.Errorf("a share of %v to evaluate on leaves none of %d documents to train on; give a smaller --eval-split, or --eval-data", r.Eval.Split, c.held.Len())
		}
		if err := hasTarget(c.held); err != nil {
			return fmt.Errorf("the documents to evaluate on: %w", err)
		}
	}
	if err := in.checkEffects(r); err != nil {
		return err
	}
	c.Chats = in.chats
	if c.packs = r.Data.Packing; c.packs == "" && in.answers {
		c.packs = recipe.PackWhole
	}
	c.Summary.Documents, c.Summary.Skipped = c.documents.Len(), in.skipped
	if in.firstBad != nil {
		c.Summary.FirstSkipped = in.firstBad.Error()
	}
	if r.Training.MaxSteps > 0 && in.bytes > countedBytes {
		return nil
	}
	// Everything is counted, so that a run that continues with other documents is refused.
	c.survey, err = data.NewSurvey(c.documents, func(done, total int64) { in.progress("tokenizing", done, total) })
	c.Summary.Tokens, c.Summary.LossTokens, c.Summary.Longest, c.Summary.Unused = c.survey.Tokens, c.survey.LossTokens, c.survey.Longest, c.survey.Unused
	if err == nil && c.survey.LossTokens == 0 {
		err = data.ErrNothing
	}
	return err
}

// checkEffects refuses settings that the files turned out to have no use for.
func (in *reader) checkEffects(r *recipe.Recipe) error {
	for _, name := range []string{"chat-template", "today"} {
		if r.Given(name) && !in.chats {
			return &run.SettingError{Err: fmt.Errorf("--%s has no effect: no file holds conversations; leave it out", name)}
		}
	}
	if r.Data.TrainOnPrompts && !in.answers {
		return &run.SettingError{Err: errors.New("--train-on-prompts has no effect: the data is plain text, all of which is in the loss; leave it out")}
	}
	if r.Given("prompt-separator") && !in.completions {
		return &run.SettingError{Err: errors.New("--prompt-separator has no effect: no file holds prompts and completions; leave it out")}
	}
	return nil
}

// hasTarget is an error if no document has a token in the loss.
func hasTarget(s data.Source) error {
	for i := range s.Len() {
		if d, err := s.Document(i); err != nil || d.LossTokens() > 0 {
			return err
		}
	}
	return data.ErrNothing
}

// countedBytes is the size of files, in bytes, up to which everything is counted also where
// the number of steps is given: some minutes of tokenizing.
const countedBytes = 1 << 30

// packing says how the documents to train on become sequences.
func (c *Corpus) packing(seq int64) data.Config {
	config := data.Config{Length: int(seq), Seed: c.recipe.Training.Seed, WholeDocuments: c.packs == recipe.PackWhole, OneDocument: c.packs == recipe.PackNone, Digest: c.survey.Digest}
	if c.recipe.Training.MaxSteps == 0 {
		config.Epochs = int64(math.Ceil(c.recipe.Training.Epochs))
	}
	return config
}

// Document is how many tokens the document has that a position of a sequence of seq
// positions is in, on average; 0 where that was not counted.
func (c *Corpus) Document(seq int64) int64 {
	if c.survey.Documents == 0 {
		return 0
	}
	return c.survey.MeanDocument(c.packing(seq))
}

// Pack packs the documents into sequences as long as those of the plan, and says how many
// steps there are: as many as asked for, or what the passes over the data need.
func (c *Corpus) Pack(p *plan.Plan) (err error) {
	config := c.packing(p.Seq)
	c.Summary.Split = c.survey.Longer(config.Length)
	if c.Steps = c.recipe.Training.MaxSteps; c.Steps == 0 {
		batch := p.MicroBatchSize * int64(p.MicroBatches)
		c.Steps = c.recipe.Training.EpochSteps(func(passes int64) int64 {
			config := config
			config.Epochs = passes
			return (c.survey.Rows(config) + batch - 1) / batch
		})
	}
	if c.Train, err = feed(c.recipe, c.documents, config); err != nil || c.held == nil {
		return err
	}
	c.Eval, err = feed(c.recipe, c.held, data.Config{Length: config.Length, InOrder: true, WholeDocuments: config.WholeDocuments, OneDocument: config.OneDocument, Epochs: 1})
	return err
}

// Epochs is how many passes over the data were asked for; 0 where the number of steps was.
func (c *Corpus) Epochs() float64 {
	if c.recipe.Training.MaxSteps > 0 {
		return 0
	}
	return c.recipe.Training.Epochs
}

func feed(r *recipe.Recipe, s data.Source, c data.Config) (train.Feed, error) {
	l, err := data.NewLoader(s, c)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", filepath.Base(r.Data.Files[0]), err)
	}
	return train.NewTokens(l), nil
}

// defaultSplit is the share of the documents that are evaluated on where the recipe names
// neither a share nor files.
const defaultSplit = 0.05

// evalPart gives the documents to train on and those to evaluate on.
func (c *Corpus) evalPart(r *recipe.Recipe, in *reader, all data.Source) (documents, eval data.Source, err error) {
	if len(r.Eval.Files) > 0 {
		eval, err = c.read(in, r.Eval.Files)
		return all, eval, err
	}
	share := r.Eval.Split
	if share == 0 {
		share = defaultSplit
	}
	if all.Len() == 1 {
		documents, eval, cut, err := data.Cut(all, share)
		if err == nil && !cut {
			err = fmt.Errorf("the data is one conversation, so none is left to evaluate on: give --eval-data")
		}
		return documents, eval, err
	}
	return data.Split(all, max(share, 1/float64(all.Len())), r.Training.Seed)
}

// tokensExt is how names of files end that hold tokens.
const tokensExt = ".bin"

// reader is what files are read with, and what was seen in them.
type reader struct {
	recipe.Data
	tokenizer  *tokenizer.Tokenizer // nil where all files hold tokens
	vocabulary int64
	end        *int32 // token at the end of a text; nil where the model's config names none
	template   func() (*chat.Template, error)
	progress   Progress
	resumes    bool // the run continues one

	bytes   int64
	answers bool // prompts are not in the loss of some of it
	chats   bool // some of it is conversations
	// completions says that some of it is prompts and completions
	completions bool
	skipped     int64
	firstBad    error
}

func newReader(r *recipe.Recipe, m *spillway.Model, progress Progress) (in *reader, err error) {
	if progress == nil {
		progress = func(string, int64, int64) {}
	}
	in = &reader{Data: r.Data, resumes: r.Output.Resume, vocabulary: m.Info.Vocab, progress: progress, template: func() (*chat.Template, error) { return openTemplate(m, r.Data) }}
	text := func(name string) bool { return filepath.Ext(name) != tokensExt }
	if slices.ContainsFunc(slices.Concat(r.Data.Files, r.Eval.Files), text) || r.Data.Tokenizer != "" {
		if in.tokenizer, err = OpenTokenizer(m, r.Data.Tokenizer); err != nil {
			return nil, err
		}
	}
	in.end, err = EndToken(m, in.tokenizer)
	return in, err
}

// read opens files as one source.
func (c *Corpus) read(in *reader, files []string) (data.Source, error) {
	var sources []data.Source
	for _, name := range files {
		name, weight, err := recipe.FileWeight(name)
		if err != nil {
			return nil, err
		}
		s, err := c.readFile(in, name)
		if err != nil {
			return nil, err
		}
		if weight != 1 {
			s = data.Weighted(s, weight, c.recipe.Training.Seed)
		}
		sources = append(sources, s)
	}
	return data.Concat(sources...), nil
}

// readFile opens a file by its ending: .jsonl are JSON lines, .csv and .parquet tables, .bin
// tokens, others plain text. Standard input, pipes and what ends in .gz or .zst is copied first.
func (c *Corpus) readFile(in *reader, name string) (data.Source, error) {
	var records *data.Records
	path, err := c.opened(in, name)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err == nil {
		in.bytes += info.Size()
	}
	table := true // rows of it are copied as lines
	switch filepath.Ext(path) {
	case ".csv", ".tsv":
		path, err = c.fromCSV(in, name, path)
	case ".parquet":
		path, err = c.fromParquet(in, name, path)
	case ".json":
		path, err = c.fromJSON(name, path)
	default:
		table = false
	}
	if err != nil {
		return nil, err
	}
	switch filepath.Ext(path) {
	case tokensExt:
		return c.readTokens(in, path)
	case ".arrow":
		return nil, fmt.Errorf("%s: Arrow is not read; write the data as Parquet or JSON lines, such as with datasets' to_parquet(\"data.parquet\")", name)
	case ".jsonl", ".ndjson":
		records, err = data.OpenJSONL(path, in.lines(name))
	default:
		records, err = data.OpenText(path, data.TextOptions{SkipBad: in.SkipBadLines})
	}
	if err != nil {
		return nil, badData(err, name, table)
	}
	c.open = append(c.open, records)
	if c.Sample == nil {
		if c.Sample, err = in.sampleOf(records); err != nil {
			return nil, err
		}
	}
	in.answers = in.answers || records.Format() != data.Plain
	in.chats = in.chats || records.Format() == data.Chat
	in.completions = in.completions || records.Format() == data.Completion
	skipped, first := records.Skipped()
	if in.skipped += skipped; in.firstBad == nil && first != nil {
		in.firstBad = ofFile(first, name, table)
	}
	if records.Format() == data.Chat && c.tokens == nil {
		if err := c.openCache(); err != nil {
			return nil, err
		}
	}
	return data.Tokenize(records, in.tokenizer, data.TokenizeOptions{End: in.end, TrainOnPrompts: in.TrainOnPrompts, Cache: c.tokens}), nil
}

// ofFile puts the name of a file into the error of a line of a copy of it.
func ofFile(err error, name string, table bool) error {
	var bad *data.BadLineError
	if errors.As(err, &bad) {
		bad.File, bad.Table = name, table
	}
	return err
}

// badData says which flags help with data that cannot be read.
func badData(err error, name string, table bool) error {
	err = ofFile(err, name, table)
	var bad *data.BadLineError
	var fields *data.FieldsError
	switch {
	case errors.As(err, &fields) && len(fields.Fields) > 0:
		flags := "--fields " + strings.Join(fields.Fields, ":")
		if fields.Format == data.Chat || fields.Format == data.Instruct {
			flags = "--format " + string(fields.Format) + " " + flags
		}
		return fmt.Errorf("%w; try %s, and see with --show-sample what comes of it", err, flags)
	case fields != nil:
		return fmt.Errorf("%w with --fields", err)
	case bad != nil || errors.As(err, &bad):
		return fmt.Errorf("%w (--skip-bad-lines leaves them out and counts them)", err)
	}
	return err
}

// openCache makes the cache for the tokens of conversations. Where there is no place for one,
// they are made again each time.
func (c *Corpus) openCache() error {
	dir, remove, err := vfs.TempDir("spillway-tokens")
	if err != nil {
		return nil
	}
	cache, err := data.NewCache(dir, cacheBytes)
	if err != nil {
		return remove()
	}
	c.tokens = cache
	c.open = append(c.open, cache, temporary(remove))
	return nil
}

// cacheBytes is how many bytes of the tokens of conversations are kept: those of a few hundred
// million tokens.
const cacheBytes = 1 << 30

// readTokens opens a file of tokens. Where the recipe does not say how many bytes a token
// has, the vocabulary does.
func (c *Corpus) readTokens(in *reader, name string) (data.Source, error) {
	width := in.TokenBytes
	if width == 0 {
		width = 2
		if in.vocabulary > 1<<16 {
			width = 4
		}
	}
	t, err := data.OpenTokens(name, data.TokenOptions{Width: width, End: in.end, Vocabulary: int32(in.vocabulary)})
	if err != nil {
		return nil, err
	}
	c.open = append(c.open, t)
	return t, nil
}

// lines are the options of a file of JSON lines.
func (in *reader) lines(name string) data.JSONLOptions {
	o := data.JSONLOptions{Format: in.Format, PromptSeparator: in.separator(), SkipBad: in.SkipBadLines, Template: in.template, CopyOf: name,
		Progress: func(done, total int64) { in.progress("reading "+filepath.Base(name), done, total) }}
	if in.Fields != "" {
		o.Fields = strings.Split(in.Fields, ":")
	}
	return o
}

// separator is what stands between a prompt and its completion.
func (in *reader) separator() string {
	switch {
	case in.PromptSeparator != nil:
		return *in.PromptSeparator
	case in.Fields == "" || in.Fields == "prompt:completion":
		return ""
	}
	return "\n"
}
