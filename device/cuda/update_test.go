package cuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"spillway/device"
	"spillway/device/cpu"
	"spillway/dtype"
	"spillway/op"
	"spillway/optim"
	"spillway/quant"
	"spillway/shape"
)

// bothDevices are the GPU and the CPU, which are to give the same bits.
type bothDevices struct{ gpu, cpu device.Device }

func openBoth(t *testing.T) bothDevices {
	t.Helper()
	gpu, host := openGPU(t, Options{}), cpu.Open(cpu.Options{})
	t.Cleanup(func() {
		gpu.Close()
		host.Close()
	})
	return bothDevices{gpu, host}
}

// updating is an update with its scalars.
type updating struct {
	kind    op.Kind
	kept    int // how many states
	scalars op.Scalars
}

var updatings = map[string]updating{
	"adamw":             {optim.Adam, 2, optim.AdamStep{Rate: 1e-3, Decay: 0.1, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Bias1: 0.1, Bias2: 0.0316, Decoupled: true}.Scalars()},
	"adam":              {optim.Adam, 2, optim.AdamStep{Rate: 1e-3, Decay: 0.1, Beta1: 0.9, Beta2: 0.95, Eps: 1e-6, Bias1: 0.5, Bias2: 0.7}.Scalars()},
	"adamw without eps": {optim.Adam, 2, optim.AdamStep{Rate: 1e-3, Decay: 0.1, Beta1: 0.9, Beta2: 0.999, Bias1: 0.1, Bias2: 0.0316, Decoupled: true}.Scalars()},
	"sgd":               {optim.SGD, 1, optim.SGDStep{Rate: 1e-2, Decay: 0.01, Momentum: 0.9, Dampening: 0.2}.Scalars()},
	"sgd, first":        {optim.SGD, 1, optim.SGDStep{Rate: 1e-2, Decay: 0.01, Momentum: 0.9, First: true}.Scalars()},
	"nesterov":          {optim.SGD, 1, optim.SGDStep{Rate: 1e-2, Decay: 0.01, Momentum: 0.9, Nesterov: true}.Scalars()},
	"momentum of 0":     {optim.SGD, 1, optim.SGDStep{Rate: 1e-2, Decay: 0.01}.Scalars()},
	"sgd that is bare":  {optim.SGD, 0, optim.SGDStep{Rate: 1e-2, Decay: 0.01}.Scalars()},
	"rmsprop":           {optim.RMSprop, 1, optim.RMSpropStep{Rate: 1e-3, Decay: 0.1, Alpha: 0.99, Rest: 0.01, Eps: 1e-8}.Scalars()},
	"adagrad":           {optim.RMSprop, 1, optim.RMSpropStep{Rate: 1e-2, Alpha: 1, Rest: 1, Eps: 1e-10}.Scalars()},
	"lion":              {optim.Lion, 1, optim.LionStep{Rate: 1e-4, Decay: 0.1, Beta1: 0.9, Beta2: 0.99}.Scalars()},
}

// squares says whether an operand is never negative: a state of squares, whose codes have no sign.
func (u updating) squares(operand int) bool {
	return operand == 3 || operand == 2 && u.kind == optim.RMSprop
}

// call of a rule on n elements.
func (u updating) call(t *testing.T, n int, weight, copied, gradient dtype.Type, kept [2]dtype.Type) op.Call {
	t.Helper()
	in := []op.Type{{DType: weight, Shape: shape.Of(n)}, {DType: gradient, Shape: shape.Of(n)}}
	for i, d := range kept[:u.kept] {
		if d == quant.Dyn8 && u.squares(2+i) {
			d = quant.UDyn8
		}
		in = append(in, op.Type{DType: d, Shape: shape.Of(n)})
	}
	c, err := op.Make(u.kind, op.Attr{To: copied}, append(in, op.Type{DType: dtype.F32, Shape: shape.Of(2)})...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// edges are what most numbers are not.
var edges = []float32{0, float32(math.Copysign(0, -1)), 0x1p-149, -0x1p-130, -0x1.fffffcp-127, 0x1p-126, -1e-30, 1e-25, 1e15, -1e18,
	math.MaxFloat32, -math.MaxFloat32, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}

// hostileNumbers have an edge, up to a size, for every so many usual ones.
func hostileNumbers(n int, seed uint64, most float64) []float32 {
	r := rand.New(rand.NewPCG(seed, 2))
	list := spreadNumbers(n, seed)
	for i := range list {
		if edge := edges[r.IntN(len(edges))]; r.IntN(32) == 0 && (math.IsInf(most, 1) || math.Abs(float64(edge)) <= most) {
			list[i] = edge
		}
	}
	return list
}

// same runs a call on both and compares all that comes out.
func (w bothDevices) same(t *testing.T, name string, c op.Call, args op.Args, shift int64, operands ...[]byte) {
	t.Helper()
	got, want := launched(t, w.gpu, c, args, shift, operands...), launched(t, w.cpu, c, args, 0, operands...)
	for i, typ := range c.Out {
		if at := differ(typ.DType, got[len(c.In)+i], want[len(c.In)+i]); at >= 0 {
			t.Fatalf("%s: %v: element %d of output %d is other than on the CPU", name, c, at, i)
		}
	}
}

// differ finds the first element of another value, or byte of a block format, or -1. A
// NaN is as good as another.
func differ(d dtype.Type, got, want []byte) int {
	size := 1
	if !d.Block() {
		size = int(d.Bytes(1))
	}
	for i := 0; i < len(want); i += size {
		if a, b := got[i:i+size], want[i:i+size]; !bytes.Equal(a, b) && !(notANumber(d, a) && notANumber(d, b)) {
			return i / size
		}
	}
	return -1
}

func notANumber(d dtype.Type, b []byte) bool {
	switch d {
	case dtype.F32:
		return binary.LittleEndian.Uint32(b)&0x7fffffff > 0x7f800000
	case dtype.BF16:
		return binary.LittleEndian.Uint16(b)&0x7fff > 0x7f80
	case dtype.F16:
		return binary.LittleEndian.Uint16(b)&0x7fff > 0x7c00
	}
	return false
}

// operands of a call: usual numbers, or hostile ones. Next to codes of 8 bits those of
// weights stay finite, and gradients small enough for their squares unless they are not:
// else a moment is infinite, and its whole block without meaning.
func (u updating) operands(t *testing.T, c op.Call, hostile bool) (list [][]byte) {
	t.Helper()
	codes := false
	for _, typ := range c.In {
		codes = codes || typ.DType.Block()
	}
	for i, typ := range c.In[:len(c.In)-1] {
		numbers := spreadNumbers(int(typ.Shape.Elements()), uint64(i))
		if hostile && !typ.DType.Block() {
			most := math.Inf(1)
			if codes {
				most = 1e18
			}
			numbers = hostileNumbers(len(numbers), uint64(i), most)
		}
		if u.squares(i) {
			for k := range numbers {
				numbers[k] *= numbers[k]
			}
		}
		if i == 1 && hostile {
			numbers[7], numbers[300], numbers[4000] = float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))
		}
		list = append(list, raw(t, typ.DType, numbers))
	}
	return append(list, raw(t, dtype.F32, []float32{0.75, 2}))
}

// decayedNumbers are zeros of both signs, and in the first two blocks of 256 numbers near
// 2^-100, in the two after them near 2^-107, and so on, down to the least there is.
func decayedNumbers(n int, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 4))
	signs := []float32{1, -1, 0, float32(math.Copysign(0, -1))}
	list := make([]float32, n)
	for i := range list {
		list[i] = float32(math.Ldexp(1+r.Float64(), -100-7*(i/512%8)-r.IntN(4))) * signs[r.IntN(4)]
	}
	return list
}

// decayedOperands of a call: means that decayed, next to weights of which half are zero. Of
// each two blocks the first has usual squares and no gradients, so that nothing but the means
// is small; in the second squares decayed too, and some gradients or their squares are small.
func (u updating) decayedOperands(t *testing.T, c op.Call) (list [][]byte) {
	t.Helper()
	for i, typ := range c.In[:len(c.In)-1] {
		usual, numbers := spreadNumbers(int(typ.Shape.Elements()), uint64(i)), decayedNumbers(int(typ.Shape.Elements()), uint64(i))
		for k := range numbers {
			first := k/256%2 == 0
			switch {
			case i == 0:
				numbers[k] = usual[k] * float32(k%2)
			case i == 1 && first:
				numbers[k] *= 0
			case i == 1:
				numbers[k] *= []float32{0, 1, 0x1p50, 0}[k%4]
			case u.squares(i) && first:
				numbers[k] = usual[k] * usual[k]
			case u.squares(i):
				numbers[k] = float32(math.Abs(float64(numbers[k])))
			}
		}
		list = append(list, raw(t, typ.DType, numbers))
	}
	return append(list, raw(t, dtype.F32, []float32{0.75, 2}))
}

// Updates on the GPU have the CPU's bits: every rule, with weights, gradients and
// moments of every type, on usual numbers, on those at the edges of the types, and on moments
// below the normal numbers.
func TestUpdatesHaveTheCPUsBits(t *testing.T) {
	on := openBoth(t)
	const n = 8*256*2 + 77
	keeps := [][2]dtype.Type{
		{dtype.F32, dtype.F32}, {dtype.BF16, dtype.BF16}, {dtype.F16, dtype.F16}, {dtype.BF16, dtype.F32},
		{quant.Dyn8, quant.UDyn8}, {quant.Dyn8, dtype.F32}, {quant.Dyn8, dtype.F16},
	}
	for name, u := range updatings {
		for i, kept := range keeps {
			if i == 0 || u.kept > 0 {
				t.Run(fmt.Sprint(name, " ", kept[:u.kept]), func(t *testing.T) { on.updateAlike(t, u, n, kept, int64(i%2)) })
			}
		}
	}
}

// updateAlike tries a rule with moments of some types.
func (w bothDevices) updateAlike(t *testing.T, u updating, n int, kept [2]dtype.Type, shift int64) {
	for _, gradient := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F16} {
		for _, weight := range [][2]dtype.Type{{dtype.F32, dtype.Invalid}, {dtype.F32, dtype.BF16}, {dtype.F32, dtype.F16}, {dtype.BF16, dtype.Invalid}} {
			c := u.call(t, n, weight[0], weight[1], gradient, kept)
			for name, operands := range map[string][][]byte{"usual": u.operands(t, c, false), "hostile": u.operands(t, c, true), "decayed": u.decayedOperands(t, c)} {
				// Four neighbours from a position that is a multiple of four on share random bits.
				for _, row := range []uint64{1 << 40, 1<<40 + 3} {
					w.same(t, name, c, op.Args{Scalars: u.scalars, Key: 5, Row: row}, shift, operands...)
				}
			}
		}
	}
}

// usualNumbers are of both signs, from 2^-30 to 2.
func usualNumbers(n int, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 3))
	list := make([]float32, n)
	for i := range list {
		bits := r.Uint32()
		list[i] = math.Float32frombits(bits&0x807fffff | (127-bits>>23%31)<<23)
	}
	return list
}

// Fifty million roots and quotients of usual numbers, which are found without the
// branches of the compiler's own.
func TestManyUpdatesHaveTheCPUsBits(t *testing.T) {
	on := openBoth(t)
	const n = 4 << 20
	for seed := range uint64(6) {
		for name, u := range map[string]updating{"adamw": updatings["adamw"], "adam": updatings["adam"]} {
			c := u.call(t, n, dtype.F32, dtype.Invalid, dtype.F32, [2]dtype.Type{dtype.F32, dtype.F32})
			v := usualNumbers(n, 10+seed)
			for i := range v {
				v[i] *= v[i]
			}
			on.same(t, fmt.Sprintf("%s, seed %d", name, seed), c, op.Args{Scalars: u.scalars}, 0,
				raw(t, dtype.F32, usualNumbers(n, 20+seed)), raw(t, dtype.F32, usualNumbers(n, 30+seed)), raw(t, dtype.F32, usualNumbers(n, 40+seed)), raw(t, dtype.F32, v), raw(t, dtype.F32, []float32{1, 0}))
		}
	}
}

// An update that is repeated takes the numbers of each iteration.
func TestUpdatesTakeNumbersOfTheIteration(t *testing.T) {
	r := newRig(t, Options{})
	u := updatings["adamw"]
	k, err := r.d.Kernel(u.call(t, 4, dtype.F32, dtype.Invalid, dtype.F32, [2]dtype.Type{dtype.F32, dtype.F32}))
	if err != nil {
		t.Fatal(err)
	}
	l := &device.Launch{Args: &op.Args{Scalars: u.scalars}}
	for i, bytes := range []int64{16, 16, 16, 16, 8, 16, 16, 16} {
		l.Buffers = append(l.Buffers, device.Buffer{Memory: r.gpu, Offset: int64(i) * 64, Bytes: bytes})
	}
	run, err := r.d.Capture([]device.Queue{r.q}, func() error { return r.q.Launch(k, l) })
	if err != nil {
		t.Fatal(err)
	}
	const rate = float32(4e-3)
	l.Args.Scalars[optim.Adam.Slots("rate")[0]] = rate
	if err := run.Launch(); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(r.slots, uint64(math.Float32bits(rate))) {
		t.Errorf("parameters %x hold no %v", r.slots, rate)
	}
	if err := run.Close(); err != nil {
		t.Error(err)
	}
}

// Nothing changes but the copy where the factor says so.
func TestSkippedUpdatesOnTheGPU(t *testing.T) {
	on := openBoth(t)
	for name, u := range updatings {
		c := u.call(t, 5000, dtype.F32, dtype.BF16, dtype.BF16, [2]dtype.Type{dtype.F32, dtype.F32})
		for _, clip := range []float32{0, float32(math.NaN())} {
			operands := u.operands(t, c, true)
			operands[len(operands)-1] = raw(t, dtype.F32, []float32{clip, 1})
			on.same(t, fmt.Sprintf("%s by %v", name, clip), c, op.Args{Scalars: u.scalars}, 0, operands...)
		}
	}
}
