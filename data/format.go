package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"spillway/chat"
	"spillway/internal/suggest"
)

// Format says what the lines of a JSONL file hold.
type Format string

// The formats. The default field names stand after the colon.
const (
	Plain      Format = "text"       // a text, all of it in the loss: text
	Completion Format = "completion" // a prompt and its completion, which alone is in the loss: prompt, completion
	Instruct   Format = "instruct"   // an instruction, an optional input and the answer: instruction, input, output
	Chat       Format = "chat"       // a conversation whose answers are in the loss: messages; or two fields, question and answer
)

// Formats lists all formats.
var Formats = []Format{Plain, Completion, Instruct, Chat}

// KnownFields are the names of the fields that formats have by default, and that of the tools
// of a conversation.
var KnownFields = []string{"text", "prompt", "completion", "instruction", "input", "output", "messages", "conversations", "tools"}

// object is one parsed line: its fields by name.
type object map[string]json.RawMessage

func (o object) has(names ...string) bool {
	return !slices.ContainsFunc(names, func(n string) bool { return o[n] == nil })
}

// names lists the field names for error messages, the first eight.
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

// lineReader makes records of one line. There is one reader per format. Only conversations
// may become several records.
type lineReader func(o object, which part) ([]Record, error)

// part says which records of a line are wanted: the one with that number, or a constant.
type part int

const (
	everyPart part = -1 // all
	noPart    part = -2 // none but their number: records without contents
)

// detectFormat recognises the format of a line by the names of its fields.
func detectFormat(o object) (format Format, fields []string, err error) {
	if preferred := o.preferences(); preferred != nil {
		return "", nil, preferred
	}
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
	format, fields = o.guess()
	return "", nil, &FieldsError{Has: o.names(), Format: format, Fields: fields}
}

// FieldsError reports that the first line of a file has no fields of a known format.
type FieldsError struct {
	Has string // the names that it has
	// Format and Fields are what it probably is; no fields where nothing looks likely.
	Format Format
	Fields []string
	// Why says what the line is where its fields are known and there is more to them; "" else.
	Why string
}

func (e *FieldsError) Error() string {
	if e.Why != "" {
		return fmt.Sprintf("the line has %s: %s give the names of the fields, %s for the format %s", e.Has, e.Why, strings.Join(e.Fields, ":"), e.Format)
	}
	text := fmt.Sprintf("the line has %s; it takes text, or prompt and completion, or instruction and output, or messages: give the names of the fields", e.Has)
	if len(e.Fields) > 0 {
		text += fmt.Sprintf(", such as %s for the format %s", strings.Join(e.Fields, ":"), e.Format)
	}
	return text
}

// Names that data sets give to what a model reads and to what it is to answer.
var (
	promptNames = []string{"prompt", "question", "query", "problem", "instruction", "input", "source", "user", "human"}
	answerNames = []string{"completion", "answer", "response", "output", "solution", "target", "reply", "assistant", "label"}
)

// guess says what a line of an unknown format probably is: a conversation where a field is a
// list of objects, a prompt and its answer where names say so, a text where it has one string.
func (o object) guess() (Format, []string) {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if isTalk(o[name]) {
			return Chat, []string{name}
		}
		if len(o[name]) > 0 && o[name][0] == '"' {
			texts = append(texts, name)
		}
	}
	find := func(names []string) string {
		for _, name := range names {
			if slices.Contains(texts, name) {
				return name
			}
		}
		return suggest.Nearest(names[0], texts) // misspelt
	}
	prompt, context, answer := find(promptNames), o.first("input", "context"), find(answerNames)
	switch {
	case prompt != "" && answer != "" && prompt != answer && prompt == "instruction" && context != "":
		return Instruct, []string{prompt, context, answer}
	case prompt != "" && answer != "" && prompt != answer:
		return Completion, []string{prompt, answer}
	case len(texts) == 1:
		return Plain, texts
	}
	return "", nil
}

// preferences is the error of lines that say which answer is better, as TRL has them for DPO and KTO; nil for other lines. Trained on as
// if they were examples, they would teach the worse answers too.
func (o object) preferences() error {
	e := &FieldsError{Has: o.names(), Format: Completion, Fields: []string{"prompt", "chosen"}}
	switch e.Why = "pairs of a chosen and a rejected answer are for a loss that compares them (DPO: examples/dpo); to train on what was chosen alone,"; {
	case o.has("chosen", "rejected") && isTalk(o["chosen"]):
		e.Format, e.Fields = Chat, []string{"chosen"}
		if isTalk(o["prompt"]) {
			e.Fields = []string{"prompt", "chosen"}
		}
	case o.has("chosen", "rejected", "prompt"):
	case o.has("chosen", "rejected"):
		e.Format, e.Fields = Plain, []string{"chosen"}
	case o.has("prompt", "completion", "label") && isBool(o["label"]):
		e.Why = "completions with a label (KTO) are not all to be learned; to train on those whose label is true, leave the others out and"
		if e.Fields = []string{"prompt", "completion"}; isList(o["prompt"]) {
			e.Format = Chat
		}
	default:
		return nil
	}
	return e
}

// isBool says whether a value is true or false.
func isBool(raw json.RawMessage) bool { return string(raw) == "true" || string(raw) == "false" }

// isTalk says whether a value is a list of messages, with a role or a sender.
func isTalk(raw json.RawMessage) bool {
	var list []object
	return isList(raw) && json.Unmarshal(raw, &list) == nil && len(list) > 0 && list[0].first("role", "from") != ""
}

// first is the first of some names that the line has; "" if it has none of them.
func (o object) first(names ...string) string {
	for _, name := range names {
		if o.has(name) {
			return name
		}
	}
	return ""
}

// formatReader returns the reader of a format whose fields have the given names. No
// names means the default ones.
func (o JSONLOptions) formatReader(format Format, fields []string) (lineReader, error) {
	defaults := map[Format][]string{Plain: {"text"}, Completion: {"prompt", "completion"}, Instruct: {"instruction", "input", "output"}, Chat: {"messages"}}[format]
	if defaults == nil {
		return nil, fmt.Errorf("unknown data format %q; there are %v", format, Formats)
	}
	if len(fields) == 0 {
		fields = defaults
	}
	question := format == Chat && len(fields) == 2
	if len(fields) != len(defaults) && !question || slices.Contains(fields, "") {
		return nil, fmt.Errorf("fields %s for data of format %s; it takes %d, by default %s", strings.Join(fields, ":"), format, len(defaults), strings.Join(defaults, ":"))
	}
	switch format {
	case Plain:
		return func(l object, _ part) ([]Record, error) {
			texts, err := l.texts(fields...)
			return []Record{{Text: texts[0]}}, err
		}, nil
	case Completion:
		return func(l object, _ part) ([]Record, error) {
			texts, err := l.texts(fields...)
			return []Record{{Prompt: texts[0] + o.PromptSeparator, Text: texts[1]}}, err
		}, nil
	case Instruct:
		return func(l object, _ part) ([]Record, error) { return instructRecord(l, fields) }, nil
	}
	if o.Template == nil {
		return nil, errors.New("conversations need a chat template, and there is none: give one, or name a field with text")
	}
	t, err := o.Template()
	return func(l object, which part) ([]Record, error) { return chatRecords(l, fields, t, which) }, err
}

// instructRecord writes instruction, input and answer under the headings of the Alpaca
// data set, for models that have no chat template.
func instructRecord(o object, fields []string) ([]Record, error) {
	texts, err := o.texts(fields[0], fields[2])
	prompt := "### Instruction:\n" + texts[0] + "\n\n"
	if raw, ok := o[fields[1]]; err == nil && ok && string(raw) != "null" {
		var input []string
		if input, err = o.texts(fields[1]); input[0] != "" {
			prompt += "### Input:\n" + input[0] + "\n\n"
		}
	}
	return []Record{{Prompt: prompt + "### Response:\n", Text: texts[1]}}, err
}

// chatRecords renders a conversation with the model's chat template.
func chatRecords(o object, fields []string, t *chat.Template, which part) ([]Record, error) {
	c, err := conversation(o, fields)
	if err != nil {
		return nil, err
	}
	var texts []chat.Text
	switch which {
	case everyPart:
		texts, err = t.Texts(c)
	case noPart:
		var n int
		n, err = t.Count(c)
		texts = make([]chat.Text, n)
	default:
		texts = make([]chat.Text, 1)
		texts[0], err = t.Text(c, int(which))
	}
	if err != nil {
		return nil, &fieldError{fields[0], err}
	}
	records := make([]Record, len(texts))
	for i, text := range texts {
		records[i] = Record{Text: text.Text, Answers: text.Answers}
	}
	return records, nil
}

// conversation reads a conversation from one field with a list of messages, or from two
// fields, a question and an answer, each a text or a list of messages. Of two fields
// only the second counts in the loss. The field tools, if there is one, lists the tools.
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

// fieldMessages reads the messages of field number i. A field that holds a text instead
// of a list is one message: by the user in field 0, by the assistant in field 1.
func fieldMessages(o object, raw json.RawMessage, field string, i int) ([]chat.Message, error) {
	if isList(raw) {
		return chat.ParseMessages(raw)
	}
	texts, err := o.texts(field)
	if err != nil {
		return nil, errors.New("it is neither a list of messages nor a text")
	}
	return []chat.Message{chat.NewMessage([]string{"user", "assistant"}[i], texts[0])}, nil
}

func isList(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '[' }
