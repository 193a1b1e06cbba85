package search

import "spillway/plan"

// demand is what a plan takes of the device that has least left, what there is of that, and what
// it takes of the host and the disk.
type demand struct{ Device, budget, Host, Disk int64 }

// lacks is how much too small the device is; below 0, how much it has left.
func (n demand) lacks() int64 { return n.Device - n.budget }

// DemandOf is what a plan takes that may fill a share of each device. Devices that share the
// host's memory take from the host.
func DemandOf(p *plan.Plan, shared bool, share float64) (n demand) {
	for _, a := range p.Arenas {
		switch {
		case a.Tier == plan.OnDisk:
			n.Disk += a.Bytes
			continue
		case a.Tier == plan.OnDevice:
			has := shareOf(p.Devices[a.Device].Budget, share)
			if n.budget == 0 || a.Bytes-has > n.lacks() {
				n.Device, n.budget = a.Bytes, has
			}
			if !shared {
				continue
			}
		}
		n.Host += a.Bytes
	}
	return n
}

// shareOf is a share of so many bytes, exact where it is all of them.
func shareOf(bytes int64, share float64) int64 {
	if share == 1 {
		return bytes
	}
	return int64(share * float64(bytes))
}
