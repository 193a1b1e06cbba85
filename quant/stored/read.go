package stored

import (
	"bytes"
	"fmt"
	"io"

	"spillway/quant"
)

// ReadF32 reads len(dst) elements from the element first on: the numbers bitsandbytes
// decodes in f32. It may be called from several goroutines.
func (t Tensor) ReadF32(dst []float32, first int64) error {
	if t.fourBit == nil && t.rowScales == nil {
		return t.data.ReadF32(dst, first)
	}
	if n := t.Shape.Elements(); first < 0 || first > n || int64(len(dst)) > n-first {
		return fmt.Errorf("weight %s has %d elements, %d from element %d were asked for", t.Name, n, len(dst), first)
	}
	read := t.readFourBit
	if t.rowScales != nil {
		read = t.readRows
	}
	for len(dst) > 0 {
		n := min(len(dst), pieceElements-int(first%pieceElements))
		if err := read(dst[:n], first); err != nil {
			return fmt.Errorf("weight %s: %w", t.Name, err)
		}
		dst, first = dst[n:], first+int64(n)
	}
	return nil
}

// pieceElements is how many elements are decoded at a time: whole blocks of any size.
const pieceElements = 32 << 10

func (t Tensor) readRows(dst []float32, first int64) error {
	raw := make([]byte, len(dst))
	if _, err := t.data.ReadAt(raw, first); err != nil {
		return err
	}
	cols := t.Shape[1]
	for i := 0; i < len(dst); {
		row := (first + int64(i)) / cols
		end := min(len(dst), int((row+1)*cols-first))
		quant.DecodeRow(t.Type, dst[i:end], raw[i:end], t.rowScales[row])
		i = end
	}
	return nil
}

// readFourBit decodes whole blocks around the elements and keeps those.
func (t Tensor) readFourBit(dst []float32, first int64) error {
	s := t.fourBit
	from := first / s.block * s.block
	end := min((first+int64(len(dst))+s.block-1)/s.block*s.block, t.Shape.Elements())
	absmax, err := s.absmax(from/s.block, (end-from+s.block-1)/s.block)
	if err != nil {
		return err
	}
	codes := make([]byte, (end-from+1)/2)
	if _, err := t.data.ReadAt(codes, from/2); err != nil {
		return err
	}
	whole := make([]float32, end-from)
	s.decode(whole, codes, absmax)
	copy(dst, whole[first-from:])
	return nil
}

// decode is that of the file's own sixteen values.
func (s *fourBit) decode(dst []float32, codes []byte, absmax []float32) {
	for i := range dst {
		c := codes[i/2] >> (4 * (1 - i%2)) & 15
		dst[i] = s.values[c] * absmax[int64(i)/s.block]
	}
}

// absmax of n blocks from the first-th on.
func (s *fourBit) absmax(first, n int64) ([]float32, error) {
	out := make([]float32, n)
	if !s.nested {
		return out, s.scales.ReadF32(out, first)
	}
	// Group boundaries are kept: codes begin with those of a whole group.
	begin := first / quant.FourBitGroup * quant.FourBitGroup
	codes := make([]byte, first+n-begin)
	if _, err := s.scales.ReadAt(codes, begin); err != nil {
		return nil, err
	}
	scales := quant.Scales{Codes: codes, Groups: s.groups[4*begin/quant.FourBitGroup:], Offset: s.offset}
	scales.Absmax(out, int(first-begin), &s.map8)
	return out, nil
}

// Storage reads as the weight in the storage of package quant, of the type Type, byte for
// byte what the file has; ok is false where the file's format differs from it in more
// than the order of its parts: absmax in f32, or other sizes of blocks. Exact says that
// it decodes to the very same numbers. Otherwise the maps of the file differ in
// their last bits.
func (t Tensor) Storage() (r io.Reader, exact, ok bool) {
	codes := io.NewSectionReader(t.data, 0, t.data.Bytes)
	if t.rowScales != nil {
		return io.MultiReader(codes, bytes.NewReader(quant.F32Bytes(t.rowScales))), true, true
	}
	if t.fourBit == nil || !t.fourBit.matchesStorage(t.Type) {
		return nil, false, false
	}
	s := t.fourBit
	tail := quant.Scales{Groups: s.groups, Offset: s.offset}.Append(nil)
	r = io.MultiReader(codes, io.NewSectionReader(s.scales, 0, s.scales.Bytes), bytes.NewReader(tail))
	return r, s.map8 == quant.Signed.Values, true
}
