package run_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"spillway"
	"spillway/device"
	"spillway/executor"
	"spillway/internal/runtest"
	"spillway/train"
)

// Helpers of package runtest, by short names.
var (
	openDevice = runtest.Device
	parse      = runtest.Machine
	open       = runtest.Model
	apart      = runtest.Apart
	optimizer  = runtest.Optimizer
)

// planned plans a job with memory for everything, on a device.
func planned(t testing.TB, m *spillway.Model, o spillway.Options) *spillway.Run {
	t.Helper()
	dev := openDevice(t)
	o.On = []device.Device{dev}
	if len(o.Machine.Devices) == 0 {
		o.Machine = parse(t, "cpu:1GiB,host:4GiB")
	}
	job, err := m.Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// start plans a job and starts it.
func start(t testing.TB, m *spillway.Model, o spillway.Options) (*spillway.Run, *executor.Executor) {
	t.Helper()
	job := planned(t, m, o)
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := job.Close(); err != nil {
			t.Error(err)
		}
	})
	return job, job.Executor()
}

// repeated is a feed that gives the same batch for ever: the bytes of its parts,
// all samples of an iteration behind each other. Parts that are not of samples, as
// masks are, come whole in every micro-batch.
type repeated struct {
	parts   map[string][]byte
	whole   map[string]bool
	counted int64
	row     int64
}

func (r *repeated) Next(p train.Parts) (train.Filled, error) {
	for _, name := range p.Names {
		from, ok := r.parts[name]
		if !ok {
			return train.Filled{}, fmt.Errorf("the test has no part %q", name)
		}
		for j := range p.MicroBatches {
			to, err := p.Part(j, name)
			if err != nil {
				return train.Filled{}, err
			}
			at := j * len(to)
			if r.whole[name] {
				at = 0
			}
			copy(to, from[at:at+len(to)])
		}
	}
	first := r.row
	r.row += p.MicroBatchSize * int64(p.MicroBatches)
	return train.Filled{FirstSequence: first, Counted: r.counted, Tokens: r.counted}, nil
}

func (r *repeated) Position() (json.RawMessage, error) { return json.Marshal(r.row) }
func (r *repeated) Seek(at json.RawMessage) error      { return json.Unmarshal(at, &r.row) }

func intBytes(list []int32) []byte {
	out := make([]byte, 0, 4*len(list))
	for _, v := range list {
		out = binary.LittleEndian.AppendUint32(out, uint32(v))
	}
	return out
}

func floatBytes(list []float32) []byte {
	out := make([]byte, 0, 4*len(list))
	for _, v := range list {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}

// tokens is a feed of given rows with one document each.
func tokens(ids, targets []int32, seq int) *repeated {
	r := &repeated{}
	positions := make([]int32, len(ids))
	for i := range ids {
		positions[i] = int32(i % seq)
		if targets[i] >= 0 {
			r.counted++
		}
	}
	r.parts = map[string][]byte{"tokens": intBytes(ids), "targets": intBytes(targets), "positions": intBytes(positions), "segments": make([]byte, 4*len(ids))}
	return r
}

// read gives the numbers of a float32 tensor.
func read(t testing.TB, e *executor.Executor, tensor executor.Tensor) []float32 {
	t.Helper()
	out := make([]float32, tensor.Type.Shape.Elements())
	err := e.Read(tensor, func(offset int64, chunk []byte) error {
		for i := range len(chunk) / 4 {
			out[int(offset)/4+i] = math.Float32frombits(binary.LittleEndian.Uint32(chunk[4*i:]))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
