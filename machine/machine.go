// Package machine says what there is to run on: devices, the host, a disk, and
// the links between them, each with its size and its rates.
//
// A Machine is plain data. It comes from Parse, which reads a description such as
// "rtx4090,host:64GiB,disk:2TiB@3GB/s" of hardware one need not own, or from Probe,
// which looks at this computer and measures it. Every figure carries where it
// came from (Source), so that nothing assumed passes for something measured.
//
// All rates mean what large work really reaches, not the number on the box:
// a matrix product of thousands by thousands, a copy of many MiB.
package machine

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"spillway/dtype"
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

// Kind is what a device is.
type Kind string

// The kinds of device.
const (
	GPU Kind = "gpu"
	CPU Kind = "cpu"
)

// Device is a place that computes and has memory of its own.
type Device struct {
	Name  string `json:"name"` // "gpu0"
	Kind  Kind   `json:"kind"`
	Model string `json:"model,omitempty"` // a name from Cards, or what the driver says
	// Memory is the whole; Usable is what arenas may take of it.
	Memory units.Bytes `json:"memory"`
	Usable units.Bytes `json:"usable"`
	// Shared says that the memory is part of the host's: the device and the host
	// tier together may take no more than Host.Usable.
	Shared  bool    `json:"shared,omitempty"`
	Compute Compute `json:"compute"`
	// Lasting is what is left of Compute in work without pauses, in which a card lowers
	// its clock to stay within its power; zero, where nobody looked: all of it.
	Sustained Compute       `json:"lasting,omitzero"`
	Bandwidth units.Rate    `json:"bandwidth"` // of its own memory, reads plus writes
	Link      Link          `json:"link"`      // to the host
	Launch    time.Duration `json:"launch_ns"` // from asking for a kernel to its start
	// Kernel is the least a kernel takes that was asked for early enough; zero, where nobody
	// looked: as long as Launch.
	Kernel time.Duration `json:"kernel_ns,omitempty"`
	// Tables refine the rates by the sizes of calls; none where nobody measured.
	Tables  Tables  `json:"tables,omitempty"`
	Sources Sources `json:"sources,omitempty"`
}

// Compute holds the rate of large matrix products by the type of the operands.
// Zero means that the hardware has no such arithmetic.
type Compute struct {
	F32  units.Flops `json:"f32"`
	TF32 units.Flops `json:"tf32,omitempty"` // f32 operands cut to 10 bits of fraction
	BF16 units.Flops `json:"bf16,omitempty"`
	F16  units.Flops `json:"f16,omitempty"`
	F8   units.Flops `json:"f8,omitempty"`
}

// Rate is the rate of a product whose operands are computed in t. A type the
// hardware lacks is widened to the next one it has; block formats are unpacked to
// bf16 first.
func (c Compute) Rate(t dtype.Type) units.Flops {
	switch {
	case t == dtype.F16 && c.F16 > 0:
		return c.F16
	case (t == dtype.F8E4M3 || t == dtype.F8E5M2) && c.F8 > 0:
		return c.F8
	case (t == dtype.BF16 || t == dtype.F8E4M3 || t == dtype.F8E5M2 || t.Block()) && c.BF16 > 0:
		return c.BF16
	}
	return c.F32
}

// Or are these rates, and others where there are none.
func (c Compute) Or(others Compute) Compute {
	return Compute{
		F32: cmp.Or(c.F32, others.F32), TF32: cmp.Or(c.TF32, others.TF32), BF16: cmp.Or(c.BF16, others.BF16),
		F16: cmp.Or(c.F16, others.F16), F8: cmp.Or(c.F8, others.F8),
	}
}

// Link is a path between a device and the host.
type Link struct {
	In            units.Rate    `json:"in"`     // host to device
	Out           units.Rate    `json:"out"`    // device to host
	Bidirectional Bidirectional `json:"duplex"` // what is left of both while both are busy
	Latency       time.Duration `json:"latency_ns"`
	// Traffic is all that the host's memory carries, reads plus writes, while its processor
	// updates and the link is busy both ways; 0 of what has no link.
	HostBandwidth units.Rate `json:"traffic,omitempty"`
}

// Host is the computer the devices sit in.
type Host struct {
	CPU      string   `json:"cpu,omitempty"`
	Features []string `json:"features,omitempty"` // instruction sets that matter to us
	Cores    int      `json:"cores"`              // that this process may use
	// Memory is the installed RAM, Limit what a control group allows (0: no
	// limit), Usable what may be taken now without swapping or being killed.
	Memory units.Bytes `json:"memory"`
	Limit  units.Bytes `json:"limit,omitempty"`
	Usable units.Bytes `json:"usable"`
	// Copy is how many bytes per second all cores copy from memory to memory, and
	// CopyOne one core; the traffic on the memory bus is twice that.
	Copy    units.Rate `json:"copy"`
	CopyOne units.Rate `json:"copy_one"`
	// Update is the traffic on the memory bus, reads plus writes, while all cores run
	// AdamW on f32 and nobody else takes part of it: 28 bytes a param.
	Update  units.Rate `json:"update"`
	Compute Compute    `json:"compute"` // of all cores together
	Sources Sources    `json:"sources,omitempty"`
}

// Disk is a folder that bytes may rest in.
type Disk struct {
	Path    string      `json:"path,omitempty"`
	Free    units.Bytes `json:"free"`
	Read    units.Rate  `json:"read"`  // large blocks, past the page cache
	Write   units.Rate  `json:"write"` // the same
	Sources Sources     `json:"sources,omitempty"`
}

// Peer is a direct link between two devices, the same in both directions.
type Peer struct {
	A    string     `json:"a"`
	B    string     `json:"b"`
	Rate units.Rate `json:"rate"` // each way, both at once
}

// Source says where a figure came from.
type Source string

// The sources of figures.
const (
	Given     Source = "given"     // written by whoever described the machine
	Published Source = "published" // from the maker, times the share large work reaches
	Measured  Source = "measured"  // seen on this computer
	Derived   Source = "derived"   // follows from another figure of the same part
	Assumed   Source = "assumed"   // typical; nobody said and nobody looked
)

// Sources maps the key of a figure, as in the grammar of Parse, to its source.
type Sources map[string]Source

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
			return fmt.Errorf("machine %q: the device name %q is empty or used twice; name devices gpu0, gpu1, cpu0 ...", m.Name, d.Name)
		}
		seen[d.Name] = true
		if err := d.check(); err != nil {
			return fmt.Errorf("machine %q, device %s: %w", m.Name, d.Name, err)
		}
	}
	if err := m.Host.check(); err != nil {
		return fmt.Errorf("machine %q, host: %w", m.Name, err)
	}
	if err := m.Disk.check(); err != nil {
		return fmt.Errorf("machine %q, disk: %w", m.Name, err)
	}
	for _, p := range m.Peers {
		if !seen[p.A] || !seen[p.B] || p.A == p.B || !(p.Rate > 0) {
			return fmt.Errorf("machine %q: the peer link %s-%s at %v needs two different devices of this machine and a rate above zero", m.Name, p.A, p.B, p.Rate)
		}
	}
	return nil
}

func (d Device) check() error {
	if d.Kind != GPU && d.Kind != CPU {
		return fmt.Errorf("kind %q is neither gpu nor cpu", d.Kind)
	}
	if strings.ContainsAny(d.Model, ",:@/") {
		return fmt.Errorf("model %q has a character of the grammar (one of , : @ /)", d.Model)
	}
	if d.Usable <= 0 || d.Usable > d.Memory {
		return fmt.Errorf("usable memory %v is not between nothing and the whole %v", d.Usable, d.Memory)
	}
	if !(d.Compute.F32 > 0) || !(d.Bandwidth > 0) || !(d.Link.In > 0) || !(d.Link.Out > 0) {
		return fmt.Errorf("f32 %v, bandwidth %v, link in %v and out %v must all be above zero", d.Compute.F32, d.Bandwidth, d.Link.In, d.Link.Out)
	}
	if err := d.Tables.Check(); err != nil {
		return err
	}
	if err := d.Link.Bidirectional.check(); err != nil {
		return fmt.Errorf("link: %w", err)
	}
	if d.Launch < 0 || d.Kernel < 0 || d.Link.Latency < 0 {
		return fmt.Errorf("launch %v, kernel %v and latency %v must not be negative", d.Launch, d.Kernel, d.Link.Latency)
	}
	return nil
}

func (h Host) check() error {
	if h.Usable <= 0 || h.Usable > h.Memory {
		return fmt.Errorf("usable memory %v is not between nothing and the whole %v", h.Usable, h.Memory)
	}
	if h.Cores < 1 {
		return fmt.Errorf("%d cores; at least one is needed", h.Cores)
	}
	if !(h.Copy > 0) || !(h.CopyOne > 0) || !(h.Compute.F32 > 0) {
		return fmt.Errorf("copy %v, one core's copy %v and f32 %v must all be above zero", h.Copy, h.CopyOne, h.Compute.F32)
	}
	return nil
}

func (d Disk) check() error {
	if d.Free < 0 || d.Free > 0 && (!(d.Read > 0) || !(d.Write > 0)) {
		return fmt.Errorf("%v free, read %v, write %v: a disk tier needs all three above zero", d.Free, d.Read, d.Write)
	}
	return nil
}
