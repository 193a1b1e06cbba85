package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/checkpoint"
	"spillway/eventlog"
	"spillway/internal/vfs"
)

var (
	kills    = flag.Int("kills", 24, "how often TestKilledCommands kills a command")
	killOnly = flag.String("killonly", "", "kill only this one of the commands of TestKilledCommands")
	killSeed = flag.Uint64("killseed", 1, "what the moments of TestKilledCommands are drawn from")
)

// writer is a command line that writes files, in a folder of its own.
type writer struct {
	args []string
	out  string // the folder it makes, "" for files
	like string // another writer, whose files may be there on the way
}

// inputs are what writers read.
type inputs struct{ model, text, trained, adapter, wide string }

// writers are all commands that write files, with what changes how they do.
func (in inputs) writers() map[string]writer {
	train := func(more ...string) []string {
		return append([]string{"train", in.model, "--data", in.text, "--tokenizer", "bytes", "--device", "cpu", "--seq-len", "16", "--max-steps", "6", "--max-memory", "64MiB", "--save-steps", "2", "--out", "out"}, more...)
	}
	generate := func(more ...string) []string {
		return append([]string{"generate", in.wide, "--tokenizer", "bytes", "--device", "cpu", "--dtype", "f32", "--prompt", "line", "--max-new-tokens", "60", "--ignore-eos", "--temperature", "1", "--seed", "3", "--quiet"}, more...)
	}
	return map[string]writer{
		"generate":       {generate("--out", "record", "--log", "tokens.jsonl", "--draft", "self"), "", ""},
		"generate disk":  {generate("--disk", "disk", "--max-memory", "2600KiB", "--max-host-memory", "3400KiB"), "", ""},
		"generate both":  {generate("--disk", "disk", "--max-memory", "4800KiB", "--max-host-memory", "6000KiB", "--draft", "self"), "", ""},
		"train":          {train("--keep", "0"), "out", ""},
		"train pruned":   {train("--keep", "1", "--eval-data", in.text, "--log", "log.jsonl", "--timeline", "timeline.json"), "out", "train all"},
		"train all":      {train("--keep", "0", "--eval-data", in.text, "--log", "log.csv"), "out", ""},
		"train lora":     {train("--keep", "0", "--method", "lora", "--lora-rank", "2"), "out", ""},
		"train qlora":    {train("--keep", "0", "--method", "qlora", "--lora-rank", "2"), "out", ""},
		"train disk":     {train("--keep", "0", "--disk", "disk", "--journal-every", "1", "--max-memory", "1200KiB", "--max-host-memory", "1400KiB"), "out", ""},
		"train table":    {append(train("--keep", "0"), "--data", strings.TrimSuffix(in.text, ".txt")+".csv"), "out", ""},
		"train chats":    {append(train("--keep", "0"), "--data", strings.TrimSuffix(in.text, ".txt")+".jsonl", "--chat-template", strings.TrimSuffix(in.text, ".txt")+".jinja"), "out", ""},
		"init":           {[]string{"init", "tiny-llama", "--out", "out", "--shard-size", "60KB"}, "out", ""},
		"quantize":       {[]string{"quantize", in.model, "out", "--shard-size", "60KB"}, "out", ""},
		"quantize int8":  {[]string{"quantize", in.model, "out", "--format", "int8"}, "out", ""},
		"merge":          {[]string{"merge", in.model, in.adapter, "out"}, "out", ""},
		"merge combined": {[]string{"merge", in.adapter, in.adapter + "=0.5", "out", "--combine"}, "out", ""},
		"export":         {[]string{"export", in.trained, "out", "--dtype", "bf16", "--shard-size", "60KB"}, "out", ""},
		"export adapter": {[]string{"export", in.adapter, "out"}, "out", ""},
		"export offload": {[]string{"export", in.trained, "out", "--offload-folder"}, "out", ""},
		"pull":           {[]string{"pull", "org/tiny"}, "", ""},
		"chat":           {[]string{"chat", in.model, "--tokenizer", "bytes", "--chat-template", strings.TrimSuffix(in.text, ".txt") + ".jinja", "--max-new-tokens", "2", "--device", "cpu"}, "", ""},
		"plan":           {[]string{"plan", in.model, "--seq-len", "64", "--machine", "gpu:1GiB,host:4GiB", "--save", "plan.json", "--timeline", "forecast.json"}, "", ""},
	}
}

// wideModel makes a model in bf16 that has more weights than a step needs at once.
func wideModel(t *testing.T) string {
	t.Helper()
	const config = `{"model_type":"llama","vocab_size":256,"hidden_size":128,"num_hidden_layers":6,"num_attention_heads":4,"num_key_value_heads":4,
"intermediate_size":256,"rms_norm_eps":1e-5,"tie_word_embeddings":false,"max_position_embeddings":512}`
	dir := t.TempDir()
	file, model := filepath.Join(dir, "wide.json"), filepath.Join(dir, "wide")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := command(t, "init", file, "--out", model); r.code != exitOK {
		t.Fatal(r.err)
	}
	return model
}

// newInputs makes what writers read.
func newInputs(t *testing.T) inputs {
	t.Helper()
	dir := t.TempDir()
	in := inputs{filepath.Join(dir, "model"), filepath.Join(dir, "text.txt"), filepath.Join(dir, "trained"), filepath.Join(dir, "adapter"), wideModel(t)}
	var text, table, chats strings.Builder
	table.WriteString("text\n")
	for i := range 20 {
		fmt.Fprintf(&text, "line %d of a text that is long enough\n", i*i)
		fmt.Fprintf(&table, "line %d of a table\n", i*i)
		fmt.Fprintf(&chats, `{"messages": [{"role": "user", "content": "%d squared"}, {"role": "assistant", "content": "%d"}]}`+"\n", i, i*i)
	}
	const template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
	for ending, b := range map[string]string{".txt": text.String(), ".csv": table.String(), ".jsonl": chats.String(), ".jinja": template} {
		if err := os.WriteFile(strings.TrimSuffix(in.text, ".txt")+ending, []byte(b), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	train := []string{"train", in.model, "--data", in.text, "--tokenizer", "bytes", "--device", "cpu", "--seq-len", "16", "--max-steps", "1"}
	for _, args := range [][]string{{"init", "tiny-llama", "--out", in.model}, append(train, "--out", in.trained), append(train, "--out", in.adapter, "--method", "lora", "--lora-rank", "2")} {
		if r := command(t, args...); r.code != exitOK {
			t.Fatal(r.err)
		}
	}
	return in
}

// place is a folder that a command runs in, as a process, with a folder for what it needs for
// a moment.
type place struct{ dir, temp string }

func newPlace(t *testing.T) place {
	t.Helper()
	p := place{filepath.Join(t.TempDir(), "in"), filepath.Join(t.TempDir(), "temp")}
	if err := os.Mkdir(p.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(p.temp, 0o755); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p place) program(t *testing.T, args []string) *exec.Cmd {
	t.Helper()
	cmd := program(t, args...)
	if args[0] == "chat" {
		cmd.Stdin = strings.NewReader("hello\n/save talk.json\n")
	}
	cmd.Dir, cmd.Env = p.dir, append(cmd.Env, "TMPDIR="+p.temp, "HF_HUB_CACHE="+filepath.Join(p.dir, "hub"))
	return cmd
}

// remains says whether a path is of something that was begun and not ended.
func remains(path string) bool {
	return slices.ContainsFunc(strings.Split(path, string(filepath.Separator)), func(name string) bool { return strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".incomplete") })
}

// tree is what lies in a folder: files with digests of what is in them. Of what differs from
// one run to the next it has what does not.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		if err != nil || d.IsDir() {
			if remains(name) && name != "." {
				found[name] = "a folder"
			}
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		switch base := filepath.Base(name); {
		case remains(name):
			b = nil
		case base == checkpoint.ManifestName:
			var m struct {
				Manifest struct{ Files json.RawMessage }
			}
			err = json.Unmarshal(b, &m)
			b = m.Manifest.Files
		case base == "timeline.json":
			if !json.Valid(b) {
				err = fmt.Errorf("%s is half a timeline", name)
			}
			b = nil
		case base == "log.jsonl", base == "tokens.jsonl":
			for line := range strings.Lines(string(b)) {
				if !json.Valid([]byte(line)) {
					err = fmt.Errorf("%s has the line %q", name, line)
				}
			}
			b = nil
		case base == "log.csv":
			for line := range strings.Lines(string(b)) {
				if strings.Count(line, ",") != 12 {
					err = fmt.Errorf("%s has the line %q", name, line)
				}
			}
			b = nil
		case base == eventlog.FileName:
			if len(b) == 0 {
				break // it was begun, and nothing is in it
			}
			if log, opening := eventlog.Follow(path); opening != nil {
				err = opening
			} else {
				err = errors.Join(log.Damaged, log.Close())
			}
			b = nil
		case base == "recipe.yaml":
			b = []byte(strings.ReplaceAll(string(b), dir, "")) // some paths are absolute
		}
		sum := sha256.Sum256(b)
		found[name] = hex.EncodeToString(sum[:8])
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return found
}

// Whenever a command is killed, what it writes is absent or whole, nobody takes what is left for
// a model, and the same command, or going on with the run as it says, ends like one that was never
// killed and leaves nothing behind.
func TestKilledCommands(t *testing.T) {
	in := newInputs(t)
	tinyHub(t)
	all := in.writers()
	names := slices.Sorted(maps.Keys(all))
	whole, took := map[string]map[string]string{}, map[string]time.Duration{}
	said := map[string]string{} // by those that generate
	clean := func(name string) {
		if whole[name] != nil {
			return
		}
		p, start := newPlace(t), time.Now()
		text, err := p.program(t, all[name].args).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, text)
		}
		if _, err := os.Stat(filepath.Join(p.dir, "disk")); err != nil && slices.Contains(all[name].args, "--disk") {
			t.Fatalf("%s needs no disk: %v", name, err)
		}
		if all[name].args[0] == "generate" {
			said[name] = string(text)
		}
		took[name], whole[name] = time.Since(start), tree(t, p.dir)
		p.checkTidy(t, name)
	}
	random := rand.New(rand.NewPCG(*killSeed, 2))
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	if *killOnly != "" {
		names = []string{*killOnly}
	}
	hit, amid := 0, 0
	for trial, done := 0, 0; done < *kills && !t.Failed(); trial++ {
		name := names[trial%len(names)]
		w := all[name]
		clean(name)
		if w.like != "" {
			clean(w.like)
		}
		p := newPlace(t)
		args := w.args
		for again := true; again && done < *kills; again = random.IntN(2) > 0 {
			done++
			cmd := p.program(t, args)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			start, ended := time.Now(), make(chan bool)
			go func() { cmd.Wait(); close(ended) }()
			select {
			case <-ended:
				took[name] = min(took[name], time.Since(start))
			case <-time.After(time.Duration(random.Float64() * float64(took[name]))):
				hit++
				cmd.Process.Kill() // it may have ended just now
				<-ended
			}
			if p.checkKilled(t, name, w, whole[name], whole[w.like]) {
				amid++
			}
			args = p.next(t, w)
		}
		text, err := p.program(t, args).CombinedOutput()
		if err != nil && !strings.Contains(string(text), "exists already") {
			t.Errorf("%s, after a kill: %v: %s", name, err, text)
		}
		if w.args[0] == "generate" && string(text) != said[name] {
			t.Errorf("%s, after a kill, writes %q, and without one %q", name, text, said[name])
		}
		if got := tree(t, p.dir); !maps.Equal(got, whole[name]) {
			t.Errorf("%s, after a kill, gives\n%v\nand without one\n%v\n%s", name, got, whole[name], text)
		}
		p.checkTidy(t, name)
	}
	for _, text := range said {
		if other, ok := said["generate"]; ok && text != other { // from memory
			t.Errorf("generating gives %q and %q", text, other)
		}
	}
	t.Logf("%d kills, %d of them before the command ended by itself, %d with something unfinished left", *kills, hit, amid)
}

// next is what a user does after a kill: the same again, or as the command says where it refuses
// to begin anew.
func (p place) next(t *testing.T, w writer) []string {
	if w.args[0] != "train" {
		return w.args
	}
	if found, err := (checkpoint.Dir{Path: filepath.Join(p.dir, w.out)}).List(); err == nil && len(found) > 0 {
		return []string{"train", "--resume", "--out", w.out}
	}
	dry, err := p.program(t, append(slices.Clone(w.args), "--dry-run")).CombinedOutput()
	if err != nil && strings.Contains(string(dry), "--resume") {
		return append(slices.Clone(w.args), "--resume")
	}
	return w.args
}

// checkKilled holds what a kill has left to the files of runs that were not killed, and says
// whether something is unfinished.
func (p place) checkKilled(t *testing.T, name string, w writer, wanted ...map[string]string) (unfinished bool) {
	t.Helper()
	complete := false
	for path, digest := range tree(t, p.dir) {
		unfinished = unfinished || remains(path) || strings.HasPrefix(path, "disk"+string(filepath.Separator))
		isWhole := slices.ContainsFunc(wanted, func(w map[string]string) bool { return w[path] == digest })
		complete = complete || isWhole && !slices.Contains([]string{"recipe.yaml", eventlog.FileName}, filepath.Base(path)) && strings.HasPrefix(path, w.out+string(filepath.Separator))
		if !remains(path) && !isWhole && !strings.HasPrefix(path, "disk"+string(filepath.Separator)) {
			t.Errorf("%s, killed, leaves %s, which is none of what it writes", name, path)
		}
		if vfs.IsPartial(filepath.Base(path)) && digest == "a folder" {
			p.checkUnfinished(t, filepath.Join(p.dir, path))
		}
	}
	if w.args[0] == "pull" {
		_, err := os.Stat(filepath.Join(p.dir, "hub", "models--org--tiny", "refs", "main"))
		if text, inspected := p.program(t, []string{"inspect", "org/tiny"}).CombinedOutput(); (err == nil) != (inspected == nil) {
			t.Errorf("%s, killed: there is a ref: %v, and inspect says %s", name, err, text)
		}
	}
	if w.out == "" {
		return unfinished
	}
	if r := command(t, "inspect", filepath.Join(p.dir, w.out)); (r.code == exitOK) != complete {
		t.Errorf("%s, killed: complete %v, and inspect gives %d: %s%s", name, complete, r.code, r.out, r.err)
	}
	return unfinished
}

// checkUnfinished has commands refuse an unfinished folder.
func (p place) checkUnfinished(t *testing.T, dir string) {
	t.Helper()
	other := filepath.Join(p.temp, "other")
	for _, args := range [][]string{{"inspect", dir}, {"export", dir, other}, {"quantize", dir, other}, {"merge", dir, dir, other}, {"train", dir, "--data", dir, "--out", other}, {"plan", dir}} {
		if r := command(t, args...); r.code == exitOK || !strings.Contains(r.err, "unfinished") {
			t.Errorf("%v: exit code %d, %s%s", args, r.code, r.out, r.err)
		}
	}
}

// checkTidy wants nothing that was needed for a moment to be there still.
func (p place) checkTidy(t *testing.T, name string) {
	t.Helper()
	for path := range tree(t, p.dir) {
		if remains(path) {
			t.Errorf("%s leaves %s", name, path)
		}
	}
	if left, err := os.ReadDir(p.temp); err != nil || len(left) > 0 {
		t.Errorf("%s leaves %v in the folder for temporary files, %v", name, left, err)
	}
}

var starts = flag.Int("starts", 20, "how many commands TestManyStarts starts into folders that others write")

// Of many processes that write to one folder one wins, and what it writes is what it writes
// alone; the others say who is there.
func TestManyStarts(t *testing.T) {
	in := newInputs(t)
	all := in.writers()
	names := []string{"train", "init", "quantize", "merge", "export"}
	each := max(*starts/len(names), 2)
	for _, name := range names {
		alone, p := newPlace(t), newPlace(t)
		if text, err := alone.program(t, all[name].args).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, text)
		}
		type outcome struct {
			pid  int
			text string
			err  error
		}
		outcomes, pids, won, named := make(chan outcome), map[int]bool{}, 0, 0
		for range each {
			cmd := p.program(t, all[name].args)
			var text strings.Builder
			cmd.Stdout, cmd.Stderr = &text, &text
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			pids[cmd.Process.Pid] = true
			go func() { err := cmd.Wait(); outcomes <- outcome{cmd.Process.Pid, text.String(), err} }()
		}
		for range each {
			o := <-outcomes
			_, who, held := strings.Cut(o.text, "out is being written by process ")
			var pid int
			var command, date, clock string
			switch {
			case o.err == nil:
				won++
			case held:
				named++
				_, err := fmt.Sscanf(who, "%d (spillway %s since %s %s", &pid, &command, &date, &clock)
				if err != nil || !pids[pid] || pid == o.pid || command != all[name].args[0]+")," {
					t.Errorf("%s: %v: %s", name, err, o.text)
				}
			case !strings.Contains(o.text, "exists already") && !strings.Contains(o.text, "was made meanwhile") && !strings.Contains(o.text, "--resume"):
				t.Errorf("%s: %s", name, o.text)
			}
		}
		if got := tree(t, p.dir); won != 1 || !maps.Equal(got, tree(t, alone.dir)) {
			t.Errorf("%s: %d won, and left\n%v", name, won, got)
		}
		p.checkTidy(t, name)
		t.Logf("%s: %d started, %d found the winner at work", name, each, named)
	}
}

// Who writes to a folder is named to others while it does, and not a moment longer: after a kill
// the next goes on at once.
func TestWritersAreNamed(t *testing.T) {
	in := newInputs(t)
	p := newPlace(t)
	args := []string{"train", in.model, "--data", in.text, "--tokenizer", "bytes", "--device", "cpu", "--seq-len", "16", "--max-steps", "1000000", "--save-steps", "1", "--out", "out"}
	first := p.program(t, args)
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if found, _ := (checkpoint.Dir{Path: filepath.Join(p.dir, "out")}).List(); len(found) > 0 {
			break
		}
		if time.Since(began) > 5*time.Minute {
			t.Fatal("no checkpoint after five minutes")
		}
	}
	resume := []string{"train", "--resume", "--out", "out"}
	for _, args := range [][]string{args, resume} {
		text, err := p.program(t, args).CombinedOutput()
		want := fmt.Sprintf("out is being written by process %d (spillway train), since 20", first.Process.Pid)
		if err == nil || !strings.Contains(string(text), want) {
			t.Errorf("the second: %v: %s", err, text)
		}
	}
	first.Process.Kill() // it does not end by itself
	first.Wait()
	found, err := checkpoint.Dir{Path: filepath.Join(p.dir, "out")}.List()
	if err != nil {
		t.Fatal(err)
	}
	if text, err := p.program(t, append(resume, "--max-steps", fmt.Sprint(found[0].Iteration+1))).CombinedOutput(); err != nil {
		t.Errorf("after the first was killed: %v: %s", err, text)
	}
	p.checkTidy(t, "the next")
}
