package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"spillway/plan"
)

// byWord places blocks by rule. Blocks that find no room are on disk.
func byWord(word string, blocks []Block, memory Memory) (targets, error) {
	if !slices.Contains(Words, word) {
		return nil, fmt.Errorf("device map: %q is none of %s", word, strings.Join(Words, ", "))
	}
	limits := maps.Clone(memory.Devices)
	if word != Sequential {
		balance(limits, blocks, word == BalancedLow0, memory.Given)
	}
	var list []space
	for i, d := range slices.Sorted(maps.Keys(limits)) {
		list = append(list, space{Target{plan.OnDevice, d}, limits[d], i == 0})
	}
	if memory.Host > 0 {
		list = append(list, space{Target{Tier: plan.OnHost}, memory.Host, true})
	}
	return fill(blocks, append(list, space{target: Target{Tier: plan.OnDisk}})), nil
}

// space is a device, the host or the disk.
type space struct {
	target Target
	limit  int64
	keeps  bool // space for the largest block still to come
}

// fill gives spaces their blocks in order, never going back to one that was left. The disk,
// which is the last, takes all that is left.
func fill(blocks []Block, list []space) targets {
	at, used := targets{}, int64(0)
	after := make([]int64, len(blocks)+1) // by block: the size of the largest from it on
	for i := len(blocks) - 1; i >= 0; i-- {
		after[i] = max(after[i+1], blocks[i].Bytes)
	}
	for i, b := range blocks {
		for ; list[0].target.Tier != plan.OnDisk; list, used = list[1:], 0 {
			limit := list[0].limit
			if list[0].keeps {
				limit -= after[i+1]
			}
			if used+b.Bytes <= limit {
				break
			}
		}
		at[b.Name] = list[0].target
		used += b.Bytes
	}
	return at
}

// singleDeviceShare is the share of a single device that is used where the user set no
// limit.
const singleDeviceShare = 0.9

// balance lowers the limits of all devices but the last to an even share of the
// model, and a buffer so that the last is not left with too much.
func balance(limits map[int]int64, blocks []Block, low0, given bool) {
	var devices []int
	for _, d := range slices.Sorted(maps.Keys(limits)) {
		if limits[d] > 0 {
			devices = append(devices, d)
		}
	}
	if len(devices) == 1 && !given {
		limits[devices[0]] = int64(singleDeviceShare * float64(limits[devices[0]]))
	}
	if len(devices) < 2 {
		return
	}
	var total int64
	for _, b := range blocks {
		total += b.Bytes
	}
	share := total / int64(len(devices))
	if low0 {
		share = total / int64(len(devices)-1)
	}
	var largest int64 // of the blocks that the model repeats
	for _, b := range blocks {
		if b.Layer {
			largest = max(largest, b.Bytes)
		}
	}
	share += int64(1.25 * float64(max(largest, total/modules(blocks))))
	for i, d := range devices[:len(devices)-1] {
		if !low0 || i > 0 {
			limits[d] = min(share, limits[d])
		}
	}
	if low0 { // the first device gets only what the others cannot take
		for _, d := range devices[1:] {
			total -= limits[d]
		}
		limits[devices[0]] = min(max(total, 0), limits[devices[0]])
	}
}

// modules counts those that have params themselves, and at least one.
func modules(blocks []Block) int64 {
	names := map[string]bool{}
	for _, b := range blocks {
		for _, p := range b.Params {
			names[p[:max(strings.LastIndexByte(p, '.'), 0)]] = true
		}
	}
	return int64(max(len(names), 1))
}
