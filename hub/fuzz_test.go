package hub

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spillway/internal/bounded"
)

// answers is a hub that says the same every time: a list of files, and for every file the
// same bytes with the same status.
type answers struct {
	list, body []byte
	status     int
}

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	b, status := a.body, a.status
	if strings.HasPrefix(r.URL.Path, "/api/") {
		b, status = a.list, http.StatusOK
	}
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Body: io.NopCloser(bytes.NewReader(b)), Header: http.Header{}, Request: r}, nil
}

// Whatever a hub answers: it is an error, or every file of the model has its checksum; nothing
// is written outside of the model's folder.
func FuzzAnswers(f *testing.F) {
	list := func(name, blob string, size int) string {
		return fmt.Sprintf(`{"sha": %q, "siblings": [{"rfilename": %q, "size": %d, "blobId": %q}]}`, strings.Repeat("ab12", 10), name, size, blob)
	}
	hello := "b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0" // what git calls a file with "hello"
	for _, name := range []string{"config.json", "../config.json", "a/tokenizer.json", "model.safetensors", "x-00001-of-00002.gguf", "config.json/tokenizer.json"} {
		f.Add([]byte(list(name, hello, 5)), []byte("hello"), 200)
	}
	f.Add([]byte(list("config.json", hello, 1<<40)), []byte("hello"), 200)
	f.Add([]byte(list("config.json", hello, -5)), []byte("hello"), 404)
	f.Add([]byte(`{"sha": "x", "siblings": [{"rfilename": "config.json", "size": 5, "lfs": {"sha256": "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", "size": 5}}]}`), []byte("hello"), 206)
	f.Add([]byte(strings.Repeat("[", 1000)), []byte{}, 500)
	f.Fuzz(func(t *testing.T, list, body []byte, status int) {
		root := t.TempDir()
		dir := filepath.Join(root, "models--org--tiny")
		bounded.Check(t, len(list)+len(body), func() {
			p := &puller{model: Model{"org/tiny", "main"}, dir: dir, client: &http.Client{Transport: answers{list, body, status}}}
			p.options = Options{Endpoint: "http://hub.invalid", Wait: time.Nanosecond}
			done, err := p.pull(context.Background())
			if err == nil {
				checkSnapshot(t, done)
			} else if _, err := os.Stat(filepath.Join(dir, "refs", "main")); err == nil {
				t.Error("a pull that failed is the newest revision")
			}
		})
		entries, err := os.ReadDir(root)
		if err != nil || len(entries) > 1 {
			t.Errorf("next to the model's folder there are %v (%v)", entries, err)
		}
	})
}

// checkSnapshot holds the files of a model against the checksums they are named by.
func checkSnapshot(t *testing.T, done *Pulled) {
	files := 0
	err := filepath.WalkDir(done.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		files++
		blob, err := os.Readlink(path)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		named := file{Blob: filepath.Base(blob), Size: int64(len(b))}
		sum := named.hash()
		sum.Write(b)
		if got := hex.EncodeToString(sum.Sum(nil)); got != named.Blob {
			t.Errorf("%s has the checksum %s, it is named %s", path, got, named.Blob)
		}
		return nil
	})
	if err != nil || files > done.Files {
		t.Errorf("%d files of %d (%v)", files, done.Files, err)
	}
}
