package quant

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"testing"

	"spillway/dtype"
)

// normal is numbers as weights are: each row of 64 has a scale of its own.
func normal(n int, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 3))
	x, scale := make([]float32, n), 0.0
	for i := range x {
		if i%64 == 0 {
			scale = 0.02 * math.Exp2(r.NormFloat64()/2)
		}
		x[i] = float32(r.NormFloat64() * scale)
	}
	return x
}

// compressed is the storage of bf16 numbers, little endian.
func compressed(t testing.TB, halves []byte, rows, cols int) []byte {
	t.Helper()
	storage, err := io.ReadAll(Interleave(CompressedBF16, int64(rows), int64(cols), bytes.NewReader(halves)))
	if err != nil {
		t.Fatal(err)
	}
	if want := CompressedBF16.Bytes(int64(rows * cols)); int64(len(storage)) != want {
		t.Fatalf("%dx%d takes %d bytes, want %d", rows, cols, len(storage), want)
	}
	return storage
}

// Every bit comes back of all patterns there are: of zeros, subnormals, infinities and NaN. Most are escapes, among enough
// numbers that are none.
func TestCompressedWeightsKeepEveryPattern(t *testing.T) {
	const rows, cols = 2048, 4096
	halves := make([]byte, 2*rows*cols)
	for i := range rows * cols { // the patterns lie apart and in runs
		binary.LittleEndian.PutUint16(halves[2*i:], 0x3c00|uint16(i%200))
	}
	const apart = rows * cols / (1 << 16)
	for i := range 1 << 15 {
		binary.LittleEndian.PutUint16(halves[2*apart*i:], uint16(i))
		binary.LittleEndian.PutUint16(halves[2*(rows*cols-1-i):], uint16(i+1<<15))
	}
	decoded := make([]float32, rows*cols)
	if err := Decode(CompressedBF16, decoded, compressed(t, halves, rows, cols), cols); err != nil {
		t.Fatal(err)
	}
	for i, f := range decoded {
		if want := binary.LittleEndian.Uint16(halves[2*i:]); math.Float32bits(f) != uint32(want)<<16 {
			t.Fatalf("element %d is %#08x, was %#04x", i, math.Float32bits(f), want)
		}
	}
}

// Numbers come back in any shape that is compressed, from any element on, and encoding numbers gives what their storage in bf16
// gives.
func TestCompressedWeightsOfAnyShape(t *testing.T) {
	for _, s := range [][2]int{{32, 32}, {32, 96}, {64, 32}, {160, 224}, {1024, 64}, {96, 1056}} {
		rows, cols := s[0], s[1]
		numbers := normal(rows*cols, 5)
		halves, want := make([]byte, 2*len(numbers)), make([]float32, len(numbers))
		dtype.BF16.Encode(halves, numbers)
		dtype.BF16.Decode(want, halves)
		storage := compressed(t, halves, rows, cols)
		encoded := make([]byte, len(storage))
		if err := Encode(CompressedBF16, encoded, numbers, cols); err != nil || !bytes.Equal(encoded, storage) {
			t.Errorf("%v: encoded from numbers it has other bytes, %v", s, err)
		}
		for _, first := range []int{0, 1, 33, rows*cols/2 + 5, rows*cols - 1} {
			got := make([]float32, len(want)-first)
			Of(CompressedBF16).Decode(got, storage, len(want), cols, first)
			for i, f := range got {
				if math.Float32bits(f) != math.Float32bits(want[first+i]) {
					t.Fatalf("%v: element %d is %v, was %v", s, first+i, f, want[first+i])
				}
			}
		}
	}
	for _, s := range [][2]int64{{0, 32}, {32, 0}, {16, 32}, {33, 32}, {32, 40}} {
		if CompressedShape(s[0], s[1]) {
			t.Errorf("%v is compressed", s)
		}
	}
	if kind, _ := Interleaved(dtype.BF16, 32, 32); kind != BF16x32 || InterleavedOf(CompressedBF16) != dtype.BF16 {
		t.Errorf("bf16 is interleaved as %v, and %v is made of %v", kind, CompressedBF16, InterleavedOf(CompressedBF16))
	}
}

// A matrix with more escapes than there is room for is said to be none before it is encoded, and encoding it is an error.
func TestCompressingTellsWhatDoesNotFit(t *testing.T) {
	const rows, cols = 64, 256
	for _, c := range []struct {
		escapes int
		fits    bool
	}{{0, true}, {rows * cols / CompressedRoom, true}, {rows*cols/CompressedRoom + 1, false}, {rows * cols / 2, false}} {
		halves := make([]byte, 2*rows*cols)
		for i := range rows * cols { // 15 upper bytes alike often, and some more
			upper := byte(i % CompressedCode)
			if i < c.escapes {
				upper = byte(100 + i%128)
			}
			halves[2*i+1] = upper
		}
		var counts UpperBytes
		counts.Add(halves[:100])
		counts.Add(halves[100:])
		escapes := counts.Escapes()
		if (escapes <= rows*cols/CompressedRoom) != c.fits || c.escapes <= rows*cols/CompressedRoom && escapes != int64(c.escapes) {
			t.Errorf("%d others: counted %d, fits should be %v", c.escapes, escapes, c.fits)
		}
		_, err := io.ReadAll(Interleave(CompressedBF16, rows, cols, bytes.NewReader(halves)))
		var full *RoomError
		if (err == nil) != c.fits || err != nil && (!errors.As(err, &full) || int64(full.Escapes) != escapes || full.Room != rows*cols/CompressedRoom) {
			t.Errorf("%d others: %v", c.escapes, err)
		}
	}
}

// Counting numbers counts what they are rounded to.
func TestUpperBytesOfNumbers(t *testing.T) {
	numbers := append(normal(1000, 7), 0, float32(math.Inf(1)), float32(math.NaN()), 1.9999, -1e-42)
	halves := make([]byte, 2*len(numbers))
	dtype.BF16.Encode(halves, numbers)
	var stored, rounded UpperBytes
	stored.Add(halves)
	rounded.AddNumbers(numbers)
	var sum int64
	for _, n := range stored {
		sum += n
	}
	if stored != rounded || sum != int64(len(numbers)) {
		t.Errorf("counted %d of %d, otherwise %v", sum, len(numbers), stored != rounded)
	}
}

// Storage of any bytes is decoded to some numbers, and nothing outside it is read.
func TestCompressedStorageOfAnyBytes(t *testing.T) {
	const rows, cols = 64, 96
	r := rand.New(rand.NewPCG(9, 9))
	for range 50 {
		storage := make([]byte, CompressedBF16.Bytes(rows*cols))
		for i := range storage {
			if storage[i] = byte(r.Uint32()); r.IntN(3) == 0 {
				storage[i] = 0xff
			}
		}
		if err := Decode(CompressedBF16, make([]float32, rows*cols), storage, cols); err != nil {
			t.Fatal(err)
		}
		c := ViewCompressed(rows*cols, storage)
		for group := range cols / 4 {
			if at := c.Escape(1, group, cols/4); at < 0 || at > c.Room() {
				t.Fatalf("group %d begins at escape %d of %d", group, at, c.Room())
			}
		}
	}
}

// BenchmarkCompressing shows how fast weights are counted and compressed on all cores, and how many bits one takes.
func BenchmarkCompressing(b *testing.B) {
	const rows, cols = 4096, 4096
	numbers := normal(rows*cols, 1)
	halves := make([]byte, 2*len(numbers))
	dtype.BF16.Encode(halves, numbers)
	b.Run("counting", func(b *testing.B) {
		b.SetBytes(int64(len(halves)))
		var escapes int64
		for b.Loop() {
			var counts UpperBytes
			counts.Add(halves)
			escapes = counts.Escapes()
		}
		b.ReportMetric(100*float64(escapes)/float64(len(numbers)), "%escapes")
	})
	b.Run("compressing", func(b *testing.B) {
		b.SetBytes(int64(len(halves)))
		var size int64
		for b.Loop() {
			n, err := io.Copy(io.Discard, Interleave(CompressedBF16, rows, cols, bytes.NewReader(halves)))
			if size = n; err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(8*float64(size)/float64(len(numbers)), "bits/weight")
	})
	b.Run("interleaving", func(b *testing.B) {
		b.SetBytes(int64(len(halves)))
		for b.Loop() {
			if _, err := io.Copy(io.Discard, Interleave(BF16x32, rows, cols, bytes.NewReader(halves))); err != nil {
				b.Fatal(err)
			}
		}
	})
}
