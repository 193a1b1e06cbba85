package train

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"

	"spillway/autograd"
	"spillway/data"
	"spillway/executor"
)

// Feed supplies the batches of a run, iteration after iteration. It is used from one goroutine at a time. Where the plan
// has memory for a second batch, Next is called for one iteration while the one before runs, and Seek goes back where
// that one is not wanted yet.
type Feed interface {
	// Next fills the tensors of all micro-batches of an iteration, except "scale" and
	// "loss_scale", which the loop sets. io.EOF means that there are no more.
	Next(Parts) (Filled, error)
	// Position is where the next iteration begins; Seek goes there.
	Position() (json.RawMessage, error)
	Seek(json.RawMessage) error
}

// Parts are the batch tensors of an iteration, to be filled.
type Parts struct {
	MicroBatches   int
	MicroBatchSize int64    // sequences per micro-batch
	Seq            int64    // positions per sequence
	Names          []string // of the tensors to fill
	// Part returns the bytes of a tensor in a micro-batch, to be written little-endian, in the type that the plan's
	// Batch gives it: floats that the model only reads in 16 bits have those.
	Part func(micro int, name string) ([]byte, error)
}

// PartsOf returns the batch tensors of an executor's plan.
func PartsOf(e *executor.Executor) Parts {
	p := e.Plan()
	parts := Parts{MicroBatches: p.MicroBatches, MicroBatchSize: p.MicroBatchSize, Seq: p.Seq, Part: e.BatchTensor}
	for _, part := range p.Batch {
		if part.Name != "scale" && part.Name != sampleScale && part.Name != autograd.LossScale && part.Name != autograd.OutputGradient {
			parts.Names = append(parts.Names, part.Name)
		}
	}
	return parts
}

// sampleScale is the batch tensor with 1 / the samples of the batch.
const sampleScale = "sample_scale"

// Filled describes the batch of an iteration.
type Filled struct {
	FirstSequence int64 // index of the first sequence in the feed, for random streams
	Counted       int64 // number of tokens, or of numbers, that the loss is the mean of
	Tokens        int64 // that are not padding
}

// Tokens feeds a language model sequences of packed documents.
type Tokens struct {
	loader *data.Loader
	batch  *data.Batch
}

// NewTokens returns a feed of a loader's sequences.
func NewTokens(l *data.Loader) *Tokens { return &Tokens{loader: l} }

// Next fills the micro-batches with the loader's next sequences, in order. A batch without a
// target, such as the middle of a long prompt, is passed over: it would train nothing.
func (t *Tokens) Next(p Parts) (Filled, error) {
	rows := p.MicroBatches * int(p.MicroBatchSize)
	if t.batch == nil || t.batch.Rows != rows || t.batch.Length != int(p.Seq) {
		t.batch = data.NewBatch(rows, int(p.Seq))
	}
	for first := t.loader.Position().Epoch; ; {
		if err := t.loader.Next(t.batch); err != nil {
			return Filled{}, err
		}
		if t.batch.LossTokens > 0 {
			break
		}
		if t.loader.Position().Epoch > first+1 { // a whole pass
			return Filled{}, fmt.Errorf("sequences of %d tokens are too short: %w", p.Seq, data.ErrNothing)
		}
	}
	if err := t.fill(p); err != nil {
		return Filled{}, err
	}
	b := t.batch
	return Filled{FirstSequence: b.First, Counted: int64(b.LossTokens), Tokens: int64(b.NonPadding)}, nil
}

func (t *Tokens) fill(p Parts) error {
	b, packed := t.batch, false
	size := int(p.MicroBatchSize * p.Seq)
	for _, name := range p.Names {
		from, ok := map[string][]int32{"tokens": b.Tokens, "targets": b.Targets, "positions": b.Positions, "segments": b.Segments}[name]
		if !ok {
			return fmt.Errorf("the model reads the batch tensor %q, which sequences of tokens do not have", name)
		}
		packed = packed || name == "segments"
		for j := range p.MicroBatches {
			to, err := p.Part(j, name)
			if err != nil {
				return err
			}
			for i, v := range from[j*size : (j+1)*size] {
				binary.LittleEndian.PutUint32(to[4*i:], uint32(v))
			}
		}
	}
	for i, s := range b.Segments {
		if s > 0 && !packed { // a model without segments would attend across them
			return fmt.Errorf("sequence %d holds several documents, the plan is for one each; plan with Packed", b.First+int64(i/b.Length))
		}
	}
	return nil
}

// Position returns the loader's position.
func (t *Tokens) Position() (json.RawMessage, error) { return json.Marshal(t.loader.Position()) }

// Seek moves the loader.
func (t *Tokens) Seek(raw json.RawMessage) error {
	var p data.Position
	if err := json.Unmarshal(raw, &p); err != nil {
		return fmt.Errorf("the position in the data: %w", err)
	}
	return t.loader.Seek(p)
}

// setScalars sets batch tensors of one number in a micro-batch, if the plan has them, and says whether they were
// others.
func setScalars(e *executor.Executor, micro int, values map[string]float32) (changed bool, err error) {
	for _, part := range e.Plan().Batch {
		v, ok := values[part.Name]
		if !ok {
			continue
		}
		to, err := e.BatchTensor(micro, part.Name)
		if err != nil {
			return changed, err
		}
		changed = changed || binary.LittleEndian.Uint32(to) != math.Float32bits(v)
		binary.LittleEndian.PutUint32(to, math.Float32bits(v))
	}
	return changed, nil
}
