package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"spillway/internal/vfs"
	"spillway/units"
)

// Options of a pull. The zero value is fine.
type Options struct {
	// Files are patterns of further files to fetch, as path.Match has them; they replace the
	// usual choice.
	Files []string
	// Progress is called with how many bytes there are now of how many, by several goroutines.
	Progress func(have, total int64)
	// Endpoint, Token: of the hub; those of the environment where they are empty.
	Endpoint, Token string
	// Wait is how long to wait before trying again for the first time; 1 s where it is 0.
	Wait time.Duration
	// Idle is how long a file may come without a byte before it is asked for again; where it is 0, what
	// HF_HUB_DOWNLOAD_TIMEOUT says in seconds, else 30 s.
	Idle time.Duration

	store func(f *os.File, b []byte) (int, error) // writes, where a test has faults; nil is a plain write
}

// Pulled is what a pull did.
type Pulled struct {
	Dir     string // the model's folder
	Commit  string
	Files   int
	Bytes   int64 // of all files
	Fetched int64 // of them over the network, now
}

// parallel is how many files are fetched at once, tries how often a file is tried without a
// byte of progress.
const (
	parallel = 4
	tries    = 5
)

// maxAnswer bounds the list of files that the hub sends.
const maxAnswer = 64 << 20

// Pull fetches what is missing of a model into the cache. What was fetched before, also in
// part, is not fetched again.
func Pull(ctx context.Context, name string, o Options) (*Pulled, error) {
	m, ok := ParseName(name)
	if !ok {
		return nil, fmt.Errorf("%q is not the name of a model on the hub: org/name, or org/name@revision", name)
	}
	if by := offline(); by != "" {
		return nil, fmt.Errorf("pulling %s: %s is set, so nothing is fetched", m, by)
	}
	dir, err := m.folder()
	if err != nil {
		return nil, err
	}
	p := &puller{model: m, dir: dir, options: o, client: &http.Client{Transport: transport()}}
	p.options.Endpoint = strings.TrimRight(cmp.Or(o.Endpoint, os.Getenv("HF_ENDPOINT"), "https://huggingface.co"), "/")
	p.options.Token = cmp.Or(o.Token, token())
	if p.options.Idle == 0 {
		if p.options.Idle, err = idle(); err != nil {
			return nil, fmt.Errorf("pulling %s: %w", m, err)
		}
	}
	done, err := p.pull(ctx)
	if err != nil {
		return nil, fmt.Errorf("pulling %s: %w", m, err)
	}
	return done, nil
}

// transport gives up on a server that does not answer, not on one that sends slowly.
func transport() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = 30 * time.Second
	return t
}

// idle is Options.Idle by the variable that huggingface_hub reads.
func idle() (time.Duration, error) {
	text := os.Getenv("HF_HUB_DOWNLOAD_TIMEOUT")
	if text == "" {
		return 30 * time.Second, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n > 0) || n > 1e6 {
		return 0, fmt.Errorf("HF_HUB_DOWNLOAD_TIMEOUT=%q; it is a number of seconds, such as 30", text)
	}
	return time.Duration(n * float64(time.Second)), nil
}

// offline is the variable that forbids fetching, read as huggingface_hub does; "" where none does.
func offline() string {
	for _, key := range []string{"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} { // the second counts where the first is empty
		switch v := os.Getenv(key); strings.ToUpper(v) {
		case "":
			continue
		case "1", "ON", "YES", "TRUE":
			return key + "=" + v
		}
		return ""
	}
	return ""
}

// token of the user, from where huggingface_hub has it; "" for none. Line breaks around one come of files that it was read from.
func token() string {
	for _, key := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"} {
		if t := strings.TrimSpace(os.Getenv(key)); t != "" {
			return t
		}
	}
	file := os.Getenv("HF_TOKEN_PATH")
	if home, err := homeDir(); file == "" && err == nil {
		file = filepath.Join(home, "token")
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

// puller fetches one model.
type puller struct {
	model   Model
	commit  string // that files are asked for, so that a branch may move meanwhile
	dir     string
	options Options
	client  *http.Client

	mu                   sync.Mutex
	have, total, fetched int64
}

// file is one that the hub has.
type file struct {
	Name string `json:"rfilename"`
	Size int64  `json:"size"`
	Blob string `json:"blobId"` // checksum of a file that git has
	LFS  *struct {
		SHA256 string `json:"sha256"`
		Size   int64  `json:"size"`
	} `json:"lfs"`
}

// sum is the checksum that the file is named by in the cache.
func (f file) sum() string {
	if f.LFS != nil {
		return f.LFS.SHA256
	}
	return f.Blob
}

func (p *puller) pull(ctx context.Context) (*Pulled, error) {
	var answer struct {
		SHA   string `json:"sha"`
		Files []file `json:"siblings"`
	}
	if err := p.ask(ctx, "/api/models/"+p.model.ID+"/revision/"+url.PathEscape(p.model.Revision)+"?blobs=true", &answer); err != nil {
		return nil, err
	}
	if !commitPattern.MatchString(answer.SHA) {
		return nil, fmt.Errorf("the hub names the commit %.60q", answer.SHA)
	}
	p.commit = answer.SHA
	files, err := choose(answer.Files, p.options.Files)
	if err != nil {
		return nil, err
	}
	done := &Pulled{Dir: filepath.Join(p.dir, "snapshots", answer.SHA), Commit: answer.SHA, Files: len(files)}
	for _, f := range files {
		p.total += f.Size
	}
	done.Bytes = p.total
	if err := p.makeFolders(done.Dir); err != nil {
		return nil, err
	}
	if free, err := vfs.OS.Free(p.dir); err == nil && free < p.missing(files) {
		return nil, fmt.Errorf("%v are to be fetched, %s has %v free; make room, or set HF_HOME to another disk", units.Bytes(p.missing(files)), p.dir, units.Bytes(free))
	}
	if err := p.fetchAll(ctx, files, done.Dir); err != nil {
		return nil, err
	}
	if err := vfs.RemoveStaleLocks(filepath.Join(p.dir, "blobs")); err != nil {
		return nil, err
	}
	ref := filepath.Join(p.dir, "refs", filepath.FromSlash(p.model.Revision))
	if p.model.Revision != answer.SHA {
		if err := errors.Join(os.MkdirAll(filepath.Dir(ref), 0o755), vfs.ReplaceBytes(vfs.OS, ref, []byte(answer.SHA))); err != nil {
			return nil, err
		}
	}
	done.Fetched = p.fetched
	return done, nil
}

func (p *puller) makeFolders(snapshot string) error {
	return errors.Join(os.MkdirAll(snapshot, 0o755), os.MkdirAll(filepath.Join(p.dir, "blobs"), 0o755))
}

// missing is how many bytes are not in the cache.
func (p *puller) missing(files []file) (n int64) {
	for _, f := range files {
		have := int64(0)
		for _, name := range []string{f.sum(), f.sum() + partial} {
			if info, err := os.Stat(filepath.Join(p.dir, "blobs", name)); err == nil {
				have = max(have, info.Size())
			}
		}
		n += max(f.Size-have, 0)
	}
	return n
}

// fetchAll fetches files, some at a time, the largest first.
func (p *puller) fetchAll(ctx context.Context, files []file, snapshot string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	slices.SortStableFunc(files, func(a, b file) int { return cmp.Compare(b.Size, a.Size) })
	next := make(chan file)
	var wait sync.WaitGroup
	var mu sync.Mutex
	var first error
	for range min(parallel, len(files)) {
		wait.Go(func() {
			for f := range next {
				if err := p.fetch(ctx, f, snapshot); err != nil {
					mu.Lock()
					if first == nil {
						first = fmt.Errorf("%s: %w", f.Name, err)
					}
					mu.Unlock()
					stop()
				}
			}
		})
	}
	for _, f := range files {
		select {
		case next <- f:
		case <-ctx.Done():
		}
	}
	close(next)
	wait.Wait()
	return cmp.Or(first, ctx.Err())
}

// ask gets a JSON answer of the hub's interface.
func (p *puller) ask(ctx context.Context, what string, into any) error {
	return p.repeatedly(ctx, func() (progress bool, err error) {
		r, err := p.get(ctx, p.options.Endpoint+what, 0)
		if err != nil {
			return false, err
		}
		defer r.Body.Close()
		raw, err := io.ReadAll(io.LimitReader(r.Body, maxAnswer+1))
		if err != nil {
			return false, passing{err}
		}
		if len(raw) > maxAnswer {
			return false, fmt.Errorf("the hub's list of files is longer than %d bytes", maxAnswer)
		}
		if err := json.Unmarshal(raw, into); err != nil {
			return false, fmt.Errorf("the hub's answer is not understood: %w", err)
		}
		return true, nil
	})
}

// passing marks an error that may be gone when one tries again.
type passing struct{ error }

func (e passing) Unwrap() error { return e.error }

// repeatedly tries again after errors that may pass, with longer and longer waits as long as
// there is no progress.
func (p *puller) repeatedly(ctx context.Context, try func() (progress bool, err error)) error {
	wait := cmp.Or(p.options.Wait, time.Second)
	for left := tries; ; {
		progress, err := try()
		var again passing
		if err == nil || !errors.As(err, &again) || ctx.Err() != nil {
			return cmp.Or(ctx.Err(), err)
		}
		if progress {
			left, wait = tries, cmp.Or(p.options.Wait, time.Second)
		}
		if left--; left == 0 {
			return fmt.Errorf("%w, %d times; what was fetched is kept, pull again to go on", err, tries)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
		wait = min(2*wait, 30*time.Second)
	}
}

// get asks for what follows the first bytes of a file.
func (p *puller) get(ctx context.Context, address string, from int64) (*http.Response, error) {
	ctx, stop := context.WithCancelCause(ctx)
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		stop(nil)
		return nil, err
	}
	q.Header.Set("User-Agent", "spillway")
	q.Header.Set("Accept-Encoding", "identity")
	if p.options.Token != "" {
		q.Header.Set("Authorization", "Bearer "+p.options.Token) // not sent on to other hosts
	}
	if from > 0 {
		q.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	r, err := p.client.Do(q)
	if err != nil {
		stop(nil)
		return nil, passing{fmt.Errorf("the hub does not answer: %w", err)}
	}
	r.Body = &awake{r.Body, ctx, stop, p.options.Idle}
	if r.StatusCode == http.StatusOK || r.StatusCode == http.StatusPartialContent && from > 0 {
		return r, nil
	}
	r.Body.Close()
	return nil, p.refusal(r)
}

// awake is what the hub sends, given up where nothing comes for some time: a network that is gone
// says nothing, and a read from it would wait for ever.
type awake struct {
	io.ReadCloser
	ctx  context.Context // of the request
	stop context.CancelCauseFunc
	idle time.Duration
}

func (a *awake) Read(b []byte) (int, error) {
	silent := time.AfterFunc(a.idle, func() { a.stop(fmt.Errorf("nothing came for %v", a.idle)) })
	n, err := a.ReadCloser.Read(b)
	silent.Stop()
	if err != nil && err != io.EOF {
		err = cmp.Or(context.Cause(a.ctx), err)
	}
	return n, err
}

func (a *awake) Close() error {
	defer a.stop(nil)
	return a.ReadCloser.Close()
}

// refusal says what a status means for the user.
func (p *puller) refusal(r *http.Response) error {
	switch code := r.StatusCode; {
	case code == http.StatusNotFound:
		return fmt.Errorf("the hub has no such model, revision or file (404); look at its spelling, and set HF_TOKEN if it is private")
	case code == http.StatusUnauthorized && r.Header.Get("X-Error-Code") != "GatedRepo": // also of names that there are not
		return fmt.Errorf("the hub has no such model, or shows it to nobody without a token (401); look at its spelling, and set HF_TOKEN to a token that may read it if it is private")
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return fmt.Errorf("the hub refuses it (%d); accept the model's terms on its page, and set HF_TOKEN to a token that may read it", code)
	case code == http.StatusTooManyRequests || code >= 500:
		return passing{fmt.Errorf("the hub answers %s", r.Status)}
	case code == http.StatusRequestedRangeNotSatisfiable:
		return errRange
	}
	return fmt.Errorf("the hub answers %s", r.Status)
}

var errRange = errors.New("the hub has fewer bytes than are here already")

// described are the files that say what a model is. weights are kinds of files with weights, of which the first that there is is
// fetched, by its first pattern: many models have theirs several times, in other types or for other programs. Their order is that in which
// transformers looks for them.
var (
	described = []string{"config.json", "generation_config.json", "tokenizer*", "vocab.json", "vocab.txt", "merges.txt", "special_tokens_map.json", "added_tokens.json", "chat_template*", "additional_chat_templates/*.jinja", "adapter_config.json"}
	weights   = [][]string{
		{"model.safetensors", "adapter_model.safetensors"},
		{"model-*-of-*.safetensors", "model.safetensors.index.json", "adapter_model.safetensors"},
		{"*.safetensors", "*.safetensors.index.json"},
		{"*.gguf"},
		{"pytorch_model.bin", "adapter_model.bin"},
		{"pytorch_model-*-of-*.bin", "pytorch_model.bin.index.json", "adapter_model.bin"},
		{"pytorch_model*.bin", "pytorch_model*.bin.index.json"},
		{"adapter_model.bin"},
	}
)

// choose picks the files to fetch: those that patterns name, or what the model is described
// by and one kind of weights.
func choose(all []file, patterns []string) (list []file, err error) {
	for _, f := range all {
		if err := f.check(); err != nil {
			return nil, err
		}
	}
	matching := func(patterns []string) (list []file) {
		for _, f := range all {
			if slices.ContainsFunc(patterns, func(p string) bool { ok, _ := path.Match(p, f.Name); return ok }) {
				list = append(list, f)
			}
		}
		return list
	}
	if len(patterns) > 0 {
		for _, p := range patterns {
			if _, err := path.Match(p, ""); err != nil {
				return nil, fmt.Errorf("the pattern %q: %w", p, err)
			}
			if len(matching([]string{p})) == 0 {
				return nil, fmt.Errorf("the model has no file %q; it has %s", p, shortList(all))
			}
		}
		return matching(slices.Concat(described, []string{"*.index.json"}, patterns)), nil
	}
	list = matching(described)
	for _, kind := range weights {
		if len(matching(kind[:1])) == 0 {
			continue
		}
		found := matching(kind)
		if models := ggufModels(found); len(models) > 1 {
			return nil, fmt.Errorf("it has %d models in GGUF files, %s; choose with --file, such as --file '*Q4_K_M*'", len(models), strings.Join(models, ", "))
		}
		return append(list, found...), nil
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("the model has no files that are read; it has %s", shortList(all))
	}
	return list, nil
}

// ggufModels names the models among files, the parts of a split one as one.
func ggufModels(files []file) (names []string) {
	for _, f := range files {
		name := f.Name
		if i := strings.LastIndex(name, "-of-"); i > 6 && strings.HasSuffix(name, ".gguf") {
			name = name[:i-6] + ".gguf"
		}
		if strings.HasSuffix(name, ".gguf") && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func shortList(files []file) string {
	var names []string
	for _, f := range files[:min(len(files), 12)] {
		names = append(names, f.Name)
	}
	if len(files) > len(names) {
		names = append(names, "...")
	}
	return strings.Join(names, ", ")
}
