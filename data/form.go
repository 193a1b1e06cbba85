package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"spillway/chat"
)

// Form is what the lines of a file hold.
type Format string

// The forms, each with the names its fields usually have.
const (
	Plain      Format = "text"       // a text, all of it learned: text
	Completion Format = "completion" // a prompt and what is to follow it: prompt, completion
	Instruct   Format = "instruct"   // an instruction, input to it if any, and the answer: instruction, input, output
	Chat       Format = "chat"       // a conversation, of which answers are learned: messages; or a question and an answer
)

// Forms lists them.
var Formats = []Format{Plain, Completion, Instruct, Chat}

// object is a line as JSON has it.
type object map[string]json.RawMessage

func (o object) has(names ...string) bool {
	for _, n := range names {
		if _, ok := o[n]; !ok {
			return false
		}
	}
	return true
}

// names of the fields, for errors.
func (o object) names() string {
	list := slices.Sorted(maps.Keys(o))
	if len(list) == 0 {
		return "no fields"
	}
	const most = 8
	if len(list) > most {
		list = append(list[:most], "…")
	}
	return strings.Join(list, ", ")
}

// reader makes records of the lines of one form.
type lineReader func(o object) ([]Record, error)

// recognise finds the form of a line by its fields.
func detectFormat(o object) (form Format, fields []string, err error) {
	switch {
	case o.has("messages"):
		return Chat, []string{"messages"}, nil
	case o.has("conversations"):
		return Chat, []string{"conversations"}, nil
	case o.has("prompt", "completion"):
		if isList(o["prompt"]) {
			return Chat, []string{"prompt", "completion"}, nil
		}
		return Completion, nil, nil
	case o.has("instruction", "output"):
		return Instruct, nil, nil
	case o.has("text"):
		return Plain, nil, nil
	}
	return "", nil, fmt.Errorf("the line has %s; it takes text, or prompt and completion, or instruction and output, or messages: name the fields if they are called otherwise",
		o.names())
}

// formReader is the reader of a form whose fields have given names; none are the usual.
func (o JSONLOptions) formatReader(form Format, fields []string) (lineReader, error) {
	usual := map[Format][]string{Plain: {"text"}, Completion: {"prompt", "completion"}, Instruct: {"instruction", "input", "output"}, Chat: {"messages"}}[form]
	if usual == nil {
		return nil, fmt.Errorf("there is no form %q of data; there are %v", form, Formats)
	}
	if len(fields) == 0 {
		fields = usual
	}
	question := form == Chat && len(fields) == 2
	if len(fields) != len(usual) && !question || slices.Contains(fields, "") {
		return nil, fmt.Errorf("fields %s for data of the form %s; it takes %d, usually %s", strings.Join(fields, ":"), form, len(usual), strings.Join(usual, ":"))
	}
	switch form {
	case Plain:
		return func(l object) ([]Record, error) { return plainRecord(l, fields[0]) }, nil
	case Completion:
		return func(l object) ([]Record, error) { return completionRecord(l, fields, o.PromptSeparator) }, nil
	case Instruct:
		return func(l object) ([]Record, error) { return instructRecord(l, fields) }, nil
	}
	if o.Template == nil {
		return nil, errors.New("conversations need a chat template, and there is none: give one, or name a field with text")
	}
	t, err := o.Template()
	return func(l object) ([]Record, error) { return chatRecords(l, fields, t) }, err
}

func plainRecord(o object, field string) ([]Record, error) {
	text, err := stringField(o, field)
	return []Record{{Text: text}}, err
}

func completionRecord(o object, fields []string, join string) ([]Record, error) {
	prompt, err := stringField(o, fields[0])
	if err != nil {
		return nil, err
	}
	text, err := stringField(o, fields[1])
	return []Record{{Prompt: prompt + join, Text: text}}, err
}

// instructRecord writes headings above the parts of a line, as models are trained
// with that have no template of their own.
func instructRecord(o object, fields []string) ([]Record, error) {
	instruction, err := stringField(o, fields[0])
	if err != nil {
		return nil, err
	}
	answer, err := stringField(o, fields[2])
	if err != nil {
		return nil, err
	}
	prompt := "### Instruction:\n" + instruction + "\n\n"
	if raw, ok := o[fields[1]]; ok && string(raw) != "null" {
		input, err := stringField(o, fields[1])
		if err != nil {
			return nil, err
		}
		if input != "" {
			prompt += "### Input:\n" + input + "\n\n"
		}
	}
	return []Record{{Prompt: prompt + "### Response:\n", Text: answer}}, nil
}

// chatRecords writes a conversation with the template of the model.
func chatRecords(o object, fields []string, t *chat.Template) ([]Record, error) {
	c, err := conversation(o, fields)
	if err != nil {
		return nil, err
	}
	texts, err := t.Texts(c)
	if err != nil {
		return nil, &fieldError{fields[0], err}
	}
	records := make([]Record, len(texts))
	for i, text := range texts {
		records[i] = Record{Text: text.Text, Answers: text.Answers}
	}
	return records, nil
}

// conversation is a list of messages, with tools if the line has them, or a question
// and an answer: texts, or lists of messages of which the second are learned.
func conversation(o object, fields []string) (c chat.Conversation, err error) {
	for i, field := range fields {
		raw, ok := o[field]
		if !ok {
			return c, &fieldError{"", fmt.Errorf("there is no field %q; the line has %s", field, o.names())}
		}
		messages, err := fieldMessages(o, raw, field, i)
		if err != nil {
			return c, &fieldError{field, err}
		}
		for k := range messages {
			messages[k].ExcludeFromLoss = messages[k].ExcludeFromLoss || i == 0 && len(fields) == 2
		}
		c.Messages = append(c.Messages, messages...)
	}
	if raw, ok := o["tools"]; ok {
		if err := c.SetTools(raw); err != nil {
			return c, &fieldError{"tools", err}
		}
	}
	return c, nil
}

// turns are the messages of a field; a text is what the user says in the first, the
// assistant in the second.
func fieldMessages(o object, raw json.RawMessage, field string, i int) ([]chat.Message, error) {
	if isList(raw) {
		return chat.ParseMessages(raw)
	}
	text, err := stringField(o, field)
	if err != nil {
		return nil, errors.New("it is neither a list of messages nor a text")
	}
	return []chat.Message{chat.NewMessage([]string{"user", "assistant"}[i], text)}, nil
}

func isList(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '[' }
