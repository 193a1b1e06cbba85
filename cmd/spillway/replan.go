package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"spillway/finetune"
	"spillway/plan"
	"spillway/planner"
)

// replanned is the object of replan: a plan, or what is missing for one.
type replanned struct {
	Plan   *plan.Plan        `json:"plan,omitempty"`
	Misfit *planner.FitError `json:"misfit,omitempty"`
}

// newReplan is how the dashboard asks the planner: in a process of its own, which has less
// priority than a run and can be ended.
func newReplan(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:    "replan RUN",
		Short:  "the plan of a run with another limit of device memory, as JSON",
		Hidden: true,
		Args:   exactly(1, "RUN"),
	}
	memory := cmd.Flags().Int64("max-memory", 0, "use at most `BYTES` of each device")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		p, err := finetune.Replan(args[0], *memory)
		var misfit *planner.FitError
		if errors.As(err, &misfit) {
			err = nil
		}
		if err != nil {
			return err
		}
		return writeJSON(sh.out, replanned{p, misfit})
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
	cmd := exec.CommandContext(ctx, program, "replan", dir, "--max-memory", fmt.Sprint(memory))
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
