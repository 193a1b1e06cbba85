package placement

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"spillway/units"

	"spillway/plan"
)

// ParseMap reads a word, or a JSON object such as
//
//	{"model.embed_tokens": 0, "model.layers": 1, "lm_head": "cpu"}
//
// whose values are device numbers, "cuda:N", "cpu" or "disk". The key "" is
// everything else.
func ParseMap(text string) (Map, error) {
	if slices.Contains(Words, text) {
		return Map{Word: text}, nil
	}
	var raw map[string]any
	if err := decode(text, &raw); err != nil {
		return Map{}, fmt.Errorf("device map %q is neither %s nor a JSON object: %w", clip(text), strings.Join(Words, ", "), err)
	}
	if len(raw) == 0 {
		return Map{}, errors.New(`device map: it is empty; {"": 0} puts everything on device 0`)
	}
	m := Map{Modules: map[string]Target{}}
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		t, err := target(raw[name])
		if err != nil {
			return Map{}, fmt.Errorf("device map: %q is on %v: %w", name, raw[name], err)
		}
		m.Modules[name] = t
	}
	return m, nil
}

func target(v any) (Target, error) {
	switch v := v.(type) {
	case json.Number:
		return deviceTarget(v.String())
	case string:
		switch {
		case v == "cpu":
			return Target{Tier: plan.OnHost}, nil
		case v == "disk":
			return Target{Tier: plan.OnDisk}, nil
		case v == "cuda":
			return Target{Tier: plan.OnDevice}, nil
		case strings.HasPrefix(v, "cuda:"):
			return deviceTarget(strings.TrimPrefix(v, "cuda:"))
		}
	}
	return Target{}, errors.New(`a place is a device number, "cuda:N", "cpu" or "disk"`)
}

func deviceTarget(text string) (Target, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return Target{}, errors.New("a device number is an integer from 0 on")
	}
	return Target{Tier: plan.OnDevice, Device: int(n)}, nil
}

// Memory is how much may be used of each device and of the host. Words do not use
// what has no entry.
type Memory struct {
	Devices map[int]int64 // by number
	Host    int64
	// Given by the user, not found on the machine.
	Given bool
}

// everyDevice is a key that stands for all devices.
const everyDevice = "gpu"

// ParseMemory reads a size for every device, such as 10GiB or gpu=10GiB, or one for each:
// 0=10GiB,1=20GiB,cpu=100GB, or the same as a JSON object. With entries, what has
// none is not used. Here is what the machine has.
func ParseMemory(text string, here Memory) (Memory, error) {
	m := Memory{Devices: map[int]int64{}, Given: true}
	if n, err := units.ParseBytes(text); err == nil {
		for d := range here.Devices {
			m.Devices[d] = int64(n)
		}
		m.Host = here.Host
		return m, nil
	}
	entries, err := memoryEntries(text)
	if err != nil {
		return Memory{}, fmt.Errorf("max memory %q: %w", clip(text), err)
	}
	if each, ok := entries[everyDevice]; ok {
		delete(entries, everyDevice)
		for d := range here.Devices {
			if err := m.set(strconv.Itoa(d), each, len(here.Devices)); err != nil {
				return Memory{}, fmt.Errorf("max memory %q: %w", clip(text), err)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		if err := m.set(key, entries[key], len(here.Devices)); err != nil {
			return Memory{}, fmt.Errorf("max memory %q: %w", clip(text), err)
		}
	}
	return m, nil
}

func (m *Memory) set(key string, size any, devices int) error {
	n, err := parseSize(fmt.Sprint(size))
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if key == "cpu" {
		m.Host = n
		return nil
	}
	d, err := strconv.Atoi(key)
	if err != nil || d < 0 || d >= devices {
		return fmt.Errorf("%q is neither cpu, %s for all devices nor one of them, from 0 to %d", key, everyDevice, devices-1)
	}
	m.Devices[d] = n
	return nil
}

// memoryEntries reads the JSON form or the short one.
func memoryEntries(text string) (map[string]any, error) {
	entries := map[string]any{}
	if strings.HasPrefix(strings.TrimSpace(text), "{") {
		err := decode(text, &entries)
		return entries, err
	}
	for item := range strings.SplitSeq(text, ",") {
		key, size, ok := strings.Cut(item, "=")
		if key = strings.TrimSpace(key); !ok || entries[key] != nil {
			return nil, fmt.Errorf("%q is not a size such as 24GiB, and not like 0=10GiB once for each device", item)
		}
		entries[key] = strings.TrimSpace(size)
	}
	return entries, nil
}

// sizeUnits are accelerate's, and terabytes: powers of 1024 with an i, of 1000
// without, in any case; without i a last letter b means bits.
var sizeUnits = []struct {
	end   string
	bytes float64
}{{"TIB", 1 << 40}, {"TB", 1e12}, {"GIB", 1 << 30}, {"MIB", 1 << 20}, {"KIB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}}

// parseSize reads a size by accelerate's rules: "10GiB", "1.5GB", "800Mb" (bits), or
// an integer of bytes, with or without a B.
func parseSize(text string) (int64, error) {
	if n, err := strconv.ParseInt(strings.TrimSuffix(text, "B"), 10, 64); err == nil && n >= 0 {
		return n, nil
	}
	for _, u := range sizeUnits {
		if !strings.HasSuffix(strings.ToUpper(text), u.end) {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(text[:len(text)-len(u.end)]), 64)
		if err != nil || !(v >= 0) || v*u.bytes > 1<<62 {
			break
		}
		n := int64(v * u.bytes)
		if len(u.end) == 2 && strings.HasSuffix(text, "b") {
			n /= 8
		}
		return n, nil
	}
	return 0, fmt.Errorf("%q is not a size; write bytes as an integer, or 10GiB, 500MB, 800Mb (bits)", clip(text))
}

// decode reads one JSON value, numbers as they are written.
func decode(text string, into any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.More() {
		return errors.New("something follows the JSON object")
	}
	return nil
}

// clip keeps errors readable.
func clip(text string) string {
	const most = 60
	if len(text) <= most {
		return text
	}
	return text[:most] + "..."
}
