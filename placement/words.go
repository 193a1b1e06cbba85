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
	return fill(blocks, limits, memory.Host), nil
}

// fill gives devices their blocks in order, never going back to one that was left:
// devices, then the host, then disk.
func fill(blocks []Block, limits map[int]int64, host int64) targets {
	room := spaces(limits, host)
	at, used := targets{}, int64(0)
	reserve := largestAfter(blocks)
	for i := 0; i < len(blocks); {
		b, r := blocks[i], room[0]
		kept := int64(0)
		if r.keeps {
			kept = reserve[i]
		}
		if r.target.Tier == plan.OnDisk || used+b.Bytes <= r.limit-kept {
			at[b.Name] = r.target
			used += b.Bytes
			i++
			continue
		}
		room, used = room[1:], 0
	}
	return at
}

// room is a device, the host or the disk.
type space struct {
	target Target
	limit  int64
	keeps  bool // room for the largest block still to come
}

// rooms lists where there is room, in the order it is filled.
func spaces(limits map[int]int64, host int64) (list []space) {
	for i, d := range slices.Sorted(maps.Keys(limits)) {
		list = append(list, space{Target{plan.OnDevice, d}, limits[d], i == 0})
	}
	if host > 0 {
		list = append(list, space{Target{Tier: plan.OnHost}, host, true})
	}
	return append(list, space{target: Target{Tier: plan.OnDisk}})
}

// largestAfter gives, for each block, the size of the largest that comes after it.
func largestAfter(blocks []Block) []int64 {
	after := make([]int64, len(blocks))
	for i := len(blocks) - 2; i >= 0; i-- {
		after[i] = max(after[i+1], blocks[i+1].Bytes)
	}
	return after
}

// cautious is the share of a single device that is used where the user set no
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
	share += int64(1.25 * float64(max(largestLayer(blocks), meanModule(blocks))))
	for i, d := range devices[:len(devices)-1] {
		if !low0 || i > 0 {
			limits[d] = min(share, limits[d])
		}
	}
	if low0 {
		lowerFirst(limits, devices, total)
	}
}

// lowerFirst leaves the first device only what the others cannot take.
func lowerFirst(limits map[int]int64, devices []int, total int64) {
	for _, d := range devices[1:] {
		total -= limits[d]
	}
	limits[devices[0]] = min(max(total, 0), limits[devices[0]])
}

// largestLayer is the size of the largest block that the model repeats.
func largestLayer(blocks []Block) (most int64) {
	for _, b := range blocks {
		if b.Layer {
			most = max(most, b.Bytes)
		}
	}
	return most
}

// meanModule is the mean size of the modules that have params themselves.
func meanModule(blocks []Block) int64 {
	modules, total := map[string]bool{}, int64(0)
	for _, b := range blocks {
		total += b.Bytes
		for _, p := range b.Params {
			modules[p[:max(strings.LastIndexByte(p, '.'), 0)]] = true
		}
	}
	return total / int64(max(len(modules), 1))
}
