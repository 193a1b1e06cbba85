package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"spillway/dashboard"
	"spillway/eventlog"
)

// dashboardStarted is the object of dashboard --json.
type dashboardStarted struct {
	URL string `json:"url"`
}

func newDashboard(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dashboard [RUN...]",
		Short: "a page with the runs of this computer: loss, speed, memory and steps against the plan",
		Long: `Serves a page in which runs can be looked at while they go on and after: Now has loss,
speed, the share of roofline and what limits it, time left, memory against the plan and
alerts; Runs is a table to sort, with curves laid over each other and what differs; Memory is
the plan's memory of every tier by purpose and by address, to the byte; Iteration is one step
as planned and as measured, instruction by instruction.

The page reads event logs, which every run writes into its folder. It finds the runs of this
computer by itself; others can be named. It needs no network, and no browser slows a run down.

It listens on this computer only and prints its address. On another address (--listen) the
printed URL has a token that clients must have; /metrics has numbers for Prometheus, and
--grafana writes a dashboard over them that Grafana imports.`,
		Example: `  spillway dashboard
  spillway dashboard run full-run
  spillway dashboard --listen 0.0.0.0:7070
  spillway dashboard --grafana > spillway.json`,
	}
	asJSON := jsonFlag(cmd)
	listen := cmd.Flags().String("listen", "127.0.0.1:7070", "serve the page on `ADDRESS:PORT`; port 0 is any that is free")
	grafana := cmd.Flags().Bool("grafana", false, "write a Grafana dashboard over /metrics, and serve nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *grafana {
			return dashboard.WriteGrafana(sh.out)
		}
		d, err := startDashboard(sh, *listen, args)
		if err != nil {
			return err
		}
		for _, note := range notYet(args) {
			fmt.Fprintln(sh.err, note)
		}
		if *asJSON {
			err = writeJSON(sh.out, dashboardStarted{d.url})
		} else {
			_, err = fmt.Fprintf(sh.out, "dashboard       %s\n", d.url)
		}
		if err == nil {
			select {
			case <-cmd.Context().Done():
			case err = <-d.failed:
			}
		}
		return errors.Join(err, d.close())
	}
	return cmd
}

// notYet says which of the folders that were named have no event log.
func notYet(runs []string) (notes []string) {
	for _, run := range runs {
		if _, err := os.Stat(eventlog.PathOf(run)); err != nil {
			notes = append(notes, fmt.Sprintf("%s has no event log yet: it is shown when train or generate --out %s writes one", run, run))
		}
	}
	return notes
}

// served is a dashboard that answers.
type served struct {
	url    string
	failed chan error
	http   *http.Server
	page   *dashboard.Server
}

// startDashboard begins to serve the page on an address.
func startDashboard(sh shell, address string, runs []string) (*served, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, usageErrorf("serving the dashboard on %q: it is ADDRESS:PORT, such as 127.0.0.1:7070, or 127.0.0.1:0 for any port that is free", address)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serving the dashboard: %w; name another address, such as 127.0.0.1:0 for any port that is free", err)
	}
	o := dashboard.Options{Cache: sh.cache, Runs: runs, Replan: replan}
	at := l.Addr().String()
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() { // all addresses of this computer: its name is one
		if name, err := os.Hostname(); err == nil {
			_, port, _ := net.SplitHostPort(at) // it is one that was opened
			at = net.JoinHostPort(name, port)
		}
	}
	url := "http://" + at + "/"
	if !dashboard.Loopback(l.Addr().String()) {
		o.Token = rand.Text()
		url += "?token=" + o.Token
	}
	d := &served{url: url, failed: make(chan error, 1), page: dashboard.New(o)}
	d.http = &http.Server{Handler: d.page, ReadHeaderTimeout: 10 * time.Second}
	go func() { d.failed <- d.http.Serve(l) }()
	return d, nil
}

// close ends it, without waiting long for browsers.
func (d *served) close() error {
	err := d.page.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if d.http.Shutdown(ctx) != nil {
		err = errors.Join(err, d.http.Close())
	}
	return err
}
