package weights

import (
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"spillway/dtype"
	"spillway/quant"
)

// steps is a param whose element i has the upper byte i/4096 in bf16; stored ones can be read as bytes.
type steps struct {
	stored bool
	fails  bool
}

var errSteps = errors.New("the disk is gone")

func (s steps) Read(_ string, first int64, dst []float32) error {
	for i := range dst {
		dst[i] = dtype.FromBF16(uint16((first+int64(i))/4096) << 8)
	}
	if s.fails {
		return errSteps
	}
	return nil
}

func (s steps) Packed(_ string, t dtype.Type) (io.Reader, bool) {
	return io.NewSectionReader(s, 0, 1<<40), s.stored && t == dtype.BF16
}

func (s steps) ReadAt(p []byte, off int64) (int, error) {
	for i := 0; i < len(p); i += 2 {
		binary.LittleEndian.PutUint16(p[i:], uint16((off+int64(i))/2/4096)<<8)
	}
	if s.fails {
		return 0, errSteps
	}
	return len(p), nil
}

// Upper bytes are counted of all numbers, or of every so many pieces, from numbers as from stored bytes.
func TestUpperBytesOfParts(t *testing.T) {
	for _, stored := range []bool{false, true} {
		for _, c := range []struct{ elements, wanted, each int64 }{{100, 1 << 20, 1}, {40 * 4096, 1 << 20, 1}, {40*4096 + 5, 10 * 4096, 4}, {200 * 4096, 1, 200 * 4096}} {
			counts, looked, err := UpperBytes(steps{stored: stored}, "w", c.elements, c.wanted)
			if err != nil {
				t.Fatal(err)
			}
			var want quant.UpperBytes
			var all int64
			for first := int64(0); first < c.elements; first += 4096 * c.each {
				n := min(c.elements-first, 4096)
				want[first/4096], all = n, all+n
			}
			if *counts != want || looked != all {
				t.Errorf("stored %v, %+v: %d numbers were counted, want %d", stored, c, looked, all)
			}
		}
		if _, _, err := UpperBytes(steps{stored: stored, fails: true}, "w", 100, 100); !errors.Is(err, errSteps) {
			t.Errorf("stored %v: reading failed, and it says %v", stored, err)
		}
	}
}
