package spillway

import (
	"fmt"
	"maps"
	"slices"

	"spillway/placement"
	"spillway/plan"
	"spillway/planner"
)

// Memory is what there is of each device that can share the work, and of the host:
// what placement.ParseMemory starts from.
func (o Options) Memory() (placement.Memory, error) {
	o.MaxMemory = nil
	if o.Device == "" && len(o.Machine.Devices) > 0 {
		o.Device = o.Machine.Devices[0].Name
	}
	site, err := o.site()
	return found(site), err
}

// found is what a site has.
func found(site planner.Site) placement.Memory {
	m := placement.Memory{Devices: map[int]int64{}, Host: site.HostBudget}
	for d := range max(site.Devices, 1) {
		m.Devices[d] = site.Budget
		if d < len(site.Budgets) && site.Budgets[d] > 0 {
			m.Devices[d] = min(site.Budget, site.Budgets[d])
		}
	}
	return m
}

// limited is a site of which no more is taken than MaxMemory allows. Without a map,
// devices it does not name are not used.
func (o Options) limited(site planner.Site) (planner.Site, error) {
	limit := o.MaxMemory
	if limit == nil {
		return site, nil
	}
	if limit.Host > 0 {
		site.HostBudget = min(site.HostBudget, limit.Host)
	}
	named := slices.Sorted(maps.Keys(limit.Devices))
	if n := len(named); n > 0 && named[n-1] >= max(site.Devices, 1) {
		return site, fmt.Errorf("max memory: device %d; there are %d devices, counted from 0", named[n-1], max(site.Devices, 1))
	}
	site.Budgets = make([]int64, max(site.Devices, 1))
	for d, n := range limit.Devices {
		site.Budgets[d] = max(n, 1) // 0 would be no limit
	}
	if o.DeviceMap != nil || len(named) == 0 {
		return site, nil
	}
	if named[len(named)-1] != len(named)-1 {
		return site, fmt.Errorf("max memory: it names the devices %v; name them from 0 on, or say with a device map which to use", named)
	}
	site.Devices = len(named)
	return site, nil
}

// place adds to a request where the device map puts the blocks, and gives notices
// of what in the map means nothing.
func (o Options) place(r *planner.Request) (notices []string, err error) {
	if o.DeviceMap == nil {
		return nil, nil
	}
	if o.Choose != nil || len(o.Constraints.Places) > 0 {
		return nil, fmt.Errorf("a device map beside another choice of places; keep one")
	}
	m, err := r.Trace(r.MicroBatchSize, r.Seq)
	if err != nil {
		return nil, err
	}
	memory := found(r.Site)
	if o.MaxMemory != nil {
		memory = *o.MaxMemory
	}
	blocks := placement.Blocks(m)
	for {
		if r.Goal.Constraints.Places, notices, err = o.DeviceMap.Places(blocks, memory); err != nil || o.DeviceMap.Word == "" {
			return notices, err
		}
		lacks, err := r.Shortfall()
		if err != nil || lacks == nil || lacks.Tier != plan.OnDevice || !shrink(memory.Devices, lacks.Needed-lacks.Budget) {
			return notices, err // planning says what is wrong, if anything
		}
		memory.Given = true
	}
}

// shrink lowers the limits for weights by what a plan lacks for everything else. It
// says whether anything was left to lower.
func shrink(limits map[int]int64, by int64) (some bool) {
	for d, n := range limits {
		some = some || n > 0
		limits[d] = max(n-by, 0)
	}
	return some
}
