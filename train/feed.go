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

// Feed gives a run its batches, iteration after iteration.
type Feed interface {
	// Next fills the parts of all micro-batches of an iteration, but "scale" and
	// "loss_scale", which are the loop's. io.EOF when there are no more.
	Next(Parts) (Filled, error)
	// Position is where the next iteration begins; Seek goes there.
	Position() (json.RawMessage, error)
	Seek(json.RawMessage) error
}

// Parts are the tensors of an iteration's micro-batches, to be filled.
type Parts struct {
	MicroBatches   int
	MicroBatchSize int64 // samples per micro-batch
	Seq            int64 // positions per sample
	// Names lists the parts to fill.
	Names []string
	// Part is the place of one, little endian.
	Part func(micro int, name string) ([]byte, error)
}

// PartsOf are those of an executor's plan.
func PartsOf(e *executor.Executor) Parts {
	p := e.Plan()
	parts := Parts{MicroBatches: p.MicroBatches, MicroBatchSize: p.MicroBatchSize, Seq: p.Seq, Part: e.BatchTensor}
	for _, part := range p.Batch {
		if part.Name != "scale" && part.Name != autograd.LossScale {
			parts.Names = append(parts.Names, part.Name)
		}
	}
	return parts
}

// Filled describes the batch of an iteration.
type Filled struct {
	FirstSequence int64 // place of the first sample in the feed
	Counted       int64 // what the loss is the mean over: targets learned, or numbers compared
	Tokens        int64 // that are not padding
}

// Tokens feeds a language model rows of packed documents.
type Tokens struct {
	loader *data.Loader
	batch  *data.Batch
}

// NewTokens feeds what a loader gives.
func NewTokens(l *data.Loader) *Tokens { return &Tokens{loader: l} }

// Next fills the micro-batches with the loader's next rows, in order.
func (t *Tokens) Next(p Parts) (Filled, error) {
	rows := p.MicroBatches * int(p.MicroBatchSize)
	if t.batch == nil || t.batch.Rows != rows || t.batch.Length != int(p.Seq) {
		t.batch = data.NewBatch(rows, int(p.Seq))
	}
	if err := t.loader.Next(t.batch); err != nil {
		return Filled{}, err
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
			return fmt.Errorf("the model reads the batch part %q, which rows of tokens do not have", name)
		}
		packed = packed || name == "segments"
		for j := range p.MicroBatches {
			to, err := p.Part(j, name)
			if err != nil {
				return err
			}
			putInts(to, from[j*size:(j+1)*size])
		}
	}
	if !packed {
		return checkUnpacked(b)
	}
	return nil
}

// unpacked refuses rows of several documents, between which a model without
// segments could not tell.
func checkUnpacked(b *data.Batch) error {
	for i, s := range b.Segments {
		if s > 0 {
			return fmt.Errorf("row %d holds several documents, the plan is for one each; plan with packed samples", b.First+int64(i/b.Length))
		}
	}
	return nil
}

// Position of the loader.
func (t *Tokens) Position() (json.RawMessage, error) { return json.Marshal(t.loader.Position()) }

// Seek moves the loader.
func (t *Tokens) Seek(raw json.RawMessage) error {
	var p data.Position
	if err := json.Unmarshal(raw, &p); err != nil {
		return fmt.Errorf("the position in the data: %w", err)
	}
	return t.loader.Seek(p)
}

func putInts(dst []byte, src []int32) {
	for i, v := range src {
		binary.LittleEndian.PutUint32(dst[4*i:], uint32(v))
	}
}

// setScalars writes parts of one number each to all micro-batches of a plan that
// has them.
func setScalars(e *executor.Executor, values map[string]float32) error {
	for _, part := range e.Plan().Batch {
		v, ok := values[part.Name]
		if !ok {
			continue
		}
		for j := range e.Plan().MicroBatches {
			to, err := e.BatchTensor(j, part.Name)
			if err != nil {
				return err
			}
			binary.LittleEndian.PutUint32(to, math.Float32bits(v))
		}
	}
	return nil
}
