package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"spillway/device/cuda"
	"spillway/internal/nvml"
	"spillway/probe"
	"spillway/units"
)

// cardReport is a card as the verb devices shows it beside its rates.
type deviceStatus struct {
	Device string       `json:"device"`
	Name   string       `json:"name"`
	Free   units.Bytes  `json:"free"`
	Total  units.Bytes  `json:"total"`
	State  *nvml.GPU    `json:"state,omitempty"` // nil where nobody tells
	Rates  *probe.Rates `json:"measured,omitempty"`
}

// allCards opens every card there is. Where there are none the note says why.
func (sh shell) allGPUs(r *rig) (note string, err error) {
	for ordinal := 0; ; ordinal++ {
		err := r.add(sh, cuda.Options{Ordinal: ordinal})
		if err == nil {
			continue
		}
		if !missing(err) {
			return "", err
		}
		if ordinal == 0 {
			note = "no GPU could be opened: " + brief(err)
		}
		return note, nil
	}
}

// describeCards asks the driver about the cards; notes are about what it does not tell.
func describeGPUs(r *rig) (list []deviceStatus, notes []string, err error) {
	if len(r.gpus) == 0 {
		return []deviceStatus{}, nil, nil
	}
	manager, err := nvml.Open()
	if err != nil {
		notes = append(notes, err.Error())
	} else {
		defer manager.Close() // nothing depends on it
	}
	for _, c := range r.gpus {
		free, total, err := c.Memory()
		if err != nil {
			return nil, notes, err
		}
		report := deviceStatus{Device: c.described.Name, Name: c.GPUName(), Free: units.Bytes(free), Total: units.Bytes(total)}
		if !c.rates.At.IsZero() {
			report.Rates = &c.rates
		}
		if manager != nil {
			state, err := stateOf(manager, c)
			if err != nil {
				notes = append(notes, err.Error())
			} else {
				report.State = &state
			}
		}
		list = append(list, report)
	}
	return list, notes, nil
}

func stateOf(manager *nvml.Library, c openGPU) (nvml.GPU, error) {
	address, err := c.Address()
	if err != nil {
		return nvml.GPU{}, err
	}
	return manager.GPU(address)
}

// write shows a card to people.
func (c deviceStatus) write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%-8s %s, %v of %v free\n", c.Device, c.Name, c.Free, c.Total)
	if c.State != nil {
		if line := c.State.String(); line != "" {
			fmt.Fprintf(&b, "  %s\n", line)
		}
		for _, p := range c.State.Processes {
			fmt.Fprintf(&b, "  process %d%s\n", p.PID, processSize(p))
		}
	}
	if c.Rates != nil {
		fmt.Fprintf(&b, "  both ways at once %v\n", c.Rates.Both)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func processSize(p nvml.Process) string {
	text := ""
	if p.Bytes >= 0 {
		text = fmt.Sprintf(" holds %v", units.Bytes(p.Bytes))
	}
	if p.PID == os.Getpid() {
		text += " (this one)"
	}
	return text
}

// openAll is this computer with all its cards, measured anew if asked to.
func (sh shell) openAll(refresh bool) (r *rig, note string, err error) {
	r = &rig{}
	if note, err = sh.allGPUs(r); err == nil && refresh {
		err = sh.calibrate(r)
	}
	if err != nil {
		err = errors.Join(err, r.close())
	}
	return r, note, err
}
