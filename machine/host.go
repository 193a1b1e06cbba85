package machine

import (
	"fmt"

	"spillway/units"
)

// Host is the computer the devices sit in.
type Host struct {
	CPU      string   `json:"cpu,omitempty"`
	Features []string `json:"features,omitempty"` // instruction sets that kernels use
	Cores    int      `json:"cores"`              // that this process may use
	// Memory is the installed RAM, Limit what a control group allows (0: no
	// limit), Usable what may be taken now without swapping or being killed.
	Memory units.Bytes `json:"memory"`
	Limit  units.Bytes `json:"limit,omitempty"`
	Usable units.Bytes `json:"usable"`
	// Copy is how many bytes per second all cores copy from memory to memory, and
	// CopyOne one core; the memory bus carries twice that.
	Copy    units.Rate `json:"copy"`
	CopyOne units.Rate `json:"copy_one"`
	// Update is what the memory bus carries, reads plus writes, while all cores run
	// AdamW on f32 and nothing else uses it: 28 bytes per param.
	Update  units.Rate `json:"update"`
	Compute Compute    `json:"compute"` // of all cores together
	Sources Sources    `json:"sources,omitempty"`
}

func (h *Host) figures() figures {
	return figures{&h.Sources, []figure{
		{"memory", size(&h.Memory), "installed RAM"},
		{"limit", size(&h.Limit), "what a control group allows"},
		{"usable", size(&h.Usable), "RAM that plans may use"},
		{"cores", count(&h.Cores), "CPU cores"},
		{"copy", rate(&h.Copy), "copies from RAM to RAM by all cores"},
		{"copy-one", rate(&h.CopyOne), "the same by one core"},
		{"update", rate(&h.Update), "memory bandwidth of AdamW on all cores, reads plus writes"},
		{"f32", flops(&h.Compute.F32), "f32 matmuls of all cores"},
		{"bf16", flops(&h.Compute.BF16), "bf16 matmuls of all cores"},
		{"f16", flops(&h.Compute.F16), "f16 matmuls of all cores"},
	}}
}

// Fill takes the figures of another description that are not zero, where this one has no
// source for them yet, and marks them as coming from s.
func (h *Host) Fill(from Host, s Source) { h.figures().fill(from.figures(), s) }

func (h Host) check() error {
	if h.Usable <= 0 || h.Usable > h.Memory {
		return fmt.Errorf("usable memory %v is not between 0 and the installed %v", h.Usable, h.Memory)
	}
	if h.Cores < 1 {
		return fmt.Errorf("%d cores; at least one is needed", h.Cores)
	}
	if !(h.Copy > 0) || !(h.CopyOne > 0) || !(h.Compute.F32 > 0) {
		return fmt.Errorf("copy %v, one core's copy %v and f32 %v must all be above zero", h.Copy, h.CopyOne, h.Compute.F32)
	}
	return nil
}

// Disk is a folder that plans may store bytes in. The zero value is none.
type Disk struct {
	Path    string      `json:"path,omitempty"`
	Free    units.Bytes `json:"free"`
	Read    units.Rate  `json:"read"`  // large blocks, past the page cache
	Write   units.Rate  `json:"write"` // the same
	Sources Sources     `json:"sources,omitempty"`
}

func (d *Disk) figures() figures {
	return figures{&d.Sources, []figure{
		{"free", size(&d.Free), "free space"},
		{"read", rate(&d.Read), "reads of large blocks"},
		{"write", rate(&d.Write), "writes of large blocks"},
	}}
}

// Fill takes the figures of another description that are not zero, where this one has no
// source for them yet, and marks them as coming from s.
func (d *Disk) Fill(from Disk, s Source) { d.figures().fill(from.figures(), s) }
