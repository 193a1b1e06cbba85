// Package chat writes conversations as a model expects them, with the template the
// model brings, and says which parts of the text are the model's own answers.
//
// A template that marks answers with {% generation %} says so itself. With any other
// an answer is found by writing the conversation up to it: what the model would be
// given before the answer, and the same with the answer. Where the two part, the
// answer begins.
//
// Some templates write a turn otherwise once others follow it (thoughts of earlier
// turns are left out). Then there is no one text with all answers as the model would
// have given them, and the conversation becomes several texts, one for each answer.
package chat

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"spillway/chat/jinja"
)

// Template is the chat template of a model. It is safe for concurrent use.
type Template struct {
	Name string // for errors: the file it is from
	// Special are the words that templates find by name, such as bos_token.
	SpecialTokens map[string]string
	// Now is what a template that asks for the date is told. A fixed day makes a
	// training repeatable; the zero value is the present.
	Now time.Time

	jinja *jinja.Template
}

// Parse reads the source of a template. Errors call it name and give the line.
func Parse(name, source string) (*Template, error) {
	t, err := jinja.Compile(name, source)
	if err != nil {
		return nil, fmt.Errorf("reading a chat template: %w", err)
	}
	return &Template{Name: name, jinja: t}, nil
}

// Message is one turn of a conversation: a role, a content, and what else a template
// may want, such as tool_calls.
type Message struct {
	fields *jinja.Dict
	// Given: it is not to be learned, although it is an answer.
	ExcludeFromLoss bool
}

// NewMessage is a turn with text.
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

// answer says whether the model speaks.
func (m Message) isAnswer() bool { return m.Role() == "assistant" }

// Conversation is some turns, and what is said about all of them.
type Conversation struct {
	Messages []Message
	tools    any            // nil for none
	extra    map[string]any // further variables of the template
}

// Text is a conversation as a model reads it.
type Text struct {
	Text    string
	Answers []Span // in order; to be learned
}

// Span is a range of bytes.
type Span = jinja.Span

// Render writes a conversation. prompt adds what stands before an answer, so that
// the model gives one.
func (t *Template) Render(c Conversation, prompt bool) (string, error) {
	r, err := t.render(c, len(c.Messages), prompt)
	return r.Text, err
}

// render writes the first n messages.
func (t *Template) render(c Conversation, n int, prompt bool) (jinja.Rendered, error) {
	v := map[string]any{"messages": messageList(c.Messages[:n]), "tools": c.tools, "documents": nil, "add_generation_prompt": prompt}
	for name, word := range t.SpecialTokens {
		v[name] = word
	}
	maps.Copy(v, c.extra)
	now := t.Now
	if now.IsZero() {
		now = time.Now()
	}
	return t.jinja.Render(v, now)
}

func messageList(list []Message) *jinja.List {
	l := &jinja.List{Items: make([]any, len(list))}
	for i, m := range list {
		l.Items[i] = m.fields
	}
	return l
}

var errNoAnswer = errors.New("no message is from the assistant, so there is nothing to learn")

// Texts writes a conversation to be learned from: one text, or one for each answer
// where the template writes answers otherwise once more follows them.
func (t *Template) Texts(c Conversation) ([]Text, error) {
	learned := false
	for _, m := range c.Messages {
		learned = learned || m.isAnswer() && !m.ExcludeFromLoss
	}
	if !learned {
		return nil, errNoAnswer
	}
	if t.jinja.Generation() {
		return t.markedTexts(c)
	}
	return t.comparedTexts(c)
}

// marked takes the answers from the template's own marks. The marks of answers that
// are given are left out.
func (t *Template) markedTexts(c Conversation) ([]Text, error) {
	r, err := t.render(c, len(c.Messages), false)
	if err != nil {
		return nil, err
	}
	var answers []Message
	for _, m := range c.Messages {
		if m.isAnswer() {
			answers = append(answers, m)
		}
	}
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

// found finds each answer by writing the conversation without and with it.
func (t *Template) comparedTexts(c Conversation) ([]Text, error) {
	whole, err := t.render(c, len(c.Messages), false)
	if err != nil {
		return nil, err
	}
	together := Text{Text: whole.Text}
	var apart []Text
	fits := true
	for i, m := range c.Messages {
		if !m.isAnswer() || m.ExcludeFromLoss {
			continue
		}
		text, err := t.textUpTo(c, i)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i+1, err)
		}
		apart = append(apart, text)
		together.Answers = append(together.Answers, text.Answers...)
		fits = fits && strings.HasPrefix(together.Text, text.Text)
	}
	if !fits {
		return apart, nil
	}
	return []Text{together}, nil
}

// upTo is the conversation up to answer i, the only one to be learned in it.
func (t *Template) textUpTo(c Conversation, i int) (Text, error) {
	given, err := t.render(c, i, true)
	if err != nil {
		return Text{}, err
	}
	with, err := t.render(c, i+1, false)
	if err != nil {
		return Text{}, err
	}
	start := commonPrefix(given.Text, with.Text)
	end := answerEnd(with.Text, start, given.Text, c.Messages[i])
	if start < len(given.Text) || end < len(with.Text) {
		// What stands before the answer, without what asks for one, tells the rest.
		before, err := t.render(c, i, false)
		if err != nil {
			return Text{}, err
		}
		if start < len(before.Text) {
			return Text{}, fmt.Errorf("%s writes what is before an answer otherwise once the answer is there, from %q on; mark answers with {%% generation %%} in the template",
				t.Name, excerpt(with.Text[start:]))
		}
		if before.Text != given.Text {
			end = len(with.Text)
		}
	}
	return Text{Text: with.Text[:end], Answers: []Span{{Start: start, End: end}}}, nil
}

// marker is what turns end with: "</s>", "<|eot_id|>".
var marker = regexp.MustCompile(`^<[^<>\s]+>`)

// turnEnd is where an answer ends if the template writes the same whether or not an
// answer is wanted. What it writes after the answer may then hold the start of the
// next one: that is so where the text given ends alike. The answer then ends with the
// marker after it.
func answerEnd(text string, start int, given string, m Message) int {
	content, _ := m.fields.Values["content"].(string)
	content = strings.TrimSpace(content)
	at := strings.LastIndex(text[start:], content)
	if content == "" || at < 0 {
		return len(text)
	}
	end := start + at + len(content)
	if !strings.HasSuffix(given, text[end:]) {
		return len(text)
	}
	return end + len(marker.FindString(text[end:]))
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	for n > 0 && n < len(b) && !utf8.RuneStart(b[n]) {
		n-- // not within a character
	}
	return n
}

func excerpt(s string) string {
	const most = 40
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
