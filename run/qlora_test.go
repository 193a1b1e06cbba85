package run_test

import (
	"bytes"
	"context"
	"io"
	"math"
	"testing"

	"spillway"
	"spillway/device"
	"spillway/dtype"
	"spillway/executor"
	"spillway/lora"
	"spillway/quant"
	"spillway/quant/stored"
	"spillway/train"
)

// trainQLoRA trains adapters next to 4-bit weights for 20 iterations on one batch.
func trainQLoRA(t *testing.T, m *spillway.Model, o spillway.Options, feed train.Feed) []float64 {
	t.Helper()
	o.Task = spillway.QLoRA
	o.Adapters = lora.Options{Targets: []string{lora.AllLinear}, Rank: 4, Alpha: 8}
	o.Machine, o.On = parse(t, "cpu:1GiB,host:4GiB"), []device.Device{openDevice(t)}
	job, err := m.Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	job.Options.Optimizer.LR = 0.02
	var losses []float64
	if _, err := train.Run(context.Background(), job, feed, train.Config{Iterations: 20,
		Report: func(r train.Report) { losses = append(losses, r.Loss) }}); err != nil {
		t.Fatal(err)
	}
	return losses
}

// A plain folder is quantized while it is loaded.
func TestAdaptersTrainWithQuantizedWeights(t *testing.T) {
	s := decoder(t, "llama")
	losses := trainQLoRA(t, s.model, s.options(spillway.QLoRA), s.feed)
	if off := losses[0]/s.Loss - 1; off > 0.1 || off < -0.1 || off == 0 {
		t.Errorf("the loss begins at %v, without quantization at %v", losses[0], s.Loss)
	}
	if losses[19] > 0.8*losses[0] {
		t.Errorf("the loss went from %v to %v", losses[0], losses[19])
	}
}

// A folder quantized by bitsandbytes is loaded as it is: the bytes on the device are
// those of its files.
func TestBitsandbytesFoldersAreLoadedAsTheyAre(t *testing.T) {
	m := open(t, "../quant/stored/testdata/nf4")
	ids := make([]int32, 2*8)
	for i := range ids {
		ids[i] = int32(i*5) % 32
	}
	o := spillway.Options{MicroBatchSize: 2, Seq: 8}
	losses := trainQLoRA(t, m, o, tokens(ids, ids, 8))
	if losses[19] > 0.8*losses[0] {
		t.Errorf("the loss went from %v to %v", losses[0], losses[19])
	}
	o.Task, o.Adapters = spillway.Infer, lora.Options{Targets: []string{"q_proj"}, Rank: 1, Alpha: 1, Base: quant.NF4}
	_, e := start(t, m, o)
	list, err := stored.Collect(m.Folder.Tensors())
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, w := range list {
		r, exact, ok := w.Storage()
		if !ok {
			continue
		}
		want, err := io.ReadAll(r)
		if err != nil || !exact {
			t.Fatalf("%s: exact %v, %v", w.Name, exact, err)
		}
		if !bytes.Equal(onDevice(t, e, w.Name), want) {
			t.Errorf("%s is not what the file has", w.Name)
		}
		compared++
	}
	if compared != 7 {
		t.Errorf("%d weights compared, want 7", compared)
	}
}

// onDevice is the bytes of a param on the device.
func onDevice(t *testing.T, e *executor.Executor, name string) (b []byte) {
	t.Helper()
	for _, w := range e.Weights() {
		if w.Param.Name != name {
			continue
		}
		if err := e.Read(w, func(_ int64, chunk []byte) error { b = append(b, chunk...); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// In every format of the base, with outliers multiplied apart or not, adapters learn; few
// rows, whose matmuls read the codes, give the loss that many rows give, which are
// multiplied by the decoded weights.
func TestEveryBaseTrains(t *testing.T) {
	s := decoder(t, "llama")
	for _, c := range []struct {
		base     dtype.Type
		outliers float64
		off      float64 // of the loss without quantization
	}{{quant.NF4, 0, 0.1}, {quant.FP4, 0, 0.2}, {quant.RowI8, 0, 0.01}, {quant.RowI8, 6, 0.02}, {quant.RowF8, 0, 0.02}} {
		adapters := lora.Options{Targets: []string{lora.AllLinear}, Rank: 2, Alpha: 4, Base: c.base, Outliers: c.outliers}
		many := s.options(spillway.QLoRA)
		many.Adapters = adapters
		whole := lossOf(t, s.model, many, s.feed)
		if off := math.Abs(whole/s.Loss - 1); off > c.off || off == 0 {
			t.Errorf("%v: the loss is %v, without quantization %v", c.base, whole, s.Loss)
		}
		if c.outliers > 0 {
			continue // which columns hold outliers depends on the rows together
		}
		few := many
		few.MicroBatchSize, few.MicroBatches = 1, int(s.rows)
		if got := lossOf(t, s.model, few, s.feed); math.Abs(got/whole-1) > 1e-5 {
			t.Errorf("%v: the loss is %v row by row, %v together", c.base, got, whole)
		}
	}
}
