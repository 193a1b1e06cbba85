package cuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"testing"

	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
	"spillway/shape"
)

// decompressed is what the kernel makes of storage.
func decompressed(t *testing.T, d *Device, rows, cols int, storage []byte) []byte {
	t.Helper()
	c, err := op.Make(op.Dequantize, op.Attr{To: dtype.BF16}, op.Type{DType: quant.CompressedBF16, Shape: shape.Of(rows, cols)})
	if err != nil {
		t.Fatal(err)
	}
	return launched(t, d, c, op.Args{}, 0, storage)[1]
}

// Every bit of a weight in 12 bits comes back on the GPU: of all 65,536 patterns, with as many escapes as there is room for, in one
// place and all over, and of an odd number of tiles.
func TestDecompressedWeightsHaveEveryBit(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	patterns := func(i, n int) uint16 { // runs of them at the end, others apart
		if apart := n >> 16; apart > 0 && i%apart == 0 {
			return uint16(i / apart)
		}
		return 0x3c00 | uint16(i%200)
	}
	few := func(escape func(i, n int) bool) func(i, n int) uint16 {
		return func(i, n int) uint16 {
			if escape(i, n) {
				return uint16(100+i%128)<<8 | uint16(i%251)
			}
			return uint16(i%quant.CompressedCode)<<8 | uint16(i%253)
		}
	}
	for _, c := range []struct {
		name       string
		rows, cols int
		number     func(i, n int) uint16
	}{
		{"all patterns", 2048, 4096, patterns},
		{"none", 64, 96, few(func(i, n int) bool { return false })},
		{"at the beginning", 512, 352, few(func(i, n int) bool { return i < n/quant.CompressedRoom })},
		{"at the end", 96, 1056, few(func(i, n int) bool { return i >= n-n/quant.CompressedRoom })},
		{"all over", 32, 32 * 129, few(func(i, n int) bool { return i%quant.CompressedRoom == 77 })},
	} {
		t.Run(c.name, func(t *testing.T) {
			halves := make([]byte, 2*c.rows*c.cols)
			for i := range c.rows * c.cols {
				binary.LittleEndian.PutUint16(halves[2*i:], c.number(i, c.rows*c.cols))
			}
			storage, err := io.ReadAll(quant.Interleave(quant.CompressedBF16, int64(c.rows), int64(c.cols), bytes.NewReader(halves)))
			if err != nil {
				t.Fatal(err)
			}
			if got := decompressed(t, d, c.rows, c.cols, storage); !bytes.Equal(got, halves) {
				t.Error("other bits came back")
			}
		})
	}
}

// Storage of any bytes is decoded to the numbers that the codec says, and nothing outside it is read.
func TestDecompressingAnyStorage(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	r := rand.New(rand.NewPCG(5, 5))
	for i := range 20 {
		rows, cols := 32*(1+r.IntN(4)), 32*(1+r.IntN(9))
		storage := make([]byte, quant.CompressedBF16.Bytes(int64(rows*cols)))
		for k := range storage {
			if storage[k] = byte(r.Uint32()); r.IntN(3) == 0 {
				storage[k] = 0xff
			}
		}
		want := make([]float32, rows*cols)
		if err := quant.Decode(quant.CompressedBF16, want, storage, cols); err != nil {
			t.Fatal(err)
		}
		got := decompressed(t, d, rows, cols, storage)
		for k, f := range want {
			if at := uint32(binary.LittleEndian.Uint16(got[2*k:])) << 16; at != math.Float32bits(f) {
				t.Fatal(fmt.Sprintf("storage %d of %dx%d: element %d is %#08x, the codec says %#08x", i, rows, cols, k, at, math.Float32bits(f)))
			}
		}
	}
}
