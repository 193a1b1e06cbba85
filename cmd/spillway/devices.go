package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"spillway/device"
	"spillway/internal/nvml"
	"spillway/internal/term"
	"spillway/machine"
	"spillway/rig"
	"spillway/units"
)

func newDevices(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "what this computer has, and its measured rates",
		Long: `Lists the devices, the host and the disk of this computer: their sizes, and the
rates that large work really reaches on them. The last column says where each figure
comes from: measured here, published by the maker, derived from another figure, or
assumed. Forecasts are made of these figures.

The rates of the host and of GPUs are measured the first time, in some seconds, and stored in
the user's cache folder. A quick look at every start finds rates that were measured while the
computer was busy, and has them measured again. --calibrate measures everything, with tables
by the shapes of calls, which takes a minute or two for each GPU. Sizes are read every time. Of
NVIDIA GPUs you also see the link, temperature, power and the processes that hold their
memory.`,
		Example: `  spillway devices                      this computer
  spillway devices --calibrate          measure all rates again, those of GPUs too
  spillway devices --device cpu:avx2    the CPU with the kernels of one without AVX-512
  spillway devices --disk /mnt/nvme     with the disk of another folder`,
		Args: noArguments,
	}
	asJSON := jsonFlag(cmd)
	calibrate := cmd.Flags().Bool("calibrate", false, "measure all rates again, those of GPUs too, instead of using the cached ones")
	on := cmd.Flags().String("device", "all", "list `NAME`: cpu:avx2 is the CPU with kernels of AVX2 alone, whose rates are measured by themselves\n(default: all GPUs, else the CPU)")
	disk := cmd.Flags().String("disk", ".", "measure the disk of `DIR`, by writing and removing 256 MiB there")
	cmd.RunE = func(*cobra.Command, []string) error {
		r, err := describeComputer(sh, *on, rig.Options{Calibrate: *calibrate, Disk: *disk, MeasureDisk: true})
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(sh.out, r)
		}
		for _, g := range r.GPUs {
			if err := g.write(sh.out); err != nil {
				return err
			}
		}
		return describeMachine(sh.out, r.Machine)
	}
	return cmd
}

// devicesReport is the object of devices --json.
type devicesReport struct {
	machine.Machine
	Description string      `json:"description"`
	GPUs        []gpuStatus `json:"gpus"`
}

// describeComputer opens devices and describes this computer with them.
func describeComputer(sh shell, on string, o rig.Options) (r devicesReport, err error) {
	if o.Calibrate {
		line := term.NewLine(sh.err)
		defer line.Done()
		o.Report = func(what string) { line.Print("measuring " + what) }
	}
	here, err := sh.open(on, o)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, here.Close()) }()
	r.Machine = here.Machine
	gpus, notes, err := statuses(here)
	r.Notes = append(r.Notes, notes...)
	r.GPUs, r.Description = gpus, r.Machine.String()
	return r, err
}

func describeMachine(w io.Writer, m machine.Machine) error {
	_, err := fmt.Fprintf(w, "%s\nas a description for --machine:\n  %s\n", m.Describe(), m)
	return err
}

// gpuStatus is the state of a GPU now.
type gpuStatus struct {
	Device string      `json:"device"`
	Name   string      `json:"name"`
	Free   units.Bytes `json:"free"`
	Total  units.Bytes `json:"total"`
	State  *nvml.GPU   `json:"state,omitempty"` // nil where NVIDIA's library does not know it
}

// statuses asks drivers about the GPUs; notes say what they did not answer.
func statuses(here *rig.Rig) (list []gpuStatus, notes []string, err error) {
	list = []gpuStatus{}
	var manager *nvml.Library
	for i, d := range here.Devices {
		memory, counts := d.(device.DriverMemory)
		hardware, known := d.(device.Hardware)
		if !counts || !known {
			continue
		}
		if manager == nil {
			if manager, err = nvml.Open(); err != nil {
				notes = append(notes, err.Error())
			} else {
				defer manager.Close() // nothing depends on it
			}
		}
		free, total, err := memory.Memory()
		if err != nil {
			return nil, notes, err
		}
		g := gpuStatus{Device: here.Machine.Devices[i].Name, Name: hardware.Model(), Free: units.Bytes(free), Total: units.Bytes(total)}
		if manager != nil {
			if g.State, err = stateOf(manager, hardware); err != nil {
				notes = append(notes, err.Error())
			}
		}
		list = append(list, g)
	}
	return list, notes, nil
}

func stateOf(manager *nvml.Library, hardware device.Hardware) (*nvml.GPU, error) {
	address, err := hardware.Address()
	if err != nil {
		return nil, err
	}
	state, err := manager.GPU(address)
	if err != nil {
		return nil, err
	}
	return &state, nil
}

// write shows the GPU to people.
func (g gpuStatus) write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%-8s %s, %v of %v free\n", g.Device, g.Name, g.Free, g.Total)
	if g.State != nil {
		if line := g.State.String(); line != "" {
			fmt.Fprintf(&b, "  %s\n", line)
		}
		for _, p := range g.State.Processes {
			fmt.Fprintf(&b, "  process %d%s\n", p.PID, processSize(p))
		}
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
