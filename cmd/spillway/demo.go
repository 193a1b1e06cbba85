package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"spillway"
	"spillway/demo"
	"spillway/finetune"
	"spillway/internal/term"
	"spillway/recipe"
	"spillway/rig"
	"spillway/units"
)

func newDemo(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "train a small model in less memory than it needs, in a minute, with nothing but this binary",
		Long: `Trains a small Llama that reads bytes on forty chapters of Moby-Dick, on a device with far
less memory than the model needs with everything on the device. You see the plan that makes
it fit, the loss falling, the predicted and the measured memory, and a few lines that the
model wrote.

Afterwards it checks what it claims: the loss fell, the memory limit was below what the
standard plan needs, the memory was as predicted, and the process grew by no more than the
arenas. The exit code is 1 if anything does not hold.`,
		Example: `  spillway demo
  spillway demo --json
  spillway demo --out my-model  save the trained model: a folder that other programs can load`,
		Args: noArguments,
	}
	asJSON := jsonFlag(cmd)
	out := cmd.Flags().String("out", "", "save the trained model in `DIR` (default: it is thrown away)")
	on := cmd.Flags().String("device", "", recipe.DeviceHelp)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		text := sh.out
		if *asJSON {
			text = io.Discard
		}
		r, err := showDemo(cmd.Context(), sh, text, demo.Options{Device: *on, Out: *out})
		if err != nil {
			return err
		}
		if *asJSON {
			err = writeJSON(sh.out, r)
		}
		if err == nil && len(r.Failed) > 0 {
			err = fmt.Errorf("%s", strings.Join(r.Failed, "; "))
		}
		return err
	}
	return cmd
}

// showDemo runs the demonstration and shows how it goes on.
func showDemo(ctx context.Context, sh shell, text io.Writer, o demo.Options) (demo.Report, error) {
	line := term.NewLine(sh.err)
	shown := &progress{line: line, log: text, milestone: 1}
	o.Rig, o.Report, o.Notice = sh.rigOptions(line), shown.report, line.Print
	o.Planned = func(job *spillway.Run, on *rig.Rig, m *finetune.Monitor) error {
		line.Done()
		shown.Monitor = m
		shown.milestone = demo.Milestone(o)
		return showPlan(text, job, on.Reason)
	}
	r, err := demo.Run(ctx, o)
	line.Done()
	if err != nil {
		return r, err
	}
	return r, writeDemo(text, r)
}

// writeDemo shows what came of it.
func writeDemo(w io.Writer, r demo.Report) error {
	var p page
	p.WriteString("\n")
	writeResult(&p, r.Result)
	if r.Driver == 0 {
		p.line("process", "grew by %v with arenas of %v on device and host; %v ± are allowed", units.Bytes(r.ResidentPeak-r.ResidentBefore),
			units.Bytes(r.ResidentPredicted), units.Bytes(r.ResidentAllowance))
	}
	if len(r.Failed) == 0 {
		p.line("holds", "loss below %v of the first, budget below the standard plan, memory as predicted", demo.Fall)
	}
	p.WriteString("\n")
	p.list("it writes", strings.Split(strings.TrimSpace(r.Sample), "\n"))
	if r.Checkpoint != "" {
		p.line("go on", "spillway generate %s --prompt \"The whale\" --temperature 0.8", filepath.Dir(r.Checkpoint))
	} else {
		p.line("go on", "spillway demo --out moby saves the model, which spillway generate then continues texts with")
	}
	_, err := io.WriteString(w, p.String())
	return err
}
