package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"spillway"
	"spillway/dashboard"
	"spillway/eventlog"
	"spillway/finetune"
	"spillway/inference"
	"spillway/plan"
	"spillway/planner"
	"spillway/units"
	"spillway/view"
)

// replanned is the object of replan: a plan, or what is missing for one.
type replanned struct {
	dashboard.Replanned
	Misfit *planner.FitError `json:"misfit,omitempty"`
}

func newReplan(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replan RUN --max-memory SIZE",
		Short: "what a run would be with another limit of device memory",
		Long: `Makes the plan that a run would have with another limit of device memory, for the machine
it runs on: how long a step would take, or how fast tokens would come, and what each tier
would hold. Nothing is loaded, no device is opened, and the run goes on as it is. The slider
of the dashboard asks this way, in a process of lowest priority.

A RUN is the folder that was --out of train, generate or chat. --json writes the whole plan.`,
		Example: `  spillway replan run --max-memory 4GiB
  spillway replan run --max-memory 4GiB --json`,
		Args: exactly(1, "RUN"),
	}
	asJSON := jsonFlag(cmd)
	size := cmd.Flags().String("max-memory", "", "use at most `SIZE` of each device, such as 2GiB")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if *size == "" {
			return usageErrorf("no limit is given: --max-memory SIZE, such as 4GiB")
		}
		memory, err := units.ParseBytes(*size)
		if err != nil {
			return usageErrorf("--max-memory %s: %v", *size, err)
		}
		r, err := replanHere(args[0], int64(memory))
		p := r.Plan
		var misfit *planner.FitError
		if errors.As(err, &misfit) && *asJSON {
			err = nil
		}
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(sh.out, replanned{r, misfit})
		}
		var out page
		out.line("plan", "%s", p.Strategy)
		out.line("because", "%s", p.Reason)
		if g := r.Generation; g != nil {
			for _, d := range g.Decode {
				out.line("forecast", "%s: %.1f tokens/s, limited by %s", plural(int(d.Streams), "sequence"), d.Half.TokensPerSec, d.Half.Bound)
			}
			out.line("first token", "%s after a prompt of %d tokens", view.Duration(g.PromptSeconds), g.PromptTokens)
		} else if f := p.Forecast; f != nil {
			out.line("forecast", "%s per step, %.0f tokens/s, limited by %s", view.Duration(f.StepSeconds), f.TokensPerSec, f.Bound)
		}
		peak := p.Peak()
		for _, tier := range []plan.Tier{plan.OnDevice, plan.Pinned, plan.OnHost, plan.OnDisk} {
			if peak[tier] > 0 {
				out.line(string(tier), "%v", units.Bytes(peak[tier]))
			}
		}
		for _, tier := range view.WeightsOf(p) {
			out.line("weights", "%v stored on %s", units.Bytes(tier.Bytes), tier.Tier)
		}
		_, err = io.WriteString(sh.out, out.String())
		return err
	}
	return cmd
}

// replanHere plans a run again in this process, whatever it does.
func replanHere(dir string, memory int64) (r dashboard.Replanned, err error) {
	if s, err := eventlog.Summarize(eventlog.PathOf(dir)); err != nil || s.Start.Task != string(spillway.Generate) {
		r.Plan, err = finetune.Replan(dir, memory) // which says what is wrong with the log
		return r, err
	}
	job, err := inference.Replan(dir, memory)
	if err != nil {
		return r, err
	}
	r.Plan = job.Plan
	r.Generation, err = job.ForecastGeneration()
	return r, err
}

// startReplan starts the process that plans. Tests, which wait for it, do not have it wait for everybody else.
var startReplan = startGently

// replan asks this program, in another process, for the plan of a run with another limit of
// device memory.
func replan(ctx context.Context, dir string, memory int64) (none dashboard.Replanned, err error) {
	program, err := os.Executable()
	if err != nil {
		return none, fmt.Errorf("asking the planner: %w", err)
	}
	cmd := exec.CommandContext(ctx, program, "replan", dir, "--max-memory", fmt.Sprintf("%dB", memory), "--json")
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	var out, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failed
	if err := startReplan(cmd); err != nil {
		return none, fmt.Errorf("asking the planner: %w", err)
	}
	if err := cmd.Wait(); err != nil {
		if text := strings.TrimSpace(strings.TrimPrefix(failed.String(), "spillway replan: ")); text != "" {
			return none, errors.New(text)
		}
		return none, fmt.Errorf("asking the planner: %w", err)
	}
	var answer replanned
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		return none, fmt.Errorf("asking the planner: %w", err)
	}
	if answer.Misfit != nil {
		return none, answer.Misfit
	}
	return answer.Replanned, nil
}
