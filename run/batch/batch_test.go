package batch_test

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/op"
	"spillway/run/batch"
	"spillway/spec"
)

// reader is a model that reads tokens, positions, a mask over positions and targets.
func reader(sequences, positions int64) (*spec.Model, error) {
	ints := func(dims ...int64) op.Type { return op.Type{DType: dtype.I32, Shape: dims} }
	return &spec.Model{Name: "reader", Batch: []spec.BatchTensor{
		{Name: "tokens", Type: ints(sequences, positions)},
		{Name: "positions", Type: ints(sequences, positions)},
		{Name: "mask", Type: op.Type{DType: dtype.F32, Shape: []int64{positions, positions}}},
		{Name: "targets", Type: ints(sequences, positions)},
		{Name: "scale", Type: op.Type{DType: dtype.F32}}, // the loop's
	}}, nil
}

func two() batch.Batch {
	return batch.Batch{
		"tokens":  batch.Ints([]int32{1, 2, 3, 4, 5, 6}, 2, 3),
		"targets": batch.Ints([]int32{2, 3, op.IgnoreIndex, 5, 6, op.IgnoreIndex}, 2, 3),
		"mask":    batch.Floats(make([]float32, 9), 3, 3),
	}
}

// A batch is cut by sequences; what has none goes to every micro-batch whole, and
// positions count by themselves.
func TestBatchesFillMicroBatches(t *testing.T) {
	l, err := batch.Trace(reader)
	if err != nil {
		t.Fatal(err)
	}
	m, err := l.Match(two())
	if err != nil {
		t.Fatal(err)
	}
	if m.Size != (batch.Size{Sequences: 2, Positions: 3}) || m.Counted() != 4 || !l.HasPositions() {
		t.Errorf("size %v, %d targets", m.Size, m.Counted())
	}
	filled := map[string][]byte{}
	err = m.Fill(2, func(micro int, name string) ([]byte, error) {
		bytes := map[string]int{"mask": 36}[name]
		if bytes == 0 {
			bytes = 12
		}
		to := make([]byte, bytes)
		filled[name+string('0'+rune(micro))] = to
		return to, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	first := func(b []byte) (list []byte) { // low bytes
		for i := 0; i < len(b); i += 4 {
			list = append(list, b[i])
		}
		return list
	}
	if !slices.Equal(first(filled["tokens1"]), []byte{4, 5, 6}) || !slices.Equal(first(filled["positions1"]), []byte{0, 1, 2}) || len(filled["mask1"]) != 36 {
		t.Errorf("the second micro-batch is %v", filled)
	}
}

// A large tensor is copied in parts, each to its place, its last and shorter one too.
func TestLargeBatchesFill(t *testing.T) {
	l, err := batch.Trace(reader)
	if err != nil {
		t.Fatal(err)
	}
	const n = 1039
	b := batch.Batch{"tokens": batch.Ints(make([]int32, n), 1, n), "targets": batch.Ints(make([]int32, n), 1, n), "mask": batch.Floats(make([]float32, n*n), n, n)}
	for i := range b["mask"].Floats {
		b["mask"].Floats[i] = float32(i)
	}
	m, err := l.Match(b)
	if err != nil {
		t.Fatal(err)
	}
	mask, rest := make([]byte, 4*n*n), make([]byte, 4*n)
	if err := m.Fill(1, func(_ int, name string) ([]byte, error) {
		return map[bool][]byte{true: mask, false: rest}[name == "mask"], nil
	}); err != nil {
		t.Fatal(err)
	}
	for i, want := range b["mask"].Floats {
		if got := math.Float32frombits(binary.LittleEndian.Uint32(mask[4*i:])); got != want {
			t.Fatalf("number %d is %v, want %v", i, got, want)
		}
	}
}

func TestBatchesThatDoNotFit(t *testing.T) {
	l, err := batch.Trace(reader)
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(batch.Batch){
		`lacks "tokens"; the model reads tokens, positions, mask, targets`: func(b batch.Batch) { delete(b, "tokens") },
		`has "labels", which the model does not read`:                      func(b batch.Batch) { b["labels"] = b["targets"] },
		"it holds f32, the model reads i32":                                func(b batch.Batch) { b["tokens"] = batch.Floats(make([]float32, 6), 2, 3) },
		"the model reads 2 dimensions":                                     func(b batch.Batch) { b["tokens"] = batch.Ints(make([]int32, 6), 6) },
		"dimension 1 of its shape [2 4] is 4":                              func(b batch.Batch) { b["targets"] = batch.Ints(make([]int32, 8), 2, 4) },
		"its shape is [0 3]: it has no samples or positions":               func(b batch.Batch) { b["tokens"] = batch.Ints([]int32{}, 0, 3) },
		"has 6 elements, it holds 5":                                       func(b batch.Batch) { b["tokens"] = batch.Ints(make([]int32, 5), 2, 3) },
	} {
		b := two()
		change(b)
		if _, err := l.Match(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// Targets of losses of one's own count whatever they are called and hold: numbers, or classes.
func TestTargetsOfAnyKindCount(t *testing.T) {
	for name, tensor := range map[string]batch.Tensor{"targets": batch.Floats([]float32{0, 1}, 2), "target": batch.Ints([]int32{0, 1}, 2)} {
		d := dtype.F32
		if tensor.Ints != nil {
			d = dtype.I32
		}
		l, err := batch.Trace(func(sequences, _ int64) (*spec.Model, error) {
			return &spec.Model{Name: name, Batch: []spec.BatchTensor{{Name: name, Type: op.Type{DType: d, Shape: []int64{sequences}}}}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		m, err := l.Match(batch.Batch{name: tensor})
		if err != nil || m.Counted() != 2 {
			t.Errorf("%s of %v: %v counted, %v", name, d, m.Counted(), err)
		}
	}
}

// Floats that a model reads in 16 bits are rounded to nearest even, in every micro-batch.
func TestFloatsAreRounded(t *testing.T) {
	const width = 3<<20 + 5 // several parts, and a rest
	for _, d := range []dtype.Type{dtype.BF16, dtype.F16} {
		l, err := batch.Trace(func(sequences, _ int64) (*spec.Model, error) {
			return &spec.Model{Name: "images", Batch: []spec.BatchTensor{{Name: "input", Type: op.Type{DType: d, Shape: []int64{sequences, width}}}}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		numbers := make([]float32, 2*width)
		for i := range numbers {
			numbers[i] = op.Uniform(1, 2, uint64(i)) - 0.5
		}
		m, err := l.Match(batch.Batch{"input": batch.Floats(numbers, 2, width)})
		if err != nil {
			t.Fatal(err)
		}
		round := map[dtype.Type]func(float32) uint16{dtype.BF16: dtype.ToBF16, dtype.F16: dtype.ToF16}[d]
		var filled [2][2 * width]byte
		if err := m.Fill(2, func(micro int, _ string) ([]byte, error) { return filled[micro][:], nil }); err != nil {
			t.Fatal(err)
		}
		for i, number := range numbers {
			if got, want := binary.LittleEndian.Uint16(filled[i/width][2*(i%width):]), round(number); got != want {
				t.Fatalf("%v: number %d is %#x, want %#x", d, i, got, want)
			}
		}
		if _, err := l.Match(batch.Batch{"input": batch.Ints(make([]int32, 2*width), 2, width)}); err == nil || !strings.Contains(err.Error(), "it holds i32, the model reads f32") {
			t.Errorf("integers: %v", err)
		}
	}
}
