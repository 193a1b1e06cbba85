package spillway_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"testing"

	"spillway"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/internal/reference"
	"spillway/machine"
	"spillway/optim"
	"spillway/train"
)

// openDevice gives a device to run on, closed when the test ends: leaks show.
func openDevice(t testing.TB) device.Device {
	t.Helper()
	dev := cpu.Open(cpu.Options{})
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev
}

// parse makes a machine of a description.
func parse(t testing.TB, description string) machine.Machine {
	t.Helper()
	m, err := machine.Parse(description)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// open opens a model, closed when the test ends.
func open(t testing.TB, name string) *spillway.Model {
	t.Helper()
	m, err := spillway.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// optimizer reads one as people write it.
func optimizer(t testing.TB, text string) optim.Config {
	t.Helper()
	c, err := optim.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// subject is a language model of testdata/reference with the batch it was made with.
type subject struct {
	*reference.Model
	model     *spillway.Model
	rows, seq int64
	output    string // tensor with what the model gives
}

func decoder(t *testing.T, name string) subject {
	t.Helper()
	r := reference.Open(t, name)
	s := r.Tensor(t, "input_ids").Shape
	return subject{r, open(t, r.Dir), s[0], s[1], "logits"}
}

// sameBatch is a feed that gives one batch for ever, in one micro-batch.
type sameBatch struct {
	batch   spillway.Batch
	counted int64
	given   int64 // sequences
}

func (b *sameBatch) Next(p train.Parts) (train.Filled, error) {
	for _, name := range p.Names {
		to, err := p.Part(0, name)
		if err != nil {
			return train.Filled{}, err
		}
		raw := to[:0]
		for _, v := range b.batch[name].Ints {
			raw = binary.LittleEndian.AppendUint32(raw, uint32(v))
		}
		for _, v := range b.batch[name].Floats {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
		}
	}
	first := b.given
	b.given += p.MicroBatchSize
	return train.Filled{FirstSequence: first, Counted: b.counted, Tokens: b.counted}, nil
}

func (b *sameBatch) Position() (json.RawMessage, error) { return json.Marshal(b.given) }
func (b *sameBatch) Seek(at json.RawMessage) error      { return json.Unmarshal(at, &b.given) }

// apart is the largest difference, relative to the largest right number.
func apart(got, want []float32) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	var worst, top float64
	for i, w := range want {
		d := math.Abs(float64(got[i]) - float64(w))
		if math.IsNaN(d) {
			return math.Inf(1)
		}
		worst, top = max(worst, d), max(top, math.Abs(float64(w)))
	}
	if top == 0 {
		return worst
	}
	return worst / top
}
