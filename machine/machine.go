// Package machine describes hardware: devices, the host, a disk, and the links between
// them, each with its size and its rates.
//
// A Machine is plain data. Parse reads one from a description such as
// "rtx4090,host:64GiB,disk:2TiB@3GB/s" of hardware you need not own; package rig makes one
// of this computer by measuring it. Every figure carries where it came from (Source), so
// that nothing assumed passes for something measured.
//
// A figure is one number of a description. The tables in Device.figures, Host.figures and
// Disk.figures list them all: their keys, fields and meanings drive Parse, String, Describe,
// the help text (Grammar), the merging of measurements (Fill) and what the cache stores.
//
// All rates mean what large work really reaches, not the number on the box: a matmul of
// thousands by thousands, a copy of many MiB.
package machine

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"spillway/units"
)

// Machine is everything a plan may use. The zero Disk means no disk tier.
type Machine struct {
	Name    string   `json:"name"`
	Devices []Device `json:"devices"`
	Host    Host     `json:"host"`
	Disk    Disk     `json:"disk,omitzero"`
	// Peers are the direct links between devices; pairs not listed go through the host.
	Peers []Peer `json:"peers,omitempty"`
	// Calibrated is when the measured rates were taken; zero if nothing was measured.
	Calibrated time.Time `json:"calibrated,omitzero"`
	// Notes say in words which figures could not be had, and why.
	Notes []string `json:"notes,omitempty"`
}

// Peer is a direct link between two devices, the same in both directions.
type Peer struct {
	A    string     `json:"a"`
	B    string     `json:"b"`
	Rate units.Rate `json:"rate"` // each way, both at once
	// Source is published for the NVLink of a board that GPUs of this name are usually on.
	Source Source `json:"source,omitempty"`
}

// Source says where a figure came from.
type Source string

// The sources of figures.
const (
	Given     Source = "given"     // written by whoever described the machine
	Published Source = "published" // by the maker, times the share that large work reaches
	Measured  Source = "measured"  // on this computer
	Derived   Source = "derived"   // from another figure of the same part
	Assumed   Source = "assumed"   // a typical value, because nothing better is known
)

// Sources maps the key of a figure, as in the grammar of Parse, to its source.
type Sources map[string]Source

// clone is a copy that can be written to.
func (s Sources) clone() Sources {
	c := Sources{}
	maps.Copy(c, s)
	return c
}

// Add appends a device. One without a name gets the next free one of its kind: gpu0, gpu1.
func (m *Machine) Add(d Device) {
	if d.Name == "" {
		n := 0
		for _, other := range m.Devices {
			if other.Kind == d.Kind {
				n++
			}
		}
		d.Name = string(d.Kind) + strconv.Itoa(n)
	}
	d.Sources = d.Sources.clone()
	m.Devices = append(m.Devices, d)
}

// Note adds a line to Notes.
func (m *Machine) Note(format string, args ...any) {
	m.Notes = append(m.Notes, fmt.Sprintf(format, args...))
}

// HasDisk says whether there is a disk tier.
func (m Machine) HasDisk() bool { return m.Disk.Free > 0 }

// Device finds a device by name.
func (m Machine) Device(name string) (Device, bool) {
	for _, d := range m.Devices {
		if d.Name == name {
			return d, true
		}
	}
	return Device{}, false
}

// Only is the machine with some of its devices.
func (m Machine) Only(names []string) (Machine, error) {
	all := m
	m.Devices, m.Peers = nil, nil
	for _, name := range names {
		d, ok := all.Device(name)
		if !ok {
			var has []string
			for _, d := range all.Devices {
				has = append(has, d.Name)
			}
			return all, fmt.Errorf("the machine has no %q, it has %s", name, strings.Join(has, ", "))
		}
		if len(m.Devices) > 0 && (d.Kind != m.Devices[0].Kind || d.Usable != m.Devices[0].Usable || d.Compute != m.Devices[0].Compute) {
			return all, fmt.Errorf("%s and %s are not alike, so they cannot share the work; name one, or equal ones", m.Devices[0].Name, name)
		}
		m.Devices = append(m.Devices, d)
	}
	for _, p := range all.Peers {
		if slices.Contains(names, p.A) && slices.Contains(names, p.B) {
			m.Peers = append(m.Peers, p)
		}
	}
	return m, nil
}

// Peer is the direct link between two devices, if they have one.
func (m Machine) Peer(a, b string) (Peer, bool) {
	for _, p := range m.Peers {
		if p.A == a && p.B == b || p.A == b && p.B == a {
			return p, true
		}
	}
	return Peer{}, false
}

// Check refuses a machine that no plan could be made for, such as one read from a
// damaged or hand-written file.
func (m Machine) Check() error {
	if len(m.Devices) == 0 {
		return fmt.Errorf("machine %q has no devices; add one such as gpu:24GiB or cpu:16GiB", m.Name)
	}
	seen := map[string]bool{}
	for _, d := range m.Devices {
		if d.Name == "" || seen[d.Name] {
			return fmt.Errorf("machine %q: the device name %q is empty or used twice; name devices gpu0, gpu1, cpu0 and so on", m.Name, d.Name)
		}
		seen[d.Name] = true
		if err := d.check(); err != nil {
			return fmt.Errorf("machine %q, device %s: %w", m.Name, d.Name, err)
		}
	}
	if err := m.Host.check(); err != nil {
		return fmt.Errorf("machine %q, host: %w", m.Name, err)
	}
	if d := m.Disk; d.Free < 0 || d.Free > 0 && (!(d.Read > 0) || !(d.Write > 0)) {
		return fmt.Errorf("machine %q, disk: %v free, read %v, write %v: a disk tier needs all three above zero", m.Name, d.Free, d.Read, d.Write)
	}
	for _, p := range m.Peers {
		if !seen[p.A] || !seen[p.B] || p.A == p.B || !(p.Rate > 0) {
			return fmt.Errorf("machine %q: the peer link %s-%s at %v needs two different devices of this machine and a rate above zero", m.Name, p.A, p.B, p.Rate)
		}
	}
	return nil
}
