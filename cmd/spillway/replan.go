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

	"spillway/finetune"
	"spillway/plan"
	"spillway/planner"
	"spillway/units"
	"spillway/view"
)

// replanned is the object of replan: a plan, or what is missing for one.
type replanned struct {
	Plan   *plan.Plan        `json:"plan,omitempty"`
	Misfit *planner.FitError `json:"misfit,omitempty"`
}

func newReplan(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replan RUN --max-memory SIZE",
		Short: "what a run would be with another limit of device memory",
		Long: `Makes the plan that a run would have with another limit of device memory, for the machine
it runs on: how long a step would take, and what each tier would hold. Nothing is loaded, no
device is opened, and the run goes on as it is. The slider of the dashboard asks this way, in
a process of lowest priority.

A RUN is the folder that was --out of train. --json writes the whole plan.`,
		Example: `  spillway replan run --max-memory 4GiB
  spillway replan run --max-memory 4GiB --json`,
		Args: exactly(1, "RUN"),
	}
	asJSON := jsonFlag(cmd)
	size := cmd.Flags().String("max-memory", "", "use at most `SIZE` of each device, such as 2GiB")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		memory, err := units.ParseBytes(*size)
		if err != nil {
			return usageErrorf("--max-memory %s: %v", *size, err)
		}
		p, err := finetune.Replan(args[0], int64(memory))
		var misfit *planner.FitError
		if errors.As(err, &misfit) && *asJSON {
			err = nil
		}
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(sh.out, replanned{p, misfit})
		}
		var out page
		out.line("plan", "%s", p.Strategy)
		out.line("because", "%s", p.Reason)
		if f := p.Forecast; f != nil {
			out.line("forecast", "%s per step, %.0f tokens/s, limited by %s", view.Duration(f.StepSeconds), f.TokensPerSec, f.Bound)
		}
		peak := p.Peak()
		for _, tier := range []plan.Tier{plan.OnDevice, plan.Pinned, plan.OnHost, plan.OnDisk} {
			if peak[tier] > 0 {
				out.line(string(tier), "%v", units.Bytes(peak[tier]))
			}
		}
		_, err = io.WriteString(sh.out, out.String())
		return err
	}
	return cmd
}

// replan asks this program, in another process, for the plan of a run with another limit of
// device memory.
func replan(ctx context.Context, dir string, memory int64) (*plan.Plan, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("asking the planner: %w", err)
	}
	cmd := exec.CommandContext(ctx, program, "replan", dir, "--max-memory", fmt.Sprintf("%dB", memory), "--json")
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	var out, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failed
	if err := startGently(cmd); err != nil {
		return nil, fmt.Errorf("asking the planner: %w", err)
	}
	if err := cmd.Wait(); err != nil {
		if text := strings.TrimSpace(strings.TrimPrefix(failed.String(), "spillway replan: ")); text != "" {
			return nil, errors.New(text)
		}
		return nil, fmt.Errorf("asking the planner: %w", err)
	}
	var answer replanned
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		return nil, fmt.Errorf("asking the planner: %w", err)
	}
	if answer.Misfit != nil {
		return nil, answer.Misfit
	}
	return answer.Plan, nil
}
