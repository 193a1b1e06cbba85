package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"spillway/machine"
	"spillway/plan"
	"spillway/planner"
)

func newPlan(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan MODEL",
		Short: "where every byte would live, how long an iteration takes and what limits it",
		Long: `Makes the plan of a model on a machine and shows it: the strategy and why it was
chosen, the memory it takes of every tier beside what is free, the forecast of one
iteration with the resource that binds, and what else was looked at. Nothing is
loaded and nothing runs: any model can be planned for any machine.

` + modelHelp + `

--machine describes hardware, owned or not:
` + machine.Grammar,
		Example: `  spillway plan llama-3-8b --task train --seq 4096 --machine gpu:24GiB@25GB/s,host:192GiB
  spillway plan qwen2.5-7b --task lora --batch 4 --machine rtx4090,host:64GiB
  spillway plan ./my-model --save plan.json          on this computer; train --plan plan.json runs it`,
		Args: exactly(1, "MODEL"),
	}
	asJSON := jsonFlag(cmd)
	save := cmd.Flags().String("save", "", "write the whole plan to this `file`, to be run later")
	g := goalFlags(cmd)
	where := siteFlags(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		r, err := makePlan(sh, args[0], g, where)
		if err != nil {
			return err
		}
		if *save != "" && r.Fits {
			if err := savePlan(*save, r.plan); err != nil {
				return err
			}
		}
		if *asJSON {
			err = writeJSON(sh.out, r)
		} else {
			err = r.write(sh.out)
		}
		if err == nil && !r.Fits {
			err = errTold
		}
		return err
	}
	return cmd
}

// makePlan plans, and describes the outcome whether or not it fits.
func makePlan(sh shell, arg string, g *goal, where *siteChoice) (*planReport, error) {
	m, err := openModel(arg)
	if err != nil {
		return nil, err
	}
	mach, site, err := where.site(sh, g)
	if err != nil {
		return nil, err
	}
	if err := g.complete(m); err != nil {
		return nil, err
	}
	request, err := g.request(m, site)
	if err != nil {
		return nil, err
	}
	p, traced, err := request.Plan()
	var misfit *planner.FitError
	if err != nil && !errors.As(err, &misfit) {
		return nil, fmt.Errorf("planning %s on %s: %w", m.name, mach.Name, err)
	}
	r := &planReport{Fits: misfit == nil, plan: p, misfit: misfit, site: site, compute: g.compute}
	r.Model, r.Machine, r.Goal = describeModel(m, traced), machineReport{mach, mach.String(), site.Device}, g.report()
	r.fill()
	return r, nil
}

// savePlan writes a plan as JSON; whoever reads it verifies it.
func savePlan(path string, p *plan.Plan) error {
	text, err := json.Marshal(p)
	if err == nil {
		err = os.WriteFile(path, append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("saving the plan: %w", err)
	}
	return nil
}
