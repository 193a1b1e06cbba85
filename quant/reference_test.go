package quant

import (
	"math"
	"testing"

	"spillway/dtype"
)

// What bitsandbytes coded decodes to its numbers, bit for bit, in every precision.
func TestFourBitDecodesAsBitsandbytes(t *testing.T) {
	f := open(t, "fourbit")
	for kind, code := range map[string]*FourBit{"nf4": FourBitOf(NF4), "fp4": FourBitOf(FP4)} {
		if err := sameBits(code.Values[:], f.numbers(kind+".values")); err != nil {
			t.Errorf("values of %s: %v", kind, err)
		}
		for _, name := range f.cases() {
			got := make([]float32, len(f.numbers(name)))
			code.Decode(got, f.bytes(name+"."+kind+".codes"), f.numbers(name+"."+kind+".absmax"), FourBitBlock)
			for _, to := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F16} {
				if err := sameBits(rounded(to, got), f.numbers(name+"."+kind+"."+to.Torch())); err != nil {
					t.Errorf("%s as %s to %v: %v", name, kind, to, err)
				}
			}
		}
	}
}

// Our codes are its codes; of FP4's two zeros it may take the other. In the last block
// its portable code divides, where its kernels and ours multiply by the reciprocal, and
// keeps an absmax of at least 1e-38: no number of these cases is near enough to a
// middle to show it.
func TestFourBitEncodesAsBitsandbytes(t *testing.T) {
	f := open(t, "fourbit")
	for kind, code := range map[string]*FourBit{"nf4": FourBitOf(NF4), "fp4": FourBitOf(FP4)} {
		for _, name := range f.cases() {
			x := f.numbers(name)
			codes, absmax := make([]byte, ceil(len(x), 2)), make([]float32, ceil(len(x), FourBitBlock))
			code.Encode(codes, absmax, x, FourBitBlock)
			want, wantMax := f.bytes(name+"."+kind+".codes"), f.numbers(name+"."+kind+".absmax")
			full := len(x) / FourBitBlock
			if err := sameBits(absmax[:full], wantMax[:full]); err != nil {
				t.Errorf("absmax of %s: %v", name, err)
			}
			for i := range 2 * len(codes) {
				got, want := nibble(codes, i), nibble(want, i)
				if got != want && !(code.Values[got] == 0 && code.Values[want] == 0) {
					t.Errorf("%s as %s: element %d has code %d, want %d", name, kind, i, got, want)
				}
			}
		}
	}
}

func nibble(codes []byte, i int) byte { return codes[i/2] >> (4 * (1 - i%2)) & 15 }

func TestScalesAreCodedAsBitsandbytes(t *testing.T) {
	f := open(t, "scales")
	absmax, offset := f.numbers("absmax"), f.numbers("offset")[0]
	s := NewScales(absmax)
	if d := math.Abs(float64(s.Offset-offset)) / float64(offset); d > 2e-7 { // it sums in f32
		t.Errorf("the mean is %v, want %v", s.Offset, offset)
	}
	s.encode(absmax, offset)
	if err := sameCodes(s.Codes, f.bytes("codes")); err != nil {
		t.Error(err)
	}
	if err := sameCodes(s.Groups, f.bytes("groups")); err != nil {
		t.Error(err)
	}
	got := make([]float32, len(absmax))
	s.Absmax(got, 0, &Signed.Values)
	if err := sameBits(got, f.numbers("decoded")); err != nil {
		t.Error(err)
	}
	tail := make([]float32, 45)
	s.Absmax(tail, 255, &Signed.Values)
	if err := sameBits(tail, got[255:]); err != nil {
		t.Errorf("from block 255 on: %v", err)
	}
}

func TestDynamicCodesAreBitsandbytes(t *testing.T) {
	f := open(t, "dynamic")
	for sign, d := range map[string]*Dynamic{"signed": Signed, "unsigned": Unsigned} {
		if err := sameBits(d.Values[:], f.numbers(sign+".values")); err != nil {
			t.Errorf("%s map: %v", sign, err)
		}
		for _, name := range f.cases() {
			x, want, absmax := f.numbers(name), f.bytes(name+"."+sign+".codes"), f.numbers(name+"."+sign+".absmax")
			got, back := make([]byte, len(x)), make([]float32, len(x))
			for b, most := range absmax {
				from, to := 256*b, min(256*b+256, len(x))
				part := x[from:to]
				if sign == "unsigned" {
					part = magnitudes(part)
				}
				if got := AbsMax(part); got != most && most > 1.001e-38 {
					t.Errorf("%s: absmax of block %d is %v, want %v", name, b, got, most)
				}
				d.Encode(got[from:to], part, most)
				d.Decode(back[from:to], want[from:to], most)
			}
			if err := sameBits(back, f.numbers(name+"."+sign+".decoded")); err != nil {
				t.Errorf("%s, %s: %v", name, sign, err)
			}
			if err := sameCodes(got, want); err != nil {
				t.Errorf("%s, %s: %v", name, sign, err)
			}
		}
	}
}

func magnitudes(x []float32) []float32 {
	out := make([]float32, len(x))
	for i, f := range x {
		out[i] = float32(math.Abs(float64(f)))
	}
	return out
}

func TestRowsAreCodedAsBitsandbytes(t *testing.T) {
	f := open(t, "rows")
	w := f.numbers("w")
	cols := int(f.tensor("w").Shape[1])
	codes, absmax, back := make([]int8, len(w)), make([]float32, len(w)/cols), make([]float32, len(w))
	rows8(codes, absmax, w, cols)
	if err := sameBits(absmax, f.numbers("absmax")); err != nil {
		t.Errorf("absmax: %v", err)
	}
	if err := sameCodes(unsigned(codes), f.bytes("codes")); err != nil {
		t.Error(err)
	}
	for i, c := range codes {
		back[i] = float32(float32(c)*absmax[i/cols]) * one127th
	}
	if err := sameBits(back, f.numbers("decoded")); err != nil {
		t.Error(err)
	}
}

// rows8 is the plain form of RowI8: each row has its absmax, and elements are whole 127ths
// of it.
func rows8(dst []int8, absmax, src []float32, cols int) {
	for r := range absmax {
		row := src[r*cols : (r+1)*cols]
		most, factor := absMaxI8(row)
		absmax[r] = most
		for i, x := range row {
			dst[r*cols+i] = int8(int8Of(x, factor))
		}
	}
}

func unsigned(codes []int8) []byte {
	out := make([]byte, len(codes))
	for i, c := range codes {
		out[i] = byte(c)
	}
	return out
}

func TestFloatsOf8BitsAreTorchs(t *testing.T) {
	f := open(t, "floats")
	e4 := f.bytes("e4m3")
	for i, x := range f.numbers("x") {
		if got := dtype.ToF8E4M3(x); got != e4[i] {
			t.Errorf("e4m3 of %v is %#02x, PyTorch has %#02x", x, got, e4[i])
		}
	}
}

// The row types are laid out as said, and RowI8 holds what bitsandbytes computes.
func TestRowTypes(t *testing.T) {
	f := open(t, "rows")
	w := f.numbers("w")
	cols := int(f.tensor("w").Shape[1])
	for _, kind := range []dtype.Type{RowI8, RowF8} {
		packed := make([]byte, len(w)/cols*int(kind.Bytes(int64(cols))))
		back := make([]float32, len(w))
		if err := Encode(kind, packed, w, cols); err != nil {
			t.Fatal(err)
		}
		if err := Decode(kind, back, packed, cols); err != nil {
			t.Fatal(err)
		}
		if kind == RowI8 {
			if err := sameCodes(packed[:len(w)], f.bytes("codes")); err != nil {
				t.Error(err)
			}
			if err := sameBits(back, f.numbers("decoded")); err != nil {
				t.Error(err)
			}
			continue
		}
		for i, x := range w {
			row := w[i/cols*cols : (i/cols+1)*cols]
			scale := AbsMax(row) / 448
			want := float32(0)
			if scale > 0 {
				want = dtype.FromF8E4M3(dtype.ToF8E4M3(x/scale)) * scale
			}
			// Three bits of fraction: a sixteenth of the number, or of the smallest normal one.
			if most := max(math.Abs(float64(x))/16, float64(scale)/1024); back[i] != want || math.Abs(float64(back[i]-x)) > most*1.001 {
				t.Fatalf("element %d is %v, coded %v, want %v", i, x, back[i], want)
			}
		}
		if got := RowScale(packed, len(w), 2); got != AbsMax(w[2*cols:3*cols])/448 {
			t.Errorf("the scale of row 2 is %v", got)
		}
	}
	if err := Encode(RowI8, make([]byte, 6), []float32{1e6, 1}, 2); err == nil {
		t.Error("a number that f16 cannot hold was coded")
	}
	if err := Decode(RowF8, make([]float32, 4), make([]byte, 11), 2); err == nil {
		t.Error("storage that is cut short was decoded")
	}
}
