package quant

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"spillway/dtype"
)

// random numbers over several decades, some of them zero.
func random(n int, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	out := make([]float32, n)
	for i := range out {
		if r.IntN(50) > 0 {
			out[i] = float32(r.NormFloat64() * math.Pow(10, -4*r.Float64()))
		}
	}
	return out
}

func TestMapsAreFixed(t *testing.T) {
	for want, d := range map[string]*Dynamic{
		"e732639a65f497b4ad684bb166a4467708255edd5207757de8b8f0c7e1fda89c": Signed,
		"305f002cc11278fb769d13b25b9fd0c7c83c8402c40a878fe086f4039fde6398": Unsigned,
	} {
		b, err := binary.Append(nil, binary.LittleEndian, d.Values)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(b)
		if got := hex.EncodeToString(sum[:]); got != want {
			t.Errorf("the map has SHA-256 %s, want %s", got, want)
		}
	}
}

// The fast search finds what counting finds: at every bound and the floats next to it,
// at powers of two, at both ends and at a million other numbers.
func TestEncoderFindsWhatCountingFinds(t *testing.T) {
	for name, l := range map[string]*encoder{"nf4": FourBitOf(NF4).encoder, "fp4": FourBitOf(FP4).encoder, "signed": Signed.encoder, "unsigned": Unsigned.encoder} {
		check := func(x float32) {
			if got, want := l.find(x), l.plain(x); got != want {
				t.Fatalf("%s: %v has code %d, want %d", name, x, got, want)
			}
		}
		for _, r := range l.bounds {
			for _, x := range []float32{r, math.Nextafter32(r, 2), math.Nextafter32(r, -2), -r} {
				check(x)
			}
		}
		for e := range 150 {
			x := float32(math.Ldexp(1, -e))
			check(x)
			check(-x)
			check(math.Nextafter32(x, 0))
		}
		for _, x := range []float32{0, float32(math.Copysign(0, -1)), 1.0000001, -1.0000001} {
			check(x)
		}
		for i := uint32(0); i < 0x3f800000; i += 9973 {
			check(math.Float32frombits(i))
			check(-math.Float32frombits(i))
		}
	}
}

// No number is further from what it became than half the widest gap between values,
// and the exact ends of a block come back as they were.
func TestErrorIsHalfAGapAtMost(t *testing.T) {
	for kind, gap := range map[dtype.Type]float64{NF4: 0.3039, FP4: 0.3334, Dyn8: 0.0141} {
		x := random(64*256*2+70, 3)
		b, back := make([]byte, kind.Bytes(int64(len(x)))), make([]float32, len(x))
		if err := errors.Join(Encode(kind, b, x, len(x)), Decode(kind, back, b, len(x))); err != nil {
			t.Fatal(err)
		}
		block := FourBitBlock
		slack := 0.02 // of the absmax, which is coded too
		if kind == Dyn8 {
			block, slack = StateBlock, 0
		}
		for i := range x {
			most := float64(AbsMax(x[i/block*block : min((i/block+1)*block, len(x))]))
			if d := math.Abs(float64(x[i] - back[i])); d > most*(gap/2+slack) {
				t.Fatalf("%v: element %d of a block to %v is %v and became %v", kind, i, most, x[i], back[i])
			}
		}
	}
}

// The storage is its parts one after another, as the package says.
func TestStorageIsItsParts(t *testing.T) {
	for _, n := range []int{0, 1, 2, 63, 64, 65, 1001, 64*256 + 1} {
		x := random(n, 9)
		b := make([]byte, NF4.Bytes(int64(n)))
		if err := Encode(NF4, b, x, n); err != nil {
			t.Fatal(err)
		}
		codes, absmax := make([]byte, ceil(n, 2)), make([]float32, ceil(n, 64))
		FourBitOf(NF4).Encode(codes, absmax, x, 64)
		s := NewScales(absmax)
		parts := bytes.Join([][]byte{codes, s.Codes, s.Groups, binary.LittleEndian.AppendUint32(nil, math.Float32bits(s.Offset))}, nil)
		if !bytes.Equal(b, parts) {
			t.Errorf("%d elements: the storage is not its parts", n)
		}
	}
	x := random(300, 4)
	b := make([]byte, Dyn8.Bytes(300))
	if err := Encode(Dyn8, b, x, 300); err != nil {
		t.Fatal(err)
	}
	absmax, codes := View8(300, b)
	if len(absmax) != 8 || len(codes) != 300 || getF32(absmax, 1) != AbsMax(x[256:]) {
		t.Errorf("%d bytes of absmax, %d codes, the second absmax %v, want %v", len(absmax), len(codes), getF32(absmax, 1), AbsMax(x[256:]))
	}
}

func TestStatesKeepSmallNumbers(t *testing.T) {
	x := []float32{1, 1e-12, -1e-12, 0, -0.5, float32(math.Copysign(0, -1))}
	for kind, want := range map[dtype.Type][]float32{Dyn8: {1, 5.5e-7, -5.5e-7, 0}, UDyn8: {1, 3.25e-7, 0, 0}} {
		b, back := make([]byte, kind.Bytes(6)), make([]float32, 6)
		if err := errors.Join(Encode(kind, b, x, len(x)), Decode(kind, back, b, len(x))); err != nil {
			t.Fatal(err)
		}
		for i, w := range want {
			if math.Abs(float64(back[i]-w)) > 1e-6*math.Abs(float64(w)) {
				t.Errorf("%v: %v became %v, want %v", kind, x[i], back[i], w)
			}
		}
		if back[5] != 0 {
			t.Errorf("%v: zero became %v", kind, back[5])
		}
	}
	back := random(300, 1)
	for i := range back {
		back[i] *= 0x1p-135
	}
	if b := make([]byte, Dyn8.Bytes(300)); Encode(Dyn8, b, back, 300) != nil || Decode(Dyn8, back, b, 300) != nil || AbsMax(back) != 0 || b[8] != Signed.Zero() {
		t.Errorf("blocks below the normal numbers hold %v, of codes like %d, want zeros", AbsMax(back), b[8])
	}
	if err := Decode(Dyn8, back, make([]byte, Dyn8.Bytes(300)), 300); err != nil || AbsMax(back) != 0 {
		t.Errorf("zero bytes hold %v (%v), want zeros", AbsMax(back), err)
	}
}

func TestRefuses(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	for want, err := range map[string]error{
		"f32 is not a block type":                 Encode(dtype.F32, nil, nil, 0),
		"11 bytes for 2 elements of nf4, want 10": Encode(NF4, make([]byte, 11), make([]float32, 2), 2),
		"9 bytes for 2 elements of fp4, want 10":  Decode(FP4, make([]float32, 2), make([]byte, 9), 2),
		"element 1 is NaN, which nf4":             Encode(NF4, make([]byte, 10), []float32{1, nan}, 2),
		"element 0 is -Inf, which dyn8":           Encode(Dyn8, make([]byte, 6), []float32{inf, 1}, 2),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// A tensor coded while it is read has the bytes it has when coded at once, however it is
// asked for.
func TestStorageStreams(t *testing.T) {
	for _, n := range []int{0, 1, 63, 65536, 65536*3 + 1001} {
		x := random(n, 5)
		from := func(first int64, dst []float32) error {
			copy(dst, x[first:])
			return nil
		}
		for _, kind := range []dtype.Type{NF4, FP4} {
			want := make([]byte, kind.Bytes(int64(n)))
			if err := Encode(kind, want, x, n); err != nil {
				t.Fatal(err)
			}
			r, err := Storage(kind, 1, int64(n), from)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(iotest.HalfReader(r))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d elements of %v differ from those coded at once (%v)", n, kind, err)
			}
		}
	}
}

// So do rows, whole ones at a time, and plain types.
func TestStreamsOfRowsAndPlainNumbers(t *testing.T) {
	for _, s := range [][2]int{{1, 1}, {3, 43}, {700, 301}, {2, 100_000}} {
		x := random(s[0]*s[1], 6)
		from := func(first int64, dst []float32) error {
			copy(dst, x[first:])
			return nil
		}
		for _, kind := range []dtype.Type{RowI8, RowF8, dtype.BF16, dtype.F16, dtype.F32} {
			var want []byte
			var r io.Reader
			var err error
			if kind.ByRows() {
				want = make([]byte, s[0]*int(kind.Bytes(int64(s[1]))))
				if err := Encode(kind, want, x, s[1]); err != nil {
					t.Fatal(err)
				}
				r, err = Storage(kind, int64(s[0]), int64(s[1]), from)
			} else {
				want = make([]byte, kind.Bytes(int64(len(x))))
				kind.Encode(want, x)
				r, err = Plain(kind, int64(len(x)), from)
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(iotest.HalfReader(r))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%v of %v differ from those coded at once (%v)", s, kind, err)
			}
		}
	}
	if _, err := Plain(NF4, 1, nil); err == nil {
		t.Error("nf4 was taken for plain")
	}
}

func TestStreamsStopAtErrors(t *testing.T) {
	broken := errors.New("disk gone")
	for want, from := range map[string]ReadFunc{
		"disk gone": func(first int64, _ []float32) error {
			if first > 0 {
				return broken
			}
			return nil
		},
		"element 65540 is NaN": func(first int64, dst []float32) error {
			clear(dst)
			if first == 65536 {
				dst[4] = float32(math.NaN())
			}
			return nil
		},
	} {
		r, err := Storage(NF4, 2, 100_000, from)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := Storage(Dyn8, 1, 1, nil); err == nil {
		t.Error("a stream of dyn8 was accepted")
	}
}

func BenchmarkCodecs(b *testing.B) {
	x := random(1<<20, 7)
	for _, kind := range []dtype.Type{NF4, FP4, Dyn8} {
		packed := make([]byte, kind.Bytes(int64(len(x))))
		run := func(name string, f func() error) {
			b.Run(fmt.Sprintf("%s/%v", name, kind), func(b *testing.B) {
				b.SetBytes(4 * int64(len(x)))
				for b.Loop() {
					if err := f(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		run("encode", func() error { return Encode(kind, packed, x, len(x)) })
		run("decode", func() error { return Decode(kind, x, packed, len(x)) })
	}
}

// Numbers in 4 bits are within half a step of what they were, the one of largest magnitude up to the rounding
// of its scale, and rows of zeros stay zeros; a row that is not finite reads as NaN.
func TestRowsOfFourBits(t *testing.T) {
	for _, cols := range []int{1, 31, 32, 33, 70, 128} {
		const rows = 5
		x := random(rows*cols, 9)
		clear(x[cols : 2*cols])
		storage := make([]byte, rows*int(RowI4.Bytes(int64(cols))))
		if want := rows * ((cols+1)/2 + 2*((cols+31)/32)); len(storage) != want {
			t.Fatalf("%d bytes for rows of %d, want %d", len(storage), cols, want)
		}
		if err := Encode(RowI4, storage, x, cols); err != nil {
			t.Fatal(err)
		}
		again, got := make([]byte, len(storage)), make([]float32, cols)
		for row := range rows {
			EncodeRow(RowI4, again, len(x), row, x[row*cols:(row+1)*cols])
		}
		if !bytes.Equal(again, storage) {
			t.Errorf("rows of %d by themselves have other codes", cols)
		}
		for row := range rows {
			ReadRow(RowI4, got, storage, len(x), row)
			for g := 0; g < cols; g += 32 {
				group := x[row*cols+g : row*cols+min(g+32, cols)]
				step := AbsMax(group) / 8
				for i, f := range group {
					off := math.Abs(float64(got[g+i] - f))
					if off > float64(step)*0.501 && !(f*got[g+i] > 0 && off <= float64(step)*1.01) { // the side opposite the largest has one code less
						t.Errorf("%v of rows of %d became %v, steps are %v", f, cols, got[g+i], step)
					}
				}
			}
		}
		x[0] = float32(math.NaN())
		EncodeRow(RowI4, storage, len(x), 0, x[:cols])
		ReadRow(RowI4, got, storage, len(x), 0)
		if got[0] == got[0] {
			t.Errorf("a row with NaN begins with %v", got[0])
		}
	}
}
