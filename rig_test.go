package spillway_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"testing"

	"spillway"
	"spillway/internal/reference"
	"spillway/internal/runtest"
	"spillway/train"
)

// Helpers of package runtest, by short names.
var (
	openDevice = runtest.Device
	parse      = runtest.Machine
	open       = runtest.Model
	apart      = runtest.Apart
)

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
