package train_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway"
	"spillway/checkpoint"
	"spillway/data"
	"spillway/executor"
	"spillway/hf"
	"spillway/optim"
	"spillway/train"
)

func saving(t *testing.T, dir string, every int64) train.Config {
	t.Helper()
	return train.Config{Seed: 4, Schedule: optim.Schedule{Kind: optim.Cosine, Warmup: 2, Total: 30},
		Save: &train.Save{Dir: checkpoint.Dir{Path: dir}, Every: every}}
}

func job(t *testing.T) *spillway.Run {
	t.Helper()
	return plan(t, withDropout, spillway.Options{MicroBatchSize: 2, MicroBatches: 2, Packed: true, Evaluates: true, Clip: 1})
}

func runTo(t *testing.T, ctx context.Context, c train.Config) train.Result {
	t.Helper()
	r, err := train.Run(ctx, job(t), feed(t, data.Config{Seed: 8}), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A run that is interrupted finishes its iteration, saves, and goes on to the bits
// it would have reached.
func TestInterruptedRunsGoOn(t *testing.T) {
	whole, pieces := t.TempDir(), t.TempDir()
	c := saving(t, whole, 0)
	c.Iterations = 11
	want := runTo(t, context.Background(), c)
	for _, stop := range []int64{1, 4, 9} {
		ctx, cancel := context.WithCancel(context.Background())
		c := saving(t, pieces, 5)
		c.Report = func(r train.Report) {
			if r.Iteration == stop {
				cancel()
			}
		}
		r := runTo(t, ctx, c)
		if !r.Interrupted || r.Iterations != stop || !strings.HasSuffix(r.Checkpoint, "0"+string(rune('0'+stop))) {
			t.Fatalf("%+v, want to be interrupted after iteration %d", r, stop)
		}
	}
	c = saving(t, pieces, 0)
	c.Iterations = 11
	got := runTo(t, context.Background(), c)
	if got.Loss != want.Loss || got.Interrupted {
		t.Errorf("%+v, undisturbed %+v", got, want)
	}
	for _, name := range []string{"model.safetensors", checkpoint.StateName, checkpoint.TrainerName} {
		a, err := os.ReadFile(filepath.Join(want.Checkpoint, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(got.Checkpoint, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs from the undisturbed run's", name)
		}
	}
}

func TestCheckpointsAreKept(t *testing.T) {
	dir := t.TempDir()
	c := saving(t, dir, 2)
	c.Iterations, c.Save.Dir.Keep = 9, 2
	runTo(t, context.Background(), c)
	found, err := checkpoint.Dir{Path: dir}.List()
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 2 || found[0].Iteration != 9 || found[1].Iteration != 8 {
		t.Errorf("%+v, want those of iterations 9 and 8", found)
	}
	before := found[0].Saved
	runTo(t, context.Background(), c) // nothing is left to do, or to save
	if found, err = (checkpoint.Dir{Path: dir}).List(); err != nil || found[0].Saved != before {
		t.Errorf("%+v, %v: saved again", found, err)
	}
}

func TestOtherRunsAreNotResumed(t *testing.T) {
	dir := t.TempDir()
	c := saving(t, dir, 0)
	c.Iterations = 3
	runTo(t, context.Background(), c)
	for name, change := range map[string]func(*train.Config, *spillway.Options) (order uint64){
		"seed":     func(c *train.Config, _ *spillway.Options) uint64 { c.Seed++; return 8 },
		"clipping": func(_ *train.Config, o *spillway.Options) uint64 { o.Clip = 2; return 8 },
		"schedule": func(c *train.Config, _ *spillway.Options) uint64 { c.Schedule.Total++; return 8 },
		"rate":     func(_ *train.Config, o *spillway.Options) uint64 { o.Optimizer.LR = 1e-5; return 8 },
		"data":     func(*train.Config, *spillway.Options) uint64 { return 9 },
	} {
		c, j := saving(t, dir, 0), job(t)
		order := change(&c, &j.Options)
		if _, err := train.New(start(t, j), feed(t, data.Config{Seed: order}), c); err == nil || !strings.Contains(err.Error(), "resuming") {
			t.Errorf("another %s: %v", name, err)
		}
	}
	larger := plan(t, withDropout, spillway.Options{MicroBatchSize: 2, MicroBatches: 3, Packed: true, Clip: 1})
	if _, err := train.New(start(t, larger), feed(t, data.Config{Seed: 8}), saving(t, dir, 0)); err == nil || !strings.Contains(err.Error(), "sequences per step") {
		t.Errorf("a larger batch: %v", err)
	}
	// The same batch in other pieces is the same run.
	if _, err := train.New(start(t, plan(t, withDropout, spillway.Options{MicroBatchSize: 4, Packed: true, Clip: 1})), feed(t, data.Config{Seed: 8}), saving(t, dir, 0)); err != nil {
		t.Error(err)
	}
}

// A damaged checkpoint is passed over, and that is said.
func TestDamagedCheckpointsArePassedOver(t *testing.T) {
	dir := t.TempDir()
	c := saving(t, dir, 1)
	c.Iterations = 3
	r := runTo(t, context.Background(), c)
	path := filepath.Join(r.Checkpoint, checkpoint.StateName)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)/2] ^= 1
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	var notices []string
	c = saving(t, dir, 0)
	c.Iterations, c.Notice = 3, func(text string) { notices = append(notices, text) }
	again := runTo(t, context.Background(), c)
	if again.Loss != r.Loss || len(notices) != 1 || !strings.Contains(notices[0], "step-00000002") {
		t.Errorf("%+v after %+v, notices %q", again, r, notices)
	}
}

// Weights can be spoiled while the loss still looks well: the embedding of a token
// that the batch does not have. They never replace a sound checkpoint.
func TestSpoiledWeightsAreNotSaved(t *testing.T) {
	const untied = `{"model_type":"llama","vocab_size":70,"hidden_size":16,"num_hidden_layers":1,"num_attention_heads":2,"intermediate_size":24,"tie_word_embeddings":false}`
	dir := t.TempDir()
	job := start(t, plan(t, untied, spillway.Options{MicroBatchSize: 2, Packed: true, Clip: 1}))
	c := saving(t, dir, 1)
	c.Iterations = 5
	c.Save.Model.Config = config(t, untied)
	c.Report = func(r train.Report) {
		if r.Iteration == 3 {
			spoil(t, job.Executor())
		}
	}
	run, err := train.New(job, feed(t, data.Config{}), c)
	if err != nil {
		t.Fatal(err)
	}
	r, err := run.Run(context.Background())
	var diverged *train.DivergedError
	if !errors.As(err, &diverged) || diverged.Iteration != 3 || diverged.Param != "model.embed_tokens.weight" {
		t.Fatalf("%v, want the spoiled param named", err)
	}
	found, err := checkpoint.Dir{Path: dir}.Latest()
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	if found.Iteration != 2 || found.Path != r.Checkpoint {
		t.Errorf("the last checkpoint is %s", found.Path)
	}
}

// spoil puts a NaN into the last element of the embedding.
func spoil(t *testing.T, e *executor.Executor) {
	for _, w := range e.Weights() {
		if w.Param.Name != "model.embed_tokens.weight" {
			continue
		}
		values := floats(t, e, w)
		values[len(values)-1] = float32(math.NaN())
		err := e.Write(w, func(offset int64, chunk []byte) error {
			for i := range len(chunk) / 4 {
				binary.LittleEndian.PutUint32(chunk[4*i:], math.Float32bits(values[int(offset)/4+i]))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func config(t *testing.T, text string) *hf.Config {
	t.Helper()
	c, err := hf.ParseConfig([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}
