package cuda

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spillway/device/cuda/driver"
	"spillway/dtype"
	"spillway/op"
	"spillway/shape"
)

// fakeTimer is a fake GPU with ways to compute matmuls of known speed.
type fakeTimer struct {
	*fake
	d     *Device
	took  []time.Duration // by way
	last  uint64          // way run last
	run   int             // matmuls run
	of    []int           // of them, by way
	timed int             // times taken
}

func newFakeTimer(t *testing.T, cache string, took ...time.Duration) *fakeTimer {
	t.Helper()
	r := &fakeTimer{fake: newFake(), took: took, of: make([]int, len(took))}
	lap := 0 // matmuls since a time was taken
	r.d = openFake(t, r.fake, Options{Cache: cache})
	r.d.lib.BLAS.Prepare = func(driver.BLASHandle, driver.Gemm, driver.Batch, int64, int) (*driver.Prepared, []driver.Algorithm, error) {
		var ways []driver.Algorithm
		for i := range r.took {
			ways = append(ways, driver.Algorithm{Opaque: [8]uint64{uint64(i)}, Workspace: int64(i) << 10})
		}
		_, err := r.take("Prepare", "product")
		return &driver.Prepared{}, ways, err
	}
	r.d.lib.BLAS.Run = func(_ driver.BLASHandle, p *driver.Prepared, _, _, _, _, _ driver.Pointer, _ driver.Stream) error {
		r.last = p.Algorithm.Opaque[0]
		r.run++
		r.of[r.last]++
		lap++
		return r.call("Run")
	}
	r.d.lib.CUDA.Elapsed = func(_, _ driver.Event) (time.Duration, error) {
		took := time.Duration(lap) * r.took[r.last]
		r.timed++
		lap = 0
		return took, r.call("Elapsed")
	}
	return r
}

// algorithm is what the device takes for a product of 1024 × 1024 × k.
func (r *fakeTimer) algorithm(t *testing.T, k int64) (int, error) {
	t.Helper()
	half := func(a, b int64) op.Type { return op.Type{DType: dtype.BF16, Shape: shape.Shape{a, b}} }
	c, err := op.Make(op.MatMul, op.Attr{}, half(1024, k), half(k, 1024))
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.d.prepare(c)
	if err != nil {
		return 0, err
	}
	taken := p.actions[0].(*gemm).prepared.Algorithm
	if p.workspace != taken.Workspace {
		t.Errorf("scratch memory of %d bytes, the way needs %d", p.workspace, taken.Workspace)
	}
	return int(taken.Opaque[0]), nil
}

func (r *fakeTimer) want(t *testing.T, k int64, want int) {
	t.Helper()
	if got, err := r.algorithm(t, k); got != want || err != nil {
		t.Errorf("way %d, %v, want %d", got, err, want)
	}
}

const us = time.Microsecond

// The fastest way is taken, and from then on, whatever is fastest later.
func TestFastestIsRemembered(t *testing.T) {
	cache := t.TempDir()
	r := newFakeTimer(t, cache, 100*us, 80*us, 90*us)
	r.want(t, 2048, 1)
	run := r.run
	r.want(t, 2048, 1)
	if r.run != run || run == 0 {
		t.Errorf("%d matmuls run, then %d", run, r.run-run)
	}
	again := newFakeTimer(t, cache, 80*us, 100*us, 10*us)
	again.want(t, 2048, 1)
	if again.timed > 0 || again.run != 1 {
		t.Errorf("%d times taken and %d matmuls run; the choice is kept, and its code to be loaded", again.timed, again.run)
	}
	again.want(t, 4096, 2) // another product
}

// Laps are of about the same time whatever a product takes, and who is far behind runs few.
func TestRacesAreShort(t *testing.T) {
	for took, most := range map[time.Duration]int{10 * us: 16, 500 * us: 4, 20 * time.Millisecond: 2} {
		r := newFakeTimer(t, t.TempDir(), 2*took, took)
		r.want(t, 2048, 1)
		if want := 2 * minLap; r.of[0] != want {
			t.Errorf("the way that takes %v was run %d times, want %d", 2*took, r.of[0], want)
		}
		if want := 2*minLap + 2*most + 1; r.of[1] != want { // once more to load it
			t.Errorf("the way that takes %v was run %d times, want %d", took, r.of[1], want)
		}
	}
}

func TestFavouriteStaysUnlessBeaten(t *testing.T) {
	newFakeTimer(t, t.TempDir(), 100*us, 99*us).want(t, 2048, 0)
}

// Without a folder to remember choices in, or for little work, nothing is timed; code is
// loaded all the same.
func TestNothingIsTimed(t *testing.T) {
	for _, r := range []*fakeTimer{newFakeTimer(t, "", 100*us, 10*us), newFakeTimer(t, t.TempDir(), 100*us, 10*us)} {
		k := int64(2048)
		if r.d.options.Cache != "" {
			k = 64
		}
		r.want(t, k, 0)
		if r.timed > 0 || r.run != 1 {
			t.Errorf("%d times taken, %d matmuls run", r.timed, r.run)
		}
	}
}

// A GPU without room takes the favourite, and keeps to it.
func TestNoRoomToRace(t *testing.T) {
	cache := t.TempDir()
	r := newFakeTimer(t, cache, 100*us, 10*us)
	r.failing("Alloc", &driver.Error{Call: "cuMemAlloc", Code: driver.OutOfMemory})
	r.want(t, 2048, 0)
	newFakeTimer(t, cache, 100*us, 10*us).want(t, 2048, 0)
}

// A limit on memory that is too low for a matmul decides nothing: no plan within it has that
// matmul, and one without the limit times it.
func TestLimitsDecideNothing(t *testing.T) {
	cache := t.TempDir()
	r := newFakeTimer(t, cache, 100*us, 10*us)
	r.d.LimitScratch(1)
	r.want(t, 4096, 0)
	if r.run > 0 {
		t.Errorf("%d matmuls run", r.run)
	}
	newFakeTimer(t, cache, 100*us, 10*us).want(t, 4096, 1)
}

// Of two programs that choose at once, the first to write decides for both.
func TestFirstChoiceCounts(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	newFakeTimer(t, first, 100*us, 10*us, 50*us).want(t, 2048, 1)
	r := newFakeTimer(t, second, 100*us, 50*us, 10*us)
	run := r.d.lib.BLAS.Run
	r.d.lib.BLAS.Run = func(h driver.BLASHandle, p *driver.Prepared, a, b, c, d, w driver.Pointer, s driver.Stream) error {
		if err := os.CopyFS(second, os.DirFS(first)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
		return run(h, p, a, b, c, d, w, s)
	}
	r.want(t, 2048, 1)
}

func TestDamagedChoice(t *testing.T) {
	for _, text := range []string{"", "{\"algorithm\": 7}", "{\"algorithm\": -1}"} {
		cache := t.TempDir()
		newFakeTimer(t, cache, 100*us, 10*us).want(t, 2048, 1)
		kept, err := filepath.Glob(filepath.Join(cache, "*.gemm"))
		if err != nil || len(kept) != 1 {
			t.Fatalf("kept %v, %v", kept, err)
		}
		if err := os.WriteFile(kept[0], []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := newFakeTimer(t, cache, 100*us, 10*us).algorithm(t, 2048); err == nil || !strings.Contains(err.Error(), kept[0]) {
			t.Errorf("%q gives %v", text, err)
		}
	}
}

// Whichever call fails while ways are timed, everything is given back (openFake looks).
func TestRaceGivesBackWhatItTook(t *testing.T) {
	good := newFakeTimer(t, t.TempDir(), 100*us, 10*us)
	n := len(good.log)
	good.want(t, 2048, 1)
	tried := map[string]bool{}
	for _, name := range good.log[n:] {
		if tried[name] || name == "SetCurrent" || name == "Prepare" || strings.HasPrefix(name, "Close") || name == "Free" {
			continue
		}
		tried[name] = true
		r := newFakeTimer(t, t.TempDir(), 100*us, 10*us)
		r.failing(name, errMadeUp)
		if _, err := r.algorithm(t, 2048); err == nil {
			t.Errorf("chosen although %s failed", name)
		}
	}
	if len(tried) < 7 {
		t.Errorf("only %v tried", tried)
	}
}
