package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"spillway/device"
)

// version of the program; a release build sets it with -ldflags "-X main.version=...".
var version = "0.1.0-dev"

// versionReport is the object of version --json.
type versionReport struct {
	Version  string   `json:"version"`
	Go       string   `json:"go"`
	Platform string   `json:"platform"`
	Revision string   `json:"revision,omitempty"` // of the source, where the build recorded it
	Modified bool     `json:"modified,omitempty"` // the source had changes beyond the revision
	Drivers  []string `json:"drivers"`            // of devices
}

func newVersion(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "the version of this program and what it was built with",
		Long: `Prints the version, the Go release and platform it was built for, the revision of
the source where the build recorded one, and the device drivers in this binary.`,
		Example: `  spillway version
  spillway version --json`,
		Args: noArguments,
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		r := thisBuild()
		if *asJSON {
			return writeJSON(sh.out, r)
		}
		_, err := fmt.Fprintln(sh.out, r)
		return err
	}
	return cmd
}

func thisBuild() versionReport {
	r := versionReport{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Drivers: device.Drivers()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return r
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			r.Revision = s.Value
		case "vcs.modified":
			r.Modified = s.Value == "true"
		}
	}
	return r
}

func (r versionReport) String() string {
	text := fmt.Sprintf("spillway %s, %s, %s", r.Version, r.Go, r.Platform)
	if r.Revision != "" {
		text += ", revision " + r.Revision
	}
	if r.Modified {
		text += " with changes"
	}
	return text + "\ndrivers  " + strings.Join(r.Drivers, ", ")
}
