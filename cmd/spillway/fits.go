package main

import (
	"context"
	"io"

	"spillway"
	"spillway/dtype"
	"spillway/inspect"
	"spillway/internal/term"
	"spillway/machine"
	"spillway/units"
)

// estimateFits says how a machine does every task with some models, or with which models it does
// each at most.
func estimateFits(ctx context.Context, sh shell, models []*spillway.Model, where string, o inspect.MemoryOptions, asJSON bool) error {
	on, err := machine.Parse(where)
	if err != nil {
		return usageError{err}
	}
	var p page
	at := machineReport{Machine: on, Description: where, Device: on.Devices[0].Name}
	p.line("machine", "%s", machineLine(on, at.Device, len(on.Devices)))
	if text := assumptions(at, dtype.BF16, true, on.HasDisk()); text != "" {
		p.line("assumed", "%s", text)
	}
	if text := apartFromHost(on, on.Devices[0]); text != "" {
		p.list("notices", []string{text})
	}
	answer := map[string]any{"machine": at}
	if len(models) == 0 {
		progress := term.NewLine(sh.err)
		list, err := inspect.LargestModels(ctx, nil, on, o, func(task, model string) {
			progress.Show(func() string { return "planning " + model + ", " + task })
		})
		progress.Done()
		if err != nil {
			return err
		}
		answer["largest"] = list
		writeLargest(&p, list, on.Devices[0])
	}
	fits := map[string][]inspect.Fit{}
	for _, m := range models {
		list, err := inspect.Fits(ctx, m, on, o)
		if err != nil {
			return err
		}
		fits[m.Name] = list
		writeFits(&p, m.Name, list)
	}
	if len(models) > 0 {
		answer["models"] = fits
	}
	if asJSON {
		return writeJSON(sh.out, answer)
	}
	_, err = io.WriteString(sh.out, p.String())
	return err
}

// writeLargest is a line per task: the largest model that stays on the device, and the largest.
func writeLargest(p *page, list []inspect.Largest, on machine.Device) {
	p.WriteString("\n")
	t := term.Table{Text: 5}
	t.Row("largest model", "on the device", "tokens/s", "with host memory", "tokens/s", "how")
	for _, l := range list {
		row := []string{"  " + l.Task, "none", "", "none", "", ""}
		if f := l.Resident; f != nil {
			row[1], row[2] = f.Model, rate(f.TokensPerSecond)
		}
		if f := l.Any; f != nil {
			row[3], row[4], row[5] = f.Model, rate(f.TokensPerSecond), f.How()
		}
		t.Row(row...)
	}
	t.Write(p) // a page takes everything
	p.WriteString("\n")
	precisions := "bf16"
	if on.Kind == machine.CPU {
		precisions = "fp32, to generate in the type of their weights"
	}
	p.line("", "Of the presets, in %s; qlora has nf4 weights. tokens/s are forecasts: of one sequence that is generated, of all tokens that are trained on. plan MODEL --task TASK shows the plan.", precisions)
}

// writeFits is a line per task of one model.
func writeFits(p *page, name string, list []inspect.Fit) {
	p.WriteString("\n")
	p.line(name, "%s params", units.Count(list[0].Params))
	t := term.Table{Text: 5}
	t.Row("task", "device", "host", "disk", "tokens/s", "how")
	for _, f := range list {
		if !f.Fits {
			t.Row("  "+f.Task, "", "", "", "", "no: "+f.Reason)
			continue
		}
		t.Row("  "+f.Task, cell(f.DeviceBytes), cell(f.HostBytes), cell(f.DiskBytes), rate(f.TokensPerSecond), f.How())
	}
	t.Write(p) // a page takes everything
}
