package data

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

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
		if streamed := collect(t, streamText(strings.NewReader(text), "pipe", o)); !reflect.DeepEqual(streamed, records) {
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
	if streamed := collect(t, streamText(strings.NewReader(text), "pipe", o)); !reflect.DeepEqual(streamed, records) {
		t.Errorf("streamed %+v, opened %+v", streamed, records)
	}
	end := int32(7)
	r, err = OpenText(file(t, text), o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	starts, ends := 0, 0
	for d, err := range sourceDocuments(Tokenize(r, byteTokens{}, TokenizeOptions{End: &end})) {
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
	if len(collect(t, streamText(strings.NewReader(text), "pipe", o))) == 0 {
		t.Error("nothing came of the stream")
	}
}
