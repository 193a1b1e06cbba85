package cuda

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"spillway/device"
	"spillway/device/cuda/driver"
	"spillway/dtype"
	"spillway/op"
	"spillway/shape"
)

// rig is a fake GPU with a queue and memory.
type rig struct {
	*fake
	d    *Device
	q    device.Queue
	host device.Memory
	gpu  device.Memory

	files []string // of modules loaded
}

func newRig(t *testing.T, o Options) *rig {
	t.Helper()
	r := &rig{fake: newFake()}
	r.d = openFake(t, r.fake, o)
	var err [3]error
	r.q, err[0] = r.d.Queue("compute")
	r.host, err[1] = r.d.HostAlloc(4096)
	r.gpu, err[2] = r.d.Alloc(4096)
	if err := errors.Join(err[:]...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.q.Close(), r.host.Free(), r.gpu.Free()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// scale is a call of 64 numbers, with its launch.
func (r *rig) scale(t *testing.T) (device.Kernel, *device.Launch) {
	t.Helper()
	c, err := op.Make(op.Scale, op.Attr{Scale: 2}, op.Type{DType: dtype.F32, Shape: shape.Of(64)})
	if err != nil {
		t.Fatal(err)
	}
	k, err := r.d.Kernel(c)
	if err != nil {
		t.Fatal(err)
	}
	return k, &device.Launch{Buffers: []device.Buffer{{Memory: r.gpu, Offset: 256, Bytes: 256}, {Memory: r.gpu, Offset: 1024, Bytes: 256}}}
}

// since lists the calls after n, but for the compiler's, which come when they like.
func (r *rig) since(n int) []string {
	return slices.DeleteFunc(slices.Clone(r.log[n:]), func(s string) bool { return s == "Compile" })
}

// Every call of the driver has the context current on its thread.
func TestContextIsCurrent(t *testing.T) {
	r := newRig(t, Options{})
	k, l := r.scale(t)
	e, err := r.d.Event()
	if err != nil {
		t.Fatal(err)
	}
	n := len(r.log)
	at := func(offset int64) device.Buffer { return device.Buffer{Memory: r.gpu, Offset: offset, Bytes: 64} }
	for _, err := range []error{r.q.Copy(at(0), at(64)), r.q.Launch(k, l), r.q.Record(e), r.q.Wait(e), r.q.SyncTo(e), r.q.Sync()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"SetCurrent", "Copy", "SetCurrent", "Launch", "SetCurrent", "Record", "SetCurrent", "WaitEvent", "SetCurrent", "SyncEvent", "SetCurrent", "SyncStream"}
	if got := r.since(n); !slices.Equal(got, want) {
		t.Errorf("calls %v, want %v", got, want)
	}
	e.Time() // keeps the event until here
}

// A launch passes addresses and numbers in the kernel's order.
func TestLaunchParameters(t *testing.T) {
	r := newRig(t, Options{})
	k, l := r.scale(t)
	if err := r.q.Launch(k, l); err != nil {
		t.Fatal(err)
	}
	base := uint64(r.gpu.(*memory).at)
	want := []uint64{base + 256, base + 1024, 64, 0x40000000, 0} // x, y, n, 2.0f, not added
	if got := r.slots[:5]; !slices.Equal(got, want) {
		t.Errorf("parameters %x, want %x", got, want)
	}
	if r.last.Grid != [3]uint32{1, 1, 1} || r.last.Block != [3]uint32{256, 1, 1} {
		t.Errorf("grid %v of %v threads", r.last.Grid, r.last.Block)
	}
}

// Launching and copying take nothing from the heap.
func TestQueueAllocatesNothing(t *testing.T) {
	r := newRig(t, Options{})
	k, l := r.scale(t)
	r.d.lib.CUDA.Launch = func(*driver.Launch) error { return nil }
	r.d.lib.CUDA.SetCurrent = func(driver.Context) error { return nil }
	r.d.modules.behind.Wait() // other files are compiled in the background, and their texts allocated
	if n := testing.AllocsPerRun(100, func() { r.q.Launch(k, l) }); n != 0 {
		t.Errorf("a launch allocates %v times", n)
	}
}

// A launch the driver refuses is an error of the call, with the op and CUDA's word.
func TestRefusedLaunch(t *testing.T) {
	r := newRig(t, Options{})
	k, l := r.scale(t)
	r.failing("Launch", &driver.Error{Call: "cuLaunchKernel", Code: driver.LaunchResources, Name: "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", Text: "too many resources requested"})
	err := r.q.Launch(k, l)
	for _, word := range []string{"scale(f32[64])", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "701"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("got %v, want it to hold %q", err, word)
		}
	}
	if err := r.q.Sync(); err != nil {
		t.Errorf("reported again: %v", err)
	}
}

// A kernel that fails on the GPU is reported once, with its op; nothing after that
// repeats it, although the driver does.
func TestFailureOnTheGPU(t *testing.T) {
	for name, wait := range map[string]func(*rig, device.Event) error{
		"Sync":   func(r *rig, _ device.Event) error { return r.q.Sync() },
		"SyncTo": func(r *rig, e device.Event) error { return r.q.SyncTo(e) },
	} {
		t.Run(name, func(t *testing.T) { failsOnTheGPU(t, wait) })
	}
}

func failsOnTheGPU(t *testing.T, wait func(*rig, device.Event) error) {
	r := newRig(t, Options{})
	e, err := r.d.Event()
	if err != nil {
		t.Fatal(err)
	}
	k, l := r.scale(t)
	if err := r.q.Launch(k, l); err != nil {
		t.Fatal(err)
	}
	gone := &driver.Error{Call: "cuStreamSynchronize", Code: driver.IllegalAddress, Name: "CUDA_ERROR_ILLEGAL_ADDRESS", Text: "an illegal memory access was encountered"}
	for _, name := range []string{"SyncStream", "SyncEvent", "Free", "Unregister", "CloseStream", "CloseEvent", "UnloadModule", "Destroy", "Release"} {
		r.failing(name, gone)
	}
	err = wait(r, e)
	for _, word := range []string{"scale(f32[64])", "CUDA_ERROR_ILLEGAL_ADDRESS", "open the device anew"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("got %v, want it to hold %q", err, word)
		}
	}
	if err := r.q.Sync(); err != nil {
		t.Errorf("reported again: %v", err)
	}
}

// The driver's out of memory is the device's, with the numbers.
func TestGPUIsFull(t *testing.T) {
	r := newRig(t, Options{})
	r.failing("Alloc", &driver.Error{Call: "cuMemAlloc", Code: driver.OutOfMemory, Name: "CUDA_ERROR_OUT_OF_MEMORY", Text: "out of memory"})
	_, err := r.d.Alloc(1 << 20)
	var full *device.OutOfMemoryError
	if !errors.As(err, &full) || full.Asked != 1<<20 || full.Allocated != 4096 || !strings.Contains(err.Error(), "another program") {
		t.Errorf("got %v", err)
	}
}

// Host memory that cannot be page-locked is given back.
func TestHostMemoryThatCannotBeLocked(t *testing.T) {
	r := newRig(t, Options{})
	r.failing("Register", errMadeUp)
	if _, err := r.d.HostAlloc(1 << 16); !errors.Is(err, errMadeUp) {
		t.Errorf("got %v", err)
	}
}

// A kernel that fills the 48 KiB every kernel may use asks for more: it declares some
// shared memory of its own.
func TestSharedMemoryIsAsked(t *testing.T) {
	r := newRig(t, Options{})
	for _, width := range []int64{64, 6151} {
		x, w := op.Type{DType: dtype.BF16, Shape: shape.Shape{64, width}}, op.Type{DType: dtype.BF16, Shape: shape.Shape{width}}
		c, err := op.Make(op.LayerNormGrad, op.Attr{Eps: 1e-5, Bias: true}, x, w, x)
		if err != nil {
			t.Fatal(err)
		}
		from := len(r.log)
		if _, err := r.d.Kernel(c); err != nil {
			t.Fatal(err)
		}
		if asked := slices.Contains(r.since(from), "AllowShared"); asked != (width == 6151) {
			t.Errorf("width %d: more shared memory was asked for: %v", width, asked)
		}
	}
}

// What the compiler says comes out where the kernel is asked for.
func TestKernelThatDoesNotCompile(t *testing.T) {
	r := newRig(t, Options{})
	r.failing("Compile", errMadeUp)
	c, err := op.Make(op.Scale, op.Attr{Scale: 2}, op.Type{DType: dtype.BF16, Shape: shape.Of(64)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.d.Kernel(c); !errors.Is(err, errMadeUp) || !strings.Contains(err.Error(), "scale(bf16[64])") {
		t.Errorf("got %v", err)
	}
}

// Compiled kernels are kept in the cache folder and read from there.
func TestCache(t *testing.T) {
	folder := t.TempDir()
	first := newRig(t, Options{Cache: folder})
	first.scale(t)
	kept, err := filepath.Glob(filepath.Join(folder, "*.cubin"))
	if err != nil || len(kept) == 0 {
		t.Fatalf("nothing was kept: %v", err)
	}
	d := &Device{options: Options{Cache: folder}}
	name := strings.TrimSuffix(filepath.Base(kept[0]), ".cubin")
	want, err := os.ReadFile(kept[0])
	if err != nil {
		t.Fatal(err)
	}
	if b, err := d.cached(name, unit{}); err != nil || string(b) != string(want) {
		t.Errorf("the cache gives %q, %v", b, err)
	}
}

// cuBLASLt stores column by column. Whatever is transposed, its operands, taken as
// stored, must have the sizes of ours, and the product the sizes of c's transpose.
func TestMatmulsAreTransposed(t *testing.T) {
	const m, n, k = 2, 3, 5
	for _, ta := range []bool{false, true} {
		for _, tb := range []bool{false, true} {
			x := matmulArgs{m: m, n: n, k: k, a: matrix{step: k, transposed: ta}, b: matrix{step: n, transposed: tb}, c: matrix{step: n}}
			if ta {
				x.a.step = m
			}
			if tb {
				x.b.step = k
			}
			p := x.describe(false)
			inner := func(q driver.Matrix) (rows, columns int64) {
				if q.Transposed {
					return q.Columns, q.Rows
				}
				return q.Rows, q.Columns
			}
			ar, ac := inner(p.A)
			br, bc := inner(p.B)
			if ar != n || ac != k || br != k || bc != m || p.D.Rows != n || p.D.Columns != m {
				t.Errorf("transposed %v %v: %d × %d times %d × %d to %d × %d", ta, tb, ar, ac, br, bc, p.D.Rows, p.D.Columns)
			}
			for _, q := range []driver.Matrix{p.A, p.B, p.D} {
				if q.Step != q.Rows {
					t.Errorf("transposed %v %v: columns of %d elements lie %d apart", ta, tb, q.Rows, q.Step)
				}
			}
		}
	}
}

// Every kernel a call asks for is in the file it is asked of.
func TestKernelNames(t *testing.T) {
	r := newRig(t, Options{})
	r.d.lib.CUDA.LoadModule = func(image []byte) (driver.Module, error) {
		r.files = append(r.files, string(image)) // the fake compiler makes file names
		_, err := r.take("LoadModule", "module")
		return driver.Module(len(r.files) - 1), err
	}
	asked := map[string]bool{}
	r.d.lib.CUDA.Function = func(m driver.Module, name string) (driver.Function, error) {
		text, err := kernelFiles.ReadFile("kernels/" + r.files[m])
		if r.files[m] == string(shiftKind)+".cu" { // brought by a test
			text, err = []byte(shiftSource), nil
		}
		if f := op.FormulaOf(op.Kind(strings.TrimSuffix(r.files[m], ".cu"))); f != nil { // generated
			text, err = []byte(formulaSource(f)), nil
		}
		if err != nil {
			return 0, err
		}
		asked[name] = true
		if kernelNamed(name, string(text)) {
			return 1, nil
		}
		return 0, fmt.Errorf("%s has no kernel %s", r.files[m], name)
	}
	for _, precision := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F16} {
		for _, c := range op.Cases(precision) {
			_, err := r.d.Kernel(c.Call)
			var none *device.NoKernelError
			if err != nil && !(c.Call.Kind.Fused() && errors.As(err, &none)) {
				t.Errorf("%s: %v", c.Name, err)
			}
		}
	}
	if len(asked) < 50 {
		t.Errorf("only %d kernels asked for", len(asked))
	}
}

// kernelNamed finds a kernel in its file: by its name, or as a parameter of the macro
// that makes it. Macros add the number of a function, or "Grad", or put a name before theirs.
func kernelNamed(name, text string) bool {
	for _, made := range regexp.MustCompile(`void [^(]*(?:\([^)]*\)[\s\\]*)?([a-zA-Z]+)##NAME\(`).FindAllStringSubmatch(text, -1) {
		if rest, ok := strings.CutPrefix(name, made[1]); ok && regexp.MustCompile(`(?m)^[A-Z_]+\(`+rest+`,`).MatchString(text) {
			return true
		}
	}
	for _, made := range regexp.MustCompile(`void [^\n]*\bname##([a-zA-Z]+) `).FindAllStringSubmatch(text, -1) {
		if rest, ok := strings.CutSuffix(name, made[1]); ok && regexp.MustCompile(`(?m)^[A-Z]+\(`+rest+`,`).MatchString(text) {
			return true
		}
	}
	plain := strings.TrimRight(strings.TrimSuffix(strings.TrimSuffix(name, "Grad"), "Single"), "123456")
	for _, way := range []string{`\)\s+` + name + `\(`, `void ` + name + `\(`, `(?m)^[A-Z]+\(` + name + `,`, `(?m)^[A-Z]+\(` + plain + `,`,
		`void ` + plain + `##F\(`, `void ` + strings.TrimRight(name, "123456") + `##F\(`} {
		if regexp.MustCompile(way).MatchString(text) {
			return true
		}
	}
	return false
}
