package inference

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strings"

	"spillway/chat"
	"spillway/generate"
)

// Message is a turn of a conversation.
type Message struct {
	Role    string `json:"role"` // system, user or assistant
	Content string `json:"content"`
}

// Template opens the chat template of the model, or the one of the settings.
func (m *Model) Template() (*chat.Template, error) {
	var t *chat.Template
	var err error
	if file := m.chatTemplate(); file != "" {
		t, err = chat.OpenFile(file, m.Folder.Dir)
	} else {
		t, err = chat.Open(m.Folder.Dir)
	}
	if errors.Is(err, chat.ErrNoTemplate) {
		if errors.Unwrap(err) == chat.ErrNoTemplate { // the file where it was looked for last says nothing
			err = chat.ErrNoTemplate
		}
		return nil, fmt.Errorf("%s cannot hold a conversation: %w; name one with --chat-template, or use generate, which continues texts", m.Name, err)
	}
	return t, err
}

// EncodeChat turns a conversation into tokens, up to where the model answers.
func (m *Model) EncodeChat(t *chat.Template, messages []Message) ([]int32, error) {
	return m.EncodeConversation(t, conversation(messages))
}

// EncodeConversation is EncodeChat of messages with whatever fields the template reads, and of tools.
func (m *Model) EncodeConversation(t *chat.Template, c chat.Conversation) ([]int32, error) {
	text, err := t.Render(c, true)
	if err != nil {
		return nil, err
	}
	tok, err := m.Tokenizer()
	if err != nil {
		return nil, err
	}
	return tok.Encode(text, false) // the template writes the special tokens
}

func conversation(messages []Message) (c chat.Conversation) {
	for _, m := range messages {
		c.Messages = append(c.Messages, chat.NewMessage(m.Role, m.Content))
	}
	return c
}

// TurnEnds are the tokens that end an answer: those that end a text, and what the template
// writes after an answer, where that is a special token.
func (m *Model) TurnEnds(t *chat.Template) ([]int32, error) {
	ends := slices.Clone(m.Defaults.StopTokens)
	tok, err := m.Tokenizer()
	if err != nil {
		return nil, err
	}
	add := func(id int32) {
		if !slices.Contains(ends, id) {
			ends = append(ends, id)
		}
	}
	if id, ok := tok.ID(t.SpecialTokens["eos_token"]); ok {
		add(id)
	}
	const answer = "Answer"
	text, err := t.Render(conversation([]Message{{"user", "Question"}, {"assistant", answer}}), false)
	if err != nil {
		return ends, nil // a template that wants other conversations has said what it is about
	}
	at := strings.LastIndex(text, answer) // a template's own words before may have it too
	if at < 0 || at+len(answer) == len(text) {
		return ends, nil
	}
	ids, err := tok.Encode(text[at+len(answer):], false)
	if err != nil {
		return nil, err
	}
	if len(ids) > 0 && tok.Special(ids[0]) {
		add(ids[0])
	}
	return ends, nil
}

// Chat is a conversation with a model. What was said before stays in the engine's memory, so
// that every turn computes new tokens only.
type Chat struct {
	// Request says how answers are generated; its prompt and sequence are the chat's.
	Request generate.Request
	// Statistics are those of the last answer.
	Statistics generate.Statistics

	engine   *Engine
	template *chat.Template
	messages []Message
	sequence generate.Sequence // nil before the first turn
}

// NewChat begins a conversation.
func (e *Engine) NewChat() (*Chat, error) {
	t, err := e.Model.Template()
	if err != nil {
		return nil, err
	}
	c := &Chat{engine: e, template: t}
	c.Request.Sampler = e.Model.Defaults.Sampler
	c.Request.StopTokens, err = e.Model.TurnEnds(t)
	return c, err
}

// Messages are what was said so far.
func (c *Chat) Messages() []Message { return c.messages }

// SetMessages replaces what was said so far.
func (c *Chat) SetMessages(list []Message) { c.messages = slices.Clone(list) }

// System is the system message, "" for none.
func (c *Chat) System() string {
	if len(c.messages) > 0 && c.messages[0].Role == "system" {
		return c.messages[0].Content
	}
	return ""
}

// SetSystem replaces the system message; "" takes it away.
func (c *Chat) SetSystem(text string) {
	if c.System() != "" {
		c.messages = c.messages[1:]
	}
	if text != "" {
		c.messages = append([]Message{{"system", text}}, c.messages...)
	}
}

// Clear forgets all but the system message.
func (c *Chat) Clear() {
	system := c.System()
	c.messages = nil
	c.SetSystem(system)
}

// Retry takes back the last answer and the question before it, which it returns.
func (c *Chat) Retry() (question string, ok bool) {
	for i := len(c.messages) - 1; i >= 0; i-- {
		if c.messages[i].Role == "user" {
			question, c.messages = c.messages[i].Content, c.messages[:i]
			return question, true
		}
	}
	return "", false
}

// Ask says something and yields the answer as it comes. An answer that ctx ends early stays
// in the conversation, as far as it came; what fails does not change it.
func (c *Chat) Ask(ctx context.Context, text string) iter.Seq2[generate.Piece, error] {
	return func(yield func(generate.Piece, error) bool) {
		asked := append(slices.Clone(c.messages), Message{"user", text})
		g, err := c.begin(asked)
		if err != nil {
			yield(generate.Piece{}, err)
			return
		}
		for piece, err := range g.All(ctx) {
			if !yield(piece, err) {
				break
			}
		}
		c.Statistics = g.Statistics()
		if results := g.Results(); len(results) > 0 && (results[0].End != "" || results[0].Text != "") {
			c.messages = append(asked, Message{"assistant", results[0].Text})
		}
	}
}

func (c *Chat) begin(messages []Message) (*generate.Generation, error) {
	ids, err := c.engine.Model.EncodeChat(c.template, messages)
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, errors.New("the chat template writes nothing for this conversation; say something")
	}
	if c.sequence == nil {
		if c.sequence, err = c.engine.Add(ids[:1]); err != nil {
			return nil, err
		}
	}
	r := c.Request
	r.Prompt, r.Sequence = ids, c.sequence
	if room := c.engine.Context() - len(ids); r.MaxNewTokens > room && room > 0 {
		r.MaxNewTokens = room
	}
	g, err := c.engine.Generate(r)
	var long *generate.LengthError
	if errors.As(err, &long) {
		err = fmt.Errorf("the conversation has %d tokens, the context is %d: /clear begins a new one", long.Prompt, long.Context)
		if more := min(2*int64(long.Context), cmp.Or(c.engine.Model.Info.Context, math.MaxInt64)); more >= int64(long.Prompt) { // never more than the model was made for
			err = fmt.Errorf("%w, --context %d makes room for more", err, more)
		}
		return nil, err
	}
	return g, err
}

// Close frees what the conversation holds.
func (c *Chat) Close() error {
	if c.sequence == nil {
		return nil
	}
	return c.sequence.Close()
}

// conversationFile is a conversation in a file: an object per line as train reads it.
type conversationFile struct {
	Messages []Message `json:"messages"`
}

// WriteMessages writes a conversation as a line of JSON, as train --data reads it.
func WriteMessages(w io.Writer, list []Message) error {
	return json.NewEncoder(w).Encode(conversationFile{Messages: list})
}

// ReadMessages reads a conversation that WriteMessages wrote. What it would lose, such as calls of tools or a second conversation, is
// an error.
func ReadMessages(r io.Reader) ([]Message, error) {
	var f conversationFile
	from := json.NewDecoder(io.LimitReader(r, maxConversation))
	from.DisallowUnknownFields()
	if err := from.Decode(&f); err != nil {
		return nil, fmt.Errorf("reading a conversation of messages with role and content: %w", err)
	}
	if from.More() {
		return nil, errors.New("reading a conversation: there is something behind the first; give each a file of its own")
	}
	if len(f.Messages) == 0 {
		return nil, errors.New("reading a conversation: it has no messages")
	}
	return f.Messages, nil
}

// maxConversation bounds a file with a conversation, in bytes.
const maxConversation = 64 << 20
