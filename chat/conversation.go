package chat

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"spillway/chat/jinja"
)

// roles maps the role names of some data sets to the usual ones.
var roles = map[string]string{"human": "user", "gpt": "assistant", "bot": "assistant", "model": "assistant", "chatgpt": "assistant"}

// ParseMessages reads a JSON list of messages: objects with role and content, or with
// from and value (the ShareGPT format). An answer with a weight of 0 is excluded from
// the loss.
func ParseMessages(raw json.RawMessage) ([]Message, error) {
	v, err := jinja.FromJSON(raw)
	if err != nil {
		return nil, err
	}
	list, ok := v.(*jinja.List)
	if !ok || len(list.Items) == 0 {
		return nil, errors.New("messages are a list of objects with role and content, at least one")
	}
	messages := make([]Message, len(list.Items))
	for i, item := range list.Items {
		if messages[i], err = parseMessage(item); err != nil {
			return nil, fmt.Errorf("message %d: %w", i+1, err)
		}
	}
	return messages, nil
}

func parseMessage(v any) (m Message, err error) {
	d, ok := v.(*jinja.Dict)
	if !ok {
		return m, errors.New("it is not an object with role and content")
	}
	m.fields = d
	if from, ok := d.Values["from"].(string); ok && d.Values["role"] == nil {
		m.fields = fromLegacy(d, from)
	}
	role, ok := m.fields.Values["role"].(string)
	if !ok || role == "" {
		return m, fmt.Errorf("it has no role; it has %s", strings.Join(d.Names(), ", "))
	}
	m.ExcludeFromLoss = d.Values["weight"] == int64(0) || d.Values["weight"] == 0.0
	aliasReasoning(m.fields)
	return m, m.checkContent()
}

// checkContent refuses messages that have neither content nor tool calls.
func (m Message) checkContent() error {
	switch m.fields.Values["content"].(type) {
	case string, *jinja.List:
		return nil
	case nil:
		if m.fields.Values["tool_calls"] != nil {
			return nil
		}
		return errors.New("it has no content")
	}
	return errors.New("its content is neither a text nor a list of parts")
}

// fromLegacy turns a message with from and value into one with role and content.
func fromLegacy(old *jinja.Dict, from string) *jinja.Dict {
	d := jinja.NewDict()
	d.Set("role", cmp.Or(roles[from], from))
	d.Set("content", old.Values["value"])
	for _, k := range old.Names() {
		if k != "from" && k != "value" {
			d.Set(k, old.Values[k])
		}
	}
	return d
}

// reasoningNames are the fields in which data sets put the reasoning of a message.
// Templates read the first or the second.
var reasoningNames = []string{"reasoning_content", "thinking", "reasoning"}

// aliasReasoning stores the reasoning of a message under both names that templates
// read.
func aliasReasoning(d *jinja.Dict) {
	for _, name := range reasoningNames {
		if v := d.Values[name]; v != nil {
			d.Set("reasoning_content", v)
			if d.Values["thinking"] == nil {
				d.Set("thinking", v)
			}
			return
		}
	}
}

// SetTools sets the tools of the conversation, a JSON list.
func (c *Conversation) SetTools(raw json.RawMessage) error {
	v, err := jinja.FromJSON(raw)
	if s, ok := v.(string); ok && err == nil { // some data sets have the list as a string
		v, err = jinja.FromJSON([]byte(s))
	}
	if err != nil {
		return fmt.Errorf("tools: %w", err)
	}
	if _, ok := v.(*jinja.List); !ok && v != nil {
		return errors.New("tools are a list of objects")
	}
	c.tools = v
	return nil
}

// SetVariable sets a further variable of the template to a JSON value, such as
// enable_thinking to false.
func (c *Conversation) SetVariable(name string, raw json.RawMessage) error {
	v, err := jinja.FromJSON(raw)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if c.extra == nil {
		c.extra = map[string]any{}
	}
	c.extra[name] = v
	return nil
}
