package cuda

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"spillway/device"
	"spillway/device/cuda/driver"
	"spillway/device/devicetest"
	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
	"spillway/shape"
)

// formOf names the form of a prepared call of attention over a cache: BLOCKSxWARPS of a cluster, or how blocks take parts in turn.
func formOf(d *Device, k device.Kernel) string {
	actions := k.(*preparedKernel).program.actions
	l := actions[len(actions)-1].(*kernelLaunch)
	if l.function.name != "attend" {
		if l.function.name == "attendCluster" {
			return fmt.Sprintf("%dx%d", l.cluster, l.block[0]/32)
		}
		return l.function.name
	}
	for u, m := range d.modules.loaded {
		switch {
		case m.functions["attend"] != l.function:
		case u.scales:
			return "fetched"
		case u.tiles > 1:
			return "long"
		}
	}
	return "turns"
}

// Which form attention of few rows has: clusters where short rows have room at once, as the driver answers, a block for each of many items, else blocks that
// take parts in turn, and these always where rows are exact.
func TestAttentionIsChosen(t *testing.T) {
	i8, f8, i4, half := quant.RowI8, quant.RowF8, quant.RowI4, dtype.BF16
	h200 := func(l *driver.Launch) int { // as one answers
		switch l.Block[0] {
		case 128:
			return 45
		case 256:
			return 15
		}
		return 0
	}
	for _, c := range []struct {
		rows, heads, kv, d, context int64
		cache                       dtype.Type
		window                      int64
		exact                       bool
		major                       int // 0: 9
		room                        func(*driver.Launch) int
		want                        string
	}{
		{rows: 1, context: 1024, cache: half, want: "8x4"},
		{rows: 1, context: 2048, cache: half, want: "8x4"},
		{rows: 5, context: 1024, cache: half, want: "8x4"},   // 40 of 45
		{rows: 6, context: 1024, cache: half, want: "turns"}, // 48
		{rows: 8, context: 1024, cache: half, want: "turns"},
		{rows: 1, context: 2112, cache: half, want: "8x8"},
		{rows: 1, context: 8192, cache: half, want: "8x8"},
		{rows: 2, context: 4096, cache: half, want: "turns"}, // 16 of 15
		{rows: 2, kv: 4, context: 4096, cache: half, want: "8x8"},
		{rows: 1, context: 8256, cache: half, want: "turns"},
		{rows: 1, heads: 128, kv: 8, context: 4096, cache: half, want: "turns"}, // two packs of eight heads each
		{rows: 1, context: 32768, window: 1024, cache: half, want: "8x4"},
		{rows: 1, context: 32768, window: 4096, cache: half, want: "8x8"},
		{rows: 1, context: 1024, d: 96, cache: half, want: "8x4"},
		{rows: 1, context: 1024, d: 256, cache: half, want: "attendPlain"},
		{rows: 1, context: 1024, cache: i8, want: "8x4"},
		{rows: 1, context: 4096, cache: f8, want: "8x8"},
		{rows: 1, context: 8192, cache: i4, want: "8x8"},
		{rows: 2, context: 8192, cache: i4, want: "long"},
		{rows: 1, context: 32768, cache: i8, want: "fetched"},
		{rows: 2, context: 32768, cache: i8, want: "turns"},
		{rows: 4, context: 32768, cache: f8, want: "fetched"},
		{rows: 5, context: 32768, cache: f8, want: "turns"},
		{rows: 2, context: 4096, cache: f8, want: "turns"},
		{rows: 1, context: 32768, cache: i4, want: "long"},
		{rows: 15, context: 32768, cache: half, want: "turns"},
		{rows: 16, context: 1024, cache: half, want: "1x8"},
		{rows: 16, context: 32768, cache: half, want: "1x8"},
		{rows: 17, context: 1024, cache: half, want: "turns"}, // 4 of 132 blocks are left for a second wave
		{rows: 32, context: 1024, cache: half, want: "1x8"},
		{rows: 64, context: 1024, cache: half, want: "1x8"},
		{rows: 65, context: 1024, cache: half, want: "turns"},
		{rows: 16, context: 32768, cache: i8, want: "1x8"},
		{rows: 16, context: 32768, cache: f8, want: "1x8"},
		{rows: 16, context: 4096, cache: i4, want: "1x8"},
		{rows: 16, context: 4160, cache: i4, want: "long"},
		// exact, without room, on another generation
		{rows: 1, context: 1024, cache: half, exact: true, want: "turns"},
		{rows: 16, context: 1024, cache: half, exact: true, want: "turns"},
		{rows: 1, context: 32768, cache: i8, exact: true, want: "turns"},
		{rows: 1, context: 32768, cache: i4, exact: true, want: "long"},
		{rows: 1, context: 1024, cache: half, room: func(*driver.Launch) int { return 0 }, want: "turns"},
		{rows: 1, context: 4096, cache: i8, room: func(*driver.Launch) int { return 7 }, want: "turns"},
		{rows: 1, context: 1024, cache: half, major: 8, want: "turns"},
		{rows: 16, context: 1024, cache: i8, major: 12, want: "turns"},
	} {
		f := newFake()
		f.clusters = h200
		if c.room != nil {
			f.clusters = c.room
		}
		d := openFake(t, f, Options{})
		if c.major > 0 {
			d.gpu.major = c.major
		}
		c.heads, c.kv, c.d = cmp.Or(c.heads, 32), cmp.Or(c.kv, 8), cmp.Or(c.d, 128)
		pages := c.context / 64
		k, err := d.Kernel(attentionOver(t, op.Attr{Heads: c.heads, KVHeads: c.kv, Window: c.window, Exact: c.exact}, c.cache, c.d, c.rows, c.rows, pages))
		if err != nil {
			t.Fatal(err)
		}
		if got := formOf(d, k); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
		if c.want != "turns" && c.want != "long" {
			continue
		}
		// The test's switch chooses the old form, in which calls have the same launches as where nothing is chosen.
		l := k.(*preparedKernel).program
		d.plainly.attend = &attendForm{}
		x := cachedCall(k.(*preparedKernel).call, 1)
		*d.plainly.attend = x.turns()
		again, err := d.Kernel(k.(*preparedKernel).call)
		if err != nil {
			t.Fatal(err)
		}
		a, b := l.actions[0].(*kernelLaunch), again.(*preparedKernel).program.actions[0].(*kernelLaunch)
		if formOf(d, again) != c.want || a.grid != b.grid || a.shared != b.shared || !slices.Equal(a.args, b.args) || l.workspace != again.Workspace() {
			t.Errorf("%+v: in turns it is %+v, and chosen so %+v", c, b, a)
		}
	}
}

// A driver that cannot say how many clusters have room is one without them; kernels of exact rows are cut as they always were.
func TestAttentionWithoutClusters(t *testing.T) {
	f := newFake()
	f.clusters = func(*driver.Launch) int { return 100 }
	d := openFake(t, f, Options{})
	call := attentionOver(t, op.Attr{Heads: 32, KVHeads: 8}, dtype.BF16, 128, 1, 1, 16)
	f.failing("Clusters", &driver.Error{Call: "cuOccupancyMaxActiveClusters", Code: 1, Name: "CUDA_ERROR_INVALID_VALUE"})
	k, err := d.Kernel(call)
	if err != nil || formOf(d, k) != "turns" {
		t.Errorf("%v, %v", k, err)
	}
	f.failing("Clusters", nil)
	if k, err = d.Kernel(call); err != nil || formOf(d, k) != "8x4" {
		t.Errorf("%v, %v", k, err)
	}
	call.Attr.Exact = true
	if k, err = d.Kernel(call); err != nil {
		t.Fatal(err)
	}
	l := k.(*preparedKernel).program.actions[0].(*kernelLaunch)
	if wanted, grain, most := l.args[6].bits, l.args[7].bits, l.args[8].bits; l.grid != [3]uint32{264, 1, 1} || wanted != 33 || grain != 128 || most != 34 {
		t.Errorf("blocks %v, %d parts of multiples of %d, at most %d", l.grid, wanted, grain, most)
	}
}

// attentionOver is a call of rows over caches of so many sequences, with pages of 64 positions.
func attentionOver(t testing.TB, a op.Attr, cache dtype.Type, d, rows, streams, pages int64) op.Call {
	t.Helper()
	of := func(typ dtype.Type, dims ...int64) op.Type { return op.Type{DType: typ, Shape: shape.Shape(dims)} }
	held := of(cache, streams*pages, a.KVHeads, 64, d)
	if a.Scale == 0 {
		a.Scale = 0.09
	}
	c, err := op.Make(op.AttendCache, a, of(dtype.BF16, 1, rows, a.Heads*d), held, held, of(dtype.I32, 1, rows), of(dtype.I32, 1, rows), of(dtype.I32, streams, pages))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// formsOf are all forms of a call, in turns first.
func (c cached) formsOf() []attendForm {
	f := c.forms()
	list := []attendForm{c.turns(), f.small, f.large, f.alone}
	switch {
	case c.has(quant.RowI4):
		return append(list, longTurns)
	case c.coded():
		return append(list, fetchedTurns)
	}
	return list
}

func (f attendForm) String() string {
	return fmt.Sprintf("%dx%d, %d tiles %d times", f.cluster, f.team, f.tiles, f.stages)
}

// Every form of attention of few rows computes what the op says, twice the same bits: cases with heads of 128 in all forms of their cache, others in turns and
// in small clusters. Heads that are not for tensor cores have a kernel of their own.
func TestAttendForms(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	if d.gpu.major != 9 {
		t.Skip("clusters are of another generation of GPUs")
	}
	tries, units := attendTries()
	var behind sync.WaitGroup
	for u := range units {
		behind.Go(func() { _, _ = d.imageOf(u) })
	}
	behind.Wait()
	for _, x := range tries {
		d.plainly.attend = x.form
		if err := devicetest.Case(d, x.c); err != nil {
			t.Errorf("%v: %v", x.form, err)
		}
	}
}

// attendTry is a case in a form, nil for the one that is chosen.
type attendTry struct {
	c    op.Case
	form *attendForm
}

// attendTries lists what TestAttendForms tries, with the units that it needs.
func attendTries() (tries []attendTry, units map[unit]bool) {
	units = map[unit]bool{}
	for _, c := range op.Cases(dtype.BF16) {
		if !c.Call.Kind.ReadsCache() {
			continue
		}
		x := cachedCall(c.Call, len(c.Call.In)-5)
		if !x.onTensorCores() {
			tries = append(tries, attendTry{c, nil})
			continue
		}
		if !x.few() { // another kernel
			continue
		}
		forms := []attendForm{x.turns(), x.forms().small}
		if x.d == 128 && x.keys.DType == x.values.DType {
			forms = x.formsOf()
		}
		for _, f := range forms {
			tries = append(tries, attendTry{c, &f})
			units[x.unit(f)] = true
		}
	}
	return tries, units
}

// A row has the same bits at whatever place of a step it is, in whatever form so many rows are computed, and what forms give is alike.
func TestPlacesOfRowsOfAttention(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	if d.gpu.major != 9 {
		t.Skip("clusters are of another generation of GPUs")
	}
	half := spreadNumbers(1<<16, 5)
	for _, c := range []struct {
		rows, kv, context int64
		want              string // without names of forms in turns
	}{{5, 3, 1024, "8x4"}, {3, 2, 4096, "8x8"}, {64, 2, 256, "1x8"}, {3, 2, 16384, ""}} {
		for _, cache := range []dtype.Type{dtype.BF16, quant.RowI8, quant.RowF8, quant.RowI4} {
			d.plainly.attend = nil
			call := attentionOver(t, op.Attr{Heads: 4 * c.kv, KVHeads: c.kv}, cache, 128, c.rows, c.rows, c.context/64)
			k, err := d.Kernel(call)
			if err != nil {
				t.Fatal(err)
			}
			if got := formOf(d, k); c.want != "" && got != c.want {
				t.Errorf("%d rows of %d, %v: %s, want %s", c.rows, c.context, cache, got, c.want)
			}
			held := raw(t, cache, slices.Repeat(half, int(call.In[1].Shape.Elements())/len(half)))
			q, pages := raw(t, dtype.BF16, spreadNumbers(int(call.In[0].Shape.Elements()), 1)), call.In[5].Shape.Elements()
			var table []byte
			for i := range pages {
				table = binary.LittleEndian.AppendUint32(table, uint32((i*11+5)%pages)) // none of the numbers of pages is a multiple of 11
			}
			// the first positions and the last, some between, one row idle, and two of one sequence
			place := func(i int64) (position, sequence int64) {
				switch i {
				case 0:
					return c.context - 1, 0
				case 1:
					return c.context - 2, 0
				case 2:
					return 0, 2
				case 4:
					return -1, 4
				}
				return i * 997 % c.context, i
			}
			// attend computes the rows from one on, round to the one before it.
			attend := func(first int64) []byte {
				var p, s []byte
				for i := range c.rows {
					position, sequence := place((first + i) % c.rows)
					p, s = binary.LittleEndian.AppendUint32(p, uint32(position)), binary.LittleEndian.AppendUint32(s, uint32(sequence))
				}
				at := int64(len(q)) / c.rows * first
				o := launched(t, d, call, op.Args{}, 0, slices.Concat(q[at:], q[:at]), held, held, p, s, table)[6]
				at = int64(len(o)) - at
				return slices.Concat(o[at:], o[:at])
			}
			all := attend(0)
			for _, first := range []int64{0, 1, c.rows - 1} {
				if !bytes.Equal(attend(first), all) {
					t.Errorf("%d rows of %d, %v, %s: rows have other bits where row %d is the first", c.rows, c.context, cache, formOf(d, k), first)
				}
			}
			x := cachedCall(call, 1)
			turns := x.turns()
			d.plainly.attend = &turns
			old := attend(0)
			for i := range c.rows {
				var off, largest float64
				a, b := rowsOf(all, c.rows, i, 1), rowsOf(old, c.rows, i, 1)
				for n := 0; n < len(a); n += 2 {
					x, y := float64(dtype.FromBF16(binary.LittleEndian.Uint16(a[n:]))), float64(dtype.FromBF16(binary.LittleEndian.Uint16(b[n:])))
					off, largest = max(off, math.Abs(x-y)), max(largest, math.Abs(y))
				}
				if !(off <= largest/50) {
					t.Errorf("%d rows of %d, %v, %s: row %d is off by %g of %g in turns", c.rows, c.context, cache, formOf(d, k), i, off, largest)
				}
			}
		}
	}
}
