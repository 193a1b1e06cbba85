package driver

import (
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"spillway/internal/dl"
)

// NVRTC is the compiler of kernels.
type NVRTC struct {
	// Version is that of CUDA.
	Version func() (major, minor int, err error)
	// Compile makes machine code of a program. The error holds the compiler's log.
	Compile func(name, source string, options []string) ([]byte, error)
}

// nvrtcLib is the open compiler.
type nvrtcLib struct {
	binder
	errorText, create, destroy, compile       dl.Func
	logSize, log, imageSize, image, toolchain dl.Func
}

// LoadNVRTC opens the compiler alone; it works without a GPU.
func LoadNVRTC(folders []string) (*NVRTC, error) {
	lib, err := find(libnvrtc, folders)
	if err != nil {
		return nil, err
	}
	l := &nvrtcLib{binder: binder{lib: lib}}
	l.errorText, l.toolchain = l.find("nvrtcGetErrorString"), l.find("nvrtcVersion")
	l.create, l.destroy, l.compile = l.find("nvrtcCreateProgram"), l.find("nvrtcDestroyProgram"), l.find("nvrtcCompileProgram")
	l.logSize, l.log = l.find("nvrtcGetProgramLogSize"), l.find("nvrtcGetProgramLog")
	l.imageSize, l.image = l.find("nvrtcGetCUBINSize"), l.find("nvrtcGetCUBIN")
	if l.err != nil {
		return nil, l.err
	}
	return &NVRTC{Version: l.version, Compile: l.build}, nil
}

func (l *nvrtcLib) check(call string, code uintptr) error {
	if int32(code) == 0 {
		return nil
	}
	return &Error{Call: call, Code: int(int32(code)), Name: dl.Text(l.errorText.Call(code), 128), Text: "compiling a kernel"}
}

func (l *nvrtcLib) version() (int, int, error) {
	v := new([2]int32)
	err := l.check("nvrtcVersion", l.toolchain.Call(uintptr(unsafe.Pointer(&v[0])), uintptr(unsafe.Pointer(&v[1]))))
	return int(v[0]), int(v[1]), err
}

// build makes a program, compiles it and takes its machine code.
func (l *nvrtcLib) build(name, source string, options []string) ([]byte, error) {
	program, text, title := new(uintptr), append([]byte(source), 0), append([]byte(name), 0)
	err := l.check("nvrtcCreateProgram", l.create.Call(uintptr(unsafe.Pointer(program)), uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(&title[0])), 0, 0, 0))
	if err != nil {
		return nil, err
	}
	defer l.destroy.Call(uintptr(unsafe.Pointer(program)))
	if err := l.run(*program, options); err != nil {
		log, _ := l.take("nvrtcGetProgramLog", l.logSize, l.log, *program)
		return nil, fmt.Errorf("%s: %w\n%s", name, err, strings.TrimRight(string(log), "\x00\n"))
	}
	return l.take("nvrtcGetCUBIN", l.imageSize, l.image, *program)
}

func (l *nvrtcLib) run(program uintptr, options []string) error {
	texts, addresses := make([][]byte, len(options)), make([]*byte, len(options)+1)
	for i, o := range options {
		texts[i] = append([]byte(o), 0)
		addresses[i] = &texts[i][0]
	}
	err := l.check("nvrtcCompileProgram", l.compile.Call(program, uintptr(len(options)), uintptr(unsafe.Pointer(&addresses[0]))))
	runtime.KeepAlive(texts)
	return err
}

// take asks for a size and then for so many bytes.
func (l *nvrtcLib) take(call string, size, get dl.Func, program uintptr) ([]byte, error) {
	n := new(uint64)
	if err := l.check(call+"Size", size.Call(program, uintptr(unsafe.Pointer(n)))); err != nil {
		return nil, err
	}
	b := make([]byte, max(*n, 1))
	return b, l.check(call, get.Call(program, uintptr(unsafe.Pointer(&b[0]))))
}
