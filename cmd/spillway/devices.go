package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"spillway/internal/term"
	"spillway/machine"
)

func newDevices(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "what this computer has, and its measured rates",
		Long: `Lists the devices, the host and the disk of this computer: their sizes, and the
rates that large work really reaches on them. The last column says where each figure
comes from: measured here, derived from another figure, or assumed because
nobody looked. Forecasts are made of these figures.

Rates of the host are measured the first time, in some seconds, and kept in the user's
cache folder; those of GPUs are the maker's until --calibrate measures them: also what
lasts of products, for which cards lower their clock. That takes a minute or two for each
GPU, less when its kernels were compiled before. Sizes are read every time. Of GPUs you
also see the link, temperature, power and the processes that hold their memory, where the
driver tells.`,
		Example: `  spillway devices                      this computer
  spillway devices --calibrate          measure the rates again, for instance on a quieter machine
  spillway devices --disk /mnt/nvme     with the disk of another folder`,
		Args: noArguments,
	}
	asJSON := jsonFlag(cmd)
	calibrate := cmd.Flags().Bool("calibrate", false, "measure the rates again instead of using the kept ones")
	disk := cmd.Flags().String("disk", ".", "measure the disk of `DIR`, by writing and removing 256 MiB there")
	cmd.RunE = func(*cobra.Command, []string) error {
		r, err := describeComputer(sh, machine.Options{Refresh: *calibrate, DiskPath: *disk, MeasureDisk: true})
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(sh.out, r)
		}
		for _, c := range r.GPUs {
			if err := c.write(sh.out); err != nil {
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
	Description string         `json:"description"`
	GPUs        []deviceStatus `json:"cards"`
}

// lookAround opens all cards and describes this computer with them.
func describeComputer(sh shell, o machine.Options) (r devicesReport, err error) {
	all, note, err := sh.openAll(o.Refresh)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, all.close()) }()
	for _, c := range all.gpus {
		o.Devices = append(o.Devices, c.described)
	}
	if r.Machine, err = sh.probe(o); err != nil {
		return r, err
	}
	cards, notes, err := describeGPUs(all)
	if note != "" {
		notes = append(notes, note)
	}
	r.Notes = append(r.Notes, notes...)
	r.GPUs, r.Description = cards, r.Machine.String()
	return r, err
}

func describeMachine(w io.Writer, m machine.Machine) error {
	_, err := fmt.Fprintf(w, "%s\nas a description for --machine:\n  %s\n", m.Describe(), m)
	return err
}

// probe looks at this computer. The rates come from the cache folder where they
// are kept there.
func (sh shell) probe(o machine.Options) (machine.Machine, error) {
	line := term.NewLine(sh.err)
	defer line.Done()
	o.Report = func(what string) { line.Show(func() string { return "measuring this computer, once: " + what }) }
	o.CacheDir, o.Version, o.Arithmetic, o.Updates, o.Tables = sh.cache, version, matmulRate, updateRate, callRates
	return machine.Probe(o)
}
