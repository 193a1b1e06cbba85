package driver

import (
	"unsafe"

	"spillway/internal/dl"
)

// NVML is the library that nvidia-smi asks.
type NVML struct {
	// Used is how many bytes of the GPU at a PCI address a process has, as nvidia-smi shows
	// them; false where the library does not know, as of processes outside a container.
	Used func(address string, process int) (int64, bool)
}

// nvmlProcess is what the library says of a process (nvmlProcessInfo_t).
type nvmlProcess struct {
	pid      uint32
	used     uint64
	instance [2]uint32
}

// nvmlUnknown is the number of bytes of a process that the library may not look at.
const nvmlUnknown = ^uint64(0)

// loadNVML opens the library; nil where it is missing, since only shared GPUs need it.
func loadNVML(folders []string) *NVML {
	lib, err := find(libnvml, folders)
	if err != nil {
		return nil
	}
	b := binder{lib: lib}
	start, device, processes := b.find("nvmlInit_v2"), b.find("nvmlDeviceGetHandleByPciBusId_v2"), b.find("nvmlDeviceGetComputeRunningProcesses_v3")
	if b.err != nil || int32(start.Call()) != 0 {
		return nil
	}
	return &NVML{Used: func(address string, process int) (int64, bool) { return used(device, processes, address, process) }}
}

func used(device, processes dl.Func, address string, process int) (int64, bool) {
	const most = 256 // processes of a GPU
	handle, text := new(uintptr), append([]byte(address), 0)
	if int32(device.Call(uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(handle)))) != 0 {
		return 0, false
	}
	count, list := new(uint32), new([most]nvmlProcess)
	*count = most
	if int32(processes.Call(*handle, uintptr(unsafe.Pointer(count)), uintptr(unsafe.Pointer(&list[0])))) != 0 {
		return 0, false
	}
	for _, p := range list[:min(*count, most)] {
		if int(p.pid) == process && p.used != nvmlUnknown {
			return int64(p.used), true
		}
	}
	return 0, false
}
