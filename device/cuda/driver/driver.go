// Package driver reaches NVIDIA's libraries: the driver (libcuda), the compiler of
// kernels (NVRTC), matmuls (cuBLASLt) and, where there is one, fused attention
// (cuDNN), all opened at run time.
//
// Each library is a table of Go functions, so that a test can put its own functions
// in place of the driver's and watch the order of calls, make one fail, and see that
// everything is given back, on a machine without a GPU.
//
// A function of CUDA works on the context that is current on the operating system's
// thread; making it current is the caller's business.
package driver

import (
	"errors"
	"fmt"
)

// Libraries are the tables of all libraries.
type Libraries struct {
	CUDA  *CUDA
	NVRTC *NVRTC
	BLAS  *BLAS
	DNN   *DNN  // nil where cuDNN is not installed
	NVML  *NVML // nil where it is missing
}

// Load finds and opens all libraries. Folders are searched before the usual places.
func Load(folders []string) (*Libraries, error) {
	cuda, err := loadCUDA(folders)
	if err != nil {
		return nil, err
	}
	nvrtc, err := LoadNVRTC(folders)
	if err != nil {
		return nil, err
	}
	blas, err := loadBLAS(folders)
	if err != nil {
		return nil, err
	}
	dnn, err := LoadDNN(folders)
	var missing *MissingError
	if err != nil && !errors.As(err, &missing) {
		return nil, err
	}
	return &Libraries{CUDA: cuda, NVRTC: nvrtc, BLAS: blas, DNN: dnn, NVML: loadNVML(folders)}, nil
}

// Error is what a library answered to a call.
type Error struct {
	Call string // "cuMemAlloc"
	Code int
	Name string // "CUDA_ERROR_OUT_OF_MEMORY"
	Text string // "out of memory"
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s (%d): %s", e.Call, e.Name, e.Code, e.Text)
}

// Codes of CUDA that callers distinguish.
const (
	OutOfMemory     = 2
	NoDevice        = 100
	IllegalAddress  = 700
	LaunchResources = 701
)
