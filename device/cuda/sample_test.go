package cuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"spillway/dtype"
	"spillway/op"
	"spillway/shape"
)

// As many blocks share a row as leave a multiprocessor for each.
func TestBlocksOfSample(t *testing.T) {
	d := &Device{gpu: gpuInfo{major: 9, multiprocessors: 132}}
	for rows, want := range map[int64]int64{1: 8, 16: 8, 17: 4, 33: 4, 34: 2, 66: 2, 67: 1, 256: 1} {
		if got := d.sampleBlocks(rows); got != want {
			t.Errorf("%d rows: %d blocks of a row, want %d", rows, got, want)
		}
	}
	if d.gpu.major = 8; d.sampleBlocks(1) != 1 {
		t.Error("clusters on a GPU that has none")
	}
}

// normalNumbers are spread as logits are.
func normalNumbers(n int, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 2))
	list := make([]float32, n)
	for i := range list {
		list[i] = float32(2 * r.NormFloat64())
	}
	return list
}

// ways of drawing, by name.
var ways = []struct {
	name string
	s    op.Sampling
}{{"greedy", op.Sampling{}}, {"temperature", op.Sampling{Temperature: 0.8}}, {"top-k 40", op.Sampling{Temperature: 0.8, TopK: 40}}, {"top-p 0.95", op.Sampling{Temperature: 0.8, Drop: 0.05}},
	{"all", op.Sampling{Temperature: 1.2, TopK: 5000, Drop: 0.1, MinP: 0.01}}}

// settingsOf are rows of settings, drawn with random numbers of their own.
func settingsOf(rows int, way func(row int) op.Sampling) []byte {
	var b []byte
	for r := range rows {
		s, list := way(r), make([]int32, op.SampleSettings)
		s.Stream, s.Position = op.NewStream(11, uint32(r)), uint64(1000+r)
		s.Put(list)
		for _, n := range list {
			b = binary.LittleEndian.AppendUint32(b, uint32(n))
		}
	}
	return b
}

func sampleCall(t testing.TB, typ dtype.Type, rows, count int64) op.Call {
	t.Helper()
	c, err := op.Make(op.Sample, op.Attr{}, op.Type{DType: typ, Shape: shape.Shape{1, rows, count}}, op.Type{DType: dtype.I32, Shape: shape.Shape{1, rows, op.SampleSettings}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A row gives the same token whatever rows are drawn with it, however many blocks share it, and whether they hold its logits.
func TestSampleInAnyCompany(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	for _, typ := range []dtype.Type{dtype.BF16, dtype.F16, dtype.F32} {
		for _, count := range []int64{1, 70, 3001, 128256} {
			const rows = 80 // each a block
			numbers := normalNumbers(int(rows*count), 5)
			logits, settings := raw(t, typ, numbers), settingsOf(rows, func(r int) op.Sampling { return ways[r%len(ways)].s })
			draw := func(from, n int64) []byte {
				return launched(t, d, sampleCall(t, typ, n, count), op.Args{}, 0, rowsOf(logits, rows, from, n), rowsOf(settings, rows, from, n))[2]
			}
			all := draw(0, rows)
			for _, part := range [][2]int64{{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {60, 16}, {5, 33}, {3, 66}} {
				for _, alone := range []bool{false, true} {
					d.plainly.clusters = alone
					if got := draw(part[0], part[1]); !bytes.Equal(got, rowsOf(all, rows, part[0], part[1])) {
						t.Errorf("%v %d: rows from %d on, %d of them, a block each %v, draw other tokens than with all", typ, count, part[0], part[1], alone)
					}
				}
				d.plainly.clusters = false
			}
			// the plain draw of the op, which the sums of f64 differ from in their last bits alone
			c := sampleCall(t, typ, rows, count)
			in := []op.Array{op.NewArray(c.In[0]), op.NewArray(c.In[1])}
			for i, x := range numbers {
				in[0].F[i] = float64(x)
			}
			in[0].Round()
			for i := range in[1].I {
				in[1].I[i] = int32(binary.LittleEndian.Uint32(settings[4*i:]))
			}
			want := []op.Array{op.NewArray(c.Out[0])}
			if err := c.Reference(in, want, op.Args{}); err != nil {
				t.Fatal(err)
			}
			for r := range rows {
				if got := int32(binary.LittleEndian.Uint32(all[4*r:])); got != want[0].I[r] {
					t.Errorf("%v %d: row %d, %s, draws %d, want %d", typ, count, r, ways[r%len(ways)].name, got, want[0].I[r])
				}
			}
		}
	}
}

// Drawing a token of each row of the logits of a large vocabulary, as one block for each row does it and as it is.
func BenchmarkSample(b *testing.B) {
	d := openGPU(b, Options{})
	defer d.Close()
	const count, most, calls = 128256, 128, 16
	s := newStack(b, d, 0, 4<<30)
	logits := s.place(s.typ(most, count))
	s.put(logits, bytes.Repeat(raw(b, dtype.BF16, normalNumbers(4*count, 5)), most/4))
	base := s.used
	for _, rows := range []int64{1, 16, 128} {
		for _, w := range ways {
			b.Run(fmt.Sprintf("%d rows %s", rows, w.name), func(b *testing.B) {
				var took [2]float64
				for b.Loop() {
					for i, alone := range []bool{true, false} {
						d.plainly.clusters, s.used, s.launches = alone, base, nil
						s.scratch = s.place(s.typ(1, 64<<20))
						c := sampleCall(b, dtype.BF16, rows, count)
						settings, tokens := s.place(c.In[1]), s.place(c.Out[0])
						s.put(settings, settingsOf(int(rows), func(int) op.Sampling { return w.s }))
						in := logits
						in.Bytes = c.In[0].Bytes()
						for range calls {
							s.add(op.Sample, op.Attr{}, c.In, in, settings, tokens)
						}
						took[i] = s.time().Seconds() / calls * 1e6
					}
				}
				d.plainly.clusters = false
				b.ReportMetric(took[1], "us/call")
				b.ReportMetric(took[0], "us/call-of-one-block")
				b.ReportMetric(took[0]/took[1], "times-faster")
			})
		}
	}
}
