package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// fakeHub behaves as the hub does: a list of files with checksums, files of git served from
// it, large ones by a redirect to another host, ranges. Faults are set by the tests.
type fakeHub struct {
	t      *testing.T
	hub    *httptest.Server
	cdn    *httptest.Server
	commit string

	mu       sync.Mutex
	files    map[string][]byte
	requests []string // method and path of what was asked for
	sent     atomic.Int64

	token  string              // that is needed; "" for none
	cut    func(n int64) int64 // how many bytes of an answer are sent before the connection ends
	status func() int          // instead of an answer; 0 for none
	damage bool                // contents are not those of the checksum
	whole  bool                // ranges are ignored
}

func newHub(t *testing.T, files map[string][]byte) *fakeHub {
	t.Helper()
	h := &fakeHub{t: t, files: files, commit: strings.Repeat("ab12", 10)}
	h.hub, h.cdn = httptest.NewServer(http.HandlerFunc(h.serve)), httptest.NewServer(http.HandlerFunc(h.content))
	t.Cleanup(h.hub.Close)
	t.Cleanup(h.cdn.Close)
	t.Setenv("HF_HOME", t.TempDir())
	for _, key := range []string{"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} {
		t.Setenv(key, "")
	}
	t.Setenv("HF_ENDPOINT", h.hub.URL)
	return h
}

func large(name string) bool { return strings.HasSuffix(name, ".safetensors") }

func (h *fakeHub) serve(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.requests = append(h.requests, r.Method+" "+r.URL.Path)
	h.mu.Unlock()
	if h.token != "" && r.Header.Get("Authorization") != "Bearer "+h.token {
		http.Error(w, "no", http.StatusUnauthorized)
		return
	}
	if h.status != nil {
		if code := h.status(); code != 0 {
			http.Error(w, "fault", code)
			return
		}
	}
	if strings.HasPrefix(r.URL.Path, "/api/models/org/tiny/revision/") {
		h.list(w)
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, "/org/tiny/resolve/"+strings.Repeat("ab12", 10)+"/")
	switch {
	case !ok || h.file(name) == nil:
		http.NotFound(w, r)
	case large(name):
		http.Redirect(w, r, h.cdn.URL+"/"+name, http.StatusFound)
	default:
		h.send(w, r, name)
	}
}

func (h *fakeHub) file(name string) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.files[name]
}

func (h *fakeHub) content(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "" {
		h.t.Error("the token was sent to another host")
	}
	h.send(w, r, strings.TrimPrefix(r.URL.Path, "/"))
}

func (h *fakeHub) list(w http.ResponseWriter) {
	type lfs struct {
		SHA256 string `json:"sha256"`
		Size   int64  `json:"size"`
	}
	type sibling struct {
		Name string `json:"rfilename"`
		Size int64  `json:"size"`
		Blob string `json:"blobId"`
		LFS  *lfs   `json:"lfs,omitempty"`
	}
	var list []sibling
	for name, b := range h.files {
		git := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(b)), b...))
		s := sibling{name, int64(len(b)), hex.EncodeToString(git[:]), nil}
		if large(name) {
			sum := sha256.Sum256(b)
			s.LFS = &lfs{hex.EncodeToString(sum[:]), int64(len(b))}
		}
		list = append(list, s)
	}
	json.NewEncoder(w).Encode(map[string]any{"sha": h.commit, "siblings": list})
}

func (h *fakeHub) send(w http.ResponseWriter, r *http.Request, name string) {
	b, from := h.file(name), int64(0)
	if text, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok && !h.whole {
		from, _ = strconv.ParseInt(strings.TrimSuffix(text, "-"), 10, 64)
		if from >= int64(len(b)) {
			http.Error(w, "range", http.StatusRequestedRangeNotSatisfiable)
			return
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(b)-1, len(b)))
		w.Header().Set("Content-Length", strconv.FormatInt(int64(len(b))-from, 10))
		w.WriteHeader(http.StatusPartialContent)
	} else {
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	}
	b = b[from:]
	if h.damage && len(b) > 0 {
		b = append([]byte{b[0] ^ 1}, b[1:]...)
	}
	if h.cut != nil {
		if n := h.cut(int64(len(b))); n < int64(len(b)) {
			w.Write(b[:n])
			h.sent.Add(n)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
	}
	w.Write(b)
	h.sent.Add(int64(len(b)))
}

func tinyModel() map[string][]byte {
	r := rand.New(rand.NewPCG(3, 4))
	weights := make([]byte, 300_000)
	for i := range weights {
		weights[i] = byte(r.Uint32())
	}
	return map[string][]byte{
		"config.json": []byte(`{"model_type": "llama"}`), "tokenizer.json": []byte(`{}`), "README.md": []byte("hello"),
		"model.safetensors": weights, "pytorch_model.bin": []byte("the same again"), "onnx/model.onnx": []byte("x"),
	}
}

func pull(t *testing.T, o Options) (*Pulled, error) {
	t.Helper()
	o.Wait = time.Millisecond
	return Pull(t.Context(), "org/tiny", o)
}

// sameFiles holds a snapshot against what the hub has.
func sameFiles(t *testing.T, dir string, h *fakeHub, names ...string) {
	t.Helper()
	for _, name := range names {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != string(h.files[name]) {
			t.Errorf("%s has %d bytes, want %d (%v)", name, len(b), len(h.files[name]), err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(names) {
		t.Errorf("the snapshot has %v, want %v (%v)", entries, names, err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "..", "..", "blobs", "*.*"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A pull makes the layout of huggingface_hub, fetches one kind of weights, and a second one
// fetches nothing.
// The environment names the cache as huggingface_hub reads it, with ~ and $NAME, and a folder of the cache gives its name back.
func TestCacheOfTheEnvironment(t *testing.T) {
	home := t.TempDir()
	commit := strings.Repeat("ab12", 10)
	for _, key := range []string{"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"} {
		t.Setenv(key, "")
	}
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home) // on Windows
	t.Setenv("MODELS", filepath.Join(home, "models"))
	for value, want := range map[string]string{"~": "hub", "~/here": "here/hub", "$MODELS/b": "models/b/hub", "${MODELS}": "models/hub"} {
		t.Setenv("HF_HOME", value)
		if got, err := Dir(); err != nil || got != filepath.Join(home, filepath.FromSlash(want)) {
			t.Errorf("HF_HOME=%s: %s, %v", value, got, err)
		}
	}
	t.Setenv("HF_HOME", "~other") // no home of ours
	if got, err := Dir(); err != nil || got != filepath.Join("~other", "hub") {
		t.Errorf("%s, %v", got, err)
	}
	t.Setenv("HF_HUB_CACHE", "~/cache")
	folder := filepath.Join(home, "cache", "models--org--tiny", "snapshots", commit)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	found, err := Find("org/tiny@" + commit)
	if err != nil || found != folder {
		t.Errorf("%s, %v", found, err)
	}
	if m, ok := NameOf(found); !ok || m.ID != "org/tiny" || m.Revision != commit {
		t.Errorf("%+v, %v", m, ok)
	}
	for _, other := range []string{home, filepath.Dir(found), filepath.Join(home, "models--org--tiny", "snapshots", "main")} {
		if m, ok := NameOf(other); ok {
			t.Errorf("%s is %v", other, m)
		}
	}
}

func TestPull(t *testing.T) {
	model := tinyModel()
	model["additional_chat_templates/tool_use.jinja"] = []byte("tools")
	h := newHub(t, model)
	if _, err := Find("org/tiny"); err == nil || !strings.Contains(err.Error(), "spillway pull org/tiny") {
		t.Errorf("before the pull: %v", err)
	}
	var last, total int64
	got, err := pull(t, Options{Progress: func(a, b int64) { last, total = a, b }})
	if err != nil {
		t.Fatal(err)
	}
	sameFiles(t, got.Dir, h, "config.json", "tokenizer.json", "model.safetensors", "additional_chat_templates/tool_use.jinja")
	if last != total || total != got.Bytes || got.Fetched != got.Bytes {
		t.Errorf("progress ended at %d of %d, %+v", last, total, got)
	}
	found, err := Find("org/tiny")
	if err != nil || found != got.Dir {
		t.Errorf("found %s, pulled %s (%v)", found, got.Dir, err)
	}
	link, err := os.Readlink(filepath.Join(got.Dir, "model.safetensors"))
	sum := sha256.Sum256(h.files["model.safetensors"])
	if err != nil || link != filepath.Join("..", "..", "blobs", hex.EncodeToString(sum[:])) {
		t.Errorf("the weights are a link to %s (%v)", link, err)
	}
	again, err := pull(t, Options{})
	if err != nil || again.Fetched != 0 {
		t.Errorf("the second pull fetched %d bytes (%v)", again.Fetched, err)
	}
}

// A connection that breaks again and again is continued where it ended.
func TestPullGoesOn(t *testing.T) {
	h := newHub(t, tinyModel())
	r := rand.New(rand.NewPCG(5, 6))
	h.cut = func(n int64) int64 { h.mu.Lock(); defer h.mu.Unlock(); return min(n, 1+r.Int64N(60_000)) }
	got, err := pull(t, Options{})
	if err != nil {
		t.Fatal(err)
	}
	sameFiles(t, got.Dir, h, "config.json", "tokenizer.json", "model.safetensors")
	if sent := h.sent.Load(); sent != got.Bytes {
		t.Errorf("%d bytes were sent for files of %d", sent, got.Bytes)
	}
}

// A pull that was given up, or whose hub was down, goes on with what it has.
func TestPullIsKept(t *testing.T) {
	h := newHub(t, tinyModel())
	h.cut = func(n int64) int64 { return min(n, 1000) }
	ctx, stop := context.WithCancel(t.Context())
	_, err := Pull(ctx, "org/tiny", Options{Wait: time.Millisecond, Progress: func(have, _ int64) {
		if have > 100_000 {
			stop()
		}
	}})
	if err == nil {
		t.Fatal("a pull that was given up came to its end")
	}
	if _, err := Find("org/tiny"); err == nil {
		t.Error("half a model is found")
	}
	h.cut = nil
	before := h.sent.Load()
	got, err := pull(t, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if sent := h.sent.Load() - before; sent > got.Bytes-90_000 {
		t.Errorf("going on, %d bytes of %d were sent again", sent, got.Bytes)
	}
	sameFiles(t, got.Dir, h, "config.json", "tokenizer.json", "model.safetensors")
}

// A hub that ignores ranges sends a file again from its beginning.
func TestPullWithoutRanges(t *testing.T) {
	h := newHub(t, tinyModel())
	h.whole = true
	var cuts atomic.Int64
	h.cut = func(n int64) int64 {
		if n > 1000 && cuts.Add(1) < 3 {
			return n / 2
		}
		return n
	}
	got, err := pull(t, Options{})
	if err != nil {
		t.Fatal(err)
	}
	sameFiles(t, got.Dir, h, "config.json", "tokenizer.json", "model.safetensors")
}

// A hub that ignores ranges and never sends the whole file is given up.
func TestPullWithoutEnd(t *testing.T) {
	h := newHub(t, tinyModel())
	h.whole, h.cut = true, func(n int64) int64 { return n / 2 }
	if _, err := pull(t, Options{}); err == nil || !strings.Contains(err.Error(), "pull again") {
		t.Errorf("half of every file: %v", err)
	}
	if _, err := Find("org/tiny"); err == nil {
		t.Error("half a model is found")
	}
}

// A connection over which nothing comes any more is given up, and the rest of the file fetched over another.
func TestPullOverASilentNetwork(t *testing.T) {
	h := newHub(t, tinyModel())
	var silences atomic.Int64
	content := h.hub.Config.Handler
	h.hub.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/tokenizer.json") && silences.Add(1) == 1 {
			b := h.file("tokenizer.json")
			w.Header().Set("Content-Length", strconv.Itoa(len(b)))
			w.Write(b[:len(b)/2])
			http.NewResponseController(w).Flush()
			<-r.Context().Done() // the other side has given up
			return
		}
		content.ServeHTTP(w, r)
	})
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	got, err := Pull(ctx, "org/tiny", Options{Wait: time.Millisecond, Idle: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	sameFiles(t, got.Dir, h, "config.json", "tokenizer.json", "model.safetensors")
	if silences.Load() < 2 { // a busy computer may be taken for a silent one, and asked again
		t.Errorf("the file was asked for %d times", silences.Load())
	}
	for _, text := range []string{"0", "-1", "soon", "nan"} {
		t.Setenv("HF_HUB_DOWNLOAD_TIMEOUT", text)
		if _, err := Pull(ctx, "org/tiny", Options{}); err == nil || !strings.Contains(err.Error(), "number of seconds") {
			t.Errorf("a timeout of %q: %v", text, err)
		}
	}
}

// Faults of the hub: what passes is tried again, what does not is said with what to do.
func TestFaultsOfTheHub(t *testing.T) {
	h := newHub(t, tinyModel())
	var n atomic.Int64
	h.status = func() int {
		if n.Add(1)%2 == 1 {
			return http.StatusServiceUnavailable
		}
		return 0
	}
	if got, err := pull(t, Options{}); err != nil {
		t.Error(err)
	} else {
		sameFiles(t, got.Dir, h, "config.json", "tokenizer.json", "model.safetensors")
	}
	for code, say := range map[int]string{503: "pull again", 404: "spelling", 403: "terms", 401: "spelling", 418: "418"} {
		h.status = func() int { return code }
		if _, err := pull(t, Options{}); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%d: %v", code, err)
		}
	}
	h.status = nil
	h.token = "secret"
	if _, err := pull(t, Options{}); err == nil || !strings.Contains(err.Error(), "HF_TOKEN") {
		t.Errorf("without a token: %v", err)
	}
	t.Setenv("HF_TOKEN", "secret\n") // as of files of variables
	if _, err := pull(t, Options{}); err != nil {
		t.Errorf("with a token: %v", err)
	}
}

// What huggingface_hub takes for a prohibition forbids here too, and nothing else does.
func TestNothingIsFetchedOffline(t *testing.T) {
	for _, c := range []struct{ hub, transformers, says string }{
		{"1", "", "HF_HUB_OFFLINE=1"}, {"true", "", "HF_HUB_OFFLINE=true"}, {"ON", "", "HF_HUB_OFFLINE=ON"}, {"Yes", "", "HF_HUB_OFFLINE=Yes"},
		{"", "1", "TRANSFORMERS_OFFLINE=1"}, {"", "TRUE", "TRANSFORMERS_OFFLINE=TRUE"}, {"0", "1", ""}, {"false", "", ""}, {"", "no", ""}, {"2", "", ""},
	} {
		newHub(t, tinyModel())
		t.Setenv("HF_HUB_OFFLINE", c.hub)
		t.Setenv("TRANSFORMERS_OFFLINE", c.transformers)
		_, err := pull(t, Options{})
		if (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("HF_HUB_OFFLINE=%s TRANSFORMERS_OFFLINE=%s: %v", c.hub, c.transformers, err)
		}
	}
}

// Damaged contents never become part of a model.
func TestDamageIsFound(t *testing.T) {
	h := newHub(t, tinyModel())
	h.damage = true
	if _, err := pull(t, Options{}); err == nil || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("damaged: %v", err)
	}
	if _, err := Find("org/tiny"); err == nil {
		t.Error("a damaged model is found")
	}
	h.damage = false
	if got, err := pull(t, Options{}); err != nil {
		t.Error(err)
	} else {
		sameFiles(t, got.Dir, h, "config.json", "tokenizer.json", "model.safetensors")
	}
}

// A branch that moves while its files are pulled does not mix two commits: the files are those
// of the list.
func TestBranchMovesMeanwhile(t *testing.T) {
	h := newHub(t, tinyModel())
	h.status = func() int { // after the list was sent
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.requests) > 1 {
			h.commit = strings.Repeat("cd34", 10)
		}
		return 0
	}
	got, err := pull(t, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Commit != strings.Repeat("ab12", 10) {
		t.Errorf("pulled commit %s", got.Commit)
	}
	sameFiles(t, got.Dir, h, "config.json", "tokenizer.json", "model.safetensors")
}

// A file that changes while it is fetched, though its name says that it cannot, is found by its
// checksum; what is there then is fetched anew, once.
func TestFileChangesMeanwhile(t *testing.T) {
	h := newHub(t, tinyModel())
	old := h.files["model.safetensors"]
	cut := false
	h.cut = func(n int64) int64 {
		h.mu.Lock()
		defer h.mu.Unlock()
		if n > 1000 && !cut { // half of it is fetched, then it is another one
			cut = true
			other := slices.Clone(old)
			for i := range other {
				other[i] ^= 0x55
			}
			h.files["model.safetensors"] = other
			return n / 2
		}
		return n
	}
	if _, err := pull(t, Options{}); err == nil || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("changed: %v", err)
	}
	if _, err := Find("org/tiny"); err == nil {
		t.Error("a mixture of two files is found")
	}
	h.files["model.safetensors"] = old
	got, err := pull(t, Options{})
	if err != nil {
		t.Fatal(err)
	}
	sameFiles(t, got.Dir, h, "config.json", "tokenizer.json", "model.safetensors")
}

// A disk that is full while files are stored is said, and what was fetched is gone on with.
func TestDiskIsFull(t *testing.T) {
	h := newHub(t, tinyModel())
	var room atomic.Int64
	room.Store(100_000)
	store := func(f *os.File, b []byte) (int, error) {
		if left := room.Add(-int64(len(b))); left < 0 {
			n, _ := f.Write(b[:max(len(b)+int(left), 0)])
			return n, &os.PathError{Op: "write", Path: f.Name(), Err: syscall.ENOSPC}
		}
		return f.Write(b)
	}
	if _, err := pull(t, Options{store: store}); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "make room") {
		t.Errorf("a full disk: %v", err)
	}
	if _, err := Find("org/tiny"); err == nil {
		t.Error("half a model is found")
	}
	before := h.sent.Load()
	got, err := pull(t, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if sent := h.sent.Load() - before; sent > got.Bytes-90_000 {
		t.Errorf("with room again, %d bytes of %d were sent", sent, got.Bytes)
	}
	sameFiles(t, got.Dir, h, "config.json", "tokenizer.json", "model.safetensors")
}

// Hostile lists are refused before anything is fetched.
func TestHostileListsAreRefused(t *testing.T) {
	for _, name := range []string{"../x.safetensors", "/etc/x.safetensors", "a/../../x.safetensors", "a\\b.safetensors", "", "./config.json"} {
		newHub(t, map[string][]byte{name: []byte("x"), "config.json": []byte("{}")})
		if _, err := pull(t, Options{}); err == nil || !strings.Contains(err.Error(), "names a file") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// Two pulls at once fetch every file once.
func TestPullsShare(t *testing.T) {
	h := newHub(t, tinyModel())
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() {
			if _, err := Pull(t.Context(), "org/tiny", Options{Wait: time.Millisecond}); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	dir, err := Find("org/tiny")
	if err != nil {
		t.Fatal(err)
	}
	sameFiles(t, dir, h, "config.json", "tokenizer.json", "model.safetensors")
	want := int64(len(h.files["config.json"]) + len(h.files["tokenizer.json"]) + len(h.files["model.safetensors"]))
	if sent := h.sent.Load(); sent != want {
		t.Errorf("%d bytes were sent for files of %d", sent, want)
	}
}

// Of several GGUF files one is chosen by a pattern.
func TestChoosingFiles(t *testing.T) {
	h := newHub(t, map[string][]byte{"m-Q4_K_M.gguf": []byte("four"), "m-Q8_0-00001-of-00002.gguf": []byte("eight"), "m-Q8_0-00002-of-00002.gguf": []byte("more")})
	if _, err := pull(t, Options{}); err == nil || !strings.Contains(err.Error(), "2 models in GGUF files") {
		t.Errorf("without a pattern: %v", err)
	}
	if _, err := pull(t, Options{Files: []string{"*Q5*"}}); err == nil || !strings.Contains(err.Error(), "m-Q4_K_M.gguf") {
		t.Errorf("a pattern without a file: %v", err)
	}
	got, err := pull(t, Options{Files: []string{"*Q8_0*"}})
	if err != nil {
		t.Fatal(err)
	}
	sameFiles(t, got.Dir, h, "m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf")
}

// The weights of a model are fetched once, in the files that transformers takes: not as other programs or in other types have them too.
func TestWeightsAreFetchedOnce(t *testing.T) {
	for files, want := range map[string]string{
		"model.safetensors consolidated.safetensors model.fp16.safetensors pytorch_model.bin":                                                                                                   "model.safetensors",
		"model-00001-of-00002.safetensors model-00002-of-00002.safetensors model.safetensors.index.json consolidated.safetensors pytorch_model.bin.index.json pytorch_model-00001-of-00001.bin": "model-00001-of-00002.safetensors model-00002-of-00002.safetensors model.safetensors.index.json",
		"model.safetensors model.safetensors.index.json model-00001-of-00001.safetensors":                                                                                                       "model.safetensors", // as transformers, which looks for one file first
		"model.safetensors.index.json a-1.safetensors a-2.safetensors":                                                                                                                          "a-1.safetensors a-2.safetensors model.safetensors.index.json",
		"adapter_model.safetensors adapter_model.bin":                                                                                                                                           "adapter_model.safetensors",
		"model.safetensors adapter_model.safetensors":                                                                                                                                           "adapter_model.safetensors model.safetensors",
		"consolidated.safetensors":                 "consolidated.safetensors",
		"pytorch_model.bin pytorch_model.fp16.bin": "pytorch_model.bin",
		"pytorch_model.fp16.bin":                   "pytorch_model.fp16.bin",
		"adapter_model.bin training_args.bin":      "adapter_model.bin",
		"sub/model.safetensors pytorch_model.bin":  "pytorch_model.bin",
	} {
		all := map[string][]byte{"config.json": []byte("{}"), "README.md": []byte("x")}
		for name := range strings.FieldsSeq(files) {
			all[name] = []byte(name)
		}
		h := newHub(t, all)
		got, err := pull(t, Options{})
		if err != nil {
			t.Fatalf("%s: %v", files, err)
		}
		there := append(strings.Fields(want), "config.json")
		sameFiles(t, got.Dir, h, there...)
		if got.Files != len(there) {
			t.Errorf("%s: %d files, want %s and config.json", files, got.Files, want)
		}
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{"org/name": "org/name", "Qwen/Qwen2.5-0.5B@v1": "Qwen/Qwen2.5-0.5B@v1", "a/b@main": "a/b"} {
		if m, ok := ParseName(name); !ok || m.String() != want {
			t.Errorf("%s is %v, %v", name, m, ok)
		}
	}
	for _, name := range []string{"name", "a/b/c", "../b", "a/..", "a b/c", "/a/b", "a/b@", "a/b@../x", "a--b/c", "-a/b"} {
		if m, ok := ParseName(name); ok {
			t.Errorf("%q is taken for %v", name, m)
		}
	}
}
