package finetune

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"spillway"
	"spillway/data"
	"spillway/recipe"
)

// corpus reads data with the settings given, as name and value.
func corpus(t *testing.T, stdin io.Reader, settings ...string) (list []data.Document, err error) {
	t.Helper()
	r := recipe.New()
	r.Data.Stdin = stdin
	for i := 0; i < len(settings); i += 2 {
		if err := r.Flags().Set(settings[i], settings[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	m, err := spillway.Open("tiny-llama")
	if err != nil {
		t.Fatal(err)
	}
	c, err := OpenCorpus(r, m, nil)
	if err != nil {
		return nil, err
	}
	for i := range c.documents.Len() {
		d, err := c.documents.Document(i)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, d)
	}
	return list, errors.Join(c.Close(), m.Close())
}

func table(name string) string { return filepath.Join("..", "data", "parquet", "testdata", name) }

// template is a file with a chat template.
func template(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "chat.jinja")
	text := "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// Tables as the hub has them give the documents that the same data gives as JSON lines, token
// for token.
func TestParquetIsReadAsJSONLines(t *testing.T) {
	for name, settings := range map[string][]string{"chats": {"chat-template", template(t)}, "questions": {"fields", "question:answer"}} {
		want, err := corpus(t, nil, append(settings, "data", table(name+".jsonl"))...)
		if err != nil || len(want) != 40 || want[3].InLoss == nil {
			t.Fatalf("%s: %d documents, %v", name, len(want), err)
		}
		got, err := corpus(t, nil, append(settings, "data", table(name+".parquet"))...)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %d documents, %v; want %d", name, len(got), err, len(want))
		}
	}
	if _, err := corpus(t, nil, "data", table("questions.parquet")); err == nil || !strings.Contains(err.Error(), "question, answer, rest") || !strings.Contains(err.Error(), "--fields") {
		t.Errorf("columns of other names: %v", err)
	}
	if _, err := corpus(t, nil, "data", table("brotli.parquet")); err == nil || !strings.Contains(err.Error(), "brotli.parquet, row 1: ") {
		t.Errorf("a codec that is not read: %v", err)
	}
}

// Standard input, named pipes and compressed files give the documents of the file itself.
func TestDataThatIsReadOnce(t *testing.T) {
	settings := []string{"fields", "question:answer"}
	plain := table("questions.jsonl")
	want, err := corpus(t, nil, append(settings, "data", plain)...)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(plain)
	if err != nil {
		t.Fatal(err)
	}
	var zipped, packed bytes.Buffer
	z := gzip.NewWriter(&zipped)
	s, err := zstd.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []io.WriteCloser{z, s} {
		if _, err := w.Write(raw); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	same := func(what string, stdin []byte, name string) {
		t.Helper()
		got, err := corpus(t, bytes.NewReader(stdin), append(settings, "data", name)...)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %d documents, %v; want %d", what, len(got), err, len(want))
		}
	}
	same("standard input", raw, "-")
	same("standard input, compressed", zipped.Bytes(), "-")
	same("a gzip file", nil, file("q.jsonl.gz", zipped.Bytes()))
	same("a zstd file", nil, file("q.jsonl.zst", packed.Bytes()))
	table, err := os.ReadFile(table("questions.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	var packedTable bytes.Buffer
	z = gzip.NewWriter(&packedTable)
	if _, err := z.Write(table); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	same("a table, compressed again", nil, file("q.parquet.gz", packedTable.Bytes()))

	for name, content := range map[string][]byte{"plain": raw, "gzip": zipped.Bytes(), "zstd": packed.Bytes()} {
		pipe := filepath.Join(dir, "pipe-"+name)
		if err := exec.Command("mkfifo", pipe).Run(); err != nil {
			t.Skip("no pipes here")
		}
		go func() {
			if err := os.WriteFile(pipe, content, 0); err != nil {
				t.Error(err)
			}
		}()
		same("a pipe with "+name, nil, pipe)
	}
	for what, c := range map[string]struct {
		content []byte
		want    string
	}{"cut short": {zipped.Bytes()[:zipped.Len()/2], "the file ends in the middle; fetch it or compress it again"}, "another": {append([]byte{0x1f, 0x8b}, raw...), "decompressing"}} {
		if _, err := corpus(t, nil, append(settings, "data", file("bad.jsonl.gz", c.content))...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A run that read a pipe says what it needs to be continued.
func TestResumingWithoutThePipe(t *testing.T) {
	for name, want := range map[string]string{"-": "standard input is empty; a run that read its data from there", "/dev/fd/863": "give the same data again", "none.txt": "there is no file none.txt; check", "a.txt,b.txt": "several files are --data a.txt --data b.txt"} {
		if _, err := corpus(t, strings.NewReader(""), "data", name, "resume", "true"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A copy ends before the disk is full.
func TestCopiesLeaveRoom(t *testing.T) {
	w := &roomWriter{w: io.Discard, dir: "/tmp/x", free: func(string) (int64, error) { return 1000, nil }}
	if _, err := w.Write(make([]byte, 900)); err != nil {
		t.Error(err)
	}
	if _, err := w.Write(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "TMPDIR") {
		t.Errorf("beyond nine tenths: %v", err)
	}
}
