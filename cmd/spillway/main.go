// Command spillway trains and runs neural networks that are larger than the
// memory of the device they run on.
//
// Each command has a file: it reads its flags, calls the library and writes for
// people, or with --json one object for programs. Nothing is decided here.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"spillway/device"
	_ "spillway/device/cuda" // GPUs of NVIDIA; a backend is known by its import
	"spillway/internal/suggest"
	"spillway/internal/vfs"
	"spillway/recipe"
	"spillway/rig"
	spillwayrun "spillway/run"
)

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	asked := &signals{exit: os.Exit, err: os.Stderr}
	asked.notify(cancel)
	os.Exit(run(ctx, os.Args[1:], shell{signals: asked, in: os.Stdin, out: os.Stdout, err: os.Stderr, cache: rig.UserCache(), libraryPaths: libraryPaths(os.Getenv), drivers: device.Drivers()}))
}

// shell is what a verb may touch of its surroundings.
type shell struct {
	in       io.Reader
	out, err io.Writer
	cache    string // folder for what is measured once; "" stores nothing
	// libraryPaths are folders in which to look for GPU libraries first; drivers are the
	// backends in which GPUs are looked for where --device names none.
	libraryPaths, drivers []string
	signals               *signals // nil: nobody sends any
	assumes               bool     // rates that are not known are assumed, not measured
}

// Exit codes, in addition to those of signals.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// run carries out one command line and gives its exit code.
func run(ctx context.Context, args []string, sh shell) int {
	object := newJSONOutput(args, &sh)
	root := newRoot(sh)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	code := conclude(ctx, cmd, err, sh)
	object.fail(cmd.CommandPath(), err, code)
	return code
}

// conclude says why a command failed, where it has not, and gives the exit code.
func conclude(ctx context.Context, cmd *cobra.Command, err error, sh shell) int {
	var by *interruptedError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &by):
		return by.code() // the command has said what came of it
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		fmt.Fprintf(sh.err, "%s: interrupted\n", cmd.CommandPath())
		return interruption(ctx).code()
	case errors.Is(err, syscall.EPIPE):
		return exitFailed // nobody is there to read why
	case misused(err):
		fmt.Fprintf(sh.err, "%s: %v\nsee %s --help\n", cmd.CommandPath(), err, cmd.CommandPath())
		return exitUsage
	case !errors.Is(err, errReported):
		fmt.Fprintf(sh.err, "%s: %v\n", cmd.CommandPath(), err)
	}
	return exitFailed
}

// misused says whether an error is a mistake in the command line or in a recipe.
func misused(err error) bool {
	var usage usageError
	var setting *spillwayrun.SettingError
	var file *recipe.Error
	return errors.As(err, &usage) || errors.As(err, &setting) || errors.As(err, &file)
}

// usageError is a mistake in the command line.
type usageError struct{ error }

func usageErrorf(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errReported is a failure that the verb has already described.
var errReported = errors.New("failed")

func newRoot(sh shell) *cobra.Command {
	root := &cobra.Command{
		Use:   "spillway",
		Short: "train and run neural networks larger than the memory of their device",
		Long: `Spillway trains and runs neural networks that are larger than the memory of the
device they run on. It decides where every byte is stored and when it moves, and proves
before it starts that the plan fits.`,
		Example: `  spillway demo                                  see it work, in a minute, with nothing but this binary
  spillway plan llama-3.2-1b --machine rtx4090   what training would take on a GPU you need not own
  spillway train ./model --data book.txt         fine-tune a model folder on this computer
  spillway generate ./model --prompt Hello       continue a text with it`,
		SilenceErrors: true, SilenceUsage: true,
		Args:             knownVerb,
		PersistentPreRun: func(cmd *cobra.Command, _ []string) { vfs.SetCommand(cmd.CommandPath()) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			if shown, err := cmd.Flags().GetBool("version"); shown || err != nil {
				_, err := fmt.Fprintln(sh.out, thisBuild())
				return err
			}
			return cmd.Help()
		},
	}
	root.SetIn(sh.in)
	root.SetOut(sh.out)
	root.SetErr(sh.err)
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(newHelp(root))
	root.SetUsageFunc(usage)
	root.Flags().BoolP("version", "v", false, "version for spillway") // by hand: cobra's is a template, see view's reports
	root.AddCommand(newDemo(sh), newPlan(sh), newEstimate(sh), newDevices(sh), newPull(sh), newInit(sh), newInspect(sh), newTrain(sh), newGenerate(sh), newChat(sh), newEval(sh), newQuantize(sh), newMerge(sh), newExport(sh), newTop(sh), newDashboard(sh), newReplan(sh), newCompare(sh), newReport(sh), newBench(sh), newVersion(sh))
	return root
}

func knownVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names, longer []string
	for _, c := range cmd.Commands() {
		if names = append(names, c.Name()); len(args[0]) > 2 && strings.HasPrefix(c.Name(), args[0]) {
			longer = append(longer, c.Name())
		}
	}
	meant := map[string]string{"finetune": "train", "fine-tune": "train", "fit": "train", "convert": "export", "save": "export", "new": "init", "info": "inspect", "show": "inspect", "gpus": "devices", "nvidia-smi": "top", "monitor": "top", "watch": "top", "diff": "compare", "download": "pull", "fetch": "pull", "memory": "estimate",
		"run": "generate", "infer": "generate", "sample": "generate", "complete": "generate", "completions": "completion", "evaluate": "eval", "perplexity": "eval", "talk": "chat"}
	if args[0] == "serve" || args[0] == "server" || args[0] == "api" {
		return usageErrorf("there is no command %q, and no server of models: generate and chat run them here, --json for programs", args[0])
	}
	if near := meant[args[0]]; near != "" || len(longer) == 1 {
		near = cmp.Or(near, strings.Join(longer, ""))
		return usageErrorf("there is no command %q; did you mean %s?", args[0], near)
	}
	return usageErrorf("there is no command %q%s", args[0], suggest.Hint(args[0], names))
}

// exactly demands n arguments; what names them.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != n {
			return usageErrorf("%s given, it takes %d: %s", plural(len(args), "argument"), n, what)
		}
		return nil
	}
}

// noArguments is for commands that take flags only.
func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageErrorf("%q is not a flag, and this command takes no arguments", args[0])
	}
	return nil
}

// jsonFlag adds --json, which all commands have.
func jsonFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "write one JSON object, for programs")
}

// writeJSON writes one object on one line.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
