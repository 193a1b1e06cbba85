package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"spillway/eventlog"
	"spillway/internal/term"
	"spillway/units"
	"spillway/view"
)

// bindProfile adds --profile.
func bindProfile(cmd *cobra.Command, to *string, what string) {
	f := cmd.Flags()
	f.StringVar(to, "profile", "", "time every op of "+what+", and show modules and ops; =`ORDER` sorts by "+strings.Join(eventlog.ProfileOrders, ", ")+" (default time)")
	f.Lookup("profile").NoOptDefVal = eventlog.ProfileOrders[0]
	complete(cmd, "profile", eventlog.ProfileOrders)
}

func checkProfile(order string) error {
	if order != "" && !slices.Contains(eventlog.ProfileOrders, order) {
		return usageErrorf("--profile=%s; it is sorted by %s", order, strings.Join(eventlog.ProfileOrders, ", "))
	}
	return nil
}

// profileRows is how many rows of a profile people are shown.
const profileRows = 20

// writeProfile writes the tables of a profile: modules, then ops.
func writeProfile(w io.Writer, p eventlog.Profile, order string) error {
	what := "step"
	if p.Phase != "" {
		what = p.Phase
	}
	fmt.Fprintf(w, "\nprofile of step %d (%s): %s, ops timed one by one\n", p.Step, what, units.Seconds(p.Seconds))
	var all float64
	saved := false
	for _, r := range p.Rows {
		all += r.Seconds
		saved = saved || r.Saved > 0
	}
	for _, part := range []struct {
		title string
		rows  []eventlog.ProfileRow
		name  func(eventlog.ProfileRow) string
	}{
		{"module", p.ByModule(), func(r eventlog.ProfileRow) string { return strings.TrimSpace(r.Module + " " + r.Pass) }},
		{"op", p.ByOp(), func(r eventlog.ProfileRow) string { return r.Op }},
	} {
		eventlog.Sort(part.rows, order)
		t := term.Table{}
		head := []string{part.title, "time", "share", "calls", "of roofline", "FLOPs", "bytes"}
		if saved {
			head = append(head, "saved")
		}
		t.Row(head...)
		for i, r := range part.rows {
			if i == profileRows {
				t.Row(fmt.Sprintf("and %d more", len(part.rows)-i))
				break
			}
			cells := []string{part.name(r), view.Duration(r.Seconds), percent(r.Seconds / max(all, 1e-12)), grouped(r.Calls), rooflineShare(r), flopsText(r.Flops), units.Bytes(r.Bytes).String()}
			if saved {
				text := ""
				if r.Saved > 0 {
					text = units.Bytes(r.Saved).String()
				}
				cells = append(cells, text)
			}
			t.Row(cells...)
		}
		fmt.Fprintln(w)
		if err := t.Write(w); err != nil {
			return err
		}
	}
	return nil
}

// rooflineShare is how near to what the machine allows a row came, and what limits it.
func rooflineShare(r eventlog.ProfileRow) string {
	switch share := r.Share(); {
	case share == 0:
		return ""
	case share > 1 && r.By == "memory":
		return "in caches"
	case share > 1:
		return "over 100%, " + r.By
	default:
		return fmt.Sprintf("%s, %s", percent(share), r.By)
	}
}

// flopsText is arithmetic for people: "1.2 GFLOP"; "" for none.
func flopsText(n float64) string {
	if n == 0 {
		return ""
	}
	return strings.TrimSuffix(units.Flops(n).String(), "/s")
}
