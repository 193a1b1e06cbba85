package finetune

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf16"
)

// odd writes a file of data.
func odd(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// The same two pairs in every form that spreadsheets and data sets have give the same documents.
func TestFormsOfOneDataSet(t *testing.T) {
	const lines = `{"prompt":"1, é =","completion":" 2"}` + "\n" + `{"prompt":"b","completion":"c;d"}` + "\n"
	want, err := corpus(t, nil, "data", odd(t, "a.jsonl", lines))
	if err != nil || len(want) != 2 {
		t.Fatal(len(want), err)
	}
	for name, content := range map[string]string{
		"mark.jsonl":      byteOrderMark + lines,
		"lines.json":      lines,
		"list.json":       "[\n" + strings.Replace(lines, "}\n{", "},\n{", 1) + "]\n",
		"marked.json":     byteOrderMark + "[" + strings.Replace(lines, "}\n{", "},\n{", 1) + "]",
		"apart.json":      strings.NewReplacer(",\"", ",\n  \"", "{", "{\n  ").Replace(lines),
		"table.csv":       "prompt,completion\n\"1, é =\",\" 2\"\nb,c;d\n",
		"mark.csv":        byteOrderMark + "prompt,completion\r\n\"1, é =\",\" 2\"\r\nb,c;d\r\n",
		"semicolons.csv":  byteOrderMark + "prompt;completion\n1, é =; 2\nb;\"c;d\"\n",
		"table.tsv":       "prompt\tcompletion\n1, é =\t 2\nb\tc;d\n",
		"mark.tsv":        byteOrderMark + "prompt\tcompletion\n1, é =\t 2\nb\tc;d\n",
		"more.fields.csv": "id,prompt,completion\n1,\"1, é =\",\" 2\"\n2,b,c;d\n",
	} {
		if got, err := corpus(t, nil, "data", odd(t, name, content)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v\nwant %v", name, got, err, want)
		}
	}
	list := "[" + strings.Replace(lines, "}\n{", "},\n{", 1) + "]"
	if got, err := corpus(t, strings.NewReader(list), "data", "-"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("a list on standard input: %v, %v", got, err)
	}
}

// Nothing stands between a prompt and its completion unless the fields have other names or a
// separator is given.
func TestPromptSeparator(t *testing.T) {
	pair := odd(t, "a.jsonl", `{"prompt":"a","completion":"b","question":"a","answer":"b"}`+"\n")
	for want, settings := range map[string][]string{
		"ab": nil, "a\nb": {"fields", "question:answer"}, "a: b": {"prompt-separator", ": "}, "a\\\tb": {"prompt-separator", `\\\t`, "fields", "question:answer"},
	} {
		list, err := corpus(t, nil, append(settings, "data", pair)...)
		if err != nil || len(list) != 1 {
			t.Fatal(len(list), err)
		}
		var got strings.Builder
		for _, token := range list[0].Tokens {
			if token < 128 {
				got.WriteByte(byte(token))
			}
		}
		if strings.TrimRight(got.String(), "\x00\x01\x02") != want {
			t.Errorf("%v gives %q, want %q", settings, got.String(), want)
		}
	}
	if _, err := corpus(t, nil, "data", odd(t, "t.jsonl", `{"text":"a"}`), "prompt-separator", "x"); err == nil || !strings.Contains(err.Error(), "no effect") {
		t.Errorf("a separator of texts: %v", err)
	}
}

// What cannot be read is said with the user's own file, the place in it and what helps.
func TestOddData(t *testing.T) {
	utf := utf16.Encode([]rune("\ufeffprompt,completion\nq,a\n"))
	wide := make([]byte, 0, 2*len(utf))
	for _, u := range utf {
		wide = append(wide, byte(u), byte(u>>8))
	}
	for _, c := range []struct{ name, content, want string }{
		{"qa.jsonl", `{"question":"q","answer":"a","id":"7"}`, "qa.jsonl:1:1: the line has answer, id, question; it takes text"},
		{"qa.jsonl", `{"question":"q","answer":"a","id":"7"}`, "try --fields question:answer, and see with --show-sample"},
		{"typo.jsonl", `{"promt":"q","completion":"a"}`, "try --fields promt:completion"},
		{"body.jsonl", `{"body":"q","n":5}`, "try --fields body,"},
		{"dolly.jsonl", `{"instruction":"q","context":"c","response":"a"}`, "try --format instruct --fields instruction:context:response"},
		{"talk.jsonl", `{"dialog":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`, "try --format chat --fields dialog,"},
		{"none.jsonl", `{"a":1,"b":[1,2]}`, "give the names of the fields with --fields"},
		{"names.csv", "a,b\n1,2\n", "names.csv, row 1: the line has a, b; it takes text"},
		{"names.json", `[{"x":1,"y":2}]`, "names.json, row 1: the line has x, y"},
		{"ragged.csv", "prompt,completion\nq,a\n\nq,a,b\n", "ragged.csv:4: the row has 3 columns, the first line names 2"},
		{"latin.csv", "prompt,completion\ncaf\xe9,a\n", `latin.csv:2: the column "prompt" is not UTF-8`},
		{"one.json", `{"data":[{"prompt":"q","completion":"a"}]}`, "one.json: it is one JSON object, not a list of them"},
		{"cut.json", `[{"prompt":"q","completion":"a"},{"prom`, "cut.json, object 2, before byte"},
		{"open.json", `[{"prompt":"q","completion":"a"}`, "open.json: the list does not end"},
		{"rest.json", `[{"prompt":"q","completion":"a"}] x`, "rest.json: there is more behind the list"},
		{"wide.csv", string(wide), "wide.csv"},
		{"dpo.jsonl", `{"prompt":"q","chosen":"a","rejected":"b"}`, "try --fields prompt:chosen,"},
		{"pairs.jsonl", `{"chosen":[{"role":"user","content":"q"}],"rejected":[{"role":"user","content":"q"}]}`, "try --format chat --fields chosen,"},
		{"hh.jsonl", `{"chosen":"Human: q Assistant: a","rejected":"Human: q Assistant: b"}`, "chosen for the format text"},
		{"kto.jsonl", `{"prompt":"q","completion":"a","label":false}`, "label is true, leave the others out"},
		{"data.zip", "PK\x03\x04\x14\x00\x00\x00", "data.zip is a zip archive; unpack it"},
		{"text.txt", "BZh91AY&SY", "text.txt is compressed with bzip2; unpack it"},
		{"cut.gz", "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x2a\xc9", "cut.gz: the file ends in the middle; fetch it or compress it again"},
		{"text.xz", "\xfd7zXZ\x00\x00", "text.xz is compressed with xz; unpack it"},
	} {
		path := odd(t, c.name, c.content)
		_, err := corpus(t, nil, "data", path)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "spillway-data") {
			t.Errorf("%s: %v\nwant %s", c.name, err, c.want)
		}
	}
	two := odd(t, "two.jsonl", "{\"text\":\"abc\"}\n{\"text\":\"def\"}\n")
	if _, err := corpus(t, nil, "data", two, "eval-split", "0.99"); err == nil || !strings.Contains(err.Error(), "leaves none of 2 documents to train on") {
		t.Errorf("all to evaluate on: %v", err)
	}
	if _, err := corpus(t, nil, "data", t.TempDir()); err == nil || !strings.Contains(err.Error(), "is a folder") {
		t.Errorf("a folder: %v", err)
	}
	list, err := corpus(t, nil, "fields", "prompt:chosen", "data", odd(t, "dpo.jsonl", `{"prompt":"q","chosen":"a","rejected":"b"}`))
	if err != nil || len(list) != 1 {
		t.Errorf("what was chosen: %d documents, %v", len(list), err)
	}
	list, err = corpus(t, nil, "skip-bad-lines", "true", "data", odd(t, "ragged.csv", "prompt,completion\nq,a\nq,a,b\ncaf\xe9,a\nq,b\n"))
	if err != nil || len(list) != 2 {
		t.Errorf("bad rows skipped: %d documents, %v", len(list), err)
	}
}

// Errors name the file that was given, not the copy that is read of a table.
func TestErrorsNameTheTable(t *testing.T) {
	table := odd(t, "chats.csv", "user,assistant\nWho?,I.\n")
	if _, err := corpus(t, nil, "format", "chat", "fields", "user:assistant", "data", table); err == nil || !strings.Contains(err.Error(), "opening "+table) || !strings.Contains(err.Error(), "--chat-template") {
		t.Errorf("%v", err)
	}
}
