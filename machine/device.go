package machine

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"spillway/dtype"
	"spillway/units"
)

// Kind is what a device is.
type Kind string

// The kinds of device.
const (
	GPU Kind = "gpu"
	CPU Kind = "cpu"
)

// Device is a place that computes and has memory of its own, with everything that forecasts
// know about it. It is the only struct of rates: descriptions are parsed into it,
// measurements fill it, the cache stores it and the simulator computes with it. A new rate
// is a field here and a row in figures below; a rate of zero is unknown, and forecasts take
// what it stands for as free or as the field's comment says.
type Device struct {
	Name string `json:"name"` // "gpu0"
	// Rank is the process that drives the device in a run of many machines; 0 today.
	Rank  int    `json:"rank,omitempty"`
	Kind  Kind   `json:"kind"`
	Model string `json:"model,omitempty"` // a name of GPUNames, or what the driver says
	// Memory is all there is; Usable is what arenas may take of it.
	Memory units.Bytes `json:"memory"`
	Usable units.Bytes `json:"usable"`
	// Context is what the driver counts for a program beyond its arenas: the context of a
	// GPU, loaded kernels and libraries. A limit on memory includes it.
	Context units.Bytes `json:"context,omitempty"`
	// Shared says that the memory is part of the host's: the device and the host
	// tier together may take no more than Host.Usable.
	Shared  bool    `json:"shared,omitempty"`
	Compute Compute `json:"compute"` // in bursts of some milliseconds
	// Capability is CUDA's version of a GPU's instructions, without the point (90 is an H200's), where a description names a
	// known GPU: some kernels are for one alone.
	Capability int `json:"capability,omitempty"`
	// Sustained is what remains of Compute in work without pauses, for which a GPU lowers
	// its clock to stay within its power limit. Zero counts as Compute.
	Sustained Compute    `json:"sustained,omitzero"`
	Bandwidth units.Rate `json:"bandwidth"` // of its own memory, reads plus writes
	Link      Link       `json:"link"`      // to the host
	// Launch is the time between two kernels that the host launches one by one.
	Launch time.Duration `json:"launch_ns"`
	// Kernel is the time of the shortest kernel when launching costs nothing, as in a
	// captured graph. Zero counts as Launch.
	Kernel time.Duration `json:"kernel_ns,omitempty"`
	// Signal is the time the host needs to record an event, or to have a queue wait for one.
	Signal time.Duration `json:"signal_ns,omitempty"`
	// Handoff is the time until a CPU that waits for the device notices that it is done, and
	// until the device notices that the CPU is, together.
	Handoff time.Duration `json:"handoff_ns,omitempty"`
	// Tables hold measured rates by the shapes of calls; where there are none, the rates
	// above stand for calls of every size.
	Tables Tables `json:"tables,omitempty"`
	// Calls has the times of calls where the device is at hand; nil elsewhere.
	Calls Calls `json:"-"`
	// HostCalls has those of calls of the CPU while copies go to the device, likewise.
	HostCalls Calls   `json:"-"`
	Sources   Sources `json:"sources,omitempty"`
}

// figures lists the figures of a device, in the order in which they are written.
func (d *Device) figures() figures {
	return figures{&d.Sources, []figure{
		{"memory", size(&d.Memory), "installed memory"},
		{"usable", size(&d.Usable), "memory that plans may use"},
		{"context", size(&d.Context), "memory of a GPU that its context, kernels and libraries take"},
		{"in", rate(&d.Link.In), "copies from host to device"},
		{"out", rate(&d.Link.Out), "copies from device to host"},
		{"bidirectional", bidirectional(&d.Link.Bidirectional), "share of in + out that the link carries when both are busy; half-duplex is 50%"},
		{"latency", span(&d.Link.Latency), "time of a copy beyond its bytes"},
		{"host-bandwidth", rate(&d.Link.HostBandwidth), "host memory bandwidth while copies go both ways and the CPU updates weights"},
		{"bf16", flops(&d.Compute.BF16), "bf16 matmuls in bursts"},
		{"f16", flops(&d.Compute.F16), "f16 matmuls in bursts"},
		{"tf32", flops(&d.Compute.TF32), "tf32 matmuls in bursts"},
		{"f32", flops(&d.Compute.F32), "f32 matmuls in bursts"},
		{"f8", flops(&d.Compute.F8), "f8 matmuls in bursts"},
		{"bf16-sustained", flops(&d.Sustained.BF16), "bf16 matmuls without pauses"},
		{"f16-sustained", flops(&d.Sustained.F16), "f16 matmuls without pauses"},
		{"tf32-sustained", flops(&d.Sustained.TF32), "tf32 matmuls without pauses"},
		{"f32-sustained", flops(&d.Sustained.F32), "f32 matmuls without pauses"},
		{"bandwidth", rate(&d.Bandwidth), "the device's own memory, reads plus writes"},
		{"launch", span(&d.Launch), "time per kernel launched by the host"},
		{"kernel", span(&d.Kernel), "time of the shortest kernel in a captured graph"},
		{"signal", span(&d.Signal), "time to record an event, or to have a queue wait for one"},
		{"handoff", span(&d.Handoff), "time from a GPU to a CPU that waits for it, and back"},
	}}
}

// Fill takes the figures of another description that are not zero, where this one has no
// source for them yet, and marks them as coming from s. It takes tables likewise.
func (d *Device) Fill(from Device, s Source) {
	d.figures().fill(from.figures(), s)
	if d.Tables == nil {
		d.Tables = from.Tables
	}
}

// WithMeasured is the device with the figures of a measurement in place of those it had. What
// was not measured stays as it is.
func (d Device) WithMeasured(m Device) Device {
	d.Sources = d.Sources.clone()
	taken := m.figures()
	for _, f := range taken.list {
		if !f.field.zero() {
			delete(d.Sources, f.key)
		}
	}
	if m.Tables != nil {
		d.Tables = nil
	}
	d.Fill(m, Measured)
	return d
}

// Compute holds the rate of large matmuls by the type of the operands.
// Zero means that the hardware has no such arithmetic.
type Compute struct {
	F32  units.Flops `json:"f32"`
	TF32 units.Flops `json:"tf32,omitempty"` // f32 operands rounded to 10 bits of fraction
	BF16 units.Flops `json:"bf16,omitempty"`
	F16  units.Flops `json:"f16,omitempty"`
	F8   units.Flops `json:"f8,omitempty"`
}

// Rate is the rate of a matmul whose operands have the type t. A type the hardware lacks
// is widened to the next one it has; block formats are dequantized to bf16 first.
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

// Or has the rates of c, and those of other where c has none.
func (c Compute) Or(other Compute) Compute {
	return Compute{
		F32: cmp.Or(c.F32, other.F32), TF32: cmp.Or(c.TF32, other.TF32), BF16: cmp.Or(c.BF16, other.BF16),
		F16: cmp.Or(c.F16, other.F16), F8: cmp.Or(c.F8, other.F8),
	}
}

// Link is the path between a device and the host.
type Link struct {
	In  units.Rate `json:"in"`  // host to device
	Out units.Rate `json:"out"` // device to host
	// Bidirectional is the share of In + Out that the link carries when both directions are busy.
	Bidirectional Bidirectional `json:"bidirectional"`
	Latency       time.Duration `json:"latency_ns"` // of a copy, beyond its bytes
	// HostBandwidth is what the host's memory carries, reads plus writes, while the CPU
	// updates weights and the link is busy both ways; of a CPU, while all its cores copy. 0 is unknown.
	HostBandwidth units.Rate `json:"host_bandwidth,omitempty"`
	// Cores are those of a CPU that is the device itself: each copy under way takes one of them from its kernels. 0 is a
	// device whose copies take nothing from kernels.
	Cores int `json:"cores,omitempty"`
}

// BothWays is what the link carries when both directions are busy, in and out together.
func (l Link) BothWays() units.Rate { return units.Rate(l.Bidirectional) * (l.In + l.Out) }

func (d Device) check() error {
	if d.Kind != GPU && d.Kind != CPU {
		return fmt.Errorf("kind %q is neither gpu nor cpu", d.Kind)
	}
	if strings.ContainsAny(d.Model, ",:@/") {
		return fmt.Errorf("model %q has a character of the grammar (one of , : @ /)", d.Model)
	}
	if d.Usable <= 0 || d.Usable > d.Memory {
		return fmt.Errorf("usable memory %v is not between 0 and the installed %v", d.Usable, d.Memory)
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
	if min(d.Launch, d.Kernel, d.Signal, d.Handoff, d.Link.Latency) < 0 {
		return fmt.Errorf("launch %v, kernel %v, signal %v, handoff %v and latency %v must not be negative", d.Launch, d.Kernel, d.Signal, d.Handoff, d.Link.Latency)
	}
	return nil
}
