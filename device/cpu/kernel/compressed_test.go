package kernel

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"spillway/dtype"
	"spillway/quant"
)

// compressedMatrix is a transposed right operand in bf16, k by n, compressed.
func compressedMatrix(t testing.TB, m Matrix, n, k int) Matrix {
	t.Helper()
	halves := make([]byte, 2*n*k)
	for i, c := range m.Codes {
		binary.LittleEndian.PutUint16(halves[2*i:], c)
	}
	storage, err := io.ReadAll(quant.Interleave(quant.CompressedBF16, int64(n), int64(k), bytes.NewReader(halves)))
	if err != nil {
		t.Fatal(err)
	}
	parts := quant.ViewCompressed(n*k, storage)
	m.Interleaved, m.Codes, m.Compressed = true, nil, &parts
	return m
}

// escaping gives some of the codes upper bytes that few others have: as many as there is room for, in a run and apart.
func escaping(rng *rand.Rand, codes []uint16) {
	for i, c := range codes { // about 14 upper bytes
		codes[i] = c&0x807f | uint16(110+rng.IntN(14))<<7
	}
	room := len(codes) / 128
	for i := range room {
		at := rng.IntN(len(codes))
		if i < room/2 {
			at = len(codes)/3 + i
		}
		codes[at] = someBF16(rng, 60)
	}
}

// compressedSizes are columns and depths: one tile and many, slabs that begin within one.
var compressedSizes = [][2]int{{32, 32}, {64, 64}, {160, 160}, {96, 1120}, {352, 1536}}

// A matmul of bf16 by compressed weights has the bits of one with the same weights as they are: on all paths, for all numbers of rows,
// with one worker and with three.
func TestCompressedPairsHaveTheBitsOfPlainOnes(t *testing.T) {
	one, three := NewPool(1), NewPool(3)
	defer one.Close()
	defer three.Close()
	eachPath(t, func(t *testing.T) {
		rng := newRand()
		for i, s := range compressedSizes {
			for _, m := range []int{1, 2, 3, 4, 5, 7, 8, 9, 13, 17, 25, 48, 49, 100} {
				if m > 8 && s[0]*s[1] > 60_000 && !HasPairs() {
					continue
				}
				p, wide := newPairs(rng, m, s[0], s[1], 2)
				p.add(rng, wide, (i+m)%5)
				escaping(rng, p.B.Codes)
				wide.B.Data = make([]float32, len(p.B.Codes))
				dtype.BF16.Widen(wide.B.Data, p.B.Codes)
				p.B = compressedMatrix(t, p.B, p.N, p.K)
				comparePairs(t, p, wide, one, three)
			}
		}
	})
}

// The same with inputs in f32.
func TestCompressedWeightsHaveTheBitsOfPlainOnes(t *testing.T) {
	one, three := NewPool(1), NewPool(3)
	defer one.Close()
	defer three.Close()
	eachPath(t, func(t *testing.T) {
		rng := newRand()
		for _, s := range compressedSizes {
			for _, m := range []int{1, 2, 3, 4, 5, 7, 8, 9, 13, 17, 25, 48, 49, 100} {
				g := newGemm(rng, m, s[0], s[1], 2)
				switch m % 4 {
				case 0:
					g.Bias = random(rng, g.N)
				case 1:
					g.Plus = random(rng, len(g.C))
				case 2:
					g.Accumulate = true
				}
				g.B, _ = narrowed(g.B, dtype.BF16)
				escaping(rng, g.B.Codes)
				before := slices.Clone(g.C)
				g.Work = make([]float32, g.Workspace(3))
				g.Run(three)
				for _, pool := range []*Pool{one, three} {
					n := *g
					n.B, n.C = compressedMatrix(t, g.B, g.N, g.K), slices.Clone(before)
					n.Work = random(rng, n.Workspace(pool.Workers()))
					n.Run(pool)
					if !slices.Equal(n.C, g.C) {
						t.Fatalf("%dx%dx%d, %d workers: other bits", g.M, g.N, g.K, pool.Workers())
					}
				}
			}
		}
	})
}

// Storage of any bytes is decoded as the codec decodes it, to words and to numbers, by vectors and plainly: also codes of more escapes
// than there is room for.
func TestCompressedStorageIsDecodedAsByItsCodec(t *testing.T) {
	const n, k = 64, 96
	rng := newRand()
	eachPath(t, func(t *testing.T) {
		for round := range 40 {
			storage := make([]byte, quant.CompressedBF16.Bytes(n*k))
			for i := range storage {
				if storage[i] = byte(rng.Uint32()); rng.IntN(3) == 0 {
					storage[i] = 0xff
				}
			}
			parts := quant.ViewCompressed(n*k, storage)
			m := Matrix{Step: k, Compressed: &parts}
			if round%2 == 0 { // offsets that are right
				setOffsets(parts, n, k)
			}
			for _, col := range []int{0, 32} {
				for _, p0 := range []int{0, 8, 32, 88} {
					half := 16 + (k-p0)*40*(round%3) // next to each other, or in panels
					words, numbers := make([]float32, (k-p0)/2*40+half), make([]float32, (k-p0)*40+half)
					active.compressed.words(&words[0], 40, half, (k-p0)/4, m.compressedFrom(col, p0))
					active.compressed.numbers(&numbers[0], 40, half, (k-p0)/4, m.compressedFrom(col, p0))
					plain, want := make([]float32, len(words)), make([]float32, len(numbers))
					decodeWords(&plain[0], 40, half, (k-p0)/4, m.compressedFrom(col, p0))
					decodeNumbers(&want[0], 40, half, (k-p0)/4, m.compressedFrom(col, p0))
					if !slices.EqualFunc(words, plain, everyBit) || !slices.EqualFunc(numbers, want, everyBit) {
						t.Fatalf("columns from %d on, from %d of K on, are decoded otherwise than plainly", col, p0)
					}
				}
			}
		}
	})
}

// A vector of the plain decoder gives the numbers of the codec.
func TestPlainDecodingIsThatOfTheCodec(t *testing.T) {
	const n, k = 96, 160
	rng := newRand()
	codes := make([]uint16, n*k)
	escaping(rng, codes)
	m := compressedMatrix(t, Matrix{Type: dtype.BF16, Codes: codes, Step: k}, n, k)
	for col := 0; col < n; col += quant.HalfRows {
		for p0 := 0; p0 < k; p0 += 8 {
			numbers := make([]float32, (k-p0)*quant.HalfRows)
			decodeNumbers(&numbers[0], quant.HalfRows, quant.HalfRows/2, (k-p0)/4, m.compressedFrom(col, p0))
			for i, f := range numbers {
				if want := dtype.FromBF16(codes[(col+i%quant.HalfRows)*k+p0+i/quant.HalfRows]); !everyBit(f, want) {
					t.Fatalf("element %d of column %d is %v, want %v", p0+i/quant.HalfRows, col+i%quant.HalfRows, f, want)
				}
			}
		}
	}
}

func everyBit(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }

// setOffsets makes the offsets those of the codes.
func setOffsets(c quant.Compressed, n, k int) {
	var count uint32
	for tile := range n * k / 1024 {
		binary.LittleEndian.PutUint32(c.Offsets[4*tile:], count)
		for group := range 8 {
			for _, code := range c.Codes[(8*tile+group)*quant.CompressedGroup+128:][:64] {
				if code&15 == quant.CompressedCode {
					count++
				}
				if code>>4 == quant.CompressedCode {
					count++
				}
			}
		}
	}
}

// Running allocates nothing, with few rows and with many.
func TestCompressedMatmulsAllocateNothing(t *testing.T) {
	pool := NewPool(2)
	defer pool.Close()
	eachPath(t, func(t *testing.T) {
		for _, m := range []int{1, 20, 60} {
			p, wide := newPairs(newRand(), m, 64, 64, 2)
			escaping(newRand(), p.B.Codes)
			p.B = compressedMatrix(t, p.B, p.N, p.K)
			wide.B = p.B
			p.Work, wide.Work = make([]float32, p.Workspace(2)), make([]float32, wide.Workspace(2))
			for _, run := range []func(){func() { p.Run(pool) }, func() { wide.Run(pool) }} {
				run()
				if n := testing.AllocsPerRun(10, run); n > 0 {
					t.Errorf("%d rows: %v allocations a run", m, n)
				}
			}
		}
	})
}
