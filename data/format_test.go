package data

import (
	"fmt"
	"strings"
	"testing"

	"spillway/chat"
)

const simpleTemplate = `{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}`

// A template that leaves something out of all but the last turn.
const lastTemplate = `{% for m in messages %}<{{ m.role }}>{% if loop.last and m.role == 'assistant' %}hm {% endif %}{{ m.content }};{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}`

func template(source string) func() (*chat.Template, error) {
	return func() (*chat.Template, error) { return chat.Parse("template", source) }
}

// shown is a document as text, with what is in the loss in brackets.
func shown(d Document) string {
	var b strings.Builder
	edge := map[int]string{}
	for _, r := range d.InLoss {
		edge[r.Start] += "["
		edge[r.End] += "]"
	}
	for i, id := range d.Tokens {
		b.WriteString(edge[i])
		if id < 256 {
			b.WriteByte(byte(id))
		}
	}
	return b.String() + edge[len(d.Tokens)]
}

// Lines of each format become the documents one would write by hand; the format is
// recognised by the fields.
func TestFormats(t *testing.T) {
	simple := template(simpleTemplate)
	for name, c := range map[string]struct {
		line string
		o    JSONLOptions
		want []string
	}{
		"text":        {`{"text":"a b"}`, JSONLOptions{}, []string{"a b"}},
		"completion":  {`{"prompt":"q","completion":"a"}`, JSONLOptions{PromptSeparator: " "}, []string{"q [a]"}},
		"named":       {`{"text":"t","body":"b"}`, JSONLOptions{Fields: []string{"body"}}, []string{"b"}},
		"instruct":    {`{"instruction":"Add","input":"1 1","output":"2"}`, JSONLOptions{}, []string{"### Instruction:\nAdd\n\n### Input:\n1 1\n\n### Response:\n[2]"}},
		"no input":    {`{"instruction":"Go","output":"ok"}`, JSONLOptions{}, []string{"### Instruction:\nGo\n\n### Response:\n[ok]"}},
		"empty input": {`{"instruction":"Go","input":"","output":"ok"}`, JSONLOptions{}, []string{"### Instruction:\nGo\n\n### Response:\n[ok]"}},
		"messages": {`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"},{"role":"user","content":"r"},{"role":"assistant","content":"b"}]}`,
			JSONLOptions{Template: simple}, []string{"<user>q</user><assistant>[a</assistant>]<user>r</user><assistant>[b</assistant>]"}},
		"conversations":     {`{"conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"a"}]}`, JSONLOptions{Template: simple}, []string{"<user>q</user><assistant>[a</assistant>]"}},
		"question as chat":  {`{"question":"q","answer":"a"}`, JSONLOptions{Format: Chat, Fields: []string{"question", "answer"}, Template: simple}, []string{"<user>q</user><assistant>[a</assistant>]"}},
		"lists of messages": {`{"prompt":[{"role":"user","content":"q"},{"role":"assistant","content":"x"},{"role":"user","content":"r"}],"completion":[{"role":"assistant","content":"a"}]}`, JSONLOptions{Template: simple}, []string{"<user>q</user><assistant>x</assistant><user>r</user><assistant>[a</assistant>]"}},
		"turns apart": {`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"},{"role":"user","content":"r"},{"role":"assistant","content":"b"}]}`,
			JSONLOptions{Template: template(lastTemplate)}, []string{"<user>q;<assistant>[hm a;]", "<user>q;<assistant>a;<user>r;<assistant>[hm b;]"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := OpenJSONL(file(t, c.line+"\n"+c.line+"\n"), c.o)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			source := Tokenize(r, byteTokens{}, TokenizeOptions{})
			if source.Len() != 2*int64(len(c.want)) {
				t.Fatalf("%d documents, want twice %d", source.Len(), len(c.want))
			}
			for i := range source.Len() {
				d, err := source.Document(i)
				if want := c.want[int(i)%len(c.want)]; err != nil || shown(d) != want {
					t.Errorf("document %d is %q, %v; want %q", i, shown(d), err, want)
				}
			}
		})
	}
}

// The error of a bad line has its number, its column and what would be right.
func TestBadLines(t *testing.T) {
	simple := template(simpleTemplate + "{% if messages[0].role != 'user' %}{{ raise_exception('users first') }}{% endif %}")
	for line, want := range map[string]string{
		`{"messages":[{"role":"user","content":"é"},{]}`:                                             ":2:45: the line is not a JSON object: invalid character ']'",
		`{"messages":"hello"}`:                                                                       `the field "messages"`,
		`{"id":"é", "messages":[{"content":"a"}]}`:                                                   `:2:23: the field "messages": message 1: it has no role; it has content`,
		`{"messages":[{"role":"user","content":"a"}]}`:                                               `:2:13: the field "messages": no message is from the assistant`,
		`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b","weight":0}]}`: `:2:13: the field "messages": all messages of the assistant have a weight of 0`,
		`{"messages":[{"role":"assistant","content":"a"}]}`:                                          `:2:13: the field "messages": template:1: the template refuses this: users first`,
		`{"talk":[]}`: `:2:1: there is no field "messages"; the line has talk`,
		`{"messages":[{"role":"assistant","content":"a"}],"tools":5}`: `:2:58: the field "tools": tools are a list of objects`,
	} {
		good := `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}` + "\n"
		_, err := OpenJSONL(file(t, good+line+"\n"), JSONLOptions{Template: simple})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "correct it, or skip bad records") {
			t.Errorf("%s\n got %v\nwant %s", line, err, want)
		}
		r, err := OpenJSONL(file(t, good+line+"\n"+good), JSONLOptions{Template: simple, SkipBad: true})
		if err != nil {
			t.Fatal(err)
		}
		if n, first := r.Skipped(); n != 1 || first == nil || r.Len() != 2 {
			t.Errorf("%s: %d skipped, %d left", line, n, r.Len())
		}
		r.Close()
	}
	for line, want := range map[string]string{
		`{"question":"q","answer":"a"}`:                "the line has answer, question; it takes text, or prompt and completion",
		`{"messages":[{"role":"user","content":"a"}]}`: "conversations need a chat template",
	} {
		if _, err := OpenJSONL(file(t, line), JSONLOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
	// A broken template is an error of all lines: skipping them would leave nothing.
	if _, err := OpenJSONL(file(t, `{"messages":[]}`), JSONLOptions{SkipBad: true, Template: template("{% bad %}")}); err == nil || !strings.Contains(err.Error(), "template:1: there is no statement") {
		t.Errorf("%v", err)
	}
}

// merging joins a mark with the letter after it into one token, as tokenizers do
// across the borders of answers.
type merging struct{}

func (merging) Encode(text string, _ bool) (ids []int32, err error) {
	for i := 0; i < len(text); i++ {
		if text[i] == '\n' && i+1 < len(text) {
			i++
			ids = append(ids, 1000+int32(text[i]))
			continue
		}
		ids = append(ids, int32(text[i]))
	}
	return ids, nil
}

// A token that has part of an answer is in the loss, even if it also has part of
// what is around the answer.
func TestAnswersWithinTokens(t *testing.T) {
	rec := Record{Text: "q\na\nb", Answers: []chat.Span{{Start: 2, End: 4}}}
	d, err := encodeRecord(rec, merging{}, TokenizeOptions{})
	if err != nil || len(d.Tokens) != 3 || len(d.InLoss) != 1 || d.InLoss[0] != (Range{1, 3}) {
		t.Errorf("%v, %v", d, err)
	}
}

// The answers of one conversation are all trained on or all evaluated on.
func TestSplitKeepsConversations(t *testing.T) {
	var lines strings.Builder
	for i := range 50 {
		fmt.Fprintf(&lines, `{"messages":[{"role":"user","content":"%d"},{"role":"assistant","content":"a"},{"role":"user","content":"r"},{"role":"assistant","content":"b"}]}`+"\n", i)
	}
	var sources []Source
	for range 2 {
		r, err := OpenJSONL(file(t, lines.String()), JSONLOptions{Template: template(lastTemplate)})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		sources = append(sources, Tokenize(r, byteTokens{}, TokenizeOptions{}))
	}
	for name, source := range map[string]Source{"one file": sources[0], "two files": Concat(sources...)} {
		train, eval, err := Split(source, 0.2, 3)
		if err != nil || train.Len() != source.Len()*4/5 || eval.Len() != source.Len()/5 {
			t.Fatalf("%s: %v: %d and %d of %d", name, err, train.Len(), eval.Len(), source.Len())
		}
		for i := int64(0); i < eval.Len(); i += 2 {
			one, err1 := eval.Document(i)
			two, err2 := eval.Document(i + 1)
			if err1 != nil || err2 != nil || !strings.HasPrefix(shown(two), strings.ReplaceAll(strings.ReplaceAll(shown(one), "[hm ", ""), "]", "")) {
				t.Errorf("%s: %q and %q are apart", name, shown(one), shown(two))
			}
		}
	}
}
