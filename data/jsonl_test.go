package data

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestJSONL(t *testing.T) {
	content := "\xef\xbb\xbf" + `{"text": "one", "other": 1}` + "\n\n  \r\n" + `{"text":"two \u00e9 \ud83d\ude00 \u0000 \ufffd"}` + "\r\n" + `{"text":""}` + "\n" + `{"text":"no newline at the end"}`
	r, err := OpenJSONL(file(t, content), JSONLOptions{})
	records := all(t, r, err)
	want := []Record{{Text: "one"}, {Text: "two é 😀 \x00 \ufffd"}, {}, {Text: "no newline at the end"}}
	if !reflect.DeepEqual(records, want) {
		t.Errorf("got %+v", records)
	}
	if streamed := collect(t, streamJSONL(strings.NewReader(content), "pipe", JSONLOptions{})); !reflect.DeepEqual(streamed, want) {
		t.Errorf("streamed %+v", streamed)
	}
	o := JSONLOptions{Fields: []string{"q", "a"}, PromptSeparator: "\n"}
	r, err = OpenJSONL(file(t, `{"q":"1+1?","a":"2"}`), o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	end := int32(0)
	d, err := Tokenize(r, byteTokens{}, TokenizeOptions{End: &end}).Document(0)
	if want := []int32{256, '1', '+', '1', '?', '\n', '2', 0}; err != nil || !slices.Equal(d.Tokens, want) || !slices.Equal(d.InLoss, []Range{{6, 8}}) {
		t.Errorf("%v, %v; want %v with a prompt of 6", d, err, want)
	}
	d, err = Tokenize(r, byteTokens{}, TokenizeOptions{TrainOnPrompts: true}).Document(0)
	if err != nil || d.InLoss != nil || len(d.Tokens) != 7 {
		t.Errorf("with prompts in the loss: %v, %v", d, err)
	}
	for _, bad := range []JSONLOptions{{Fields: []string{"q", ""}}, {Fields: []string{"q", "a", "b"}}, {Format: Chat}, {Format: "song"}} {
		if _, err := OpenJSONL(file(t, content), bad); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

func TestHostileJSONL(t *testing.T) {
	good := `{"text":"good"}` + "\n"
	for bad, says := range map[string]string{
		`{"text": 5}`:                              `"text": it is not a string`,
		`{"text": null}`:                           `"text": it is not a string`,
		`{"txt": "a"}`:                             `no field "text"`,
		`["text"]`:                                 "not a JSON object",
		`null`:                                     `no field "text"`,
		`{"text": "cut`:                            "not a JSON object",
		`{"text":"a"} {"text":"b"}`:                "not a JSON object",
		"{\"text\":\"\x00\"}":                      "not a JSON object",
		"{\"text\":\"\xff\"}":                      "not UTF-8",
		`{"text":"\ud800 alone"}`:                  "half a character",
		strings.Repeat("[", 20000):                 "not a JSON object",
		`{"text":"` + strings.Repeat("x", 2000):    "1000 are allowed",
		strings.Repeat(" ", 3000) + `{"text":"a"}`: "1000 are allowed",
	} {
		o := JSONLOptions{LineBytes: 1000}
		if strings.HasPrefix(bad, "[[") {
			o.LineBytes = 0
		}
		name := file(t, good+bad+"\n"+good)
		_, err := OpenJSONL(name, o)
		if err == nil || !strings.Contains(err.Error(), name+":2:") || !strings.Contains(err.Error(), says) {
			t.Errorf("%.40q: %v, want line 2 and %q", bad, err, says)
		}
		for _, err := range streamJSONL(strings.NewReader(good+bad+"\n"+good), "pipe", o) {
			if err != nil && !strings.Contains(err.Error(), "pipe:2:") {
				t.Errorf("%.40q, streamed: %v", bad, err)
			}
		}
		o.SkipBad = true
		r, err := OpenJSONL(name, o)
		records := all(t, r, err)
		if n, first := r.Skipped(); n != 1 || first == nil || len(records) != 2 || records[1].Text != "good" {
			t.Errorf("%.40q: skipped %d (%v), left %+v", bad, n, first, records)
		}
		if streamed := collect(t, streamJSONL(strings.NewReader(good+bad+"\n"+good), "pipe", o)); !reflect.DeepEqual(streamed, records) {
			t.Errorf("%.40q: streamed %+v", bad, streamed)
		}
	}
}

func TestChangedFileIsAnError(t *testing.T) {
	name := file(t, `{"text":"a"}`+"\n"+`{"text":"b"}`+"\n")
	r, err := OpenJSONL(name, JSONLOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := os.Truncate(name, 16); err != nil {
		t.Fatal(err)
	}
	if rec, err := r.Record(1); err == nil || !strings.Contains(err.Error(), "changed") {
		t.Errorf("%+v, %v", rec, err)
	}
	if _, err := OpenText(t.TempDir(), TextOptions{}); err == nil {
		t.Error("a folder was opened as text")
	}
	if _, err := OpenJSONL(filepath.Join(t.TempDir(), "absent"), JSONLOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an absent file: %v", err)
	}
}

func TestTokenizerErrorsNameTheRecord(t *testing.T) {
	name := file(t, `{"text":"a"}`+"\n"+`{"text":"REFUSE"}`+"\n")
	r, err := OpenJSONL(name, JSONLOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := Tokenize(r, byteTokens{}, TokenizeOptions{}).Document(1); err == nil || !strings.Contains(err.Error(), "record 1") {
		t.Errorf("%v", err)
	}
}

// Indexing takes 8 bytes per document, however large the file is.
func TestIndexIsSmall(t *testing.T) {
	const documents = 20000
	line := `{"text":"` + strings.Repeat("x", 1000) + `"}` + "\n"
	name := file(t, strings.Repeat(line, documents))
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	r, err := OpenJSONL(name, JSONLOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	grown := int64(heap()) - int64(before)
	if r.Len() != documents || grown > 8*documents+64<<10 {
		t.Errorf("%d documents of %d bytes took %d bytes of memory, %d allowed", r.Len(), len(line), grown, 8*documents+64<<10)
	}
	runtime.KeepAlive(r)
}
