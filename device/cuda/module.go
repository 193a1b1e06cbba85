package cuda

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"

	"spillway/device/cuda/driver"
	"spillway/dtype"
	"spillway/internal/vfs"
)

//go:embed kernels
var kernelFiles embed.FS

// elements numbers the element types for kernels, as kernels/common.h does.
var elements = map[dtype.Type]int{dtype.F32: 0, dtype.BF16: 1, dtype.F16: 2}

// unit is a file of kernels with what it is compiled for: an element type and, for attention,
// the width of heads, whether there are masks (or segments) and dropout, and on tensor cores
// the number of keys per tile.
type unit struct {
	file    string // without its ending
	text    string // of the file where a program brings it, see Register; "" for one of ours
	element dtype.Type
	head    int64
	keys    int64
	masks   bool
	dropout bool
	// How kernels of ampere.h and decodeAttention.cu divide the work: rows or positions of a warp so often, stages of
	// what is fetched, and blocks of a multiprocessor.
	tiles, stages, blocks int64
	codec                 string // name of the block format that a file which includes codec.h or tile.h is for
	// Kernels of packed.cu: the format of the last matrix where that is another, how many rows, how many
	// warps multiply, and whether lanes fetch in place of the copy engine.
	other       string
	rows, warps int64
	plainly     bool
	// Attention over a cache that is coded: how keys and values are, as kernels/cache.h numbers it.
	key, value int64
	// Warps of a block of it where they are not four, blocks of a cluster, and whether scales are fetched as codes are.
	team, cluster int64
	scales        bool
}

// header is what codec.h stands for.
func (u unit) header() string { return "kernels/codecs/" + u.codec + ".h" }

// stands are the headers that names in a file stand for.
func (u unit) stands() map[string]string {
	return map[string]string{"codec.h": "codecs/" + u.codec + ".h", "tile.h": tileHeader(u.codec), "other.h": tileHeader(cmp.Or(u.other, u.codec))}
}

// tileHeader is how packed.cu decodes a format.
func tileHeader(codec string) string { return "tiles/" + codec + ".h" }

// early says whether the file includes decode.h.
func (u unit) early() bool {
	_, names, err := assemble(u.file+".cu", u.text, u.stands())
	return err == nil && slices.Contains(names, "decode.h")
}

// source is the program text of a unit: common.h, the headers that its file includes,
// and the file. NVRTC sees one text, so that it needs no folder of headers.
func (u unit) source() (string, error) {
	text, _, err := assemble(u.file+".cu", u.text, u.stands())
	if err != nil {
		return "", fmt.Errorf("kernels of %s: %w", u.file, err)
	}
	return text, nil
}

// assemble puts the text of a file, or the text given, behind that of the headers it includes,
// each once, and lists their names. Some names stand for others.
func assemble(file, given string, stands map[string]string) (text string, names []string, err error) {
	var out strings.Builder
	var add func(name string) error
	add = func(name string) error {
		if slices.Contains(names, name) {
			return nil
		}
		b, err := []byte(given), error(nil)
		if given == "" || name != file {
			b, err = kernelFiles.ReadFile("kernels/" + name)
		}
		if err != nil {
			return err
		}
		for _, m := range includes.FindAllSubmatch(b, -1) {
			header := string(m[1])
			if err := add(cmp.Or(stands[header], header)); err != nil {
				return err
			}
		}
		if name == "codes.h" {
			out.WriteString(codeTables())
		}
		names = append(names, name)
		fmt.Fprintf(&out, "#line 1 %q\n%s", name, includes.ReplaceAll(b, nil))
		return nil
	}
	if err := add("common.h"); err != nil {
		return "", nil, err
	}
	err = add(file)
	return out.String(), names, err
}

// includes finds the headers that a file of kernels names.
var includes = regexp.MustCompile(`(?m)^#include "([^"]+)"`)

// general lists the files whose kernels know nothing but the element type: all but those
// of attention, which include mask.h, those of one generation, which include wgmma.h, and those
// for one codec, which include codec.h or tile.h.
var general = sync.OnceValue(func() (files []string) {
	all, _ := kernelFiles.ReadDir("kernels") // embedded: it cannot fail
	for _, f := range all {
		name, is := strings.CutSuffix(f.Name(), ".cu")
		if !is {
			continue
		}
		if _, names, err := assemble(f.Name(), "", unit{}.stands()); err == nil && !slices.Contains(names, "mask.h") && !slices.Contains(names, "wgmma.h") {
			files = append(files, name)
		}
	}
	return files
})

func (u unit) options(major, minor int) []string {
	has, own := map[bool]int{true: 1}, ""
	if strings.HasPrefix(u.file, "hopper") {
		own = "a" // instructions that no other generation has
	}
	options := []string{
		fmt.Sprintf("--gpu-architecture=sm_%d%d%s", major, minor, own), "--std=c++17", "--fmad=true", "-default-device",
		fmt.Sprintf("-DELEMENT=%d", elements[u.element]), fmt.Sprintf("-DHEAD=%d", u.head), fmt.Sprintf("-DKEYS=%d", u.keys), fmt.Sprintf("-DMASKS=%d", has[u.masks]), fmt.Sprintf("-DDROPOUT=%d", has[u.dropout]),
	}
	if u.tiles > 0 {
		options = append(options, fmt.Sprintf("-DTILES=%d", u.tiles), fmt.Sprintf("-DSTAGES=%d", u.stages), fmt.Sprintf("-DBLOCKS=%d", u.blocks))
	}
	if u.rows > 0 {
		options = append(options, "-DFIRST=Tile_"+u.codec, "-DSECOND=Tile_"+cmp.Or(u.other, u.codec), fmt.Sprintf("-DROWS=%d", u.rows), fmt.Sprintf("-DWARPS=%d", u.warps), fmt.Sprintf("-DPLAINLY=%d", has[u.plainly]), fmt.Sprintf("-DRESIDENT=%d", max(u.blocks, 1)))
	}
	if u.file == "decodeAttention" && u.tiles == 0 {
		options = append(options, fmt.Sprintf("-DSTAGES=%d", max(u.stages, 1)), fmt.Sprintf("-DBLOCKS=%d", max(u.blocks, 1)))
	}
	if u.team > 0 {
		options = append(options, fmt.Sprintf("-DTEAM=%d", u.team))
	}
	if u.cluster > 0 {
		options = append(options, fmt.Sprintf("-DCLUSTER=%d", u.cluster))
	}
	if u.key > 0 {
		options = append(options, fmt.Sprintf("-DKEY_CODE=%d", u.key), fmt.Sprintf("-DVALUE_CODE=%d", u.value), fmt.Sprintf("-DFETCH_SCALES=%d", has[u.scales]))
	}
	return options
}

// compile makes machine code of a unit.
func (u unit) compile(c *driver.NVRTC, major, minor int) ([]byte, error) {
	text, err := u.source()
	if err != nil {
		return nil, err
	}
	return c.Compile(u.file+".cu", text, u.options(major, minor))
}

// compiled are the units of this process, whatever device asked for them.
var compiled = struct {
	sync.Mutex
	images map[string]*image
}{images: map[string]*image{}}

// image is machine code, made once.
type image struct {
	once  sync.Once
	bytes []byte
	err   error
}

// compiling bounds how many units are compiled at once.
var compiling = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)))

// imageOf finds the machine code of a unit in this process or in the cache folder, or
// compiles it.
func (d *Device) imageOf(u unit) ([]byte, error) {
	text, err := u.source()
	if err != nil {
		return nil, err
	}
	major, minor, err := d.lib.NVRTC.Version()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d.%d %q %s", major, minor, u.options(d.gpu.major, d.gpu.minor), text))
	name := hex.EncodeToString(sum[:16])
	compiled.Lock()
	i := compiled.images[name]
	if i == nil {
		i = &image{}
		compiled.images[name] = i
	}
	compiled.Unlock()
	i.once.Do(func() { i.bytes, i.err = d.cached(name, u) })
	return i.bytes, i.err
}

// cached reads machine code from the cache folder, or compiles it and writes it there. A
// folder that cannot be written is an error, because somebody asked for it.
func (d *Device) cached(name string, u unit) ([]byte, error) {
	path := filepath.Join(d.options.Cache, name+".cubin")
	if d.options.Cache != "" {
		if b, err := os.ReadFile(path); err == nil {
			return b, nil
		}
	}
	compiling <- struct{}{}
	b, err := u.compile(d.lib.NVRTC, d.gpu.major, d.gpu.minor)
	<-compiling
	if err != nil || d.options.Cache == "" {
		return b, err
	}
	if err = vfs.MkdirAll(vfs.OS, d.options.Cache); err == nil {
		err = vfs.ReplaceBytes(vfs.OS, path, b) // whole or not at all
	}
	if err != nil {
		return b, fmt.Errorf("storing compiled kernels: %w", err)
	}
	return b, nil
}

// modules are the units loaded on a device.
type modules struct {
	mu     sync.Mutex
	loaded map[unit]*module
	begun  map[dtype.Type]bool
	behind sync.WaitGroup // what compiles in the background
}

// module is a unit on a device.
type module struct {
	handle    driver.Module
	functions map[string]*function
	// early: kernels of the unit may begin while others end (kernels/decode.h). A multiprocessor has room for two that divide its
	// memory in the same way alone, so all of these have as much of it as can be for shared memory.
	early bool
}

// function is a kernel of ours.
type function struct {
	name    string
	handle  driver.Function
	allowed int64 // bytes of dynamic shared memory, beyond what every kernel has
}

// function finds a kernel of a unit and allows it so much shared memory. The first time an
// element type is met, all general files start compiling for it in parallel.
func (d *Device) function(u unit, name string, shared int64) (*function, error) {
	if shared > int64(d.gpu.shared) {
		return nil, unsupported(fmt.Sprintf("%d bytes of shared memory are needed, a block has %d", shared, d.gpu.shared))
	}
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	d.modules.mu.Lock()
	defer d.modules.mu.Unlock()
	d.begin(u.element)
	m, err := d.module(u)
	if err != nil {
		return nil, err
	}
	f := m.functions[name]
	if f == nil {
		h, err := d.lib.CUDA.Function(m.handle, name)
		if err != nil {
			return nil, fmt.Errorf("kernel %s of %s: %w", name, u.file, err)
		}
		if m.early {
			if err := d.lib.CUDA.PreferShared(h); err != nil {
				return nil, fmt.Errorf("kernel %s of %s: %w", name, u.file, err)
			}
		}
		f = &function{name: name, handle: h}
		m.functions[name] = f
	}
	const plain = 32 << 10                      // of the 48 KiB every kernel may use; the rest is for what it declares itself
	if shared <= plain || shared <= f.allowed { // one that was prepared before may need more
		return f, nil
	}
	f.allowed = shared
	return f, d.lib.CUDA.AllowShared(f.handle, int(shared))
}

// begin compiles all general files for an element type in the background. Errors are reported
// when a kernel of the file is prepared.
func (d *Device) begin(t dtype.Type) {
	if d.modules.begun[t] {
		return
	}
	d.modules.begun[t] = true
	for _, file := range general() {
		d.modules.behind.Go(func() { _, _ = d.imageOf(unit{file: file, element: t}) })
	}
}

// module loads a unit.
func (d *Device) module(u unit) (*module, error) {
	if m := d.modules.loaded[u]; m != nil {
		return m, nil
	}
	b, err := d.imageOf(u)
	if err != nil {
		return nil, err
	}
	h, err := d.lib.CUDA.LoadModule(b)
	if err != nil {
		return nil, fmt.Errorf("loading the kernels of %s: %w%s", u.file, err, d.mismatch())
	}
	m := &module{h, map[string]*function{}, u.early()}
	d.modules.loaded[u] = m
	return m, nil
}

// mismatch explains where kernels were compiled for a newer CUDA than the driver supports.
func (d *Device) mismatch() string {
	major, minor, err := d.lib.NVRTC.Version()
	knows, upTo, bad := d.lib.CUDA.Version()
	if err != nil || bad != nil || major < knows || major == knows && minor <= upTo {
		return ""
	}
	return fmt.Sprintf("; the compiler is of CUDA %d.%d and the driver knows %d.%d: install a newer driver or an older compiler", major, minor, knows, upTo)
}

// unload waits for what is still compiling and unloads the modules. The context must be
// current.
func (m *modules) unload(d *Device) error {
	m.behind.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, loaded := range m.loaded {
		errs = append(errs, d.lib.CUDA.UnloadModule(loaded.handle))
	}
	m.loaded = nil
	return errors.Join(errs...)
}
