package quant

import (
	"bytes"
	"fmt"
	"io"

	"spillway/dtype"
)

// Interleaved types of the 4-bit codes of bitsandbytes. Codes of sixteen rows lie together, eight
// elements of each in 64 bytes; then come the scales, those of a block of sixteen rows together;
// groups and offset are as they were.
//
// Of the 64 bytes row r has bytes 4r to 4r+3: the codes of elements 0, 2, 1 and 3 are their lower
// halves, those of elements 4, 6, 5 and 7 their upper halves. So a word of 16 bits has codes of even
// elements, the next one those of the odd ones: codes that are looked up word by word come out as
// pairs.
var (
	NF4x16 = registerFourInterleaved(NF4)
	FP4x16 = registerFourInterleaved(FP4)
)

// fourInterleaver interleaves a 4-bit type.
type fourInterleaver struct{ of dtype.Type }

func registerFourInterleaved(of dtype.Type) dtype.Type {
	f := fourInterleaver{of}
	return Register(Codec{
		Name: fmt.Sprintf("%vx%d", of, InterleavedRows), Title: fmt.Sprintf("%v with %d rows together", of, InterleavedRows), Block: FourBitBlock,
		interleaver: &interleaver{of: of, rows: InterleavedRows, block: FourBitBlock, whole: f.interleave},
		Bytes:       fourBitBytes, Decode: f.decode,
		Encode: func(dst []byte, src []float32, cols int) error {
			if cols%FourBitBlock != 0 || len(src)%(InterleavedRows*max(cols, 1)) != 0 {
				return fmt.Errorf("%d numbers in rows of %d: %d rows of whole blocks of %d lie together", len(src), cols, InterleavedRows, FourBitBlock)
			}
			plain := make([]byte, len(dst))
			if err := Of(of).Encode(plain, src, cols); err != nil {
				return err
			}
			_, err := io.ReadFull(f.interleave(int64(len(src)/max(cols, 1)), int64(cols), bytes.NewReader(plain)), dst)
			return err
		},
		Stream: func(rows, cols int64, from ReadFunc) io.Reader {
			return &tailReader{tail: func() ([]byte, error) {
				plain, err := io.ReadAll(Of(of).Stream(rows, cols, from))
				if err != nil {
					return nil, err
				}
				return io.ReadAll(f.interleave(rows, cols, bytes.NewReader(plain)))
			}}
		},
	})
}

// fourAt is where the code of element i of eight of row r is in 64 bytes: a byte, and the bits
// that it is shifted by.
func fourAt(r, i int) (at, shift int) {
	return 4*r + i%2*2 + i/2%2, i / 4 * 4
}

// interleave reads as the interleaved matrix.
func (fourInterleaver) interleave(rows, cols int64, from io.ReaderAt) io.Reader {
	row := int(cols / 2) // bytes
	codes := &parallelReader{parts: rows / InterleavedRows, make: func(part int64, b *buffer) error {
		b.bytes = append(b.bytes[:0], make([]byte, InterleavedRows*row)...)
		plain := make([]byte, InterleavedRows*row)
		if _, err := from.ReadAt(plain, part*int64(len(plain))); err != nil && err != io.EOF {
			return err
		}
		for r := range InterleavedRows {
			for j, two := range plain[r*row : (r+1)*row] { // two elements, the first in the upper half
				at, shift := fourAt(r, 2*j%8)
				to := b.bytes[j/4*64+at:]
				to[0] |= two >> 4 << shift
				to[2] |= two & 15 << shift
			}
		}
		return nil
	}}
	return io.MultiReader(codes, &tailReader{tail: func() ([]byte, error) {
		n, blocks := rows*cols, int(cols/FourBitBlock)
		plain := make([]byte, fourBitBytes(n)-n/2)
		if _, err := from.ReadAt(plain, n/2); err != nil && err != io.EOF {
			return nil, err
		}
		tail := bytes.Clone(plain)
		for r := range int(rows) {
			for b := range blocks {
				tail[r/InterleavedRows*InterleavedRows*blocks+b*InterleavedRows+r%InterleavedRows] = plain[r*blocks+b]
			}
		}
		return tail, nil
	}})
}

func (f fourInterleaver) decode(dst []float32, storage []byte, n, cols, first int) {
	codes, scales := View4(n, storage)
	values, blocks := &Of(f.of).fourBit.Values, cols/FourBitBlock
	for i := range dst {
		row, col := (first+i)/cols, (first+i)%cols
		at, shift := fourAt(row%InterleavedRows, col%8)
		code := codes[row/InterleavedRows*InterleavedRows*cols/2+col/8*64+at] >> shift & 15
		b := col / FourBitBlock
		scale := Signed.Values[scales.Codes[row/InterleavedRows*InterleavedRows*blocks+b*InterleavedRows+row%InterleavedRows]]
		rest := float32(scale * getF32(scales.Groups, (row*blocks+b)/FourBitGroup)) // rounded, not fused
		dst[i] = values[code] * (rest + scales.Offset)
	}
}
