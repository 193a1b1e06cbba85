package cuda

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway/device/cuda/driver"
	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
)

// searchPaths are folders given by the environment to look for libraries in.
func searchPaths() []string {
	var folders []string
	for _, name := range []string{"CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV"} {
		if f := os.Getenv(name); f != "" {
			folders = append(folders, f)
		}
	}
	return folders
}

func compiler(t *testing.T) *driver.NVRTC {
	t.Helper()
	c, err := driver.LoadNVRTC(searchPaths())
	if err != nil {
		t.Skipf("kernels are not compiled here: %v", err)
	}
	return c
}

// allUnits lists every file for an element type; attention with heads as wide as models
// have.
func allUnits(t dtype.Type) []unit {
	all := []unit{{file: "attention", element: t, head: 64, masks: true, dropout: true}, {file: "flash", element: t, head: 64, keys: 32, masks: true}, {file: "documents", element: t}, {file: "delta", element: t, head: 80}, {file: "decodeAttention", element: t, head: 128}, {file: "decodeAttention", element: t, head: 96}}
	for _, file := range general() {
		all = append(all, unit{file: file, element: t})
	}
	for _, c := range quant.Weights() {
		if u, err := blockUnit(t, c.Type); err == nil {
			all = append(all, u)
		}
	}
	return slices.Concat(all, flashUnits(t), packedUnits(t, 1))
}

func flashUnits(t dtype.Type) (units []unit) {
	keys := int64(64)
	if t == dtype.F32 {
		keys = 32
	}
	for _, head := range []int64{64, 128} {
		for _, file := range []string{"flash", "flashGrad"} {
			units = append(units, unit{file: file, element: t, head: head, keys: keys})
		}
	}
	return units
}

// fewRowsUnits are those for few rows, which have nothing for f32.
func fewRowsUnits() []unit {
	list := []unit{unitFor("decode", dtype.BF16), unitFor("decode", dtype.F16), unitFor("compressed", dtype.BF16), {file: "packed", element: dtype.BF16, codec: "q4_k", other: "q6_k", rows: 1, warps: 16}}
	list = append(list, unit{file: "packed", element: dtype.F16, codec: "q2_k", rows: 4, warps: 8}) // warps with two sums
	for _, f := range []dtype.Type{quant.Q4_0, quant.NF4, quant.RowF8} {                            // one of each way to multiply
		list = append(list, unit{file: "packed", element: dtype.F16, codec: f.String(), rows: 2, warps: 16})
	}
	list = append(list, unit{file: "packed", element: dtype.BF16, codec: "i8row", rows: 1, warps: 8, blocks: 2}) // two blocks of a multiprocessor
	for _, c := range []struct {
		element, keys, values dtype.Type
		d                     int64
	}{{dtype.BF16, dtype.BF16, dtype.BF16, 64}, {dtype.BF16, dtype.BF16, dtype.BF16, 96}, {dtype.BF16, dtype.BF16, dtype.BF16, 128}, {dtype.BF16, quant.RowI8, quant.RowI8, 128},
		{dtype.BF16, quant.RowF8, quant.RowF8, 128}, {dtype.BF16, quant.RowI4, quant.RowI4, 128}, {dtype.BF16, quant.RowI8, quant.RowI4, 128}, {dtype.F16, quant.RowI4, quant.RowF8, 64}} {
		x := cached{element: c.element, keys: op.Type{DType: c.keys}, values: op.Type{DType: c.values}, d: c.d}
		forms := []attendForm{x.forms().turns, x.forms().small}
		switch {
		case c.d < 128:
		case c.keys == dtype.BF16:
			forms = append(forms, x.forms().large, x.forms().alone)
		case c.keys == quant.RowI8 && c.values == quant.RowI8:
			forms = append(forms, x.forms().large, x.forms().alone, fetchedTurns)
		case c.keys == quant.RowI4:
			forms = append(forms, x.forms().alone, longTurns)
		}
		for _, f := range forms {
			list = append(list, x.unit(f))
		}
	}
	return list
}

// packedUnits are those for all formats with kernels for few rows.
func packedUnits(t dtype.Type, rows int64) (list []unit) {
	for f := range tileFormats {
		list = append(list, unit{file: "packed", element: t, codec: f.String(), rows: rows, warps: 16})
	}
	return list
}

// hopperUnits are those for GPUs of one generation alone.
func hopperUnits(t dtype.Type) (units []unit) {
	for _, head := range []int64{64, 80, 128} {
		for _, file := range []string{"hopper", "hopperGrad"} {
			units = append(units, unit{file: file, element: t, head: head, keys: hopperKeys, masks: head < 128, dropout: head == 80})
		}
	}
	return append(units, tileForms[0].unit(t), tileForms[len(tileForms)-1].unit(t))
}

// ampereUnits are those for GPUs of the generations before, which have much shared memory or
// little.
func ampereUnits(t *testing.T, shared int, heads ...int64) (units []unit) {
	d := &Device{gpu: gpuInfo{shared: shared}}
	for _, head := range heads {
		h := headsOf(attentionCall(t, dtype.BF16, 2, 3000, head, op.Attr{Heads: 4, KVHeads: 2, Causal: true, Segments: head != 96, Prob: float64(head%3) / 10}), 3)
		units = append(units, h.ampereForward(d).unit, h.ampereGradient(d).unit)
	}
	return units
}

// Every kernel compiles, for an older and a newer generation of GPUs, also where there
// is no GPU.
func TestCompile(t *testing.T) {
	c := compiler(t)
	for _, on := range []struct {
		major, minor int
		units        []unit
	}{{8, 0, allUnits(dtype.BF16)}, {9, 0, allUnits(dtype.F32)}, {9, 0, flashUnits(dtype.F16)}, {9, 0, fewRowsUnits()}, {9, 0, hopperUnits(dtype.BF16)}, {9, 0, hopperUnits(dtype.F16)},
		{8, 0, ampereUnits(t, 163<<10, 80, 96, 128, 256)}, {8, 6, ampereUnits(t, 99<<10, 64, 128)}, {8, 9, ampereUnits(t, 99<<10, 128, 256)}} {
		for _, u := range on.units {
			t.Run(fmt.Sprintf("sm_%d%d %s%s %v %d %d %d %d", on.major, on.minor, u.file, u.codec, u.element, u.head, u.keys, u.key, u.value), func(t *testing.T) {
				t.Parallel()
				image, err := u.compile(c, on.major, on.minor)
				if err != nil {
					t.Fatal(err)
				}
				if !strings.HasPrefix(string(image), "\x7fELF") {
					t.Errorf("%d bytes that are no machine code", len(image))
				}
			})
		}
	}
}

func TestCompileError(t *testing.T) {
	c := compiler(t)
	_, err := c.Compile("broken.cu", "__global__ void f() { nonsense; }", []string{"--gpu-architecture=sm_80"})
	if err == nil || !strings.Contains(err.Error(), "nonsense") || !strings.Contains(err.Error(), "broken.cu") {
		t.Errorf("a broken kernel gives %v, want the compiler's words", err)
	}
}

// Every file of kernels belongs to a unit.
func TestEveryFileIsCompiled(t *testing.T) {
	known := map[string]bool{}
	for _, u := range slices.Concat(allUnits(dtype.BF16), hopperUnits(dtype.BF16), ampereUnits(t, 163<<10, 128)) {
		known[u.file+".cu"] = true
		if _, err := u.source(); err != nil {
			t.Error(err)
		}
	}
	files, err := fs.Glob(kernelFiles, "kernels/*.cu")
	if err != nil || len(files) == 0 {
		t.Fatalf("no kernels: %v", err)
	}
	for _, f := range files {
		if !known[filepath.Base(f)] {
			t.Errorf("%s is compiled nowhere", f)
		}
	}
}

// A launch of packed.cu fits a multiprocessor, and a stage of its ring is always of the same group of warps: one that
// found the stage of another before its codes had come would take what was there before.
func TestPackedLaunches(t *testing.T) {
	for _, shared := range []int{99 << 10, 163 << 10, 227 << 10} {
		d := &Device{gpu: gpuInfo{major: 9, multiprocessors: 132, shared: shared}}
		if _, ok := (packed{element: dtype.BF16, first: quant.NF4, second: quant.FP4, rows: 1, k: 4096, tiles: 300}).planned(d); ok {
			t.Error("nf4 and fp4 by one table")
		}
		for f := range tileFormats {
			for _, rows := range []int64{1, 2, 4, 8} {
				for _, k := range []int64{256, 4096, 14336} {
					p, ok := packed{element: dtype.BF16, first: f, second: f, rows: rows, k: k, tiles: 300}.planned(d)
					if !ok {
						if rows == 1 && k <= 4096 {
							t.Errorf("%v: no launch for a row of %d in %d KiB", f, k, shared>>10)
						}
						continue
					}
					if groups := p.warps() / packedGroup; p.stages < 2 || p.stages%groups != 0 || p.shared()+p.own() > int64(shared) {
						t.Errorf("%v, %d rows of %d: %d stages for %d groups, %d bytes of %d", f, rows, k, p.stages, groups, p.shared()+p.own(), shared)
					}
				}
			}
		}
	}
}

// What launches know of formats is what kernels do.
func TestTileFormats(t *testing.T) {
	for f, want := range tileFormats {
		u := unit{file: "packed", codec: f.String(), rows: 1, warps: 16}
		text, err := u.source()
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{fmt.Sprintf("bytes = %d, bank = %d;", want.bytes, want.bank), fmt.Sprintf("bool integer = %v, sums = %v, table = %v;", want.integer, want.sums, want.table)} {
			if !strings.Contains(text, line) {
				t.Errorf("%v: kernels do not say %q", f, line)
			}
		}
	}
}
