package quant

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"testing"

	"spillway/dtype"
)

// An interleaved matrix has the numbers of the one it is made of, from any element on, made from
// storage and from numbers.
func TestInterleavedRowsHaveTheSameNumbers(t *testing.T) {
	const rows, cols = 96, 512
	rng := rand.New(rand.NewPCG(1, 2))
	numbers := make([]float32, rows*cols)
	for i := range numbers {
		numbers[i] = float32(rng.NormFloat64())
	}
	for _, of := range []dtype.Type{Q4_0, Q8_0, Q4_K, Q6_K, NF4, FP4, dtype.BF16, dtype.F16} {
		t.Run(fmt.Sprint(of), func(t *testing.T) {
			kind, ok := Interleaved(of, rows, cols)
			if !ok || InterleavedOf(kind) != of || InterleavedOf(of) != dtype.Invalid {
				t.Fatalf("%v is interleaved as %v, %v", of, kind, ok)
			}
			storage, want := make([]byte, of.Bytes(rows*cols)), make([]float32, rows*cols)
			if of.Block() {
				for i := range storage {
					storage[i] = byte(rng.Uint32())
				}
				if err := Encode(of, storage, numbers, cols); err != nil {
					t.Fatal(err)
				}
				for i := range storage { // other scales and codes, none of them NaN
					if rng.IntN(3) == 0 && (of != NF4 && of != FP4 || i < rows*cols/2) {
						storage[i] ^= byte(rng.Uint32()) & 0x33
					}
				}
				Of(of).Decode(want, storage, len(want), cols, 0)
			} else {
				of.Encode(storage, numbers)
				of.Decode(want, storage)
			}
			got, err := io.ReadAll(Interleave(kind, rows, cols, bytes.NewReader(storage)))
			if err != nil || len(got) != len(storage) {
				t.Fatalf("%d bytes of %d, %v", len(got), len(storage), err)
			}
			for _, first := range []int{0, 5, cols - 1, 9*cols + 300} {
				decoded := make([]float32, len(want)-first)
				Of(kind).Decode(decoded, got, len(want), cols, first)
				for i, f := range decoded {
					if math.Float32bits(f) != math.Float32bits(want[first+i]) {
						t.Fatalf("element %d is %v, was %v", first+i, f, want[first+i])
					}
				}
			}
			r, err := Storage(kind, rows, cols, func(first int64, dst []float32) error {
				copy(dst, numbers[first:])
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			streamed, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			if of.Block() {
				if err := Encode(of, storage, numbers, cols); err != nil {
					t.Fatal(err)
				}
			}
			if got, _ = io.ReadAll(Interleave(kind, rows, cols, bytes.NewReader(storage))); !bytes.Equal(got, streamed) {
				t.Error("encoded from numbers it has other bytes")
			}
		})
	}
	for _, s := range [][2]int64{{12, 256}, {8, 40}, {0, 256}} {
		if kind, ok := Interleaved(Q4_K, s[0], s[1]); ok {
			t.Errorf("%v rows of %v are interleaved as %v", s[0], s[1], kind)
		}
	}
	if kind, ok := Interleaved(IQ4XS, 8, 256); ok {
		t.Errorf("iq4_xs is interleaved as %v", kind)
	}
}
