package weights_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"spillway/dtype"
	"spillway/executor"
	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/planner/strategy"
	"spillway/quant"
	"spillway/weights"
)

// stateExecutor starts a plan with states of every type, in pieces of some size.
func stateExecutor(t *testing.T, piece int64) *executor.Executor {
	t.Helper()
	goal := tiny.AdamW(1, true)
	goal.Optimizer.States = tiny.MixedStates("exp_avg", "exp_avg_sq")
	return started(t, graph.Train, goal, func(slabs, blocks int) strategy.Choice {
		c := strategy.Uniform(true, true, strategy.SaveNone, 2)(slabs, blocks)
		c.PieceElements = piece
		return c
	})
}

// fillNumbers gives f32 states numbers from very small to large; squares are positive.
func fillNumbers(t *testing.T, e *executor.Executor) {
	t.Helper()
	r := rand.New(rand.NewPCG(5, 6))
	for _, tensor := range e.States() {
		if err := e.Write(tensor, func(_ int64, chunk []byte) error {
			for i := 0; i < len(chunk); i += 4 {
				f := r.NormFloat64() * math.Pow(10, float64(r.IntN(12)-9))
				if tensor.State == "exp_avg_sq" {
					f = math.Abs(f)
				}
				binary.LittleEndian.PutUint32(chunk[i:], math.Float32bits(float32(f)))
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// States that move to a plan with other types have the bits of their numbers in those
// types, whatever the pieces, and back again those of what is left of them.
func TestParkedStatesAreConverted(t *testing.T) {
	full := started(t, graph.Train, tiny.AdamW(1, true), strategy.Uniform(false, false, strategy.SaveAll, 1))
	fillNumbers(t, full)
	numbers := contents(t, full, full.States())
	parked, err := weights.Park(full, "")
	if err != nil {
		t.Fatal(err)
	}
	defer parked.Close()
	for _, piece := range []int64{256, 1024, 1 << 20} {
		packed := stateExecutor(t, piece)
		if err := parked.Restore(packed); err != nil {
			t.Fatal(err)
		}
		expanded := map[string][]byte{}
		for _, tensor := range packed.States() {
			name := tensor.Param.Name + " " + tensor.State
			want, back := inType(t, tensor.Type.DType, numbers[name])
			expanded[name] = back
			if got := contents(t, packed, []executor.Tensor{tensor})[name]; !bytes.Equal(got, want) {
				t.Errorf("in pieces of %d, %s as %v does not have the bits of its numbers", piece, name, tensor.Type.DType)
			}
		}
		again, err := weights.Park(packed, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Restore(full); err != nil {
			t.Fatal(err)
		}
		same(t, contents(t, full, full.States()), expanded)
		again.Close()
	}
}

// inType is f32 numbers in another type, made of the whole tensor at once, and what they
// are in f32 again.
func inType(t *testing.T, to dtype.Type, raw []byte) (packed, back []byte) {
	t.Helper()
	numbers := make([]float32, len(raw)/4)
	dtype.F32.Decode(numbers, raw)
	packed, back = make([]byte, to.Bytes(int64(len(numbers)))), make([]byte, len(raw))
	if to.Block() {
		if err := quant.Encode(to, packed, numbers, len(numbers)); err != nil {
			t.Fatal(err)
		}
		if err := quant.Decode(to, numbers, packed, len(numbers)); err != nil {
			t.Fatal(err)
		}
	} else {
		for i, f := range numbers {
			if to == dtype.F16 && f != 0 { // which no number leaves
				numbers[i] = float32(math.Copysign(min(65504, max(math.Ldexp(1, -24), math.Abs(float64(f)))), float64(f)))
			}
		}
		to.Encode(packed, numbers)
		to.Decode(numbers, packed)
	}
	dtype.F32.Encode(back, numbers)
	return packed, back
}
