package run_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway"
	"spillway/device"
	"spillway/plan"
	"spillway/planner/strategy"
)

var edits = flag.Int("edits", 760, "how many edits of saved plans are tried")

// Whatever is changed in a saved plan, it is refused, or trains to the same bits. Every field
// is changed in at least one way; nothing crashes or hangs.
func TestEditedPlansAreRefused(t *testing.T) {
	model := open(t, configFile(t, tinyLlama(true, 0)))
	devices := []device.Device{openDevice(t), openDevice(t)}
	base := spillway.Options{Task: spillway.Train, MicroBatchSize: 2, MicroBatches: 2, Seq: 12, Packed: true, Clip: 1, Machine: parse(t, "cpu:1GiB,host:4GiB"), On: devices[:1]}
	streamed, disk, several := base, base, base
	streamed.Evaluates = true
	streamed.Choose = strategy.Uniform(true, true, strategy.SaveMatmuls, 2)
	disk.Disk = t.TempDir()
	disk.Choose = func(slabs, blocks int) strategy.Choice {
		c := strategy.Uniform(true, true, strategy.SaveNone, 2)(slabs, blocks)
		c.OnDisk = make([]bool, slabs)
		c.OnDisk[0] = true
		return c
	}
	several.Machine, several.On = parse(t, "2xcpu:1GiB,host:4GiB"), devices
	several.Choose = func(slabs, blocks int) strategy.Choice {
		c := strategy.Uniform(false, false, strategy.SaveAll, 1)(slabs, blocks)
		c.Devices, c.ShardGradients = 2, true
		return c
	}
	for name, o := range map[string]spillway.Options{"resident": base, "streamed": streamed, "disk": disk, "several": several} {
		t.Run(name, func(t *testing.T) { tryEdits(t, model, o, *edits/4) })
	}
}

// tryEdits changes a plan so many times, one thing at a time.
func tryEdits(t *testing.T, model *spillway.Model, o spillway.Options, n int) {
	job, err := model.Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := job.Plan.Write(&file); err != nil {
		t.Fatal(err)
	}
	use := func(text []byte) (losses []float64, err error) {
		p, err := plan.Read(bytes.NewReader(text))
		if err != nil {
			return nil, err
		}
		own := o
		own.Choose = nil // the plan says everything
		if own.Disk != "" {
			own.Disk = t.TempDir() // without what the run before left
		}
		again, err := model.UsePlan(p, own)
		if err != nil {
			return nil, err
		}
		losses, _, err = trainFor(t, again, 2)
		return losses, err
	}
	var again any
	if err := json.Unmarshal(file.Bytes(), &again); err != nil {
		t.Fatal(err)
	}
	rewritten, err := json.MarshalIndent(again, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want, err := use(rewritten) // the same plan, its keys in another order
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, uint64(len(file.Bytes()))))
	places := leaves(t, file.Bytes())
	var same, refused int
	for i := range n {
		place := places[i%len(places)]
		text, what := change(t, file.Bytes(), place[random.IntN(len(place))], random)
		if text == nil {
			continue
		}
		began := time.Now()
		got, err := use(text)
		switch {
		case err != nil && strings.Contains(err.Error(), "panic"):
			t.Errorf("%s: %v", what, err)
		case err != nil:
			refused++
		case !slices.Equal(got, want):
			t.Errorf("%s: trains to %v, not %v", what, got, want)
		default:
			same++
		}
		if took := time.Since(began); took > 5*time.Minute {
			t.Errorf("%s: took %v", what, took)
		}
	}
	if same == 0 {
		t.Error("not even another reason is accepted")
	}
	t.Logf("%d edits of %d kinds of places: %d refused, %d with the same bits", n, len(places), refused, same)
	if refused < n/2 {
		t.Errorf("only %d of %d edits are refused", refused, n)
	}
}

// leaves are the places in a JSON text, grouped by their path without indices.
func leaves(t *testing.T, text []byte) (groups [][]string) {
	t.Helper()
	var root any
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	index := regexp.MustCompile(`/\d+`)
	of := map[string][]string{}
	var names []string
	var walk func(path string, v any)
	walk = func(path string, v any) {
		kind := index.ReplaceAllString(path, "/#")
		if len(of[kind]) == 0 {
			names = append(names, kind)
		}
		of[kind] = append(of[kind], path)
		switch v := v.(type) {
		case map[string]any:
			for key, item := range v {
				walk(path+"/"+key, item)
			}
		case []any:
			for i, item := range v {
				walk(fmt.Sprintf("%s/%d", path, i), item)
			}
		}
	}
	walk("", root)
	slices.Sort(names)
	for _, name := range names[1:] { // the first is the plan itself
		slices.Sort(of[name])
		groups = append(groups, of[name])
	}
	return groups
}

// change alters what is at a path; nil where that gives the same text.
func change(t *testing.T, text []byte, path string, random *rand.Rand) ([]byte, string) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var root any
	if err := d.Decode(&root); err != nil {
		t.Fatal(err)
	}
	var what string
	var at func(v any, keys []string) any
	at = func(v any, keys []string) any {
		if len(keys) == 0 {
			changed := otherValue(v, random)
			was, _ := json.Marshal(v)
			now, _ := json.Marshal(changed)
			what = fmt.Sprintf("%s: %.60s instead of %.60s", path, now, was)
			return changed
		}
		switch v := v.(type) {
		case map[string]any:
			v[keys[0]] = at(v[keys[0]], keys[1:])
		case []any:
			var i int
			fmt.Sscan(keys[0], &i)
			v[i] = at(v[i], keys[1:])
		}
		return v
	}
	root = at(root, strings.Split(path, "/")[1:])
	changed, err := json.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	return changed, what
}

// otherValue is something else of the kind that a value is.
func otherValue(v any, random *rand.Rand) any {
	pick := func(of ...any) any { return of[random.IntN(len(of))] }
	switch v := v.(type) {
	case json.Number:
		n, err := v.Int64()
		if err != nil {
			return pick(0, -1, 0.5)
		}
		return pick(n+1, n-1, -n-1, 2*n+1, 0, -1, 1<<40, int64(1)<<62)
	case string:
		return pick("", v+"x", "weight", "grad", "saved", "move", "run", "update", "device", "f32", "AAAA")
	case bool:
		return !v
	case []any:
		switch {
		case len(v) == 0:
			return []any{0}
		case len(v) > 1 && random.IntN(3) == 0:
			swapped := slices.Clone(v)
			swapped[0], swapped[len(v)-1] = v[len(v)-1], v[0]
			return swapped
		}
		i := random.IntN(len(v))
		return pick(slices.Delete(slices.Clone(v), i, i+1), slices.Insert(slices.Clone(v), i, v[i]), []any{}, nil)
	case map[string]any:
		return pick(nil, map[string]any{})
	}
	return pick(0, 1, "x", map[string]any{}, []any{})
}
