package rig

import (
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"

	"spillway/units"
)

var (
	kernel32      = windows.NewLazySystemDLL("kernel32.dll")
	memoryStatus  = kernel32.NewProc("GlobalMemoryStatusEx")
	processMemory = kernel32.NewProc("K32GetProcessMemoryInfo")
)

func (s System) readFacts() (systemFacts, error) {
	if s.Proc != "" {
		return s.procFacts()
	}
	var m struct { // MEMORYSTATUSEX
		length, load uint32
		total, free  uint64
		rest         [5]uint64
	}
	m.length = uint32(unsafe.Sizeof(m))
	if ok, _, err := memoryStatus.Call(uintptr(unsafe.Pointer(&m))); ok == 0 {
		return systemFacts{}, err
	}
	f := systemFacts{memory: units.Bytes(m.total), usable: max(units.Bytes(m.free)-ProgramOverhead, 0)}
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, `HARDWARE\DESCRIPTION\System\CentralProcessor\0`, registry.QUERY_VALUE)
	if err == nil {
		f.cpu, _, err = key.GetStringValue("ProcessorNameString")
		key.Close() // opened for reading
	}
	if err != nil {
		f.notes = append(f.notes, "the name of the CPU could not be read: "+err.Error())
	}
	return f, nil
}

// openDirect opens through the page cache: unbuffered handles refuse what is not aligned to
// sectors, and their size differs from drive to drive.
func openDirect(path string, flag int) (f *os.File, direct bool, err error) {
	f, err = os.OpenFile(path, flag, 0o600)
	return f, false, err
}

// residentNow is the working set of this process: its peak, or what it is now.
func residentNow(name string) (int64, error) {
	var m struct { // PROCESS_MEMORY_COUNTERS
		size, faults uint32
		peak, now    uintptr
		rest         [6]uintptr
	}
	m.size = uint32(unsafe.Sizeof(m))
	if ok, _, err := processMemory.Call(uintptr(windows.CurrentProcess()), uintptr(unsafe.Pointer(&m)), uintptr(m.size)); ok == 0 {
		return 0, err
	}
	if name == "VmHWM" {
		return int64(m.peak), nil
	}
	return int64(m.now), nil
}
