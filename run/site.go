package run

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"spillway/device"
	"spillway/machine"
	"spillway/placement"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/store"
	"spillway/units"
)

// site is the hardware to plan for, and how much memory of it may be taken.
func (o Options) site() (planner.Site, placement.Memory, error) {
	site, err := planner.SiteOf(o.Machine.ForPlans(o.Task == Generate), o.Device, o.Precision)
	if err != nil {
		return site, placement.Memory{}, err
	}
	site = o.opened(site)
	if o.Task == Generate {
		site = site.LooksUp()
	}
	if site.Context > 0 {
		site.Context += o.context
	}
	if o.Strategy != "" && strategy.Demands(o.Strategy).Parallelism == "" {
		site.Devices = 1 // however many there are
	}
	if o.ReservedMemory > 0 {
		if site.Budget <= int64(o.ReservedMemory) {
			return site, placement.Memory{}, fmt.Errorf("%v are to be left free on each device, and one has %v; reserve less", o.ReservedMemory, units.Bytes(site.Budget))
		}
		site.Budget -= int64(o.ReservedMemory)
	}
	if o.Budget > 0 {
		site.Budget = min(site.Budget, o.Budget)
	}
	if site.Disk, err = o.planDisk(); err != nil {
		return site, placement.Memory{}, err
	}
	site, memory, err := o.limit(site)
	for d, dev := range o.On { // kernels are timed in no more memory than plans may take
		if s, can := dev.(device.ScratchLimiter); can {
			s.LimitScratch(site.DeviceBudget(d))
		}
	}
	if calls := site.Device.Calls; calls != nil && err == nil {
		site.Device.Calls = calls.Within(site.DeviceBudget(0))
	}
	return site, memory, err
}

// opened is a site with what the devices that were opened say of themselves.
func (o Options) opened(site planner.Site) planner.Site {
	for _, dev := range o.On {
		info := dev.Info()
		site.Kernels, site.Alignment, site.Devices = dev, max(site.Alignment, info.Alignment), len(o.On)
		if info.Limit > 0 {
			site.Budget = min(site.Budget, info.Limit)
		}
		if _, counts := dev.(device.DriverMemory); !counts { // no GPU, whatever the machine says
			site.Context = 0
		}
		if site.Context > 0 { // kernels that the plan asks for come on top
			site.Context = max(site.Context, info.Overhead)
		}
	}
	if len(o.On) == 0 || site.CPUKernels == nil {
		return site
	}
	site.CPUKernels = cpuKernels{}                          // not described: what the CPU here has
	if site.Device.HostCalls != nil && o.Task == Generate { // what is at hand is measured
		site.CPU.Calls, site.CPU.Kernel = site.Device.HostCalls.Within(site.HostBudget), hostAttention
	}
	if u, measures := site.Device.HostCalls.(machine.Updater); measures && o.Task.Trains() {
		site.CPU.Calls = u.Updates(site.HostBudget)
	}
	return site
}

// planDisk is the disk to plan for: the folder's, or for what is not here the machine's.
func (o Options) planDisk() (disk planner.Disk, err error) {
	m := o.Machine.Disk
	disk = planner.Disk{Budget: int64(m.Free), Read: m.Read, Write: m.Write}
	if m.Read == 0 || m.Write == 0 {
		disk.Read, disk.Write = assumedRead, assumedWrite
	}
	switch {
	case o.Disk != "":
		if disk.Budget, err = store.Capacity(o.Disk); err != nil {
			return disk, fmt.Errorf("asking for the free space of %s: %w", o.Disk, err)
		}
	case len(o.On) > 0:
		disk.Budget = 0
	}
	if o.DiskBudget > 0 {
		disk.Budget = min(disk.Budget, o.DiskBudget)
	}
	if o.Task.Trains() {
		disk.Budget, disk.Copies = disk.Budget/generations, generations
	}
	return disk, nil
}

// limit applies MaxMemory, or what another run leaves, to a site. MaxMemory is what the driver
// counts, so that arenas have less.
func (o Options) limit(site planner.Site) (planner.Site, placement.Memory, error) {
	limit := o.left
	if limit == nil && o.MaxMemory != "" {
		given, err := placement.ParseMemory(o.MaxMemory, memoryOf(site))
		if err != nil {
			return site, given, &SettingError{"MaxMemory", err}
		}
		for d, n := range given.Devices {
			if n <= site.Context {
				return site, given, &SettingError{"MaxMemory", fmt.Errorf("max memory: %v of device %d, and the context, kernels and libraries of a GPU take %v; allow more",
					units.Bytes(n), d, units.Bytes(site.Context))}
			}
			given.Devices[d] = n - site.Context
		}
		limit = &given
	}
	if limit == nil {
		return site, memoryOf(site), nil
	}
	if limit.Host > 0 {
		site.HostBudget = min(site.HostBudget, limit.Host)
	}
	named := slices.Sorted(maps.Keys(limit.Devices))
	if n := len(named); n > 0 && named[n-1] >= max(site.Devices, 1) {
		return site, *limit, fmt.Errorf("max memory: device %d; there are %d devices, counted from 0", named[n-1], max(site.Devices, 1))
	}
	site.Budgets = make([]int64, max(site.Devices, 1))
	for d, n := range limit.Devices {
		site.Budgets[d] = max(n, 1) // 0 would be no limit
	}
	if o.DeviceMap != nil || len(named) == 0 {
		return site, *limit, nil
	}
	// Without a map, devices that are not named are not used.
	if named[len(named)-1] != len(named)-1 {
		return site, *limit, fmt.Errorf("max memory: it names the devices %v; name them from 0 on, or say with a device map which to use", named)
	}
	site.Devices = len(named)
	return site, *limit, nil
}

// SettingError says that the text of a setting cannot be read.
type SettingError struct {
	Setting string // name of the field
	Err     error
}

func (e *SettingError) Error() string { return e.Err.Error() }
func (e *SettingError) Unwrap() error { return e.Err }

// memoryOf is what a site has.
func memoryOf(site planner.Site) placement.Memory {
	m := placement.Memory{Devices: map[int]int64{}, Host: site.HostBudget}
	for d := range max(site.Devices, 1) {
		m.Devices[d] = site.Budget
		if d < len(site.Budgets) && site.Budgets[d] > 0 {
			m.Devices[d] = min(site.Budget, site.Budgets[d])
		}
	}
	return m
}

// hostAttention is what attention of few rows takes on a CPU at least, whose calls are measured but for that.
const hostAttention = 50 * time.Microsecond
