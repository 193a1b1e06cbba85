package nvml

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"
)

// GPU is the state of a GPU. A figure that the GPU or the system does not report is -1.
type GPU struct {
	Name           string    `json:"name,omitempty"`
	Address        string    `json:"address,omitempty"` // on the PCI bus: "00000000:1b:00.0"
	Memory         int64     `json:"memory_bytes"`      // it has
	MemoryUsed     int64     `json:"memory_used_bytes"` // by all programs and the driver
	Received       int64     `json:"link_in_rate"`      // bytes per second from the host, just now
	Sent           int64     `json:"link_out_rate"`     // bytes per second to the host, just now
	LinkGeneration int       `json:"link_generation"`
	LinkWidth      int       `json:"link_width"`        // lanes
	LinkMax        [2]int    `json:"link_most"`         // generation and width when it is busy
	Temperature    int       `json:"temperature_c"`     // degrees Celsius
	Power          int       `json:"power_mw"`          // milliwatts
	PowerLimit     int       `json:"power_limit_mw"`    // the same
	Clock          int       `json:"clock_mhz"`         // of the multiprocessors, now
	ClockMax       int       `json:"clock_most_mhz"`    // the highest they can have
	Lowered        []string  `json:"clock_lowered_by"`  // what keeps the clock below what it could have: "power limit", "temperature"
	Busy           int       `json:"busy_percent"`      // share of the last second in which a kernel ran
	Processes      []Process `json:"processes"`         // that compute
	Unknown        []string  `json:"unknown,omitempty"` // what was not reported, and why
}

// Process holds memory of a GPU.
type Process struct {
	PID   int   `json:"pid"`
	Bytes int64 `json:"bytes"` // -1 where the system does not say
}

// GPU asks for the state of the GPU at an address of the PCI bus, such as
// "00000000:1b:00.0". It fails only where there is no such GPU.
func (l *Library) GPU(address string) (c GPU, err error) {
	at, handle := append([]byte(address), 0), new(uintptr)
	if err := l.call("nvmlDeviceGetHandleByPciBusId_v2", uintptr(unsafe.Pointer(&at[0])), uintptr(unsafe.Pointer(handle))); err != nil {
		return c, fmt.Errorf("looking for the GPU at %s: %w", address, err)
	}
	l.ask(*handle, &c)
	return c, nil
}

// All asks for the state of all GPUs, in the driver's order, with what the link carries just
// now, which takes some tens of milliseconds each.
func (l *Library) All() (list []GPU, err error) {
	n := new(uint32)
	if err := l.call("nvmlDeviceGetCount_v2", uintptr(unsafe.Pointer(n))); err != nil {
		return nil, err
	}
	for i := range *n {
		handle := new(uintptr)
		if err := l.call("nvmlDeviceGetHandleByIndex_v2", uintptr(i), uintptr(unsafe.Pointer(handle))); err != nil {
			return list, fmt.Errorf("opening GPU %d: %w", i, err)
		}
		var c GPU
		l.ask(*handle, &c)
		l.askLink(*handle, &c)
		list = append(list, c)
	}
	return list, nil
}

// askLink asks what the link carries just now.
func (l *Library) askLink(handle uintptr, c *GPU) {
	const sent, received = 0, 1
	rate := func(what string, counter uintptr) int64 {
		kib := new(uint32)
		if err := l.call("nvmlDeviceGetPcieThroughput", handle, counter, uintptr(unsafe.Pointer(kib))); err != nil {
			c.Unknown = append(c.Unknown, fmt.Sprintf("%s (%v)", what, err))
			return -1
		}
		return int64(*kib) << 10
	}
	c.Sent, c.Received = rate("rate to the host", sent), rate("rate from the host", received)
}

// ask fills in what the library knows of a GPU.
func (l *Library) ask(device uintptr, c *GPU) {
	handle := &device
	known := func(what string, n uint32, err error) int {
		if err != nil {
			c.Unknown = append(c.Unknown, fmt.Sprintf("%s (%v)", what, err))
			return -1
		}
		return int(n)
	}
	ask := func(what, function string) int {
		n := new(uint32)
		err := l.call(function, *handle, uintptr(unsafe.Pointer(n)))
		return known(what, *n, err)
	}
	c.LinkGeneration = ask("generation of the link", "nvmlDeviceGetCurrPcieLinkGeneration")
	c.LinkWidth = ask("width of the link", "nvmlDeviceGetCurrPcieLinkWidth")
	c.LinkMax = [2]int{ask("best generation of the link", "nvmlDeviceGetMaxPcieLinkGeneration"), ask("best width of the link", "nvmlDeviceGetMaxPcieLinkWidth")}
	c.Power = ask("power", "nvmlDeviceGetPowerUsage")
	c.PowerLimit = ask("power limit", "nvmlDeviceGetEnforcedPowerLimit")
	const chip = 0
	temperature := new(uint32)
	err := l.call("nvmlDeviceGetTemperature", *handle, chip, uintptr(unsafe.Pointer(temperature)))
	c.Temperature = known("temperature", *temperature, err)
	const multiprocessors = 1
	clock := func(what, function string) int {
		n := new(uint32)
		err := l.call(function, *handle, multiprocessors, uintptr(unsafe.Pointer(n)))
		return known(what, *n, err)
	}
	c.Clock, c.ClockMax = clock("clock", "nvmlDeviceGetClockInfo"), clock("highest clock", "nvmlDeviceGetMaxClockInfo")
	c.Lowered = l.lowered(*handle)
	busy := new([2]uint32) // of the chip, of its memory
	err = l.call("nvmlDeviceGetUtilizationRates", *handle, uintptr(unsafe.Pointer(busy)))
	c.Busy = known("utilization", busy[0], err)
	if c.Processes, err = l.processes(*handle); err != nil {
		c.Unknown = append(c.Unknown, fmt.Sprintf("processes (%v)", err))
	}
	name := make([]byte, 96)
	if err := l.call("nvmlDeviceGetName", *handle, uintptr(unsafe.Pointer(&name[0])), uintptr(len(name))); err == nil {
		text, _, _ := strings.Cut(string(name), "\x00")
		c.Name = text
	}
	place := new(pciInfo)
	if err := l.call("nvmlDeviceGetPciInfo_v3", *handle, uintptr(unsafe.Pointer(place))); err == nil {
		c.Address = fmt.Sprintf("%08x:%02x:%02x.0", place.domain, place.bus, place.device)
	}
	memory := new([3]uint64) // in all, free, used
	err = l.call("nvmlDeviceGetMemoryInfo", *handle, uintptr(unsafe.Pointer(memory)))
	if c.Memory, c.MemoryUsed = int64(memory[0]), int64(memory[2]); err != nil {
		c.Memory, c.MemoryUsed = -1, -1
		c.Unknown = append(c.Unknown, fmt.Sprintf("memory (%v)", err))
	}
	c.Sent, c.Received = -1, -1
}

// pciInfo is the library's struct of a place on the PCI bus, version 3.
type pciInfo struct {
	_                   [16]byte // as text, cut short
	domain, bus, device uint32
	_                   [2]uint32 // ids of the chip and of the board
	_                   [32]byte  // as text
}

// reasons are bits that say what lowers the clock; others are set while nothing is wrong, or
// nothing runs.
var reasons = []struct {
	bit  uint64
	name string
}{{0x4, "power limit"}, {0x8, "hardware slowdown"}, {0x20, "temperature"}, {0x40, "temperature, by hardware"}, {0x80, "power brake"}}

// lowered are the reasons for which the clock is below what it could have; none where the library does not
// say.
func (l *Library) lowered(handle uintptr) (list []string) {
	bits := new(uint64)
	if l.call("nvmlDeviceGetCurrentClocksThrottleReasons", handle, uintptr(unsafe.Pointer(bits))) != nil {
		return nil
	}
	return namesOf(*bits)
}

func namesOf(bits uint64) (list []string) {
	for _, r := range reasons {
		if bits&r.bit != 0 {
			list = append(list, r.name)
		}
	}
	return list
}

// process is the library's struct of processes, version 3.
type process struct {
	pid      uint32
	bytes    uint64
	instance [2]uint32
}

func (l *Library) processes(handle uintptr) ([]Process, error) {
	const function = "nvmlDeviceGetComputeRunningProcesses_v3"
	for capacity := uint32(64); ; capacity *= 4 {
		n, found := new(uint32), make([]process, capacity)
		*n = capacity
		err := l.call(function, handle, uintptr(unsafe.Pointer(n)), uintptr(unsafe.Pointer(&found[0])))
		var small *Error
		if errors.As(err, &small) && small.Code == insufficientSize && capacity < 1<<16 {
			continue
		}
		if err != nil {
			return nil, err
		}
		var list []Process
		for _, p := range found[:min(*n, capacity)] {
			list = append(list, Process{PID: int(p.pid), Bytes: int64(p.bytes)}) // the library has all ones, which is -1, where it does not know
		}
		return list, nil
	}
}

// String is the state in a line: "PCIe 5 × 16, 34 °C, 75 of 700 W, 345 of 1980 MHz, 0% busy".
func (c GPU) String() string {
	var parts []string
	add := func(isKnown bool, format string, args ...any) {
		if isKnown {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(c.LinkGeneration > 0 && c.LinkWidth > 0, "PCIe %d × %d", c.LinkGeneration, c.LinkWidth)
	add(c.LinkMax[0] > c.LinkGeneration && c.LinkGeneration > 0, "%d when busy", c.LinkMax[0])
	add(c.Temperature >= 0, "%d °C", c.Temperature)
	add(c.Power >= 0 && c.PowerLimit > 0, "%d of %d W", c.Power/1000, c.PowerLimit/1000)
	add(c.Clock >= 0 && c.ClockMax > 0, "%d of %d MHz", c.Clock, c.ClockMax)
	add(len(c.Lowered) > 0, "lowered by %s", strings.Join(c.Lowered, " and "))
	add(c.Busy >= 0, "%d%% busy", c.Busy)
	return strings.Join(parts, ", ")
}
