package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"spillway/generate"
	"spillway/inference"
	"spillway/internal/term"
	"spillway/internal/vfs"
)

// chatFlags are the flags of chat.
type chatFlags struct {
	sessionFlags
	system, load string
	context      int64
	stats        bool
}

func newChat(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "chat MODEL",
		Short: "talk to a model in the terminal",
		Long: `Holds a conversation in the terminal, with the model's own chat template. The answer is
written as it comes. What was said before stays in memory, so that each turn computes only
what is new.

` + usableModelHelp + `

A line is sent as it is; a line that ends with a backslash goes on in the next, and what
stands between two lines of """ or is pasted is sent as one text. Arrows change a line and
find earlier ones. Ctrl-C ends the answer or drops the line, not the program; Ctrl-D or /exit
ends it. On a pipe every line is a turn, and only answers are written.

` + chatCommandsHelp,
		Example: `  spillway chat ./model
  spillway chat ./run --temperature 0.7 --top-p 0.9 --system Be_brief.
  spillway chat ./model --adapter ./adapter --context 64 --max-new-tokens 20
  spillway chat ./model --draft ngram`,
		Args: exactly(1, "MODEL"),
	}
	asJSON := jsonFlag(cmd)
	var o chatFlags
	f := cmd.Flags()
	f.StringVar(&o.system, "system", "", "begin with the system message `TEXT`")
	f.StringVar(&o.load, "load", "", "go on with the conversation in `FILE`, which /save wrote")
	f.Int64Var(&o.context, "context", 0, "plan for conversations of `N` tokens (default: what the model was made for, at most 4096)")
	f.BoolVar(&o.stats, "verbose", false, "write statistics after each answer")
	bindDraft(cmd, &o.draftFlags)
	bindModel(cmd, &o.modelFlags)
	bindCache(cmd, &o.modelFlags)
	bindSampling(cmd, &o.samplingFlags, 0)
	bindRecord(cmd, &o.recordFlags)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.checkSession(); err != nil {
			return err
		}
		return chatCommand(cmd.Context(), sh, args[0], &o, *asJSON)
	}
	return cmd
}

const chatCommandsHelp = `Commands:
  /help            this list
  /clear           forget what was said, but for the system message
  /system TEXT     set the system message; without TEXT show it
  /retry           answer the last question again, with other random numbers
  /set NAME VALUE  change temperature, top-k, top-p, min-p, repetition-penalty, seed,
                   max-new-tokens; without them show all
  /save FILE       write the conversation as a line of JSON, as train --data reads it
  /load FILE       go on with one that was saved
  /exit            end, as Ctrl-D does`

// chatter holds a conversation with a user.
type chatter struct {
	sh       shell
	chat     *inference.Chat
	in       *bufio.Reader
	terminal bool         // a person is there, for whom prompts are shown
	editor   *term.Editor // of the terminal; nil where keys cannot be read
	asJSON   bool
	stats    bool
	engine   *inference.Engine
	draft    *inference.Draft // nil where nobody guesses
}

func chatCommand(ctx context.Context, sh shell, name string, o *chatFlags, asJSON bool) (err error) {
	line := term.NewLine(sh.err)
	defer line.Done()
	m, err := o.open(sh, name, line)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if _, err := m.Template(); err != nil { // before minutes of loading
		return err
	}
	var r generate.Request
	if err := o.request(m, &r, false); err != nil {
		return err
	}
	return o.inSession(ctx, sh, m, inference.Size{Context: o.context}, line, func(s session) error {
		return o.converse(ctx, sh, s, r, asJSON)
	})
}

// converse holds the conversation, with the settings of a request.
func (o *chatFlags) converse(ctx context.Context, sh shell, s session, r generate.Request, asJSON bool) (err error) {
	c, err := s.NewChat()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	c.Request.Sampler, c.Request.Stop, c.Request.MaxNewTokens = r.Sampler, r.Stop, r.MaxNewTokens
	c.Request.Speculation = s.draft.Speculation(s.Engine)
	t := &chatter{sh: sh, chat: c, in: bufio.NewReader(sh.in), terminal: isTerminal(sh.in) && isTerminal(sh.out), asJSON: asJSON, stats: o.stats, engine: s.Engine, draft: s.draft}
	if in, ok := sh.in.(*os.File); ok && t.terminal {
		t.editor = term.NewEditor(in, sh.out)
	}
	if o.load != "" {
		if err := t.load(o.load); err != nil {
			return err
		}
	}
	if o.system != "" {
		c.SetSystem(o.system)
	}
	if t.terminal {
		fmt.Fprintf(sh.err, "%s, context %s tokens. /help shows commands, Ctrl-D ends.\n", s.Model.Name, grouped(int64(s.Context())))
	}
	return t.talk(ctx)
}

// isTerminal says whether a person is at the other end.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.Width(f) > 0
}

// talk takes turns until the input ends.
func (t *chatter) talk(ctx context.Context) error {
	for {
		text, alone, err := t.read(ctx)
		if errors.Is(err, io.EOF) {
			if t.terminal && t.editor == nil {
				fmt.Fprintln(t.sh.out)
			}
			return nil
		}
		if errors.Is(err, errDropped) {
			continue
		}
		if err != nil {
			return err
		}
		if strings.TrimSpace(text) == "" {
			continue
		}
		if alone && strings.HasPrefix(text, "/") {
			question, exit, err := t.command(text)
			if exit {
				return nil
			}
			if err != nil {
				if !t.terminal {
					return err
				}
				fmt.Fprintln(t.sh.err, err)
			}
			if text = question; text == "" {
				continue
			}
		}
		if err := t.answer(ctx, text); err != nil {
			return err
		}
	}
}

// errDropped says that Ctrl-C dropped what was typed.
var errDropped = errors.New("what was typed is dropped")

// read reads what the user says: a line alone, which may be a command, several that end with a backslash or were pasted, or a
// block between lines of """.
func (t *chatter) read(ctx context.Context) (said string, alone bool, err error) {
	var lines []string
	block, prompt := false, "> "
	for {
		text, err := t.readLine(ctx, prompt)
		if err != nil && (text == "" || !errors.Is(err, io.EOF)) {
			if errors.Is(err, io.EOF) && len(lines) > 0 {
				return strings.Join(lines, "\n"), false, nil
			}
			return "", false, err
		}
		switch trimmed := strings.TrimSpace(text); {
		case trimmed == `"""` && !block && len(lines) == 0:
			block = true
		case trimmed == `"""` && block:
			return strings.Join(lines, "\n"), false, nil
		case block:
			lines = append(lines, text)
		case strings.HasSuffix(text, `\`):
			lines = append(lines, strings.TrimSuffix(text, `\`))
		default:
			alone = len(lines) == 0 && !strings.Contains(text, "\n")
			return strings.Join(append(lines, text), "\n"), alone, nil
		}
		prompt = ". "
	}
}

// readLine reads a line, without its end; ctx ends waiting for it. What is not UTF-8 is replaced, so
// that a conversation that is saved and loaded stays the same.
func (t *chatter) readLine(ctx context.Context, prompt string) (string, error) {
	if t.editor != nil {
		return t.editLine(ctx, prompt)
	}
	if t.terminal {
		fmt.Fprint(t.sh.err, prompt)
	}
	type result struct {
		text string
		err  error
	}
	got := make(chan result, 1)
	go func() {
		text, err := t.in.ReadString('\n')
		got <- result{strings.ToValidUTF8(strings.TrimRight(text, "\r\n"), "\uFFFD"), err}
	}()
	select {
	case r := <-got:
		return r.text, r.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// editLine reads a line that can be changed before it is sent. Ctrl-C drops what was typed.
func (t *chatter) editLine(ctx context.Context, prompt string) (string, error) {
	reading, stop := t.sh.signals.interruptible(ctx)
	defer stop()
	text, err := t.editor.Line(reading, prompt)
	if err != nil && reading.Err() != nil && ctx.Err() == nil {
		fmt.Fprintln(t.sh.err, "Ctrl-D or /exit ends the conversation")
		return "", errDropped
	}
	return text, err
}

// turn is the object of chat --json, one for each answer.
type turn struct {
	Text         string  `json:"text"`
	End          string  `json:"finish_reason"`
	PromptTokens int     `json:"prompt_tokens"`
	Reused       int     `json:"reused_tokens"`
	NewTokens    int     `json:"new_tokens"`
	Guessed      int     `json:"guessed_tokens,omitempty"` // with --draft
	Branches     float64 `json:"guessed_branches,omitempty"`
	Accepted     int     `json:"accepted_tokens,omitempty"`
	PrefillRate  float64 `json:"prefill_tokens_per_second"`
	DecodeRate   float64 `json:"decode_tokens_per_second"`
}

// answer writes the answer to a text. Ctrl-C ends it, and the conversation goes on.
func (t *chatter) answer(ctx context.Context, text string) error {
	asking, stop := t.sh.signals.interruptible(ctx)
	defer stop()
	var last turn
	for piece, err := range t.chat.Ask(asking, text) {
		if err != nil {
			if asking.Err() != nil && ctx.Err() == nil {
				break // the user has heard enough
			}
			if ctx.Err() != nil || !t.terminal {
				return err
			}
			fmt.Fprintln(t.sh.err, err)
			return nil
		}
		last.Text, last.End = last.Text+piece.Text, string(piece.End)
		if t.asJSON {
			continue
		}
		if t.terminal {
			piece.Text = term.Safe(piece.Text)
		}
		if _, err := io.WriteString(t.sh.out, piece.Text); err != nil {
			return err
		}
	}
	s := t.chat.Statistics
	if t.asJSON {
		last.PromptTokens, last.Reused, last.NewTokens, last.PrefillRate, last.DecodeRate = s.PromptTokens, s.ReusedTokens, s.NewTokens, s.PrefillRate(), s.DecodeRate()
		last.Guessed, last.Branches, last.Accepted = s.Guessed, s.PerPass(), s.Accepted
		return writeJSON(t.sh.out, last)
	}
	if _, err := io.WriteString(t.sh.out, "\n"); err != nil {
		return err
	}
	if t.terminal && last.End == string(generate.Length) {
		fmt.Fprintln(t.sh.err, t.cutShort(s))
	}
	if t.stats {
		writeStatistics(t.sh.err, t.engine, s, 1, t.draft)
	}
	return nil
}

// cutShort says why an answer has no end.
func (t *chatter) cutShort(s generate.Statistics) string {
	if full := t.engine.Context(); s.PromptTokens+s.NewTokens >= full {
		return fmt.Sprintf("(cut: the context of %s tokens is full; /clear begins a new conversation)", grouped(int64(full)))
	}
	return fmt.Sprintf("(cut after %s tokens; /set max-new-tokens 0 sets no limit)", grouped(int64(s.NewTokens)))
}

// command carries out a line that begins with a slash. It may give a question to answer.
func (t *chatter) command(line string) (question string, exit bool, err error) {
	name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	rest = strings.TrimSpace(rest)
	say := func(format string, args ...any) { fmt.Fprintf(t.sh.err, format+"\n", args...) }
	switch name {
	case "/exit", "/quit", "/bye":
		return "", true, nil
	case "/help", "/?":
		say("%s", chatCommandsHelp)
	case "/clear", "/reset", "/new":
		t.chat.Clear()
	case "/system":
		if rest == "" {
			say("%s", t.chat.System())
		} else {
			t.chat.SetSystem(rest)
		}
	case "/retry", "/regen":
		var ok bool
		if question, ok = t.chat.Retry(); !ok {
			return "", false, errors.New("there is no question to answer again")
		}
		t.chat.Request.Sampler.Seed++
	case "/set":
		err = t.set(rest, say)
	case "/save":
		err = t.save(rest)
	case "/load":
		err = t.load(rest)
	default:
		return "", false, fmt.Errorf("there is no command %s; /help shows those there are, and a text that begins with / is sent between lines of \"\"\"", name)
	}
	return question, false, err
}

// set changes how answers are generated, or shows it.
func (t *chatter) set(text string, say func(string, ...any)) error {
	r := &t.chat.Request
	s := r.Sampler
	name, value, _ := strings.Cut(text, " ")
	if name == "" {
		say("temperature %v, top-k %d, top-p %v, min-p %v, repetition-penalty %v, seed %d, max-new-tokens %d", s.Temperature, s.TopK, s.TopP, s.MinP, s.RepetitionPenalty, s.Seed, r.MaxNewTokens)
		return nil
	}
	number, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil {
		return fmt.Errorf("/set %s %q: give a number", name, value)
	}
	whole := func(to *int) error {
		if *to = int(number); float64(*to) != number || *to < 0 {
			return fmt.Errorf("/set %s %v: give an integer, 0 or more", name, value)
		}
		return nil
	}
	most := r.MaxNewTokens
	switch name {
	case "temperature":
		s.Temperature = number
	case "top-k":
		err = whole(&s.TopK)
	case "top-p":
		s.TopP = number
	case "min-p":
		s.MinP = number
	case "repetition-penalty":
		s.RepetitionPenalty = number
	case "seed":
		seed := 0
		err = whole(&seed)
		s.Seed = uint64(seed)
	case "max-new-tokens":
		err = whole(&most)
	default:
		err = fmt.Errorf("there is no setting %s; /set shows those there are", name)
	}
	if err == nil {
		err = s.Check()
	}
	if err == nil {
		r.Sampler, r.MaxNewTokens = s, most
	}
	return err
}

// save writes the conversation to a file: a new one, or one that has a conversation.
func (t *chatter) save(name string) error {
	if name == "" {
		return errors.New("/save FILE: give the name of a file")
	}
	if _, err := readConversation(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is there and is no conversation that /save wrote, alone; give another name", name)
	}
	if err := vfs.Replace(vfs.OS, name, func(w io.Writer) error { return inference.WriteMessages(w, t.chat.Messages()) }); err != nil {
		return fmt.Errorf("saving the conversation: %w", err)
	}
	return nil
}

// load goes on with a conversation in a file.
func (t *chatter) load(name string) error {
	if name == "" {
		return errors.New("/load FILE: give the name of a file")
	}
	list, err := readConversation(name)
	if err == nil {
		t.chat.SetMessages(list)
	}
	return err
}

// readConversation reads what /save wrote.
func readConversation(name string) ([]inference.Message, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("loading a conversation: %w", err)
	}
	defer f.Close() // opened for reading
	return inference.ReadMessages(f)
}
