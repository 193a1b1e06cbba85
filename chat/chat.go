// Package chat renders conversations with a model's chat template, and finds the parts
// of the rendered text that are the assistant's answers: the parts to train on.
//
// Some templates mark answers with {% generation %}. For the others, each answer is
// found by comparing two texts: the conversation up to the answer, as a prompt for it, and
// including the answer. The answer begins where the two differ. Most templates write these
// texts for all answers in one rendering, so that it takes time in proportion to the length
// of the conversation.
//
// Some templates render a turn differently once other turns follow it; for instance they
// drop the reasoning of earlier turns. Then no single text holds every answer as the
// model has to write it, and the conversation becomes several texts, one per answer.
package chat

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"spillway/chat/jinja"
)

// Template is the chat template of a model. It is safe for concurrent use.
type Template struct {
	Name   string // the file it comes from, for errors
	Source string // its text
	// SpecialTokens are the variables such as bos_token that templates use.
	SpecialTokens map[string]string
	// Now is the date for templates that print one. A fixed date makes training
	// reproducible; the zero value means the current time.
	Now time.Time

	// WithTools is the template that conversations with tools are written with; nil: this one is.
	WithTools *Template

	toolsProblem error // why WithTools cannot be read, for conversations that need it
	jinja        *jinja.Template
}

// of is the template that a conversation is written with.
func (t *Template) of(c Conversation) (*Template, error) {
	switch {
	case c.tools == nil:
		return t, nil
	case t.WithTools == nil:
		return t, t.toolsProblem
	}
	other := *t.WithTools
	other.SpecialTokens, other.Now = t.SpecialTokens, t.Now
	return &other, nil
}

// Parse compiles the source of a template. Errors give its name and the line.
func Parse(name, source string) (*Template, error) {
	t, err := jinja.Compile(name, source)
	if err != nil {
		return nil, fmt.Errorf("reading a chat template: %w", err)
	}
	return &Template{Name: name, Source: source, jinja: t}, nil
}

// Message is one turn of a conversation: a role, a content, and other fields that a
// template may use, such as tool_calls.
type Message struct {
	fields *jinja.Dict
	// ExcludeFromLoss marks an answer that is not trained on.
	ExcludeFromLoss bool
}

// NewMessage returns a message with a text.
func NewMessage(role, content string) Message {
	d := jinja.NewDict()
	d.Set("role", role)
	d.Set("content", content)
	return Message{fields: d}
}

// Role is who speaks: "system", "user", "assistant", "tool".
func (m Message) Role() string {
	role, _ := m.fields.Values["role"].(string)
	return role
}

// isAnswer reports whether the message is the model's.
func (m Message) isAnswer() bool { return m.Role() == "assistant" }

// inLoss reports whether the message is trained on.
func (m Message) inLoss() bool { return m.isAnswer() && !m.ExcludeFromLoss }

// Conversation is a list of messages, with the tools and variables that the template
// gets.
type Conversation struct {
	Messages []Message
	tools    any            // nil for none
	extra    map[string]any // further variables of the template
}

// check refuses a conversation without an answer in the loss.
func (c Conversation) check() error {
	switch {
	case slices.ContainsFunc(c.Messages, Message.inLoss):
		return nil
	case slices.ContainsFunc(c.Messages, Message.isAnswer):
		return errNoWeight
	}
	return errNoAnswer
}

// Text is a conversation as the model reads it.
type Text struct {
	Text    string
	Answers []Span // the parts to train on, in order
}

// Span is a range of bytes.
type Span = jinja.Span

// Render writes a conversation as text. prompt adds what the template writes before an
// answer, so that the model gives one (add_generation_prompt in transformers).
func (t *Template) Render(c Conversation, prompt bool) (string, error) {
	t, err := t.of(c)
	if err != nil {
		return "", err
	}
	r, err := t.render(c, len(c.Messages), prompt)
	return r.Text, err
}

// render renders the first n messages.
func (t *Template) render(c Conversation, n int, prompt bool) (jinja.Rendered, error) {
	return t.jinja.Render(t.variables(c, n, prompt), t.now())
}

// Names of the variables that every template has.
const (
	messagesName = "messages"
	promptName   = "add_generation_prompt"
)

// variables are what the template gets for the first n messages.
func (t *Template) variables(c Conversation, n int, prompt bool) map[string]any {
	list := &jinja.List{Items: make([]any, n)}
	for i, m := range c.Messages[:n] {
		list.Items[i] = m.fields
	}
	v := map[string]any{"tools": c.tools, "documents": nil}
	for name, word := range t.SpecialTokens {
		v[name] = word
	}
	maps.Copy(v, c.extra)
	v[messagesName], v[promptName] = list, prompt
	return v
}

func (t *Template) now() time.Time {
	if t.Now.IsZero() {
		return time.Now()
	}
	return t.Now
}

var (
	errNoAnswer = errors.New("no message is from the assistant, so there is nothing to train on")
	errNoWeight = errors.New("all messages of the assistant have a weight of 0, so there is nothing to train on")
)

// Texts renders a conversation to train on: as one text, or as one text per answer if
// the template renders answers differently once other turns follow.
func (t *Template) Texts(c Conversation) ([]Text, error) {
	t, err := t.of(c)
	if err := errors.Join(err, c.check()); err != nil {
		return nil, err
	}
	if t.jinja.Generation() {
		return t.markedTexts(c)
	}
	return t.comparedTexts(c)
}

// markedTexts takes the answers from the template's {% generation %} blocks, without
// those that are excluded from the loss.
func (t *Template) markedTexts(c Conversation) ([]Text, error) {
	r, err := t.render(c, len(c.Messages), false)
	if err != nil {
		return nil, err
	}
	answers := slices.DeleteFunc(slices.Clone(c.Messages), func(m Message) bool { return !m.isAnswer() })
	if len(answers) != len(r.Generated) {
		return nil, fmt.Errorf("%s marks %d answers, the conversation has %d", t.Name, len(r.Generated), len(answers))
	}
	text := Text{Text: r.Text}
	for i, m := range answers {
		if !m.ExcludeFromLoss {
			text.Answers = append(text.Answers, r.Generated[i])
		}
	}
	return []Text{text}, nil
}

// comparedTexts finds each answer by rendering the conversation without and with it.
func (t *Template) comparedTexts(c Conversation) ([]Text, error) {
	a, err := t.compareAnswers(c)
	if err != nil || a.together {
		return []Text{{Text: a.whole, Answers: a.spans}}, err
	}
	var texts []Text
	for part := range a.spans {
		text, err := t.answerText(c, part)
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// Count returns how many texts Texts makes of a conversation.
func (t *Template) Count(c Conversation) (int, error) {
	t, err := t.of(c)
	if err := errors.Join(err, c.check()); err != nil {
		return 0, err
	}
	if t.jinja.Generation() {
		texts, err := t.markedTexts(c)
		return len(texts), err
	}
	a, err := t.compareAnswers(c)
	if a.together || err != nil {
		return 1, err
	}
	return len(a.spans), nil
}

// Text returns one of the texts that Texts makes of a conversation, if it makes several.
func (t *Template) Text(c Conversation, part int) (Text, error) {
	t, err := t.of(c)
	if err != nil {
		return Text{}, err
	}
	if t.jinja.Generation() {
		texts, err := t.markedTexts(c)
		if err == nil && part >= len(texts) {
			err = fmt.Errorf("the conversation has %d texts, text %d is asked for", len(texts), part+1)
		}
		if err != nil {
			return Text{}, err
		}
		return texts[part], nil
	}
	return t.answerText(c, part)
}

// answerText is the text up to one of the answers in the loss, which is the only one to
// train on in that text.
func (t *Template) answerText(c Conversation, part int) (Text, error) {
	for i, m := range c.Messages {
		if !m.inLoss() {
			continue
		}
		if part--; part < 0 {
			text, at, err := t.textUpTo(c, i, t.rendered(c))
			if err != nil {
				return Text{}, fmt.Errorf("message %d: %w", i+1, err)
			}
			return Text{Text: text.from(0)[:at.End], Answers: []Span{at}}, nil
		}
	}
	return Text{}, errNoAnswer
}

// answers are the answers of a conversation in the loss.
type answers struct {
	whole    string
	spans    []Span // each in the text that ends with it
	together bool   // the whole text begins with each of those texts
}

// maxApart is how many bytes the texts of one conversation may have, if there are several.
const maxApart = 1 << 30

// compareAnswers finds each answer by comparing beginnings of the conversation: in one
// rendering, if the template allows that.
func (t *Template) compareAnswers(c Conversation) (answers, error) {
	if whole, prefixes := t.prefixes(c); prefixes != nil {
		return t.answersIn(c, whole, t.fromPrefixes(c, whole, prefixes))
	}
	return t.compareByOne(c)
}

// compareByOne is compareAnswers with a rendering of every beginning.
func (t *Template) compareByOne(c Conversation) (answers, error) {
	whole, err := t.render(c, len(c.Messages), false)
	if err != nil {
		return answers{}, err
	}
	return t.answersIn(c, whole.Text, t.rendered(c))
}

func (t *Template) answersIn(c Conversation, whole string, render renderer) (answers, error) {
	a := answers{whole: whole, together: true}
	size := 0
	for i, m := range c.Messages {
		if !m.inLoss() {
			continue
		}
		text, at, err := t.textUpTo(c, i, render)
		if err != nil {
			return a, fmt.Errorf("message %d: %w", i+1, err)
		}
		a.spans = append(a.spans, at)
		a.together = a.together && text.beginsWith(whole, at.End)
		if size += at.End; size > maxApart && !a.together {
			return a, fmt.Errorf("message %d: %s renders earlier turns differently once others follow, so every answer becomes a text of its own, with more than %d bytes in all; split the conversation into several", i+1, t.Name, maxApart)
		}
	}
	return a, nil
}

// renderer renders the first n messages, with or without the prompt for an answer.
type renderer func(n int, prompt bool) (beginning, error)

// rendered renders every time.
func (t *Template) rendered(c Conversation) renderer {
	return func(n int, prompt bool) (beginning, error) {
		r, err := t.render(c, n, prompt)
		return beginning{rest: r.Text}, err
	}
}

// prefixes renders all beginnings of a conversation at once; nil if that is not possible.
func (t *Template) prefixes(c Conversation) (whole string, prefixes []jinja.Prefix) {
	r, prefixes := t.jinja.RenderPrefixes(t.variables(c, len(c.Messages), false), t.now(), messagesName, promptName)
	return r.Text, prefixes
}

// fromPrefixes renders only what was not rendered with the whole conversation.
func (t *Template) fromPrefixes(c Conversation, whole string, prefixes []jinja.Prefix) renderer {
	plainly := t.rendered(c)
	return func(n int, prompt bool) (beginning, error) {
		p := prefixes[n]
		switch {
		case !p.Known:
			return plainly(n, prompt)
		case prompt:
			return beginning{whole, p.Common, p.Prompt}, nil
		}
		return beginning{whole, p.Common, p.Plain}, nil
	}
}

// beginning is a text that begins like that of the whole conversation: whole[:common] and
// then rest. So all beginnings together take no more memory than the whole.
type beginning struct {
	whole  string
	common int
	rest   string
}

func (r beginning) len() int { return r.common + len(r.rest) }

// from is the text from byte at on.
func (r beginning) from(at int) string {
	if at < r.common {
		return r.whole[at:r.common] + r.rest
	}
	return r.rest[at-r.common:]
}

// beginsWith reports whether whole begins with the first n bytes.
func (r beginning) beginsWith(whole string, n int) bool {
	return n <= r.common || strings.HasPrefix(whole[r.common:], r.rest[:n-r.common])
}

// hasSuffix reports whether the text ends with the given one.
func (r beginning) hasSuffix(s string) bool {
	return len(s) <= r.len() && r.from(r.len()-len(s)) == s
}

// textUpTo renders the conversation up to answer i, and finds the answer in it. The text ends
// with the answer.
func (t *Template) textUpTo(c Conversation, i int, render renderer) (text beginning, answer Span, err error) {
	given, err := render(i, true)
	if err != nil {
		return text, answer, err
	}
	with, err := render(i+1, false)
	if err != nil {
		return text, answer, err
	}
	start := commonPrefix(given, with)
	end := answerEnd(with, start, given, c.Messages[i])
	if start < given.len() || end < with.len() {
		// The prompt does not lead straight into the answer, or the end is doubtful. The
		// text before the answer, rendered without the prompt for one, decides.
		before, err := render(i, false)
		if err != nil {
			return text, answer, err
		}
		if start < before.len() {
			return text, answer, fmt.Errorf("%s renders the text before an answer differently once the answer is there, from %q on; mark answers with {%% generation %%} in the template",
				t.Name, excerpt(with.from(start)))
		}
		if before != given {
			end = with.len()
		}
	}
	return with, Span{Start: start, End: end}, nil
}

// marker matches the token that ends a turn, such as "</s>" or "<|eot_id|>".
var marker = regexp.MustCompile(`^<[^<>\s]+>`)

// answerEnd finds where an answer that starts at start ends in text. Usually that is
// the end of the text. But a template that ignores add_generation_prompt may already
// have written the start of the next turn after the answer; it did if the prompt,
// given, ends in the same way. Then the answer ends with the marker that follows it.
func answerEnd(text beginning, start int, given beginning, m Message) int {
	content, _ := m.fields.Values["content"].(string)
	content = strings.TrimSpace(content)
	tail := text.from(start)
	at := strings.LastIndex(tail, content)
	if content == "" || at < 0 {
		return text.len()
	}
	after := tail[at+len(content):]
	if !given.hasSuffix(after) {
		return text.len()
	}
	return start + at + len(content) + len(marker.FindString(after))
}

// commonPrefix returns with how many bytes both texts begin. It is not within a character.
func commonPrefix(a, b beginning) int {
	shared := min(a.common, b.common) // of the same whole, unless it is 0
	x, y := a.from(shared), b.from(shared)
	n := 0
	for n < len(x) && n < len(y) && x[n] == y[n] {
		n++
	}
	for n > 0 && n < len(y) && !utf8.RuneStart(y[n]) {
		n--
	}
	return shared + n
}

func excerpt(s string) string {
	const most = 40
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
