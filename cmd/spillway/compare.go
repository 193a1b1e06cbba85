package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway/eventlog"
	"spillway/finetune"
	"spillway/internal/term"
	"spillway/internal/vfs"
	"spillway/view"
)

func newCompare(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compare RUN...",
		Short: "put runs side by side: figures, what differs in settings, plans and machines",
		Long: `Compares training runs by their event logs, which every run writes into its folder
(events.bin). Tables show loss, speed and memory of each, and what is not the same in
their settings, plans and machines. Runs that are still going on, were interrupted or were
killed can be compared too.

--metric draws one number over the steps of all runs, to a file with --picture, or as numbers
with --json or --csv. A RUN is the folder that was --out of train, or an event log.`,
		Example: `  spillway compare run full-run
  spillway compare run full-run --metric loss --picture loss.png
  spillway compare run full-run --csv`,
		Args: atLeastOne("RUN"),
	}
	asJSON := jsonFlag(cmd)
	asCSV := cmd.Flags().Bool("csv", false, "write a table in CSV, a line per run; with --metric a line per point")
	metric := cmd.Flags().String("metric", "", "show `NAME` over the steps: "+strings.Join(metricNames(), ", "))
	picture := cmd.Flags().String("picture", "", "write the picture of --metric to `FILE`, which ends in .svg or .png")
	complete(cmd, "metric", metricNames())
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if *picture != "" && *metric == "" {
			return usageErrorf("--picture is that of a metric: give --metric too")
		}
		if *asJSON && *asCSV {
			return usageErrorf("--json and --csv are both given: give one")
		}
		runs, err := view.OpenAll(args)
		if err != nil {
			return err
		}
		defer view.CloseAll(runs)
		for _, r := range runs {
			if r.Damaged != nil {
				fmt.Fprintln(sh.err, r.Damaged)
			}
		}
		if *metric != "" {
			return showMetric(sh, runs, *metric, *picture, *asJSON, *asCSV)
		}
		c, err := view.Compare(runs)
		switch {
		case err != nil:
			return err
		case *asJSON:
			return writeJSON(sh.out, c)
		case *asCSV:
			return c.CSV(sh.out)
		}
		return writeComparison(sh.out, c)
	}
	return cmd
}

// showMetric writes a metric of runs in the form that was asked for.
func showMetric(sh shell, runs []*view.Run, name, picture string, asJSON, asCSV bool) error {
	m, err := view.FindMetric(name)
	if err != nil {
		return usageError{err}
	}
	points := 0
	if picture != "" {
		points = view.DefaultPoints
	}
	chart := view.Curves(runs, m, points)
	if len(chart.Lines) == 0 {
		return fmt.Errorf("none of these runs has a %s", m.Title)
	}
	switch {
	case picture != "":
		err := vfs.Replace(vfs.OS, picture, func(w io.Writer) error { return view.WritePicture(w, filepath.Ext(picture), chart, view.Light) })
		if err != nil {
			return fmt.Errorf("writing the picture: %w", err)
		}
	case asCSV:
		return chart.CSV(sh.out)
	}
	if asJSON {
		return writeJSON(sh.out, chart)
	}
	if picture != "" {
		_, err := fmt.Fprintf(sh.out, "picture         %s\n", picture)
		return err
	}
	t := term.Table{}
	t.Row("", "first", "last", "steps")
	for _, l := range chart.Lines {
		n := len(l.Y)
		t.Row(l.Name, m.Unit.Format(l.Y[0]), m.Unit.Format(l.Y[n-1]), grouped(int64(l.X[n-1])))
	}
	return t.Write(sh.out)
}

func metricNames() (names []string) {
	for _, m := range view.Metrics {
		names = append(names, m.Name)
	}
	return names
}

func writeComparison(w io.Writer, c view.Comparison) error {
	for i, part := range c.Tables() {
		if i > 0 {
			fmt.Fprintln(w)
		}
		t := term.Table{}
		t.Row(append([]string{part.Title}, c.Runs...)...)
		for _, row := range part.Rows {
			cells := []string{"  " + row.Name}
			for _, v := range row.Values {
				cells = append(cells, shorten(v, 40))
			}
			t.Row(cells...)
		}
		if err := t.Write(w); err != nil {
			return err
		}
	}
	return nil
}

// shorten cuts a text to so many characters.
func shorten(text string, n int) string {
	if r := []rune(text); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return text
}

// atLeastOne demands arguments; what names them.
func atLeastOne(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usageErrorf("no arguments given, it takes at least one %s", what)
		}
		return nil
	}
}

// reportWritten is the object of report --json.
type reportWritten struct {
	File  string `json:"file"`
	Bytes int    `json:"bytes"`
	Runs  int    `json:"runs"`
}

func newReport(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "report RUN...",
		Short: "write a page about a run, or several, that opens in any browser",
		Long: `Writes one HTML file about a run: its figures, alerts, curves of loss, speed and memory,
the memory of its plan by purpose and by address, one step as planned and as measured, the
plans that were not chosen, and the settings. It needs no server and no network, and has a
light and a dark look. With several runs it compares them.

--format writes a run for other programs instead: tensorboard is an event file (keep
"tfevents" in its name), chrome a timeline with forecast and measurement for Perfetto,
memory-snapshot the memory of a step for PyTorch's viewer (pytorch.org/memory_viz), jsonl
and csv the steps as --log writes them, profile what modules and ops took as a table, of runs
with --profile.

--mlflow writes runs to an MLflow server instead, with settings as params and every step's figures
as metrics. Exporting a run again adds what is new, so that it can be done while the run goes
on. A password is written into the address, a token is taken from MLFLOW_TRACKING_TOKEN.

A RUN is the folder that was --out of train, or an event log. Runs that are still going on,
were interrupted or were killed can be reported too.`,
		Example: `  spillway report run --out run.html
  spillway report run full-run --out both.html
  spillway report run --format tensorboard --out events.out.tfevents.run
  spillway report full-run --format memory-snapshot --out memory.pickle
  spillway report run --mlflow http://127.0.0.1:5000 --experiment stories`,
		Args: atLeastOne("RUN"),
	}
	asJSON := jsonFlag(cmd)
	out := cmd.Flags().String("out", "", "write to `FILE` (default: the run's name with .html)")
	format := cmd.Flags().String("format", "html", "write `NAME`: "+strings.Join(formatNames(), ", "))
	complete(cmd, "format", formatNames())
	var server view.MLflow
	cmd.Flags().StringVar(&server.Address, "mlflow", "", "write to the MLflow server at `URL`")
	cmd.Flags().StringVar(&server.Experiment, "experiment", "", "with --mlflow: write to the experiment `NAME` (default spillway)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		runs, err := view.OpenAll(args)
		if err != nil {
			return err
		}
		defer view.CloseAll(runs)
		if server.Address != "" {
			if *out != "" || cmd.Flags().Changed("format") {
				return usageErrorf("--mlflow writes to a server: leave --out and --format out")
			}
			server.Token = os.Getenv("MLFLOW_TRACKING_TOKEN")
			return exportRuns(cmd.Context(), sh, server, runs, *asJSON)
		}
		if server.Experiment != "" {
			return usageErrorf("--experiment is one of an MLflow server: give --mlflow too")
		}
		name, write := *out, exports[*format]
		switch {
		case *format != "html" && write == nil:
			return usageErrorf("no format is called %q; there are %s", *format, strings.Join(formatNames(), ", "))
		case *format != "html" && (len(runs) > 1 || name == ""):
			return usageErrorf("--format %s is of one run, with --out for the file", *format)
		case name == "":
			name = filepath.Base(runs[0].Name) + ".html"
			if there, err := vfs.Exists(vfs.OS, name); err != nil || there {
				return errors.Join(err, usageErrorf("%s exists already: name another file with --out, or the same to replace it", name))
			}
		}
		var page strings.Builder
		if write == nil {
			err = view.WriteReport(&page, runs, time.Now())
		} else {
			err = write(&page, runs[0])
		}
		if err != nil {
			return err
		}
		if err := vfs.ReplaceBytes(vfs.OS, name, []byte(page.String())); err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
		if *asJSON {
			return writeJSON(sh.out, reportWritten{name, page.Len(), len(runs)})
		}
		_, err = fmt.Fprintf(sh.out, "report          %s\n", name)
		return err
	}
	return cmd
}

// exportRuns writes runs to a server.
func exportRuns(ctx context.Context, sh shell, server view.MLflow, runs []*view.Run, asJSON bool) error {
	list := []view.Exported{}
	for _, r := range runs {
		e, err := server.Export(ctx, r)
		if err != nil {
			return fmt.Errorf("%s: %w", r.Name, err)
		}
		list = append(list, e)
		if !asJSON {
			fmt.Fprintf(sh.out, "exported        %s, %s\n                %s\n", r.Name, plural(e.Metrics, "new value"), e.URL)
		}
	}
	if asJSON {
		return writeJSON(sh.out, list)
	}
	return nil
}

// exports write a run for other programs, by the name of the format.
var exports = map[string]func(io.Writer, *view.Run) error{
	"tensorboard": func(w io.Writer, r *view.Run) error { return r.WriteTensorBoard(w) },
	"chrome": func(w io.Writer, r *view.Run) error {
		t, err := r.Timeline()
		if err == nil && len(t.Lanes) == 0 {
			err = fmt.Errorf("%s has no timeline yet: one is recorded at the third step", r.Name)
		}
		if err != nil {
			return err
		}
		p, err := r.TimelinePlan(t)
		if err != nil {
			return err
		}
		return t.WriteChrome(w, p)
	},
	"memory-snapshot": func(w io.Writer, r *view.Run) error {
		p, err := r.Plan()
		if err == nil && p == nil {
			err = fmt.Errorf("the event log of %s has no plan", r.Name)
		}
		if err != nil {
			return err
		}
		return view.WriteMemorySnapshot(w, p)
	},
	"jsonl": func(w io.Writer, r *view.Run) error {
		for i := range r.Iterations {
			if err := writeJSON(w, &r.Iterations[i]); err != nil {
				return err
			}
		}
		for i := range r.Generations {
			if err := writeJSON(w, &r.Generations[i]); err != nil {
				return err
			}
		}
		return nil
	},
	"csv": func(w io.Writer, r *view.Run) error {
		table := csv.NewWriter(w)
		if len(r.Generations) > 0 {
			table.Write(eventlog.GenerationColumns) // its error comes with the flush
			for i := range r.Generations {
				table.Write(r.Generations[i].Row(r.ID()))
			}
		} else {
			table.Write(finetune.Columns)
			for i := range r.Iterations {
				table.Write(finetune.Row(r.ID(), &r.Iterations[i]))
			}
		}
		table.Flush()
		return table.Error()
	},
	"profile": func(w io.Writer, r *view.Run) error {
		if len(r.Profiles) == 0 {
			return fmt.Errorf("%s has no profile: train and generate make one with --profile", r.Name)
		}
		table := csv.NewWriter(w)
		table.Write(eventlog.ProfileColumns) // its error comes with the flush
		for _, p := range r.Profiles {
			table.WriteAll(p.Cells())
		}
		table.Flush()
		return table.Error()
	},
}

func formatNames() []string {
	return append([]string{"html"}, slices.Sorted(maps.Keys(exports))...)
}
