package bench

import (
	"testing"

	"spillway/eventlog"
)

// What carries the miss of a run is named: not short calls, of which timing takes longer than they do, nor what timing takes
// of the others.
func TestMissesAreNamed(t *testing.T) {
	rows := []eventlog.ProfileRow{
		{Module: "layer.up", Op: "matmul", Pass: "forward", Calls: 100, Seconds: 10.4e-3, Forecast: 10e-3}, // 4 us of each are the clock's
		{Module: "layer.down", Op: "matmul", Pass: "backward", Calls: 100, Seconds: 14.4e-3, Forecast: 10e-3},
		{Module: "layer", Op: "add", Pass: "forward", Calls: 1000, Seconds: 7e-3, Forecast: 2e-3},
		{Module: "layer", Op: "adam", Pass: "update", Calls: 10, Seconds: 6.04e-3, Forecast: 9e-3},
		{Module: "layer", Op: "move", Calls: 10, Seconds: 1},
	}
	list, probe := misses(rows)
	if probe < 3.99e-6 || probe > 4.01e-6 || len(list) != 4 || list[0].Module != "layer.down" || list[1].Op != "adam" {
		t.Errorf("%+v, timing takes %.3g s of each", list, probe)
	}
	r := RandomRow{Seconds: 40e-3, Ops: rows, Misses: list, Probe: probe}
	if got, want := r.Carriers(), "matmul backward +4 ms in 100 calls, adam update -3 ms in 10 calls"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
