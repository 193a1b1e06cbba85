package data

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// byteTokens is a tokenizer whose tokens are the bytes, after a 256 at the start.
type byteTokens struct{}

func (byteTokens) Encode(text string, addSpecial bool) ([]int32, error) {
	var out []int32
	if addSpecial {
		out = append(out, 256)
	}
	if strings.Contains(text, "REFUSE") {
		return nil, errors.New("refused")
	}
	for _, b := range []byte(text) {
		out = append(out, int32(b))
	}
	return out, nil
}

func file(t testing.TB, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// all reads every record of an opened file, and closes it.
func all(t testing.TB, r *Records, err error) []Record {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out []Record
	for i := range r.Len() {
		rec, err := r.Record(i)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, rec)
	}
	if _, err := r.Record(r.Len()); err == nil {
		t.Error("a record past the end was read")
	}
	return out
}

func collect(t testing.TB, records iter.Seq2[Record, error]) []Record {
	t.Helper()
	var out []Record
	for rec, err := range records {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, rec)
	}
	return out
}

func TestTextIsCutAndWhole(t *testing.T) {
	words := strings.Repeat("The quick brown fox\njumps over the lazy dog. ", 40)
	for name, text := range map[string]string{
		"lines": words, "no spaces": strings.Repeat("x", 1000), "wide": strings.Repeat("漢字", 300), "mixed": strings.Repeat("é😀", 200) + words,
		"short": "ab", "empty": "", "just a piece": strings.Repeat("y", 31) + "\n", "marked": "\xef\xbb\xbfmarked",
	} {
		o := TextOptions{PieceBytes: 32}
		r, err := OpenText(file(t, text), o)
		records := all(t, r, err)
		var joined strings.Builder
		for i, rec := range records {
			joined.WriteString(rec.Text)
			if len(rec.Text) > 32 || rec.Continues != (i > 0) || rec.Unfinished != (i+1 < len(records)) {
				t.Errorf("%s: record %d of %d: %+v", name, i, len(records), rec)
			}
		}
		if joined.String() != strings.TrimPrefix(text, "\xef\xbb\xbf") {
			t.Errorf("%s: the pieces do not make the text: %q", name, joined.String())
		}
		if streamed := collect(t, StreamText(strings.NewReader(text), "pipe", o)); !slices.Equal(streamed, records) {
			t.Errorf("%s: streamed %+v, opened %+v", name, streamed, records)
		}
	}
}

func TestTextSeparators(t *testing.T) {
	long := strings.Repeat("abc ", 30)
	text := "one<|end|>two\n<|end|>\n <|end|>" + long + "<|end|>last"
	o := TextOptions{Separator: "<|end|>", PieceBytes: 40}
	r, err := OpenText(file(t, text), o)
	records := all(t, r, err)
	var documents []string
	for _, rec := range records {
		if rec.Continues {
			documents[len(documents)-1] += rec.Text
		} else {
			documents = append(documents, rec.Text)
		}
	}
	if want := []string{"one", "two\n", "", long, "last"}; !slices.Equal(documents, want) {
		t.Errorf("got %q\nwant %q", documents, want)
	}
	if streamed := collect(t, StreamText(strings.NewReader(text), "pipe", o)); !slices.Equal(streamed, records) {
		t.Errorf("streamed %+v, opened %+v", streamed, records)
	}
	end := int32(7)
	r, err = OpenText(file(t, text), o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	starts, ends := 0, 0
	for d, err := range All(Tokenize(r, byteTokens{}, TokenizeOptions{End: &end})) {
		if err != nil {
			t.Fatal(err)
		}
		for _, token := range d.Tokens {
			if token == 256 {
				starts++
			}
			if token == end {
				ends++
			}
		}
	}
	if starts != 4 || ends != 4 {
		t.Errorf("%d starts and %d ends of 4 documents, one of them in pieces", starts, ends)
	}
	if _, err := OpenText(file(t, ""), TextOptions{PieceBytes: 4}); err == nil {
		t.Error("pieces of 4 bytes were accepted")
	}
}

func TestTextThatIsNot(t *testing.T) {
	for content, says := range map[string]string{
		"fine\nfine\nb\xffd":          ":3: byte 0xff is not UTF-8",
		"fine\nz\x00ro":               ":2: a zero byte",
		"\xff\xfeT\x00e\x00x\x00":     ":1: byte 0xff",
		"ok\ncut at the end \xe6\xbc": ":2: byte 0xe6",
	} {
		name := file(t, content)
		_, err := OpenText(name, TextOptions{})
		if err == nil || !strings.Contains(err.Error(), name+says) || !strings.Contains(err.Error(), "skip bad records") {
			t.Errorf("%q: %v, want %q", content, err, says)
		}
	}
	text := strings.Repeat("good line of text\n", 10) + "bad \xff line\n" + strings.Repeat("good line of text\n", 10)
	o := TextOptions{PieceBytes: 40, SkipBad: true}
	r, err := OpenText(file(t, text), o)
	if err != nil {
		t.Fatal(err)
	}
	if n, first := r.Skipped(); n != 1 || first == nil {
		t.Errorf("skipped %d, first %v", n, first)
	}
	var joined string
	for _, rec := range all(t, r, nil) {
		joined += rec.Text
	}
	if strings.Contains(joined, "bad") || strings.Count(joined, "good") < 18 {
		t.Errorf("left of the text: %q", joined)
	}
	if len(collect(t, StreamText(strings.NewReader(text), "pipe", o))) == 0 {
		t.Error("nothing came of the stream")
	}
}

func TestJSONL(t *testing.T) {
	content := "\xef\xbb\xbf" + `{"text": "one", "other": 1}` + "\n\n  \r\n" + `{"text":"two \u00e9 \ud83d\ude00 \u0000 \ufffd"}` + "\r\n" + `{"text":""}` + "\n" + `{"text":"no newline at the end"}`
	r, err := OpenJSONL(file(t, content), JSONLOptions{})
	records := all(t, r, err)
	want := []Record{{Text: "one"}, {Text: "two é 😀 \x00 \ufffd"}, {}, {Text: "no newline at the end"}}
	if !slices.Equal(records, want) {
		t.Errorf("got %+v", records)
	}
	if streamed := collect(t, StreamJSONL(strings.NewReader(content), "pipe", JSONLOptions{})); !slices.Equal(streamed, want) {
		t.Errorf("streamed %+v", streamed)
	}
	o := JSONLOptions{Prompt: "q", Completion: "a", Join: "\n"}
	r, err = OpenJSONL(file(t, `{"q":"1+1?","a":"2"}`), o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	end := int32(0)
	d, err := Tokenize(r, byteTokens{}, TokenizeOptions{End: &end}).Document(0)
	if want := []int32{256, '1', '+', '1', '?', '\n', '2', 0}; err != nil || !slices.Equal(d.Tokens, want) || d.Prompt != 6 {
		t.Errorf("%v, %v; want %v with a prompt of 6", d, err, want)
	}
	d, err = Tokenize(r, byteTokens{}, TokenizeOptions{LearnPrompts: true}).Document(0)
	if err != nil || d.Prompt != 0 || len(d.Tokens) != 7 {
		t.Errorf("with prompts learned: %v, %v", d, err)
	}
	for _, bad := range []JSONLOptions{{Prompt: "q"}, {Completion: "a"}, {Text: "t", Prompt: "q", Completion: "a"}} {
		if _, err := OpenJSONL(file(t, content), bad); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

func TestHostileJSONL(t *testing.T) {
	good := `{"text":"good"}` + "\n"
	for bad, says := range map[string]string{
		`{"text": 5}`:                              `"text" is not a string`,
		`{"text": null}`:                           `"text" is not a string`,
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
		if err == nil || !strings.Contains(err.Error(), name+":2: ") || !strings.Contains(err.Error(), says) {
			t.Errorf("%.40q: %v, want line 2 and %q", bad, err, says)
		}
		for _, err := range StreamJSONL(strings.NewReader(good+bad+"\n"+good), "pipe", o) {
			if err != nil && !strings.Contains(err.Error(), "pipe:2: ") {
				t.Errorf("%.40q, streamed: %v", bad, err)
			}
		}
		o.SkipBad = true
		r, err := OpenJSONL(name, o)
		records := all(t, r, err)
		if n, first := r.Skipped(); n != 1 || first == nil || len(records) != 2 || records[1].Text != "good" {
			t.Errorf("%.40q: skipped %d (%v), left %+v", bad, n, first, records)
		}
		if streamed := collect(t, StreamJSONL(strings.NewReader(good+bad+"\n"+good), "pipe", o)); !slices.Equal(streamed, records) {
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

func TestTokenFiles(t *testing.T) {
	end := int32(9)
	for _, width := range []int{2, 4} {
		source := made{4, 1, 30, 7}
		var raw bytes.Buffer
		if err := WriteTokens(&raw, All(source), width); err != nil {
			t.Fatal(err)
		}
		if raw.Len() != 42*width {
			t.Fatalf("%d bytes for 42 tokens of %d", raw.Len(), width)
		}
		f, err := OpenTokens(file(t, raw.String()), TokenOptions{Width: width, End: &end, PieceTokens: 20})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var read, want []int32
		for d, err := range All(f) {
			if err != nil {
				t.Fatal(err)
			}
			read = append(read, d.Tokens...)
		}
		for d := range All(source) {
			want = append(want, d.Tokens...)
		}
		if !slices.Equal(read, want) || f.Len() != 3 { // cut after 20 twice: token 9 of 2000.. is 2009, not 9
			t.Errorf("width %d: %d documents, %v", width, f.Len(), read)
		}
	}
	raw := "\x01\x00\x09\x00\x09\x00\x05\x00\x06\x00"
	f, err := OpenTokens(file(t, raw), TokenOptions{Width: 2, End: &end})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var got []string
	for d := range All(f) {
		got = append(got, fmt.Sprint(d.Tokens))
	}
	if s := strings.Join(got, " "); s != "[1 9] [9] [5 6]" {
		t.Errorf("documents by end token: %s", s)
	}
	if _, err := f.Document(3); err == nil {
		t.Error("document 3 of 3 was read")
	}
	for content, o := range map[string]TokenOptions{
		"abc":              {Width: 2},
		"abcd":             {Width: 3},
		"\xff\xff\xff\xff": {Width: 4},
		"\x07\x00\x08\x00": {Width: 2, Vocabulary: 8},
	} {
		if _, err := OpenTokens(file(t, content), o); err == nil {
			t.Errorf("%q with %+v was accepted", content, o)
		}
	}
	many := make(made, 67)
	many[66] = 1 // its token is number 66000
	if WriteTokens(io.Discard, All(many), 2) == nil || WriteTokens(io.Discard, All(many), 4) != nil || WriteTokens(io.Discard, All(many), 3) == nil {
		t.Error("token 66000 fits in 4 bytes, not in 2; 3 is no width")
	}
}

// The blocks a token file is indexed in must leave no seam.
func TestTokenFilesAcrossBlocks(t *testing.T) {
	const n = tokenBlock/2*2 + 777
	raw := make([]byte, 2*n)
	for i := range n {
		raw[2*i], raw[2*i+1] = byte(i), byte(i>>8)
	}
	end := int32(1000)
	f, err := OpenTokens(file(t, string(raw)), TokenOptions{Width: 2, End: &end, PieceTokens: 50000})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at := 0
	for d, err := range All(f) {
		if err != nil {
			t.Fatal(err)
		}
		for k, token := range d.Tokens {
			if token != int32(uint16(at+k)) || token == end && k+1 != len(d.Tokens) {
				t.Fatalf("token %d is %d", at+k, token)
			}
		}
		if at += len(d.Tokens); len(d.Tokens) > 50000 {
			t.Fatalf("a document of %d tokens", len(d.Tokens))
		}
	}
	if at != n {
		t.Errorf("%d tokens, want %d", at, n)
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

// TestGSM8K packs a real data set: no token is lost, prompts are not learned.
func TestGSM8K(t *testing.T) {
	name := findAsset(t, "gsm8k/train.jsonl")
	r, err := OpenJSONL(name, JSONLOptions{Prompt: "question", Completion: "answer", Join: "\n"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.Len() != 7473 {
		t.Fatalf("%d problems, the data set has 7473", r.Len())
	}
	end := int32(257)
	source := Tokenize(r, byteTokens{}, TokenizeOptions{End: &end})
	tokens, learned := 0, 0
	for d, err := range All(source) {
		if err != nil {
			t.Fatal(err)
		}
		tokens += len(d.Tokens)
		learned += len(d.Tokens) - d.Prompt
	}
	l := newLoader(t, source, Config{Length: 4096, Seed: 1, Whole: true, Epochs: 1})
	b := NewBatch(8, 4096)
	gotTokens, gotLearned, rows := 0, 0, 0
	for l.Next(b) == nil {
		gotTokens, gotLearned = gotTokens+b.Real, gotLearned+b.Counted
		rows = int(b.First) + b.Rows
	}
	if gotTokens != tokens || gotLearned != learned {
		t.Errorf("%d tokens, %d learned; the documents have %d and %d", gotTokens, gotLearned, tokens, learned)
	}
	t.Logf("%d tokens in %d rows of 4096: %.1f%% full", tokens, rows, 100*float64(tokens)/float64(rows*4096))
}

// findAsset looks for shared/assets beside any folder above this one.
func findAsset(t *testing.T, name string) string {
	t.Helper()
	dir, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		path := filepath.Join(dir, "shared", "assets", name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Skip("no shared/assets/" + name + " in any folder above: this test wants the real data set")
	return ""
}

// Whatever a file holds: opening it gives an error or the same records as a
// stream of it.
func FuzzFiles(f *testing.F) {
	f.Add([]byte("{\"text\":\"a\"}\n{\"text\":\"b\"}"), "|", false)
	f.Add([]byte("plain text | with parts\nand lines"), "|", true)
	f.Add([]byte("\xef\xbb\xbf{\"text\":\"\\ud800\"}\n\n\x00\xff"), "", true)
	f.Fuzz(func(t *testing.T, content []byte, separator string, skip bool) {
		name := file(t, string(content))
		text := TextOptions{Separator: separator, PieceBytes: leastPiece + 2*len(separator), SkipBad: skip}
		r, err := OpenText(name, text)
		same(t, r, err, StreamText(bytes.NewReader(content), name, text))
		lines := JSONLOptions{LineBytes: 100, SkipBad: skip}
		r, err = OpenJSONL(name, lines)
		same(t, r, err, StreamJSONL(bytes.NewReader(content), name, lines))
	})
}

// same compares an opened file with a stream of it, bad records left out.
func same(t *testing.T, r *Records, opened error, records iter.Seq2[Record, error]) {
	t.Helper()
	var streamed []Record
	for rec, err := range records {
		if err != nil {
			if opened == nil || opened.Error() != err.Error() {
				t.Fatalf("opened: %v\nstreamed: %v", opened, err)
			}
			return
		}
		streamed = append(streamed, rec)
	}
	if opened != nil {
		t.Fatalf("opened: %v, streamed without", opened)
	}
	indexed := all(t, r, nil)
	if n, _ := r.Skipped(); n > 0 {
		blank := func(rec Record) bool { return rec.Text == "" }
		indexed, streamed = slices.DeleteFunc(indexed, blank), slices.DeleteFunc(streamed, blank)
	}
	if !slices.Equal(indexed, streamed) {
		t.Fatalf("opened %+v\nstreamed %+v", indexed, streamed)
	}
}
