package quant

import (
	"bytes"
	"io"
	"math"
	"slices"
	"testing"
	"testing/iotest"

	"spillway/dtype"
)

// pairs is a codec as small as one can be: blocks of two, an f32 scale and a byte of sign
// for each element. It has no Stream of its own.
var pairs = Register(Codec{
	Name: "pairs", Block: 2, Bytes: func(n int64) int64 { return (n + 1) / 2 * 6 },
	Encode: func(dst []byte, src []float32, _ int) error {
		for i := 0; i < len(src); i += 2 {
			block := src[i:min(i+2, len(src))]
			putF32(dst[3*i:], 0, AbsMax(block))
			clear(dst[3*i+4:][:2]) // buffers are used again, so every byte is written
			for k, x := range block {
				dst[3*i+4+k] = byte(math.Float32bits(x) >> 31)
			}
		}
		return nil
	},
	Decode: func(dst []float32, storage []byte, _, _, first int) {
		for i := range dst {
			block := storage[(first+i)/2*6:]
			dst[i] = getF32(block, 0) * (1 - 2*float32(block[4+(first+i)%2]))
		}
	},
})

// Decoding any range gives what decoding all gives, in every codec.
func TestRangesAreCutFromTheWhole(t *testing.T) {
	for _, c := range codecs {
		rows, cols := 7, 93
		if c.interleaver != nil { // which have whole blocks of 8 or 32 rows
			rows, cols = 32, 256
		}
		x := random(rows*cols, 2)
		if c.interleaver != nil && c.interleaver.compressed { // which has room for few sizes
			x = normal(rows*cols, 2)
		}
		size := c.Bytes(int64(rows * cols))
		if c.Block == 0 {
			size = int64(rows) * c.Bytes(int64(cols))
		}
		storage, whole := make([]byte, size), make([]float32, len(x))
		if err := Encode(c.Type, storage, x, cols); err != nil {
			t.Fatal(err)
		}
		if err := Decode(c.Type, whole, storage, cols); err != nil {
			t.Fatal(err)
		}
		for _, r := range [][2]int{{0, 1}, {1, 64}, {63, 65}, {64, 128}, {92, 94}, {100, 500}, {255, 300}, {650, 651}, {3, 3}} {
			part := make([]float32, r[1]-r[0])
			c.Decode(part, storage, len(x), cols, r[0])
			if !slices.Equal(part, whole[r[0]:r[1]]) {
				t.Errorf("%s: elements %d to %d differ", c.Name, r[0], r[1])
			}
		}
	}
}

// A codec without a Stream of its own is streamed block by block.
func TestDefaultStream(t *testing.T) {
	x := random(partElements*2+3, 8)
	want := make([]byte, pairs.Bytes(int64(len(x))))
	if err := Encode(pairs, want, x, len(x)); err != nil {
		t.Fatal(err)
	}
	r, err := Storage(pairs, 1, int64(len(x)), func(first int64, dst []float32) error { copy(dst, x[first:]); return nil })
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(iotest.HalfReader(r)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the stream differs from what is encoded at once (%v)", err)
	}
}

func TestCodecsAreFoundByName(t *testing.T) {
	for name, want := range map[string]dtype.Type{"nf4": NF4, "fp4": FP4, "int8": RowI8, "i8row": RowI8, "fp8": RowF8, "pairs": pairs} {
		if got, err := ParseWeights(name); err != nil || got != want {
			t.Errorf("%s is %v (%v), want %v", name, got, err, want)
		}
		if got, err := dtype.Parse(Of(want).Name); err != nil || got != want {
			t.Errorf("the type %s is %v (%v), want %v", Of(want).Name, got, err, want)
		}
	}
	if _, err := ParseWeights("dyn8"); err == nil || IsWeights(Dyn8) || IsWeights(dtype.F32) {
		t.Error("dyn8 or f32 were taken for formats of quantized weights")
	}
}

func TestBytes(t *testing.T) {
	for _, c := range []struct {
		t       dtype.Type
		n, want int64
	}{{NF4, 4096 * 4096, 8388608 + 262144 + 4096 + 4}, {NF4, 1, 1 + 1 + 4 + 4}, {Dyn8, 4096, 4096 + 64}, {UDyn8, 257, 257 + 8}, {Dyn8, 0, 0}, {RowI8, 100, 104}} {
		if got := c.t.Bytes(c.n); got != c.want {
			t.Errorf("%v.Bytes(%d) = %d, want %d", c.t, c.n, got, c.want)
		}
	}
}
