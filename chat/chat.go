// Package chat renders conversations with a model's chat template, and finds the parts
// of the rendered text that are the assistant's answers: the parts to train on.
//
// Some templates mark answers with {% generation %}. For the others, each answer is
// found by rendering the conversation twice: up to the answer, as a prompt for it, and
// including the answer. The answer begins where the two texts differ.
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
	Name string // the file it comes from, for errors
	// SpecialTokens are the variables such as bos_token that templates use.
	SpecialTokens map[string]string
	// Now is the date for templates that print one. A fixed date makes training
	// reproducible; the zero value means the current time.
	Now time.Time

	jinja *jinja.Template
}

// Parse compiles the source of a template. Errors give its name and the line.
func Parse(name, source string) (*Template, error) {
	t, err := jinja.Compile(name, source)
	if err != nil {
		return nil, fmt.Errorf("reading a chat template: %w", err)
	}
	return &Template{Name: name, jinja: t}, nil
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

// Conversation is a list of messages, with the tools and variables that the template
// gets.
type Conversation struct {
	Messages []Message
	tools    any            // nil for none
	extra    map[string]any // further variables of the template
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
	r, err := t.render(c, len(c.Messages), prompt)
	return r.Text, err
}

// render renders the first n messages.
func (t *Template) render(c Conversation, n int, prompt bool) (jinja.Rendered, error) {
	list := &jinja.List{Items: make([]any, n)}
	for i, m := range c.Messages[:n] {
		list.Items[i] = m.fields
	}
	v := map[string]any{"messages": list, "tools": c.tools, "documents": nil, "add_generation_prompt": prompt}
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

var errNoAnswer = errors.New("no message is from the assistant, so there is nothing to train on")

// Texts renders a conversation to train on: as one text, or as one text per answer if
// the template renders answers differently once other turns follow.
func (t *Template) Texts(c Conversation) ([]Text, error) {
	inLoss := func(m Message) bool { return m.isAnswer() && !m.ExcludeFromLoss }
	if !slices.ContainsFunc(c.Messages, inLoss) {
		return nil, errNoAnswer
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

// textUpTo renders the conversation up to answer i, the only answer to train on in that
// text.
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
		// The prompt does not lead straight into the answer, or the end is doubtful. The
		// text before the answer, rendered without the prompt for one, decides.
		before, err := t.render(c, i, false)
		if err != nil {
			return Text{}, err
		}
		if start < len(before.Text) {
			return Text{}, fmt.Errorf("%s renders the text before an answer differently once the answer is there, from %q on; mark answers with {%% generation %%} in the template",
				t.Name, excerpt(with.Text[start:]))
		}
		if before.Text != given.Text {
			end = len(with.Text)
		}
	}
	return Text{Text: with.Text[:end], Answers: []Span{{Start: start, End: end}}}, nil
}

// marker matches the token that ends a turn, such as "</s>" or "<|eot_id|>".
var marker = regexp.MustCompile(`^<[^<>\s]+>`)

// answerEnd finds where an answer that starts at start ends in text. Usually that is
// the end of the text. But a template that ignores add_generation_prompt may already
// have written the start of the next turn after the answer; it did if the prompt,
// given, ends in the same way. Then the answer ends with the marker that follows it.
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
