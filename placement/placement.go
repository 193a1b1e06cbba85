// Package placement is the user's word on where a model's weights are stored, in the
// language of Hugging Face's device_map and max_memory.
//
// A Map is one of four words, or names of modules with their places. A model's
// blocks are placed whole: they are what streams. The words follow accelerate's
// published rules, a block being what that calls a layer that is not split:
//
//	sequential      fill the devices in order, then host memory, then disk
//	balanced, auto  the same, each device limited to its even share and a bit
//	balanced_low_0  the same, the first device left as empty as can be
//
// The first device and host memory keep room for the largest block still to be
// placed, since blocks off the devices pass through there.
package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"spillway/plan"
	"spillway/planner/strategy"
	"spillway/spec"
)

// Words that place a model by rule.
const (
	Auto         = "auto" // balanced
	Balanced     = "balanced"
	BalancedLow0 = "balanced_low_0"
	Sequential   = "sequential"
)

// Words lists them.
var Words = []string{Auto, Balanced, BalancedLow0, Sequential}

// Map says where a model rests: by a word, or by module names.
type Map struct {
	Word    string            // "" where Modules says it
	Modules map[string]Target // by the name of a module or param, or a part of it before a dot
}

// Target is a device by number, or host memory, or disk.
type Target struct {
	Tier   plan.Tier // plan.OnDevice, plan.OnHost or plan.OnDisk
	Device int       // of plan.OnDevice
}

func (t Target) String() string {
	switch t.Tier {
	case plan.OnHost:
		return "cpu"
	case plan.OnDisk:
		return "disk"
	}
	return fmt.Sprint(t.Device)
}

// Block is what is placed.
type Block struct {
	Name   string
	Params []string // that rest with it; of tied ones the first block has them
	Shared []string // that it reads, and that rest with a block before
	Bytes  int64    // of Params
	Layer  bool     // the model has several of its kind
}

// Blocks of a model in order.
func Blocks(m *spec.Model) []Block {
	times := make([]int, len(m.Kinds))
	for _, b := range m.Blocks {
		times[b.Kind]++
	}
	list, placed := make([]Block, len(m.Blocks)), map[int]bool{}
	for i, b := range m.Blocks {
		list[i] = Block{Name: b.Name, Layer: times[b.Kind] > 1}
		for _, id := range b.Params {
			p := m.Params[id]
			if placed[id] {
				list[i].Shared = append(list[i].Shared, p.Name)
				continue
			}
			placed[id] = true
			list[i].Params = append(list[i].Params, p.Name)
			list[i].Bytes += p.Type.Bytes()
		}
	}
	return list
}

// Places gives every block its place, and notices about what in the map means
// nothing here. Memory limits what the words may use.
func (m Map) Places(blocks []Block, memory Memory) (map[string]strategy.Place, []string, error) {
	if m.Word != "" {
		targets, err := byWord(m.Word, blocks, memory)
		return targets.places(blocks), nil, err
	}
	targets, notices, err := m.byName(blocks)
	return targets.places(blocks), notices, err
}

// targets of blocks, by name.
type targets map[string]Target

// places turns targets into places: what rests off the devices runs on the first
// device that is named.
func (t targets) places(blocks []Block) map[string]strategy.Place {
	first := -1
	for _, b := range blocks {
		if at := t[b.Name]; first < 0 && at.Tier == plan.OnDevice {
			first = at.Device
		}
	}
	list := map[string]strategy.Place{}
	for name, at := range t {
		list[name] = strategy.Place{Tier: at.Tier, Device: at.Device}
		if at.Tier != plan.OnDevice {
			list[name] = strategy.Place{Tier: at.Tier, Device: max(first, 0)}
		}
	}
	return list
}

// mostNames is how many params an error names.
const mostNames = 8

// byName finds the place of every param and from that of every block.
func (m Map) byName(blocks []Block) (targets, []string, error) {
	used, at := map[string]bool{}, targets{}
	var missing []string
	for _, b := range blocks {
		var by string // the key that places the block, once one does
		for _, p := range b.Params {
			key, ok := m.keyOf(p)
			used[key] = true
			was, placed := at[b.Name]
			switch {
			case !ok:
				missing = append(missing, p)
			case !placed:
				by, at[b.Name] = key, m.Modules[key]
			case m.Modules[key] != was:
				return nil, nil, fmt.Errorf("device map: %q is on %v and %q on %v, but both are in %s, which is placed whole; give them one place", by, was, key, m.Modules[key], b.Name)
			}
		}
	}
	if n := len(missing); n > 0 {
		if n > mostNames {
			missing = append(missing[:mostNames], fmt.Sprintf("and %d more", n-mostNames))
		}
		return nil, nil, fmt.Errorf("device map: %d params have no place: %s; name their modules, or \"\" for all others", n, strings.Join(missing, ", "))
	}
	err := m.shared(blocks, at, used)
	var notices []string
	for _, key := range slices.Sorted(maps.Keys(m.Modules)) {
		if !used[key] {
			notices = append(notices, fmt.Sprintf("device map: %q names no weights of this model and places nothing", key))
		}
	}
	return at, notices, err
}

// keyOf finds the longest key that is a param's name or a part of it before a dot.
func (m Map) keyOf(param string) (string, bool) {
	for name := param; name != ""; {
		if _, ok := m.Modules[name]; ok {
			return name, true
		}
		name = name[:max(strings.LastIndexByte(name, '.'), 0)]
	}
	_, ok := m.Modules[""]
	return "", ok
}

// shared places blocks that have no params of their own behind the block before,
// and holds what the map says of tied weights against where they rest.
func (m Map) shared(blocks []Block, at targets, used map[string]bool) error {
	owner := map[string]string{}
	for i, b := range blocks {
		for _, p := range b.Params {
			owner[p] = b.Name
		}
		if len(b.Params) == 0 && i > 0 {
			at[b.Name] = at[blocks[i-1].Name]
		}
		key, named := m.keyOf(b.Name)
		if !named || used[key] || len(b.Shared) == 0 {
			continue
		}
		used[key] = true
		if rests := at[owner[b.Shared[0]]]; m.Modules[key] != rests {
			return fmt.Errorf("device map: %s is on %v, but its weight is tied to %s, which is on %v; give them one place", key, m.Modules[key], b.Shared[0], rests)
		}
	}
	return nil
}
