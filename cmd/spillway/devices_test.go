package main

import (
	"strings"
	"testing"

	"spillway/machine"
)

func TestDevices(t *testing.T) {
	if testing.Short() {
		t.Skip("measuring copies and the disk takes seconds")
	}
	r := command(t, "devices", "--disk", t.TempDir(), "--json")
	v := r.object(t)
	for _, path := range []string{"devices", "host.cores", "host.memory", "host.copy", "disk.free", "disk.read", "description", "calibrated"} {
		at(t, v, path)
	}
	m, err := machine.Parse(at(t, v, "description").(string))
	if err != nil {
		t.Fatal(err)
	}
	if got := float64(m.Host.Memory); got != at(t, v, "host.memory") {
		t.Errorf("the description has %v of memory, the machine %v", got, at(t, v, "host.memory"))
	}
}

func TestVersion(t *testing.T) {
	v := command(t, "version", "--json").object(t)
	if at(t, v, "version") != version || !strings.HasPrefix(at(t, v, "go").(string), "go1.") {
		t.Errorf("%v", v)
	}
	if r := command(t, "version"); !strings.Contains(r.out, "spillway "+version) {
		t.Errorf("%s", r.out)
	}
}
