package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"spillway/eventlog"
	"spillway/inference"
	"spillway/internal/term"
	"spillway/monitor"
)

// recordFlags are what commands that generate write about themselves.
type recordFlags struct {
	out, log, dashboard string
	profile             string // what its tables are sorted by; "" for none
	alerts              monitor.Forwarder
}

// bindRecord adds the flags of event logs.
func bindRecord(cmd *cobra.Command, o *recordFlags) {
	f := cmd.Flags()
	f.StringVar(&o.out, "out", "", "write the event log of the run to `DIR`, for dashboard, top, compare and report")
	f.StringVar(&o.log, "log", "", "append tokens, speed and memory to `FILE` every 50 ms: a JSON object per line, or a table where it ends in .csv")
	bindAlerts(cmd, &o.dashboard, &o.alerts, "serve a page that shows the run while it generates")
}

// bindAlerts adds the flags of the page and of alerts.
func bindAlerts(cmd *cobra.Command, dashboard *string, alerts *monitor.Forwarder, what string) {
	f := cmd.Flags()
	f.StringVar(dashboard, "dashboard", "", what+"; =`ADDRESS:PORT` is optional (default 127.0.0.1 and any free port)")
	f.Lookup("dashboard").NoOptDefVal = "127.0.0.1:0"
	f.StringVar(&alerts.Command, "alert-command", "", "run `COMMAND` in a shell for each alert, with the alert as JSON in its input")
	f.StringVar(&alerts.Webhook, "alert-webhook", "", "post each alert as JSON to `URL`")
}

// check refuses what has no effect.
func (o *recordFlags) check(noCache bool) error {
	if noCache && o.wanted() {
		return usageErrorf("only steps over a cache are recorded: leave --no-cache out, or --dashboard, --out, --log and --profile")
	}
	if !o.wanted() && (o.alerts.Command != "" || o.alerts.Webhook != "") {
		return usageErrorf("alerts are those of a run that is recorded: give --dashboard, --out or --log too")
	}
	return checkProfile(o.profile)
}

func (o *recordFlags) wanted() bool {
	return o.out != "" || o.log != "" || o.dashboard != "" || o.profile != ""
}

// recorded is a command that writes about itself. A nil one does nothing.
type recorded struct {
	*inference.Recorder
	o        *recordFlags
	line     *term.Line
	page     *served
	profiles []eventlog.Profile
}

// begin begins to record an engine, and serves the page.
func (o *recordFlags) begin(sh shell, e *inference.Engine, flags *pflag.FlagSet, line *term.Line) (r *recorded, err error) {
	if !o.wanted() {
		return nil, nil
	}
	dir := o.out
	if dir == "" {
		if dir, err = monitor.Folder(sh.cache, filepath.Base(e.Model.Name)); err != nil {
			return nil, err
		}
	}
	r = &recorded{o: o, line: line}
	settings := inference.Recording{Dir: dir, Log: o.log, Profile: o.profile != "", Profiled: func(p eventlog.Profile) { r.profiles = append(r.profiles, p) }}
	settings.RecordOptions = monitor.RecordOptions{Program: version, Notice: line.Print, Cache: sh.cache, Settings: []eventlog.Setting{{Name: "model", Value: e.Model.Source()}}, Alert: func(a eventlog.Alert) {
		line.Print(a.String())
		o.alerts.Alert(a)
	}}
	flags.Visit(func(f *pflag.Flag) {
		if name := f.Name; name != "prompt" && name != "system" { // what people say is not a setting
			settings.Settings = append(settings.Settings, eventlog.Setting{Name: name, Value: f.Value.String()})
		}
	})
	if r.Recorder, err = e.Record(settings); err != nil {
		return nil, err
	}
	if o.dashboard != "" {
		if r.page, err = startDashboard(sh, o.dashboard, []string{dir}); err != nil {
			return nil, errors.Join(err, r.End(context.Background(), err))
		}
		line.Print("dashboard       " + r.page.url + " while it runs; spillway dashboard shows it after")
	}
	return r, nil
}

// end closes the event log, with the error that the command ends with.
func (r *recorded) end(ctx context.Context, err error) error {
	if r == nil {
		return err
	}
	err = errors.Join(err, r.End(ctx, err))
	if failed := r.o.alerts.Close(); failed != nil {
		r.line.Print(failed.Error())
	}
	if r.page != nil {
		r.page.close() // the run has ended, whatever comes of it
	}
	return err
}

// profile are the profiles that were made, with the rows in an order.
func (r *recorded) profile(order string) []eventlog.Profile {
	if r == nil {
		return nil
	}
	for _, p := range r.profiles {
		eventlog.Sort(p.Rows, order)
	}
	return r.profiles
}

// writeProfiles writes the tables of the profiles that were asked for.
func (r *recorded) writeProfiles(w io.Writer) error {
	if r == nil || r.o.profile == "" {
		return nil
	}
	if len(r.profiles) < 2 {
		fmt.Fprintln(w, "the text ended before a step without the prompt could be profiled: ask for more --max-new-tokens")
	}
	for _, p := range r.profiles {
		if err := writeProfile(w, p, r.o.profile); err != nil {
			return err
		}
	}
	return nil
}
