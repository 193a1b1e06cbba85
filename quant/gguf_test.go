package quant

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"spillway/dtype"
)

var ggufTypes = []dtype.Type{Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4NL, IQ4XS, MXFP4}

// Random blocks decode to the numbers of the gguf package, to the bit, also from the middle
// of a block on.
func TestGGUFTypesDecodeAsTheReference(t *testing.T) {
	f := open(t, "gguf")
	for _, kind := range ggufTypes {
		c := Of(kind)
		storage, want := f.bytes(kind.String()+".blocks"), f.numbers(kind.String()+".numbers")
		if c.Bytes(int64(len(want))) != int64(len(storage)) {
			t.Fatalf("%v: %d elements take %d bytes, want %d", kind, len(want), c.Bytes(int64(len(want))), len(storage))
		}
		for _, first := range []int{0, 1, c.Block - 1, c.Block, c.Block + 7} {
			got := make([]float32, len(want)-first)
			c.Decode(got, storage, len(want), len(want), first)
			for i := range got {
				if math.Float32bits(got[i]) != math.Float32bits(want[first+i]) {
					t.Fatalf("%v: element %d is %v, the gguf package has %v", kind, first+i, got[i], want[first+i])
				}
			}
		}
	}
}

// Types whose scales follow from a formula are encoded byte for byte as by the gguf package.
func TestGGUFTypesEncodeAsTheReference(t *testing.T) {
	f := open(t, "gguf")
	src := f.numbers("numbers")
	for _, kind := range []dtype.Type{Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, MXFP4} {
		want := f.bytes(kind.String() + ".encoded")
		got := make([]byte, len(want))
		if err := Encode(kind, got, src, 32); err != nil {
			t.Fatal(err)
		}
		size := len(want) / (len(src) / 32)
		for b := range len(src) / 32 {
			if !bytes.Equal(got[b*size:][:size], want[b*size:][:size]) {
				t.Errorf("%v: block %d is %x, the gguf package has %x", kind, b, got[b*size:][:size], want[b*size:][:size])
			}
		}
	}
}

// The searching types lose no more than their number of bits must: the error of normal
// numbers, as a share of their spread, is below a bound between this type and the next
// smaller one.
func TestGGUFTypesEncodeWell(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	src := make([]float32, 1<<14)
	for i := range src {
		src[i] = float32(r.NormFloat64())
	}
	for _, c := range []struct {
		kind dtype.Type
		most float64
	}{{Q2_K, 0.30}, {Q3_K, 0.19}, {Q4_K, 0.08}, {Q5_K, 0.04}, {Q6_K, 0.02}, {IQ4NL, 0.09}, {IQ4XS, 0.09}, {Q4_0, 0.11}, {Q8_0, 0.006}} {
		storage, got := make([]byte, Of(c.kind).Bytes(int64(len(src)))), make([]float32, len(src))
		if err := Encode(c.kind, storage, src, len(src)); err != nil {
			t.Fatal(err)
		}
		if err := Decode(c.kind, got, storage, len(src)); err != nil {
			t.Fatal(err)
		}
		var miss float64
		for i := range src {
			miss += float64(got[i]-src[i]) * float64(got[i]-src[i])
		}
		if miss = math.Sqrt(miss / float64(len(src))); !(miss < c.most) {
			t.Errorf("%v: error %.4f, want less than %.4f", c.kind, miss, c.most)
		}
	}
}

// Odd blocks survive: zeros, one number, tiny and huge ones, a block that does not end.
func TestGGUFTypesTakeOddBlocks(t *testing.T) {
	odd := func(fill func(i int) float32) []float32 {
		src := make([]float32, 300)
		for i := range src {
			src[i] = fill(i)
		}
		return src
	}
	for name, src := range map[string][]float32{
		"zeros":    odd(func(int) float32 { return 0 }),
		"one":      odd(func(i int) float32 { return map[bool]float32{true: 3}[i == 17] }),
		"equal":    odd(func(int) float32 { return -2.5 }),
		"tiny":     odd(func(i int) float32 { return 1e-30 * float32(i%7-3) }),
		"positive": odd(func(i int) float32 { return float32(i%5 + 1) }),
	} {
		for _, kind := range ggufTypes {
			storage, got := make([]byte, Of(kind).Bytes(int64(len(src)))), make([]float32, len(src))
			if err := Encode(kind, storage, src, len(src)); err != nil {
				t.Fatalf("%v of %s: %v", kind, name, err)
			}
			if err := Decode(kind, got, storage, len(src)); err != nil {
				t.Fatal(err)
			}
			for i := range got {
				share := 0.35
				if strings.HasPrefix(name, "tiny") {
					share = 1 // below the smallest f16 scale
				}
				if d := math.Abs(float64(got[i] - src[i])); !(d <= share*float64(AbsMax(src))) {
					t.Fatalf("%v of %s: element %d is %v, was %v", kind, name, i, got[i], src[i])
				}
			}
		}
	}
}
