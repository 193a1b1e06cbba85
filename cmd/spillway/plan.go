package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"spillway"
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
  spillway plan llama-3-8b --machine rtx4090 --compare --explain     every strategy, and what saves how much
  spillway plan mistral-7b --machine 2xgpu:24GiB --device-map balanced --task infer
  spillway plan llama-3-8b --disk /mnt/nvme/run --seq 512      on this computer, from disk
  spillway plan ./my-model --save plan.json          on this computer; train --plan plan.json runs it`,
		Args: exactly(1, "MODEL"),
	}
	asJSON := jsonFlag(cmd)
	steps := cmd.Flags().Bool("steps", false, "list every step of the plan too: moves, runs, reduces, updates and frees")
	save := cmd.Flags().String("save", "", "write the whole plan to `FILE`, for train --plan")
	g := taskFlags(cmd, "infer", "train", "lora", "qlora")
	where, ask, wish := siteFlags(cmd), adviceFlags(cmd), addConstraintFlags(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		r, err := makePlan(sh, args[0], g, where, ask, wish)
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
		if err == nil && *steps && !*asJSON && r.Fits {
			err = r.plan.Text(sh.out)
		}
		if err == nil && !r.Fits {
			err = errReported
		}
		return err
	}
	return cmd
}

// modelHelp explains the MODEL argument.
const modelHelp = `MODEL is a folder in Hugging Face's layout, or the name of a published shape such as
llama-3-8b, for which no files are needed. A folder comes before a shape of the
same name.`

// makePlan plans, and describes the outcome whether or not it fits.
func makePlan(sh shell, arg string, g *goal, where *siteChoice, ask *adviceOptions, wish *constraintFlags) (*planReport, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	m, err := spillway.Open(arg)
	if err != nil {
		return nil, err
	}
	defer m.Close() // opened for reading
	if where.machine == "" {
		if where.disk, err = wish.disk(where.disk); err != nil {
			return nil, err
		}
	}
	at, device, err := where.open(sh)
	if err != nil {
		return nil, err
	}
	defer at.Close() // nothing is allocated on it
	o := g.options(at.Machine, device)
	o.On, o.Disk = at.Devices, where.disk // a plan for this computer can be run on it
	_, notices, err := wish.apply(g, &o)
	if err != nil {
		return nil, err
	}
	job, largest, err := ask.planned(m, g, o)
	var misfit *planner.FitError
	if err != nil && !errors.As(err, &misfit) {
		return nil, err
	}
	if misfit != nil {
		if job, err = m.Standard(o); err != nil {
			return nil, err
		}
	}
	r := describePlan(job, misfit)
	if r.advice, err = ask.advise(m, job.Options); err != nil {
		return nil, err
	}
	if misfit == nil {
		if r.Compressed, err = planCompressed(job); err != nil {
			return nil, err
		}
		if err = saveTimeline(ask.timeline, job); err != nil {
			return nil, err
		}
	}
	r.Largest, r.Notices = largest, append(notices, r.Notices...)
	r.Goal, r.Machine = describeGoal(job.Options, g), machineReport{at.Machine, at.Machine.String(), device.Name}
	r.deviceReason = at.Reason
	return r, nil
}

// savePlan writes a plan as JSON; whoever reads it verifies it.
func savePlan(path string, p *plan.Plan) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("saving the plan: %w", err)
	}
	if err := errors.Join(p.Write(f), f.Close()); err != nil {
		return fmt.Errorf("saving the plan: %w", err)
	}
	return nil
}
