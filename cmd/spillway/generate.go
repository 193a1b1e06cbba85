package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"spillway/chat"
	"spillway/generate"
	"spillway/inference"
	"spillway/internal/term"
	"spillway/units"
)

// generateFlags are the flags of generate.
type generateFlags struct {
	sessionFlags
	prompt, file, tokens, system string
	prompts                      string
	context, chunk               int64
	samples, beams, logprobs     int
	streams                      int
	lengthPenalty                float64
	early                        bool
	promptLogprobs               bool
	ignoreEOS, special, chat     bool
	asJSON, quiet                bool
}

func newGenerate(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "generate MODEL --prompt TEXT",
		Short: "continue a text with a model, as it comes",
		Long: `Continues a text. What the model adds is written to standard output as it comes; how fast
it was and what it took of memory go to standard error.

` + usableModelHelp + `

The prompt is --prompt, the text in --file, or standard input with --file -. --prompts reads
many, a line each, and computes --streams of them at once; every text is the one that its
prompt gives alone. With --chat a prompt is what a user says, and the model's own chat template is written around it. Without
--temperature and without a generation_config.json that asks for sampling, the most likely
token is taken every time, so that the same prompt gives the same text; --top-k, --top-p,
--min-p and --seed sample. The order in which settings apply, and what they do to logits,
are those of transformers. Log-probabilities are those of the model, before any setting.

The memory of the whole text is planned before the model is loaded: the prompt and
--max-new-tokens, or --context. What does not fit is refused with flags that fit. A prompt
is never cut.

--draft guesses tokens and has several computed in one step; guesses that are wrong are taken back,
so that the text is the one without. It pays where a text repeats itself or its prompt, and where
weights stream to the device, since a step takes about as long for a few tokens as for one.

--dashboard shows the run in a browser while it goes on; --out writes its event log to a folder,
which dashboard, top, compare and report read, also after. --profile shows which modules and
ops take the time.

Ctrl-C ends the text; what was written stays.`,
		Example: `  spillway generate ./model --prompt Hello --max-new-tokens 20
  spillway generate ./run --prompt Once --temperature 0.8 --top-p 0.95 --seed 7
  spillway generate ./model --file prompt.txt --max-new-tokens 50 --stop . --json
  spillway generate ./model --prompts prompts.jsonl --streams 16 --max-new-tokens 8 --json
  spillway generate ./model --adapter ./style=0.7 --adapter ./facts=0.5 --prompt Hello
  spillway generate ./model --chat --prompt Hello --max-memory 2GiB
  spillway generate ./model --file prompt.txt --max-new-tokens 9 --draft ngram
  spillway generate ./model --file prompt.txt --max-new-tokens 9 --profile
  spillway generate ./model --prompt Once --num-beams 4 --num-samples 2 --logprobs 3 --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageErrorf("%s given, it takes 1: MODEL; the text to continue is --prompt %q", plural(len(args), "argument"), strings.Join(args[1:], " "))
			}
			return exactly(1, "MODEL")(cmd, args)
		},
	}
	var o generateFlags
	asJSON := jsonFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&o.prompt, "prompt", "", "continue `TEXT`")
	f.StringVar(&o.file, "file", "", "continue the text in `FILE`, - for standard input")
	f.StringVar(&o.prompts, "prompts", "", "continue each line of `FILE`, - for standard input: a text, or a JSON object with a prompt, or with --chat messages")
	f.IntVar(&o.streams, "streams", 8, "with --prompts: compute `N` texts at once")
	f.StringVar(&o.tokens, "tokens", "", "continue token `IDS` such as 1,15043; for models without a tokenizer, which write ids too")
	f.BoolVar(&o.chat, "chat", false, "take the prompt as what a user says, and write the model's chat template around it")
	f.StringVar(&o.system, "system", "", "with --chat: begin with the system message `TEXT`")
	f.Int64Var(&o.context, "context", 0, "plan for texts of `N` tokens, prompt included (default: the prompt and --max-new-tokens)")
	f.Int64Var(&o.chunk, "chunk", 0, "compute at most `N` tokens of prompts at once: fewer take less memory, and longer (default: 512 on a CPU, 2048 on a GPU)")
	f.IntVar(&o.samples, "num-samples", 1, "write `N` texts; they draw different random numbers")
	f.IntVar(&o.beams, "num-beams", 1, "search for the most likely text with `N` beams; --num-samples are the best of them")
	f.Float64Var(&o.lengthPenalty, "length-penalty", 1, "divide the scores of beams by their length to the power of `X`")
	f.BoolVar(&o.early, "early-stopping", false, "end the search as soon as --num-beams texts have ended")
	f.IntVar(&o.logprobs, "logprobs", -1, "with --json: log-probabilities of the new tokens, and of the `N` most likely ones in each place (default: none)")
	f.BoolVar(&o.promptLogprobs, "prompt-logprobs", false, "with --json: log-probabilities of the prompt's tokens, which is computed in smaller chunks then")
	f.BoolVar(&o.ignoreEOS, "ignore-eos", false, "go on after the token that ends a text")
	f.BoolVar(&o.special, "special", false, "write special tokens such as <|eot_id|> too")
	f.BoolVar(&o.quiet, "quiet", false, "write no statistics")
	bindDraft(cmd, &o.draftFlags)
	bindModel(cmd, &o.modelFlags)
	bindCache(cmd, &o.modelFlags)
	bindSampling(cmd, &o.samplingFlags, 256)
	bindRecord(cmd, &o.recordFlags)
	bindProfile(cmd, &o.profile, "a step with the prompt and of one without")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.asJSON = *asJSON
		if err := o.check(); err != nil {
			return err
		}
		return generateCommand(cmd.Context(), sh, args[0], &o)
	}
	return cmd
}

// check refuses flags that contradict each other or have no effect.
func (o *generateFlags) check() error {
	given := o.all.Changed
	sources := 0
	for _, name := range []string{"prompt", "prompts", "file", "tokens"} {
		if given(name) {
			sources++
		}
	}
	switch {
	case sources != 1:
		return usageErrorf("give one of --prompt TEXT, --file FILE (- for standard input), --prompts FILE and --tokens IDS")
	case !given("prompts") && given("streams"):
		return usageErrorf("--streams has no effect without --prompts; --num-samples are computed at once by themselves")
	case o.streams < 1:
		return usageErrorf("--streams %d; at least 1", o.streams)
	case given("prompts") && (o.beams > 1 || o.promptLogprobs):
		return usageErrorf("--num-beams and --prompt-logprobs are for one prompt; leave --prompts out, or them")
	case o.samples > o.streams && given("prompts"):
		return usageErrorf("--num-samples %d and --streams %d: the texts of a prompt are computed at once; give more --streams", o.samples, o.streams)
	case o.chat && given("tokens"):
		return usageErrorf("--chat has no effect on --tokens, which are taken as they are; leave one out")
	case !o.chat && given("system"), !o.chat && given("chat-template"):
		return usageErrorf("--system and --chat-template have no effect without --chat")
	case o.samples < 1 || o.beams < 1 || o.context < 0:
		return usageErrorf("--num-samples %d, --num-beams %d, --context %d; none may be less than 1", o.samples, o.beams, o.context)
	case given("chunk") && o.chunk < 1:
		return usageErrorf("--chunk %d; at least 1 token", o.chunk)
	case given("chunk") && o.noCache:
		return usageErrorf("--chunk has no effect with --no-cache, which computes the whole text at once; leave one out")
	case o.draft != "" && o.beams > 1:
		return usageErrorf("--draft has no effect with --num-beams; leave one out")
	case o.beams == 1 && (given("length-penalty") || given("early-stopping")):
		return usageErrorf("--length-penalty and --early-stopping have no effect without --num-beams")
	case o.beams > 1 && given("stop"):
		return usageErrorf("--stop has no effect with --num-beams: beams end with the token that ends a text; leave one out")
	case o.beams > 1 && o.samples > o.beams:
		return usageErrorf("--num-samples %d of --num-beams %d; ask for at most as many as there are beams", o.samples, o.beams)
	case given("logprobs") && o.logprobs < 0:
		return usageErrorf("--logprobs %d; it is 0 or more", o.logprobs)
	case !o.asJSON && (given("logprobs") || given("prompt-logprobs")):
		return usageErrorf("--logprobs and --prompt-logprobs are written with --json; give it too")
	case o.asJSON && o.quiet:
		return usageErrorf("--quiet has no effect with --json, which has the statistics in its object")
	case o.quiet && o.profile != "":
		return usageErrorf("--quiet leaves the tables of --profile out; leave one out")
	}
	return o.checkSession()
}

// generateCommand opens the model, continues the prompt and writes what came of it.
func generateCommand(ctx context.Context, sh shell, name string, o *generateFlags) (err error) {
	line := term.NewLine(sh.err)
	defer line.Done()
	m, err := o.open(sh, name, line)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if o.prompts != "" {
		return o.generateAll(ctx, sh, m, line)
	}
	r, err := o.newRequest(sh, m)
	if err != nil {
		return err
	}
	size := inference.Size{Streams: int64(max(o.samples, o.beams)), Chunk: o.chunk}
	if o.promptLogprobs {
		size.Outputs = promptOutputs
	}
	if size.Context, err = o.fit(m, &r, len(r.Prompt)); err != nil {
		return err
	}
	if size.Context == 0 { // as far as the model goes
		if size.Context = m.Info.Context; size.Context == 0 || size.Context > 4096 {
			size.Context = max(4096, int64(len(r.Prompt)+1))
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return o.inSession(ctx, sh, m, size, line, func(s session) error { return o.generateOne(ctx, sh, s, r) })
}

// fit gives a request as many new tokens as usual, or as the model goes after the longest prompt,
// where no flag says how many, and gives the context to plan for: 0 where nothing says how long a
// text may become.
func (o *generateFlags) fit(m *inference.Model, r *generate.Request, longest int) (context int64, err error) {
	if room := m.Info.Context - int64(longest); !o.all.Changed("max-new-tokens") && m.Info.Context > 0 && room > 0 {
		r.MaxNewTokens = int(min(int64(r.MaxNewTokens), room))
	}
	need := int64(longest + max(r.MaxNewTokens, 1))
	switch {
	case o.context > 0 && need > o.context:
		return 0, usageError{&generate.LengthError{Prompt: longest, New: max(r.MaxNewTokens, 1), Context: int(o.context), Most: int(m.Info.Context)}}
	case o.context == 0 && r.MaxNewTokens > 0:
		return need, nil
	}
	return o.context, nil
}

// generateOne continues one prompt.
func (o *generateFlags) generateOne(ctx context.Context, sh shell, s session, r generate.Request) error {
	r.Speculation = s.draft.Speculation(s.Engine)
	g, err := s.Generate(r)
	if err != nil {
		return err
	}
	t, noTokenizer := s.Model.Tokenizer()
	out := &sampleWriter{w: sh.out, discard: o.asJSON, several: o.samples > 1, ids: noTokenizer != nil, terminal: isTerminal(sh.out)}
	for piece, pieceErr := range g.All(ctx) {
		if err = pieceErr; err == nil {
			err = out.write(piece)
		}
		if err != nil {
			break
		}
	}
	object := func() generated { return newGenerated(s.Engine, g, t, o) }
	return o.finish(ctx, sh, s, out, generatedTexts{g.Statistics(), max(o.samples, o.beams), object}, err)
}

// generatedTexts are the texts of a command, written or not.
type generatedTexts struct {
	statistics generate.Statistics
	streams    int              // texts that were computed at once
	object     func() generated // for --json
}

// finish writes what comes after the texts, also where Ctrl-C has ended them: the object that
// --json asks for, or statistics.
func (o *generateFlags) finish(ctx context.Context, sh shell, s session, out *sampleWriter, texts generatedTexts, err error) error {
	cut := interrupted(ctx, err)
	if err != nil && cut == err {
		return err
	}
	if o.asJSON {
		v := texts.object()
		v.Profiles = s.record.profile(o.profile)
		return errors.Join(writeJSON(sh.out, v), cut)
	}
	if err := out.end(); err != nil {
		return err
	}
	if !o.quiet {
		writeStatistics(sh.err, s.Engine, texts.statistics, texts.streams, s.draft)
	}
	return errors.Join(s.record.writeProfiles(sh.err), cut)
}

// promptOutputs is how many tokens of a prompt get log-probabilities in one step.
const promptOutputs = 32

// newRequest is what the flags ask of a model.
func (o *generateFlags) newRequest(sh shell, m *inference.Model) (r generate.Request, err error) {
	if err := o.request(m, &r, o.beams > 1); err != nil {
		return r, err
	}
	if o.prompts == "" {
		if r.Prompt, r.StopTokens, err = o.encode(sh, m); err != nil {
			return r, err
		}
	}
	if o.ignoreEOS {
		r.StopTokens = nil
	}
	r.Samples, r.KeepSpecial = o.samples, o.special
	r.Logprobs, r.PromptLogprobs, r.TopLogprobs = o.logprobs >= 0, o.promptLogprobs, max(o.logprobs, 0)
	if o.beams > 1 {
		r.Beams = &generate.BeamSearch{Count: o.beams, LengthPenalty: o.lengthPenalty, EarlyStopping: o.early}
	} else if o.samples > 1 && r.Sampler.Temperature == 0 {
		return r, usageErrorf("--num-samples %d at temperature 0 would all be the same text; give a --temperature", o.samples)
	}
	return r, nil
}

// encode is the prompt as tokens, and the tokens that end the text.
func (o *generateFlags) encode(sh shell, m *inference.Model) (ids, stops []int32, err error) {
	stops = m.Defaults.StopTokens
	if o.tokens != "" {
		for text := range strings.SplitSeq(o.tokens, ",") {
			id, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
			if err != nil || id < 0 || id >= m.Info.Vocab {
				return nil, nil, usageErrorf("--tokens: %q; ids are numbers from 0 to %d, with commas between", text, m.Info.Vocab-1)
			}
			ids = append(ids, int32(id))
		}
		return ids, stops, nil
	}
	text := o.prompt
	if o.file != "" {
		if text, err = readPrompt(sh, o.file); err != nil {
			return nil, nil, err
		}
	}
	return o.encodeText(m, text, nil)
}

// encodeText is a text as tokens, or with --chat a conversation: one that is given, or the text
// as what a user says.
func (o *generateFlags) encodeText(m *inference.Model, text string, talk *chat.Conversation) (ids, stops []int32, err error) {
	stops = m.Defaults.StopTokens
	if !o.chat {
		ids, err = m.Encode(text)
		return ids, stops, err
	}
	t, err := m.Template()
	if err != nil {
		return nil, nil, err
	}
	if talk == nil {
		talk = &chat.Conversation{Messages: []chat.Message{chat.NewMessage("user", text)}}
	}
	if o.system != "" {
		talk.Messages = slices.Insert(talk.Messages, 0, chat.NewMessage("system", o.system))
	}
	if stops, err = m.TurnEnds(t); err != nil {
		return nil, nil, err
	}
	ids, err = m.EncodeConversation(t, *talk)
	return ids, stops, err
}

// sampleWriter writes pieces: those of the first text as they come, the others one text after
// the other, each under a line with its number.
type sampleWriter struct {
	w                io.Writer
	discard, several bool
	ids              bool // tokens are written by their ids, as --tokens has them: the model has no tokenizer
	terminal         bool // whose control characters are not written
	at               int  // text that is written as it comes
	waiting          []string
	ended            []bool
	broken           bool // the last byte is a line break
	headed           int  // texts that have their line
}

func (s *sampleWriter) write(p generate.Piece) error {
	if s.discard {
		return nil
	}
	for len(s.waiting) <= p.Sample {
		s.waiting, s.ended = append(s.waiting, ""), append(s.ended, false)
	}
	s.waiting[p.Sample] += p.Text
	if s.ids {
		for _, token := range p.Tokens {
			if s.waiting[p.Sample] != "" || s.headed == p.Sample+1 {
				s.waiting[p.Sample] += ","
			}
			s.waiting[p.Sample] += strconv.Itoa(int(token.ID))
		}
	}
	s.ended[p.Sample] = s.ended[p.Sample] || p.End != ""
	for s.at < len(s.waiting) {
		text := s.waiting[s.at]
		if (text != "" || s.ended[s.at]) && !s.begun(s.at) && s.several {
			text = fmt.Sprintf("--- %d\n", s.at+1) + text
		}
		if s.waiting[s.at] = ""; text != "" {
			if s.broken = strings.HasSuffix(text, "\n"); s.terminal {
				text = term.Safe(text)
			}
			if _, err := io.WriteString(s.w, text); err != nil {
				return err
			}
		}
		if !s.ended[s.at] {
			return nil
		}
		s.at++
		if err := s.end(); err != nil {
			return err
		}
	}
	return nil
}

// begun says whether some of a text was written already.
func (s *sampleWriter) begun(i int) bool {
	if s.headed == i+1 {
		return true
	}
	s.headed = i + 1
	return false
}

// end ends the line.
func (s *sampleWriter) end() error {
	if s.broken || s.discard {
		return nil
	}
	s.broken = true
	_, err := io.WriteString(s.w, "\n")
	return err
}

// writeStatistics writes how fast a text was made, and with how much memory.
func writeStatistics(w io.Writer, e *inference.Engine, s generate.Statistics, streams int, draft *inference.Draft) {
	var p page
	prefill, decode := e.Rooflines(s, streams)
	if e.Measuring > 0 {
		p.line("measuring", "%s, once", units.Seconds(e.Measuring.Seconds()))
	}
	p.line("load", "%s", units.Seconds(e.Loading.Seconds()))
	reused := ""
	if s.ReusedTokens > 0 {
		reused = fmt.Sprintf(", %s more were there already", plural(s.ReusedTokens, "token"))
	}
	p.line("prompt", "%s in %s, %s tokens/s%s%s", plural(s.PromptTokens-s.ReusedTokens, "token"), units.Seconds(s.Prefill.Seconds()), rate(s.PrefillRate()), prefill.Share(s.PrefillRate()), reused)
	if s.DecodeRate() > 0 {
		p.line("new text", "%s in %s, %s tokens/s%s", plural(s.NewTokens, "token"), units.Seconds(s.Decode.Seconds()), rate(s.DecodeRate()), decode.Share(s.DecodeRate()))
	} else {
		p.line("new text", "%s, with the prompt", plural(s.NewTokens, "token"))
	}
	if s.Unwritten > 0 {
		p.line("", "%s of them wrote nothing: the tokenizer has no such ids; does it belong to the model?", grouped(int64(s.Unwritten)))
	}
	if draft != nil {
		p.line("guessed", "%s", guessedText(s))
	}
	p.line("total", "%s for %s", units.Seconds((s.Prefill + s.Decode).Seconds()), plural(s.PromptTokens-s.ReusedTokens+s.NewTokens, "token"))
	p.line("memory", "predicted %v, measured %v", units.Bytes(e.PredictedPeak()), units.Bytes(e.MeasuredPeak()))
	if draft != nil && draft.Engine != nil {
		p.line("", "and of the model that guesses predicted %v, measured %v", units.Bytes(draft.Engine.PredictedPeak()), units.Bytes(draft.Engine.MeasuredPeak()))
	}
	io.WriteString(w, p.String())
}
